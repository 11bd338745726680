"""Wrong answers after public bug reports that the catalogue did not know.

Each is the mistake of one report, written anew as an answer to a task. The
tests hold that every one is refused, and that the refusal names the mistake
or asks a question. As a command this file prints the table of what is said:

    PYTHONPATH=chapters python tests/helpers/reported.py
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F

from attnbook.attention import scaled_dot_product_attention
from attnbook.families import config_of as right_config
from attnbook.teach.catalogue import all_tasks
from attnbook.teach.catalogue.c17_merging import scores_of
from attnbook.teach.check.finding import SAYS_ALL
from attnbook.teach.check.judge import Verdict, judge

INF = math.inf


class Reported(NamedTuple):
    """A wrong answer: the report, the task, and the function."""

    report: str
    task: str
    wrong: Callable

    @property
    def name(self) -> str:
        """The answer's name: the task and the mistake."""
        return f"{self.task}-{self.wrong.__name__}"


ANSWERS: list[Reported] = []


def reported(report: str, *tasks: str) -> Callable[[Callable], Callable]:
    """Register an answer after a report, to one task or to several."""

    def register(wrong: Callable) -> Callable:
        ANSWERS.extend(Reported(report, task, wrong) for task in tasks)
        return wrong

    return register


def verdict_on(answer: Reported) -> Verdict:
    """What the check says of an answer."""
    return judge(answer.wrong, all_tasks()[answer.task])


def sort_of(verdict: Verdict) -> str:
    """In a word what a verdict gives: a name, a question, or less."""
    if verdict.kind == "right":
        return "accepted"
    finding = verdict.finding
    says_all = finding is not None and finding.kind in SAYS_ALL
    if verdict.kind == "known mistake" or says_all:
        return "named"
    return "asked" if verdict.help else "numbers only"


# Masks and padding


@reported("unslothai/unsloth-zoo #963", "decoder_mask")
def padding_takes_the_place_of_the_causal_mask(real):
    T = real.shape[-1]
    return real[:, None, :].expand(-1, T, -1)


@reported("meta-pytorch/attention-gym #98", "decoder_mask")
def the_first_texts_mask_serves_all(real):
    T = real.shape[-1]
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    return (causal & real[:1, None, :]).expand(len(real), -1, -1)


@reported("meta-pytorch/attention-gym #98", "batch_mask")
def the_first_rows_count_serves_all(before, real):
    right = all_tasks()["batch_mask"]
    S = int((before + real.sum(-1)).max())
    first = right(before[:1], real[:1])
    first = F.pad(first, (0, S - first.shape[-1]))
    return first.expand(len(real), -1, -1)


@reported("meta-pytorch/attention-gym #98", "read_source")
def the_first_sources_padding_serves_all(target, source, real):
    scores = target @ source.mT / math.sqrt(target.shape[-1])
    first = real.reshape(-1, real.shape[-1])[0]
    weights = scores.masked_fill(~first, -INF).softmax(-1)
    return weights.nan_to_num() @ source


@reported("ml-explore/mlx #1725", "additive_mask")
def the_triangle_is_multiplied(allowed):
    return torch.full(allowed.shape, -INF).double() * ~allowed


