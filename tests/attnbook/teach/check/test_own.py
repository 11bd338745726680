"""Somebody's own code under the checks: right is right in every form, wrong
is wrong in every form, and what cannot be tried is said."""

import math
import unittest
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.catalogue.forms import all_forms
from attnbook.teach.check.finding import Kind
from attnbook.teach.check.own import WrongUse, cases, examine, hold
from attnbook.teach.check.own.bounds import castable, rounded, too_large
from attnbook.teach.check.own.report import form_of
from attnbook.teach.check.proof import Disagreement
from attnbook.teach.check.running import outcome_of

SDPA = "scaled_dot_product_attention"


def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def unscaled(q, k, v, mask=None):
    return attention(q * math.sqrt(q.shape[-1]), k, v, mask)


def test_a_right_function_gets_one_sentence():
    said = hold(attention, SDPA)
    assert said.startswith(
        "attention agrees with torch's scaled_dot_product_attention in 11 "
        "cases"
    )
    assert "gradients too, in float64 to within 1e-09" in said.replace(
        "\n  ", " "
    )


def test_a_wrong_one_gets_the_sentence_of_the_book():
    with pytest.raises(Disagreement, match="known mistake, forgets_the_scale"):
        hold(unscaled, SDPA)


def test_a_list_that_is_changed_in_place_is_seen():
    right = all_tasks()["give_back"].right

    def emptying(holders, free, table):
        found = right(holders, free, table)
        table.clear()
        return found

    assert examine(right, "give_back").right
    found = examine(emptying, "give_back").verdict.finding
    assert found.kind == Kind.CHANGED
    assert found.argument == "table"


def test_whatever_is_left_out_is_said_with_its_reason():
    found = examine(attention, SDPA)
    assert found.left_out["a scale given"] == "the function takes no scale"
    assert "a scale given" in found.message
    # NaN for a query without keys: it is told, and does not decide ...
    assert "boolean, the second query fully masked" in found.free
    said = 'not counted (--strict counts it): "boolean, the second query'
    assert said in " ".join(found.message.split())
    assert found.right
    # ... unless somebody wants it to.
    assert not examine(attention, SDPA, strict=True).right
    zeros = hold(
        F.scaled_dot_product_attention, SDPA, names={"mask": "attn_mask"}
    )
    assert "agrees" in zeros


def low(q, k, v, mask=None):
    """Attention that gives hidden scores the lowest finite number."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        least = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, least)
    return scores.softmax(-1) @ v


def test_a_mean_of_hidden_keys_counts():
    """NaN or zeros are what right programs give a query without keys."""
    found = examine(low, SDPA)
    assert not found.right
    assert found.verdict.mistake == "hidden scores are very low instead of −∞"
    told = " ".join(found.message.split())
    assert "right programs make zeros or NaN; yours does none of this" in told
    assert examine(low, SDPA, skip="fully masked").right
    # By adding the lowest number nothing else than a mean can be had.
    assert examine(with_mask("lowest"), SDPA, masks="lowest").right
    name, found = cases(SDPA)
    label = "boolean, the second query fully masked"
    one = next(case for case in found if case.label == label)
    with pytest.raises(Disagreement):
        one.check(low)
    with pytest.raises(unittest.SkipTest, match="zeros or NaN"):
        one.check(attention)
    # Zeros whose gradient is NaN are no zeros.
    with pytest.raises(Disagreement):
        one.check(
            lambda q, k, v, mask=None: attention(q, k, v, mask).nan_to_num()
        )


def in_layout(fn, layout):
    """A function whose tensors are laid out in another way."""
    order = [layout.index(axis) for axis in "BHTd"]
    back = ["BHTd".index(axis) for axis in layout]

    def other(query, key, value, attn_mask=None):
        q, k, v = (x.permute(order) for x in (query, key, value))
        return fn(q, k, v, attn_mask).permute(back)

    return other


@pytest.mark.parametrize("layout", ["BHTd", "BTHd", "TBHd", "HTdB"])
def test_another_layout_is_right_only_in_that_layout(layout):
    mine = in_layout(attention, layout)
    assert examine(mine, SDPA, layout=layout).right
    assert not examine(in_layout(unscaled, layout), SDPA, layout=layout).right
    if layout != "BHTd":
        assert not examine(mine, SDPA, layout="BHTd").right


@pytest.mark.parametrize("layout", ["BTd", "TBd"])
def test_heads_and_texts_may_share_an_axis(layout):
    def mine(q, k, v, mask=None):
        if layout == "TBd":
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        assert q.ndim == k.ndim == v.ndim == 3
        out = attention(q, k, v, mask)
        return out.transpose(0, 1) if layout == "TBd" else out

    assert examine(mine, SDPA, layout=layout).right


def test_a_layout_without_texts_takes_the_cases_of_one_text():
    found = examine(attention, SDPA, layout="Td")
    assert found.right
    why = found.left_out["two sequences of three heads"]
    assert why == "several heads, and no axis for them"


def with_mask(kind):
    """Attention whose mask means something else."""

    def mine(q, k, v, attn_mask=None):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if attn_mask is not None:
            if kind == "hidden":
                scores = scores.masked_fill(attn_mask, -torch.inf)
            elif kind == "ones":
                scores = scores.masked_fill(attn_mask == 0, -torch.inf)
            else:
                scores = scores + attn_mask
        return scores.softmax(-1) @ v

    return mine


@pytest.mark.parametrize("kind", ["hidden", "ones", "additive", "lowest"])
def test_masks_of_another_convention(kind):
    assert examine(with_mask(kind), SDPA, masks=kind).right
    if kind != "ones":  # of a boolean mask, == 0 is right too
        assert not examine(with_mask(kind), SDPA, masks="allowed").right


@pytest.mark.parametrize("kind", ["allowed", "hidden", "ones", "additive"])
def test_a_mask_that_is_returned_may_mean_something_else(kind):
    def mine(n_queries, n_keys):
        ones = torch.ones(n_queries, n_keys, dtype=torch.bool)
        mask = ones.tril(n_keys - n_queries)
        made = {
            "allowed": mask,
            "hidden": ~mask,
            "ones": mask.int(),
            "additive": torch.zeros(mask.shape).masked_fill(~mask, -torch.inf),
        }
        return made[kind][None, None]

    def late(n_queries, n_keys):
        return mine(n_queries, n_keys + 1)[..., :-1]

    assert examine(mine, "causal_mask", masks=kind).right
    assert not examine(late, "causal_mask", masks=kind).right


def test_the_axes_of_a_mask():
    shapes = []

    def mine(q, k, v, mask=None):
        shapes.append(None if mask is None else mask.ndim)
        assert mask is None or len(mask) == len(q)
        return attention(q, k, v, None if mask is None else mask[:, None])

    assert examine(mine, SDPA, layout="BHTd", mask_shape="BTS").right
    assert set(shapes) == {None, 3}


def test_a_function_that_is_causal_by_itself():
    def mine(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    only = "two sequences", "one query, three keys"
    assert not examine(mine, SDPA, only=only).right
    found = examine(mine, SDPA, causal=True, sizes={"T": 6})
    assert found.right and found.labels == ["your sizes, T = 6"]
    assert found.free["two queries, five keys"].startswith("where there are")
    # It says that it hides later keys, so no mask tells it to.
    assert not examine(attention, SDPA, causal=True).right


def rotated(x, cos, sin):
    first, second = x[..., 0::2], x[..., 1::2]
    turned = first * cos - second * sin, first * sin + second * cos
    return torch.stack(turned, -1).flatten(-2)


def of_neighbours(x, positions, base=10_000.0):
    pair = torch.arange(0, x.shape[-1], 2).double()
    angles = positions.double()[..., None] / base ** (pair / x.shape[-1])
    return rotated(x, angles.cos(), angles.sin())


def test_both_layouts_of_pairs():
    assert examine(of_neighbours, "rotate", pairs="neighbours").right
    wrong = examine(of_neighbours, "rotate")
    assert wrong.verdict.mistake == "takes_neighbours_for_pairs"


def test_positions_that_a_function_counts_itself():
    def mine(x):
        return of_neighbours(x, torch.arange(x.shape[-2]))

    ways = {"pairs": "neighbours", "sizes": {"T": 7}}
    found = examine(mine, "rotate", **ways)
    assert found.right and "several heads" in found.labels
    assert found.left_out["two pairs at position 2"]


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        mean = wide.pow(2).mean(-1, keepdim=True)
        return (wide * torch.rsqrt(mean + self.eps)).to(x.dtype) * self.gamma


class Attention(nn.Module):
    """One matrix for all three, and causal."""

    def __init__(self, n_embd, n_head, wrong=False):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.n_head, self.wrong = n_head, wrong

    def forward(self, x):
        B, T, C = x.shape
        parts = self.c_attn(x).split(C, 2)
        if self.wrong:
            parts = parts[1], parts[0], parts[2]
        q, k, v = (
            p.view(B, T, self.n_head, -1).transpose(1, 2) for p in parts
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


def test_modules_are_built_and_filled():
    assert examine(RMSNorm, "rms_norm").right
    found = examine(Attention, "MultiHeadAttention", causal=True)
    assert found.right and len(found.labels) == 8
    assert not examine(Attention, "MultiHeadAttention").right


def test_a_module_in_which_queries_and_keys_are_exchanged():
    def make(d_model, n_heads):
        return Attention(d_model, n_heads, wrong=True)

    ways = {"causal": True, "module": True}
    assert not examine(make, "MultiHeadAttention", **ways).right
    weights = {"key+query+value": "c_attn"}
    assert examine(make, "MultiHeadAttention", weights=weights, **ways).right


class BlockLikeGPT2(nn.Module):
    """A block as in nanoGPT, with a mask, and any activation."""

    def __init__(self, n_embd, n_head, activation):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.attn_proj = nn.Linear(n_embd, n_embd)
        self.c_fc = nn.Linear(n_embd, 4 * n_embd)
        self.mlp_proj = nn.Linear(4 * n_embd, n_embd)
        self.n_head, self.activation = n_head, activation

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            p.view(B, T, self.n_head, -1).transpose(1, 2)
            for p in self.c_attn(self.ln_1(x)).split(C, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp_proj(self.activation(self.c_fc(self.ln_2(x))))


def block_report(activation):
    def make(n_embd, n_head):
        return BlockLikeGPT2(n_embd, n_head, activation)

    weights = {"out": "attn_proj", "down": "mlp_proj"}
    return examine(make, "Block", module=True, weights=weights)


@pytest.mark.parametrize(
    "activation, words",
    [
        (nn.GELU(approximate="tanh"), ""),
        (nn.GELU(), "Its GELU is the exact one, x Φ(x), and not the formula"),
        (nn.ReLU(), "Its activation is ReLU, and not the GELU that"),
    ],
)
def test_a_block_with_another_activation_is_told_which(activation, words):
    """The exact GELU is no fault of a block that is like GPT-2's."""
    found = block_report(activation)
    assert found.right, found.message
    assert words in " ".join(found.message.split())
    assert ("Its" in found.message) == bool(words)