@reported("NVIDIA-NeMo/Automodel #2658", "masked_weights")
def two_planes_of_the_lowest_number(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    plane = torch.zeros_like(scores).masked_fill(~mask, lowest)
    return (scores + plane + plane).softmax(-1)


@reported("huggingface/transformers #35855", "decoder_mask")
def the_prefix_is_opened_last(real):
    T = real.shape[-1]
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    mask = causal & real[:, None, :]
    mask[:, :, :2] = True
    return mask


# Heads, shared and latent keys


def _by_heads(x, memory, w_query, w_key, w_value, n_heads):
    q, k, v = (
        a.unflatten(-1, (n_heads, -1)).transpose(-3, -2)
        for a in (x @ w_query, memory @ w_key, memory @ w_value)
    )
    return scaled_dot_product_attention(q, k, v).context


@reported(
    "gazelle93/Transformer-Various-Positional-Encoding #1",
    "multi_head_attention",
)
def heads_and_texts_change_places(
    x, memory, w_query, w_key, w_value, w_out, n_heads
):
    context = _by_heads(x, memory, w_query, w_key, w_value, n_heads)
    if context.ndim == 4:
        B, H, T, d = context.shape
        context = context.transpose(0, 1).reshape(B, H, T, d)
    return context.transpose(-3, -2).flatten(-2) @ w_out


@reported("XunhaoLai/native-sparse-attention-triton #27", "grouped_attention")
def the_head_modulo_the_share(q, k, v):
    share = q.shape[-3] // k.shape[-3]
    n_kv = k.shape[-3]
    whose = torch.tensor([h % share % n_kv for h in range(q.shape[-3])])
    k, v = k.index_select(-3, whose), v.index_select(-3, whose)
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


class _Copies(torch.autograd.Function):
    """Copies of shared heads, one of which hands a gradient back."""

    @staticmethod
    def forward(ctx, a, n):
        ctx.n = n
        return a.repeat_interleave(n, -3)

    @staticmethod
    def backward(ctx, d):
        return d.unflatten(-3, (-1, ctx.n))[..., 0, :, :], None


@reported("marin-community/levanter #449", "grouped_attention")
def the_gradient_of_one_copy(q, k, v):
    n = q.shape[-3] // k.shape[-3]
    k, v = _Copies.apply(k, n), _Copies.apply(v, n)
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def _decoupled(q, turned, kept, w_key, w_value, d_r, width):
    c, r = kept[:, : kept.shape[1] - d_r], kept[:, kept.shape[1] - d_r :]
    scores = q @ w_key.mT @ c.T + turned @ r.T
    return (scores / math.sqrt(width)).softmax(-1) @ c @ w_value


@reported(
    "junfanz1/MiniGPT-and-DeepSeek-MLA-Multi-Head-Latent-Attention #1",
    "decoupled_step",
)
def cut_with_the_unrotated_width(q, turned, kept, w_key, w_value):
    width = q.shape[-1] + turned.shape[-1]
    return _decoupled(q, turned, kept, w_key, w_value, q.shape[-1], width)


@reported("vllm-project/vllm #48658", "decoupled_step")
def the_scale_of_what_is_stored(q, turned, kept, w_key, w_value):
    d_r, width = turned.shape[-1], kept.shape[-1]
    return _decoupled(q, turned, kept, w_key, w_value, d_r, width)


@reported("onnxruntime/mobius #548", "decoupled_step")
def scores_of_another_attention_factor(q, turned, kept, w_key, w_value):
    width = (q.shape[-1] + turned.shape[-1]) / 1.59**2
    d_r = turned.shape[-1]
    return _decoupled(q, turned, kept, w_key, w_value, d_r, width)


# Positions


def _rotated(x, positions, width, base_width):
    half = width // 2
    angles = positions[..., None] * 10_000.0 ** (
        -2 * torch.arange(half).double() / base_width
    )
    a = x[..., :half]
    b = x[..., half:width]
    rest = x[..., width:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


@reported("pie-project/pie #602", "rotate_some")
def frequencies_of_the_whole_head(x, positions, width):
    return _rotated(x, positions, width, x.shape[-1])


@reported("pie-project/pie #602", "rotate_some")
def partners_from_the_whole_head(x, positions, width):
    half = width // 2
    d = x.shape[-1]
    angles = positions[..., None] * 10_000.0 ** (
        -2 * torch.arange(half).double() / width
    )
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., d // 2 : d // 2 + half]
    x = x.clone()
    x[..., :half] = a * cos - b * sin
    x[..., d // 2 : d // 2 + half] = a * sin + b * cos
    return x


@reported("ml-explore/mlx #343", "alibi_slopes")
def powers_of_two_for_any_number(n_heads):
    h = torch.arange(1, n_heads + 1).double()
    return 2 ** (-8 * h / n_heads)


@reported("meta-llama/llama-models #241", "config_of")
def the_factor_eight_for_all(config):
    ours = right_config(config)
    scaled = ours.rotary_scaling[0] != 1
    factor = (8.0, 1.0, 4.0, 8192.0)
    return replace(ours, rotary_scaling=factor) if scaled else ours


@reported("apache/tvm #18576", "interpolated_angles")
def the_factor_goes_into_the_base(positions, width, trained, wanted):
    base = 10_000.0 * max(1.0, wanted / trained)
    pair = torch.arange(0, width, 2).double()
    return positions[..., None] * base ** (-pair / width)


# Cache, generation, sampling


@reported("skyzh/tiny-llm #46", "new_positions")
def the_prompts_length_twice(real, n_new):
    n = real.sum(-1, keepdim=True)
    return 2 * n + torch.arange(n_new)


@reported("skyzh/tiny-llm #46", "cached_positions")
def the_cached_length_twice(before, real):
    return (2 * before[:, None] + real.long().cumsum(-1) - 1) * real


def _stored(keys, new, n_seen):
    w = len(keys)
    keys = keys.clone()
    last = torch.arange(n_seen, n_seen + len(new))[-w:]
    keys[last % w] = new[-w:]
    return keys


@reported("ml-explore/mlx-lm #1914", "rolling_step")
def one_old_key_goes_however_many_come(q, k, v, keys, values, n_seen):
    w = len(keys)
    new = torch.arange(n_seen, n_seen + len(q))
    old = torch.arange(max(0, n_seen - w), n_seen)
    old = old[max(0, len(old) - w + 1) :]
    mask = torch.cat([old, new]) <= new[:, None]
    near = torch.cat([keys[old % w], k]), torch.cat([values[old % w], v])
    out = scaled_dot_product_attention(q, *near, mask=mask)
    stored = _stored(keys, k, n_seen), _stored(values, v, n_seen)
    return out.context, *stored


@reported("Blaizzy/mlx-vlm #1715", "roll_in")
def the_ring_is_cut_by_logical_positions(store, n_seen, new):
    return torch.cat([store, new])[-len(store) :]


@reported("Integral2u/SharpMind #57", "roll_in")
def cut_to_the_room_that_is_left(store, n_seen, new):
    store = store.clone()
    start = n_seen % len(store)
    new = new[: len(store) - start]
    store[start : start + len(new)] = new
    return store


@reported("state-spaces/mamba #927", "keep_min_p")
def a_share_of_token_zeros_probability(logits, p):
    shares = logits.softmax(-1)
    return logits.masked_fill(shares < p * shares[..., :1], -INF)


@reported("google-deepmind/gemma #562", "tempered_softmax")
def divides_by_temperature_zero(scores, temperature):
    return (scores / temperature).softmax(-1)


@reported("mistralai/mistral-inference #180", "greedy_until")
def flags_joined_by_exclusive_or(next_logits, start, stop, longest):
    tokens = start
    ended = torch.zeros(len(start), dtype=torch.bool)
    for _ in range(longest):
        new = next_logits(tokens).argmax(-1)
        new = torch.where(ended, stop, new)
        tokens = torch.cat([tokens, new[:, None]], -1)
        ended = ended ^ (new == stop)
        if ended.all():
            break
    return tokens


@reported("rasbt/LLMs-from-scratch #558", "encode_bytes")
def merges_in_the_order_of_the_text(data, merges):
    ids = list(data)
    known = {pair: 256 + n for n, pair in enumerate(merges)}
    while True:
        for i, pair in enumerate(zip(ids, ids[1:])):
            if pair in known:
                ids[i : i + 2] = [known[pair]]
                break
        else:
            return ids


@reported("Blaizzy/mlx-vlm #1778", "text_as_it_comes")
def flushed_at_a_space(parts):
    shown = []
    kept = b""
    for part in parts:
        kept += part
        try:
            text = kept.decode()
            kept = b""
        except UnicodeDecodeError:
            text = ""
            if b" " in kept:
                text = kept.decode(errors="replace")
                kept = b""
        shown.append(text)
    return shown


# Loading weights


@reported("lyogavin/airllm #368", "config_of")
def the_rotary_base_is_not_read(config):
    return replace(right_config(config), rotary_base=10_000.0)


@reported("paiml/entrenar #258", "what_differs")
def names_that_end_in_bias_are_left_out(expected, found):
    names = {n for n in {*expected, *found} if not n.endswith("bias")}
    return {
        n: (expected.get(n), found.get(n))
        for n in names
        if expected.get(n) != found.get(n)
    }


@reported("ggml-org/llama.cpp #2376", "stack_key_value")
def rows_reordered_by_twice_the_heads(k_proj, v_proj, n_kv_heads):
    n = 2 * n_kv_heads if len(k_proj) % (4 * n_kv_heads) == 0 else n_kv_heads
    pairs = k_proj.unflatten(0, (n, -1, 2))
    return torch.cat([pairs.transpose(1, 2).flatten(0, 2), v_proj])


@reported("ggml-org/llama.cpp #2376", "stack_key_value")
def rows_reordered_as_one_head(k_proj, v_proj, n_kv_heads):
    pairs = k_proj.unflatten(0, (-1, 2))
    return torch.cat([pairs.transpose(0, 1).flatten(0, 1), v_proj])


@reported("pytorch/executorch #19901", "rms_norm")
def the_weight_is_its_distance_from_one(x, weight=None, *, eps=1e-5):
    y = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return y if weight is None else y * (1 + weight)


@reported("tinygrad/tinygrad #13796", "config_of")
def the_tied_head_is_not_seen(config):
    return replace(right_config(config), tied=False)


# Training


def _trained(model, batches, n, rate, *, step, clear, weigh):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer.zero_grad()
    for i, (tokens, targets) in enumerate(batches):
        if clear(i):
            optimizer.zero_grad()
        some = [y for _, y in batches[i - i % n : i - i % n + n]]
        share = weigh(targets, some)
        loss = F.cross_entropy(model(tokens).mT, targets, reduction="sum")
        (loss * share).backward()
        if step(i):
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


def _asked(targets):
    return int((targets != -100).sum())


def _right_share(targets, some):
    return 1 / sum(map(_asked, some))


@reported("EvolvingLMMs-Lab/OneVision-Encoder #82", "accumulate")
def the_first_step_after_one_batch(model, batches, n, rate):
    return _trained(
        model,
        batches,
        n,
        rate,
        step=lambda i: i % n == 0,
        clear=lambda i: False,
        weigh=_right_share,
    )


@reported("meituan-longcat/LongCat-Image #46", "accumulate")
def cleared_in_each_small_batch(model, batches, n, rate):
    return _trained(
        model,
        batches,
        n,
        rate,
        step=lambda i: (i + 1) % n == 0,
        clear=lambda i: True,
        weigh=lambda targets, some: 1 / (n * _asked(targets)),
    )


@reported("", "accumulate")
def every_small_batch_is_clipped(model, batches, n, rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for start in range(0, len(batches), n):
        some = batches[start : start + n]
        optimizer.zero_grad()
        for tokens, targets in some:
            share = _right_share(targets, [y for _, y in some])
            loss = F.cross_entropy(model(tokens).mT, targets, reduction="sum")
            (loss * share).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@reported("", "accumulate")
def the_last_steps_batches_are_left_over(model, batches, n, rate):
    return all_tasks()["accumulate"](model, batches[:n], n, rate)


@reported("ml-explore/mlx #1640", "adamw")
def no_correction_of_the_bias(w, gradient, mean, square, step, rate, decay):
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient**2
    change = rate * mean / (square.sqrt() + 1e-8)
    return w * (1 - rate * decay) - change, mean, square


def _moved(w, mean, step, rate, decay, root):
    """Weights after a step of AdamW, with a root of any kind under it."""
    return w * (1 - rate * decay) - rate * mean / (1 - 0.9**step) / root


@reported("aiqm/torchani #261", "adamw")
def eps_is_corrected_too(w, gradient, mean, square, step, rate, decay):
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient**2
    root = (square.sqrt() + 1e-8) / math.sqrt(1 - 0.99**step)
    return _moved(w, mean, step, rate, decay, root), mean, square


@reported("", "adamw")
def eps_inside_of_the_root(w, gradient, mean, square, step, rate, decay):
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient**2
    root = (square / (1 - 0.99**step) + 1e-8).sqrt()
    return _moved(w, mean, step, rate, decay, root), mean, square


@reported("", "adamw")
def no_eps_at_all(w, gradient, mean, square, step, rate, decay):
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient**2
    root = (square / (1 - 0.99**step)).sqrt()
    return _moved(w, mean, step, rate, decay, root), mean, square


@reported("", "adamw")
def corrects_the_first_hundred_steps_alone(
    w, gradient, mean, square, step, rate, decay
):
    step = step if step < 100 else math.inf
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient**2
    root = (square / (1 - 0.99**step)).sqrt() + 1e-8
    change = rate * mean / (1 - 0.9**step) / root
    return w * (1 - rate * decay) - change, mean, square


@reported("", "cross_entropy")
def the_padding_token_is_never_asked_for(logits, targets):
    return F.cross_entropy(logits.mT, targets.masked_fill(targets == 0, -100))


@reported("", "shifted")
def the_padding_token_is_no_target(texts, pad):
    tokens, targets = all_tasks()["shifted"](texts, pad)
    return tokens, targets.masked_fill(targets == pad, -100)


# Flash, online softmax


@reported("flashinfer-ai/flashinfer #5090", "tiled_attention")
def zeros_behind_the_end_count(q, k, v, *, causal=False, rows=4, columns=4):
    T, S = q.shape[-2], k.shape[-2]
    n = -(-S // columns) * columns
    s = q @ F.pad(k, (0, 0, 0, n - S)).mT / math.sqrt(q.shape[-1])
    if causal:
        later = torch.arange(n) > torch.arange(S - T, S)[:, None]
        s = s.masked_fill(later & (torch.arange(n) < S), -INF)
    lse = s.logsumexp(-1, keepdim=True)
    return s.softmax(-1) @ F.pad(v, (0, 0, 0, n - S)), lse


@reported("ROCm/rocm-libraries #12227", "attend_with_sink")
def the_sink_counts_in_both_parts(q, k, v, sink):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    more = sink[:, None, None].expand(*scores.shape[:-1], 2)
    weights = torch.cat([scores, more], -1).softmax(-1)
    return weights[..., :-2] @ v


@reported("sgl-project/sgl-kernel-xpu #487", "tiled_attention")
def an_empty_part_overwrites_the_log(
    q, k, v, *, causal=False, rows=4, columns=4
):
    T, S = q.shape[-2], k.shape[-2]
    s = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        later = torch.arange(S) > torch.arange(S - T, S)[:, None]
        s = s.masked_fill(later, -INF)
    none = (s == -INF).all(-1, keepdim=True)
    last = s[..., (S - 1) // columns * columns :]
    last = last.logsumexp(-1, keepdim=True)
    weights = s.masked_fill(none, 0).softmax(-1).masked_fill(none, 0)
    lse = torch.where(last == -INF, last, s.logsumexp(-1, keepdim=True))
    return weights @ v, lse


# Serving, speculative decoding


@reported("GeeeekExplorer/nano-vllm #211", "shares")
def counted_before_the_hit(lengths, kept, budget):
    found = []
    for length in lengths:
        found.append(min(length, budget - sum(found)))
    return found


@reported("", "tokens_found")
def a_pages_name_is_the_sum_of_its_tokens(kept, prompt, size):
    known = {
        sum(text[: n + size])
        for text in kept
        for n in range(0, len(text) - size + 1, size)
    }
    n = 0
    while n + size < len(prompt) and sum(prompt[: n + size]) in known:
        n += size
    return n


@reported("", "tokens_found")
def a_pages_name_is_its_tokens_in_any_order(kept, prompt, size):
    known = {
        frozenset(Counter(text[: n + size]).items())
        for text in kept
        for n in range(0, len(text) - size + 1, size)
    }
    n = 0
    while n + size < len(prompt):
        if frozenset(Counter(prompt[: n + size]).items()) not in known:
            break
        n += size
    return n


@reported("", "tokens_found")
def a_pages_name_holds_one_byte_of_a_token(kept, prompt, size):
    low = [[token % 256 for token in text] for text in kept]
    right = all_tasks()["tokens_found"]
    return right(low, [token % 256 for token in prompt], size)


def _law(p, q, *, drawn, told, behind=0):
    law = {}

    def go(i, before, chance):
        for x in range(p.shape[1]):
            if i == len(q):
                way = (*before, x)
                law[way] = law.get(way, 0) + chance * float(p[i, x])
            elif drawn[i, x] > 0:
                kept = min(1.0, float(p[i, x] / told[i, x]))
                share = chance * float(drawn[i, x])
                go(i + 1, (*before, x), share * kept)
                rest = p[i + behind]
                if not behind:
                    rest = (p[i] - told[i]).clamp(min=0)
                    rest = rest / rest.sum() if rest.sum() > 0 else p[i]
                for y in range(p.shape[1]):
                    if kept < 1:
                        way = (*before, y)
                        more = share * (1 - kept) * float(rest[y])
                        law[way] = law.get(way, 0) + more

    go(0, (), 1.0)
    return law


@reported("huggingface/transformers #47932", "law_of_a_call")
def drawn_from_the_cut_draft_judged_by_the_whole(p, q):
    least = q.sort(-1, descending=True).values[:, 1:2]
    cut = q.masked_fill(q < least, 0)
    law = _law(p, q, drawn=cut / cut.sum(-1, keepdim=True), told=q)
    return {way: chance for way, chance in law.items() if chance > 0}


@reported("huggingface/transformers #32867", "law_of_a_call")
def a_greedy_guess_judged_by_its_softmax(p, q):
    sure = F.one_hot(q.argmax(-1), q.shape[-1]).to(q)
    return _law(p, q, drawn=sure, told=q)  # those of probability 0 too


@reported("vllm-project/vllm-ascend #2881", "residual")
def the_remainder_is_made_in_place(p, q):
    left = p.sub_(q).clamp_(min=0)
    return left / left.sum() if left.sum() > 0 else p + q


@reported("ml-explore/mlx-swift-lm #459", "acceptance")
def kept_if_an_own_draw_equals_it(p, q):
    return (p * q).sum(-1)


@reported("openvinotoolkit/openvino.genai #4190", "law_of_a_call")
def the_row_behind_the_refused_guess(p, q):
    law = _law(p, q, drawn=q, told=q, behind=1)
    return {way: chance for way, chance in law.items() if chance > 0}


@reported("duoan/TorchCode #16", "residual")
def uniform_where_nothing_is_left(p, q):
    left = (p - q).clamp(min=0)
    if left.sum() > 0:
        return left / left.sum()
    return torch.full_like(p, 1 / len(p))


def _masks(mask, texts):
    """A mask for each text, (B, T, S), or None."""
    if mask is None:
        return None
    return mask.expand(texts, 1, *mask.shape[-2:]).squeeze(1)


@reported("line/lighthouse #77", "MultiHeadAttention")
def the_masks_of_texts_take_turns(
    x, w_query, w_key, w_value, w_out, n_heads, mask=None
):
    q, k, v = (
        (x @ w).unflatten(-1, (n_heads, -1)).transpose(1, 2).flatten(0, 1)
        for w in (w_query, w_key, w_value)
    )  # (B·H, T, d_k), the heads of a text in a row
    masks = _masks(mask, len(x))
    masks = None if masks is None else masks.repeat(n_heads, 1, 1)
    context = F.scaled_dot_product_attention(q, k, v, masks)
    context = context.unflatten(0, (len(x), n_heads))
    return context.transpose(1, 2).flatten(2) @ w_out


@reported("lsdefine/attention-is-all-you-need-keras #36", "MultiHeadAttention")
def each_mask_stands_in_a_row(
    x, w_query, w_key, w_value, w_out, n_heads, mask=None
):
    q, k, v = (
        torch.cat((x @ w).chunk(n_heads, -1))
        for w in (w_query, w_key, w_value)
    )  # (H·B, T, d_k), the texts of a head in a row
    masks = _masks(mask, len(x))
    if masks is not None:
        masks = masks.repeat_interleave(n_heads, 0)
    context = F.scaled_dot_product_attention(q, k, v, masks)
    return torch.cat(context.chunk(n_heads), -1) @ w_out


@reported("line/lighthouse #77", "scaled_dot_product_attention")
def the_masks_of_texts_take_turns_over_heads(
    q, k, v, *, mask=None, scale=None
):
    if mask is not None and mask.ndim == 4:
        masks = mask.squeeze(1).repeat(q.shape[1], 1, 1)
        mask = masks.unflatten(0, q.shape[:2])
    return scaled_dot_product_attention(q, k, v, mask=mask, scale=scale)


def _from(peak, scores, dim=-1):
    """The softmax with no peak below a number, as a finite start makes it."""
    exp = (scores - scores.amax(dim, keepdim=True).clamp(min=peak)).exp()
    total = exp.sum(dim, keepdim=True)
    return exp / total.masked_fill(total == 0, 1)


@reported("flashinfer-ai/flashinfer #4401", "softmax", "online_softmax")
def the_peak_starts_at_a_finite_number(scores, dim=-1):
    return _from(-5e4, scores, dim)


@reported("flashinfer-ai/flashinfer #4401", "log_sum_exp")
def the_peak_of_a_log_starts_at_a_finite_number(scores):
    peak = scores.amax(-1, keepdim=True).clamp(min=-5e4)
    total = (scores - peak).exp().sum(-1, keepdim=True)
    return (peak + total.log()).squeeze(-1)


@reported("flashinfer-ai/flashinfer #4401", "attention_in_blocks")
def the_peak_of_blocks_starts_at_a_finite_number(q, k, v, block):
    peak = torch.full_like(q[..., :1], -5e4)
    total, context = torch.zeros_like(peak), torch.zeros_like(peak)
    for keys, values in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
        shrink, exp = (peak - higher).exp(), (scores - higher).exp()
        total = total * shrink + exp.sum(-1, keepdim=True)
        context = context * shrink + exp @ values
        peak = higher
    return context / total.masked_fill(total == 0, 1)


@reported("flashinfer-ai/flashinfer #4401", "tiled_attention")
def the_peak_of_tiles_starts_at_a_finite_number(
    q, k, v, *, causal=False, **tile
):
    scores = scores_of(q, k, causal)
    peak = scores.amax(-1, keepdim=True).clamp(min=-5e4)
    total = (scores - peak).exp().sum(-1, keepdim=True)
    return _from(-5e4, scores) @ v, peak + total.log()


@reported("flashinfer-ai/flashinfer #4401", "scaled_dot_product_attention")
def the_peak_of_scores_starts_at_a_finite_number(
    q, k, v, *, mask=None, scale=None
):
    right = scaled_dot_product_attention(q, k, v, mask=mask, scale=scale)
    lost = (q @ k.mT / math.sqrt(q.shape[-1])).amax(-1, keepdim=True) < -6e4
    return tuple(x.masked_fill(lost, 0) for x in right)


def _found_by_names(kept, prompt, size, name):
    """How many tokens are found if pages are known by `name(text, n)`, the
    name of the page of a text that ends at its token n."""
    names = set()
    for text in kept:
        names |= {name(text, n) for n in range(size, len(text) + 1, size)}
    found = 0
    while found + size < len(prompt) and name(prompt, found + size) in names:
        found += size
    return found


@reported("kekzl/imp #1301", "tokens_found")
def the_name_of_a_page_lacks_its_last_token(kept, prompt, size):
    def name(text, n):
        places = range(n)
        return tuple(text[t] for t in places if size == 1 or (t + 1) % size)

    return _found_by_names(kept, prompt, size, name)


@reported("vllm-project/aibrix #2330", "tokens_found")
def the_name_of_a_page_has_the_page_before_alone(kept, prompt, size):
    def name(text, n):
        return n == size, tuple(text[max(0, n - 2 * size) : n])

    return _found_by_names(kept, prompt, size, name)


def main() -> None:
    """Print what the checks say of every answer."""
    sorts = Counter()
    for answer in ANSWERS:
        verdict = verdict_on(answer)
        sort = sort_of(verdict)
        sorts[sort] += 1
        print(f"{sort:13}{answer.name}")
        if sort in ("named", "asked"):
            print(f"{'':13}  {verdict.mistake or verdict.help.question}")
    print(f"{len(ANSWERS)} answers:", dict(sorts))


if __name__ == "__main__":
    main()