def test_a_block_with_a_third_activation_is_wrong():
    found = block_report(nn.SiLU())
    assert not found.right
    assert 'on "one token of width four"' in found.message


def test_a_feed_forward_layer_may_have_the_formula_with_tanh():
    def mine(x, w_up, b_up, w_down, b_down):
        inner = F.gelu(x @ w_up + b_up, approximate="tanh")
        return inner @ w_down + b_down

    found = examine(mine, "feed_forward")
    assert found.right
    assert "Its GELU is the formula with tanh" in found.message


def test_a_module_at_hand_keeps_what_it_is():
    layer = Attention(16, 4).train()
    before = {n: p.clone() for n, p in layer.named_parameters()}
    sizes = {"d_model": 16, "n_heads": 4, "T": 6}
    found = examine(layer, "MultiHeadAttention", causal=True, sizes=sizes)
    assert found.right and len(found.labels) == 1
    assert layer.training and layer.c_attn.weight.dtype == torch.float32
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter, before[name])


def test_a_size_comes_before_an_axis():
    class Norm(nn.Module):
        def __init__(self, size, dim=-1, eps=1e-6):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(size))
            self.dim, self.eps = dim, eps

        def forward(self, x):
            mean = (x * x).mean(self.dim, keepdim=True)
            return x * torch.rsqrt(mean + self.eps) * self.scale

    assert examine(Norm, "rms_norm").right


def test_what_float32_alone_does_wrong_is_told_of_float32():
    def mine(x, weight=None, eps=1e-5):
        wide = x.float()  # of a float32 no copy
        wide.mul_(torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps))
        return wide.to(x.dtype) * (1 if weight is None else weight)

    found = examine(mine, "rms_norm", gradients=False)
    assert "the argument x was changed in place" in found.message
    assert hold(mine, "rms_norm", gradients=False, dtype="bfloat16")


def test_of_equals_a_program_may_choose():
    def mine(logits, k):
        k = min(k, logits.shape[-1])
        kept = torch.full_like(logits, -torch.inf)
        values, places = logits.topk(k)
        return kept.scatter(-1, places, values)

    found = examine(mine, "keep_top_k")
    assert found.right and len(found.free) == 1
    assert not examine(mine, "keep_top_k", strict=True).right


@pytest.mark.parametrize("kept", [1, 3])
def test_of_equals_all_stay_or_as_many_as_k_says(kept):
    def mine(logits, k):
        k = min(k, logits.shape[-1])
        least = logits.sort(descending=True).values[..., k - 1 : k]
        above = logits > least
        equal = (logits == least).cumsum(-1) <= kept
        some = above | (equal & (logits == least))
        # With one alone at the edge all is right, however many may stay.
        return logits.masked_fill(~some, -torch.inf)

    def too_few(logits, k):
        found = mine(logits, k)
        least = logits.sort(descending=True).values[..., k - 1 : k]
        several = (logits == least).sum(-1, keepdim=True) > 1
        return found.masked_fill(several & (logits == least), -torch.inf)

    assert examine(mine, "keep_top_k").right
    found = examine(too_few, "keep_top_k")
    assert not found.right
    assert "of equals programs choose one, another or all; yours" in " ".join(
        found.message.split()
    )


def test_of_pairs_each_merge_takes_one_of_the_most_frequent():
    """Most cases have ties, and a wrong count is found on these too."""
    right = all_tasks()["learn_merges"].right

    def last_of_equals(data, n_merges):
        return merges_of(
            data, n_merges, lambda pairs: most_frequent(pairs[::-1])
        )

    def counts_once(data, n_merges):
        """Wrong: pairs are counted in the text of the beginning."""
        found = Counter(zip(data, data[1:])).most_common(n_merges)
        return [pair for pair, _ in found]

    assert examine(right, "learn_merges").free == {}
    assert examine(last_of_equals, "learn_merges").right
    found = examine(counts_once, "learn_merges")
    assert not found.right


def most_frequent(pairs):
    """The pair that comes most often; of equals the one that comes first."""
    return max(pairs, key=pairs.count)


def merges_of(data, n_merges, choose):
    """The merges of byte pairs, where `choose` takes one of a text's pairs."""
    ids = list(data)
    merges = []
    for n in range(n_merges):
        pairs = [*zip(ids, ids[1:])]
        if not pairs:
            break
        pair = choose(pairs)
        merges.append(pair)
        joined = []
        while ids:
            two = tuple(ids[:2]) == pair
            joined.append(256 + n if two else ids[0])
            ids = ids[2:] if two else ids[1:]
        ids = joined
    return merges


def test_the_first_of_several_results_is_not_always_enough():
    """Tokens without their mask are half of what left padding gives."""

    def mine(sequences):
        longest = max(map(len, sequences))
        rows = [[0] * (longest - len(s)) + list(s) for s in sequences]
        return torch.tensor(rows)

    def without_a_mask(sequences):
        return mine(sequences), None

    found = examine(mine, "pad_left")
    assert not found.right and "--result 0 compares" in found.message
    assert not examine(without_a_mask, "pad_left").right
    assert examine(mine, "pad_left", result=0).right


def test_a_module_that_keeps_its_first_mask_is_found():
    class Keeps(nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()
            self.inner = Fused(d_model, n_heads)
            self.masks = {}

        def forward(self, x, mask=None):
            if mask is not None:
                mask = self.masks.setdefault(mask.shape, mask)
            return self.inner(x, mask)

    weights = {"query/key/value": "inner.qkv"}
    assert not examine(Keeps, "MultiHeadAttention", weights=weights).right


def test_byte_pairs_without_ties_decide():
    def mine(data, n_merges):
        return merges_of(data, n_merges, most_frequent)

    def rarest(data, n_merges):
        return merges_of(
            data, n_merges, lambda pairs: min(pairs, key=pairs.count)
        )

    assert examine(mine, "learn_merges").right
    assert not examine(rarest, "learn_merges").right


class Fused(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.n_heads = n_heads

    def forward(self, x, mask=None):
        cut = self.qkv(x).unflatten(-1, (self.n_heads, 3, -1))
        q, k, v = cut.permute(3, 0, 2, 1, 4)
        return self.out(attention(q, k, v, mask).transpose(1, 2).flatten(2))


def test_a_matrix_whose_heads_take_turns():
    weights = {"query/key/value": "qkv"}
    assert examine(Fused, "MultiHeadAttention", weights=weights).right
    assert not examine(Fused, "MultiHeadAttention").right


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_types_of_numbers_have_bounds_that_fit(dtype):
    right = examine(attention, SDPA, dtype=dtype)
    assert right.right and dtype in right.message
    assert not examine(unscaled, SDPA, dtype=dtype).right
    # A program that computes in another type than it is given.
    assert hold(RMSNorm, "rms_norm", dtype=dtype)


def test_what_computes_in_float32_is_tried_in_float32():
    def mine(q, k, v, mask=None):
        return attention(q.float(), k.float(), v.float(), mask)

    found = examine(mine, SDPA)
    assert found.right and "float32" in found.message
    assert not examine(mine, SDPA, dtype="float64").right


def test_an_argument_changed_in_place_is_seen_in_every_type():
    def mine(scores, mask):
        return scores.masked_fill_(~mask, -torch.inf)

    for dtype in ("float64", "float32", "bfloat16"):
        found = examine(mine, "mask_scores", dtype=dtype)
        assert not found.right, dtype


def test_own_tolerance_and_own_sizes():
    def near(q, k, v, mask=None):
        return attention(q, k, v, mask) + 1e-4

    assert not examine(near, SDPA).right
    assert examine(near, SDPA, within=1e-3).right
    found = examine(attention, SDPA, sizes={"B": 1, "T": 40, "d": 64})
    assert found.labels[-1] == "your sizes, B = 1, T = 40, d = 64"

    def few(q, k, v, mask=None):
        return attention(q[..., :150, :], k, v, mask)

    found = examine(few, SDPA, sizes={"T": 160})
    assert found.verdict.finding.case == "your sizes, T = 160"


def test_values_that_are_built_in():
    def mine(x, weight=None):
        norm = (x**2).mean(-1, keepdim=True) + 1e-3
        return x * norm.rsqrt() * (1 if weight is None else weight)

    assert not examine(mine, "rms_norm").right
    assert examine(mine, "rms_norm", fixed={"eps": 1e-3}).right


def of_numbers(documents):
    same = documents[:, :, None] == documents[:, None]
    return same.tril()


def of_lengths(seq_lens):
    ones = [[torch.ones(n, n).tril() for n in row] for row in seq_lens]
    return torch.stack([torch.block_diag(*row).bool() for row in ones])


def of_sums(cu_seqlens):
    lengths = cu_seqlens.diff().tolist()
    return torch.block_diag(*(torch.ones(n, n).tril() for n in lengths)) > 0


def of_places(position_ids):
    return of_numbers((position_ids == 0).cumsum(-1))


DOCUMENT_MASKS = [
    (of_numbers, {}),
    (lambda doc_ids: of_numbers(doc_ids)[:, None], {}),
    (lambda segment_ids: ~of_numbers(segment_ids), {"masks": "hidden"}),
    (lambda documents: of_numbers(documents).int(), {"masks": "ones"}),
    (lambda ids: of_numbers(ids[None])[0], {"layout": "Td"}),
    (of_lengths, {}),
    (of_places, {}),
    (of_sums, {"layout": "Td"}),
]


@pytest.mark.parametrize("mine, ways", DOCUMENT_MASKS)
def test_document_masks_of_numbers_lengths_and_places(mine, ways):
    found = examine(mine, "document_mask", **ways)
    assert found.right, found.message
    alone = "layout" in ways
    assert ("two rows, cut elsewhere" in found.left_out) == alone


class Grouped(nn.Module):
    """Heads of queries that share keys, one matrix or three."""

    def __init__(self, dim, num_heads, num_kv_heads, head_dim, fused=""):
        super().__init__()
        self.sizes = num_heads, num_kv_heads, num_kv_heads
        self.d = head_dim
        self.fused = fused
        widths = [n * head_dim for n in self.sizes]
        if fused:
            self.qkv = nn.Linear(dim, sum(widths), bias=False)
        else:
            self.wq, self.wk, self.wv = (
                nn.Linear(dim, wide, bias=False) for wide in widths
            )
        self.wo = nn.Linear(widths[0], dim, bias=False)

    def forward(self, x, mask=None):
        if self.fused == "groups":
            group = self.sizes[0] // self.sizes[1]
            cut = self.qkv(x).unflatten(-1, (self.sizes[1], group + 2, self.d))
            q, k, v = cut.split([group, 1, 1], -2)
            rows = [part.flatten(2) for part in (q, k, v)]
        elif self.fused:
            widths = [n * self.d for n in self.sizes]
            rows = self.qkv(x).split(widths, -1)
        else:
            rows = [w(x) for w in (self.wq, self.wk, self.wv)]
        q, k, v = (
            row.unflatten(-1, (-1, self.d)).transpose(1, 2) for row in rows
        )
        y = F.scaled_dot_product_attention(
            q, *self.repeated(k, v, len(q[0]) // len(k[0])), attn_mask=mask
        )
        return self.wo(y.transpose(1, 2).flatten(2))

    def repeated(self, k, v, times):
        return k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)


class Dealt(Grouped):
    def repeated(self, k, v, times):
        return k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1)


@pytest.mark.parametrize("kind", [Grouped, Dealt])
@pytest.mark.parametrize(
    "fused, weights",
    [("", {}), ("rows", {}), ("groups", {"query/key/value": "qkv"})],
)
def test_modules_whose_heads_share_keys(kind, fused, weights):
    def make(dim, num_heads, num_kv_heads, head_dim):
        return kind(dim, num_heads, num_kv_heads, head_dim, fused)

    ways = {"module": True, "weights": weights, "sizes": {"T": 7}}
    found = examine(make, "GroupedQueryAttention", **ways)
    assert found.right == (kind is Grouped), found.message
    if kind is Dealt:
        named = "lays_the_row_of_key_heads_down_again"
        assert found.verdict.mistake == named
    else:
        assert len(found.labels) == 13 and not found.left_out


def test_sizes_that_a_module_refuses_are_left_out():
    def make(dim, num_heads, kv_heads):
        assert dim % num_heads == 0, "heads do not divide the width"
        return Grouped(dim, num_heads, kv_heads, dim // num_heads)

    found = examine(make, "GroupedQueryAttention", module=True)
    assert found.right
    assert found.left_out == {
        "heads wider than the stream": "make cannot be made for it "
        "(AssertionError: heads do not divide the width)"
    }


def test_names_of_sizes_can_be_said():
    def make(d_model, n_heads, shared_by):
        return Grouped(d_model, n_heads, shared_by, d_model // n_heads)

    ways = {"module": True, "skip": "wider"}
    with pytest.raises(WrongUse, match="make wants 'shared_by'"):
        examine(make, "GroupedQueryAttention", **ways)
    names = {"n_kv_heads": "shared_by"}
    assert examine(make, "GroupedQueryAttention", names=names, **ways).right


def test_what_makes_no_float32_is_judged_in_float64():
    """A small error is none of float32 where no float32 was made."""

    def near(x, weight=None, eps=1e-5):
        root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        return x * root * (1 if weight is None else weight) * (1 + 1e-8)

    def in_float32(x, weight=None, eps=1e-5):
        return near(x.float(), weight, eps)

    found = examine(near, "rms_norm")
    assert not found.right and "float32" not in found.message
    assert examine(in_float32, "rms_norm").right
    assert "float32" in examine(near, "rms_norm", dtype="float32").message


def test_every_topic_has_tasks_and_every_form_a_task():
    assert set(all_forms()) <= set(all_tasks())
    topics = {form.topic for form in all_forms().values()}
    assert len(topics) > 12
    for name, form in all_forms().items():
        task = all_tasks()[name]
        labels = {case.label for case in task.cases()}
        assert set(form.free) <= labels, name
        assert set(form.free) < labels, name


REFUSALS = {
    "no such task": (
        lambda: examine(attention, "scaled_dot_product_atention"),
        "there is no task called 'scaled_dot_product_atention'; did you mean "
        "scaled_dot_product_attention?",
    ),
    "no such way": (
        lambda: examine(attention, SDPA, axes="BHTd"),
        "there is no way called 'axes'; expected one of layout, masks, ",
    ),
    "no such mask": (
        lambda: examine(attention, SDPA, masks="true"),
        "masks is one of allowed, hidden, either, ones, additive and lowest; "
        "got 'true'",
    ),
    "no such layout": (
        lambda: examine(attention, SDPA, layout="BLHd"),
        "layout names axes, each once: B, H, T and d, and at least T and d; "
        "got 'BLHd'",
    ),
    "no such mask shape": (
        lambda: examine(attention, SDPA, mask_shape="TSB"),
        "mask_shape ends in TS, with at most two of B, H and 1 before it, "
        "such as B1TS; got 'TSB'",
    ),
    "an endless bound": (
        lambda: examine(attention, SDPA, within=math.nan),
        "within is the largest gap allowed, a finite number that is not "
        "negative; got nan",
    ),
    "no such device": (
        lambda: examine(attention, SDPA, device="cuda:99"),
        "the device 'cuda:99' cannot be used here: ",
    ),
    "nothing to call": (
        lambda: examine(3, SDPA),
        "expected a function, a class or a module; got a int",
    ),
    "too few arguments": (
        lambda: examine(lambda q, k: q, SDPA),
        "scaled_dot_product_attention is a function of q, k and v; yours "
        "takes q and k; write a function of these arguments that calls it",
    ),
    "no such argument": (
        lambda: examine(attention, SDPA, names={"mask": "m"}),
        "the function has no argument 'm'; it has q, k, v and mask",
    ),
    "no such setting": (
        lambda: examine(attention, SDPA, fixed={"eps": 1}),
        "scaled_dot_product_attention has no argument called 'eps'; expected "
        "one of q, k, v, mask and scale",
    ),
    "not causal": (
        lambda: examine(torch.softmax, "softmax", causal=True),
        "softmax takes no mask, so it is not causal",
    ),
    "no module": (
        lambda: examine(nn.GELU, "gelu"),
        "gelu is no task that a module does; expected a function, or a "
        "module that has no parameters",
    ),
    "a module with a config": (
        lambda: examine(
            type("Odd", (nn.Module,), {"__init__": lambda self, config: None}),
            "MultiHeadAttention",
        ),
        "Odd wants 'config', and that is none of the sizes of this task, "
        "d_model, n_heads, d_out and d_k; write a function of these that "
        "makes the module, and check that function as a module",
    ),
    "no module made": (
        lambda: examine(lambda d_model: 3, "rms_norm", module=True),
        "<lambda> was to make an nn.Module; it gave a int",
    ),
    "a matrix that is none": (
        lambda: examine(
            Attention, "MultiHeadAttention", weights={"q": "c_attn"}
        ),
        "this task has no matrix called 'q'; expected one of key, key.weight,",
    ),
    "a parameter that is none": (
        lambda: examine(
            Attention, "MultiHeadAttention", weights={"query": "wq"}
        ),
        "the module has no parameter 'wq'; it has c_attn.weight, c_attn.bias,",
    ),
    "places that are not clear": (
        lambda: examine(
            lambda d_model: nn.Bilinear(d_model, 2, 3),
            "MultiHeadAttention",
            module=True,
        ),
        "the places of the task's matrices are not clear; without a place: ",
    ),
    "digits that decide": (
        lambda: examine(torch.softmax, "draw", dtype="float32"),
        "the cases of draw hang on single digits, or have models in them, so "
        "their type of numbers cannot be chosen; expected auto or float64; "
        "got float32",
    ),
    "no size to choose": (
        lambda: examine(torch.softmax, "softmax", sizes={"T": 3}),
        "this task has no case whose sizes can be chosen",
    ),
    "no such size": (
        lambda: examine(attention, SDPA, sizes={"N": 3}),
        "there is no size called 'N'; expected one of B, H, T, S and d",
    ),
    "a size of 0": (
        lambda: examine(attention, SDPA, sizes={"T": 0}),
        "a size is a whole number above 0; got T = 0",
    ),
    "no case left": (
        lambda: examine(attention, SDPA, only=("a scale",)),
        "no case of scaled_dot_product_attention is left to be tried: the "
        "function takes no scale",
    ),
    "no case for pytest": (
        lambda: cases(SDPA, only=("nothing",)),
        "no case of scaled_dot_product_attention is left; expected words of "
        "labels, such as 'one query, three keys'",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_cannot_be_tried_is_said(what):
    call, sentence = REFUSALS[what]
    with pytest.raises(WrongUse) as caught:
        call()
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(*cases(SDPA))
def test_cases_are_for_pytest(case):
    try:
        case.check(attention)
    except pytest.skip.Exception:
        raise
    assert case.__name__ == case.label


def test_a_wrong_function_fails_case_by_case():
    name, found = cases(SDPA, sizes={"T": 9})
    assert name == "case" and found[-1].label == "your sizes, T = 9"
    with pytest.raises(Disagreement, match="forgets_the_scale"):
        found[-1].check(unscaled)
    one = next(c for c in found if c.label == "one query, three keys")

    def odd(q, k, v, mask=None):
        return attention(q, k, v, mask) * 2

    with pytest.raises(Disagreement, match="one query, three keys"):
        one.check(odd)


def test_a_number_too_large_for_a_type_leaves_its_case_out():
    """It would be infinite there, and NaN no fault of the program."""

    def log_of_sum(scores):
        return torch.logsumexp(scores, -1)

    found = examine(log_of_sum, "log_sum_exp", dtype="float16")
    label = "all scores below −100,000"
    assert found.left_out == {label: "a number is too large for float16"}
    assert label in examine(log_of_sum, "log_sum_exp", dtype="float32").labels


def test_a_wrong_race_gets_a_report():
    """Its noise of 1 − 1e-9 is 1 in float32, where the right one fails."""

    def wrong(logits, noise):
        return (logits + (-noise.log()).log()).argmax(-1)

    found = examine(wrong, "race")
    assert found.verdict.mistake == "adds_the_wrong_sign"


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, task in all_tasks().items()
        if castable(task) and not form_of(name).exact
    ],
)
def test_a_reference_has_a_result_in_float32(name):
    """A wrong answer is tried in float32 too, beside the reference."""
    task = all_tasks()[name]
    for case in task.cases():
        if not too_large(case, torch.float32):
            outcome = outcome_of(task.right, rounded(case, torch.float32))
            assert outcome.error is None, case.label
