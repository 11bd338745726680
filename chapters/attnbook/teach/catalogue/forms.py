"""The forms that functions of the field have, task by task.

`own` in the engine translates calls by them: which arguments are laid out in
heads, which are masks, what a module is built from and where its matrices go.
A task that is not named here is checked as it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.teach.catalogue.c08_feed_forward import layer_with
from attnbook.teach.catalogue.c10_block import block_with
from attnbook.teach.check.inputs import randns
from attnbook.teach.check.own.form import (
    BATCH_MASK,
    DOCUMENTS,
    HEADS,
    MASK,
    PAIRS,
    POSITIONS,
    TOKENS,
    WEIGHTS,
    AsModule,
    Form,
)
from attnbook.teach.check.own.layouts import Unfit
from attnbook.teach.check.running import Case

_QKV = {"q": HEADS, "k": HEADS, "v": HEADS}
_NO_KEY = "of a query that may read no key right programs make zeros or NaN"
_SHARED = "a program may want heads of its own for keys and values"
_OVERFLOW = (
    "in float16 a product may be too large before it is scaled; a program "
    "for bfloat16 need not mind"
)
_TIES = "of equals programs choose one, another or all"
_FIRST_OF_EQUALS = "of equally frequent pairs programs choose one or another"
_EXACT = (
    "Its GELU is the exact one, x Φ(x), and not the formula with tanh that "
    "the reference has. That is right for weights that were trained with it "
    "(a configuration calls it gelu), and not for GPT-2's (gelu_new)."
)
_TANH = (
    "Its GELU is the formula with tanh, and not the exact one, x Φ(x), that "
    "the reference has. That is right for weights that were trained with it, "
    "such as GPT-2's (a configuration calls it gelu_new or gelu_pytorch_tanh)."
)
_RELU = (
    "Its activation is ReLU, and not the GELU that the reference has. That "
    "is right for weights that were trained with it, as in the first "
    "transformers."
)
_TEXTS_WITH_TIES = (
    "equally frequent pairs",
    "a run of one byte",
    "bytes that are no text",
    "two sentences",
    "a hundred merges",
    "290 bytes, 140 merges",
)
_NOBODY = "a text of the number 0 is padding for some programs"
_CONSTANT = "a constant token is all rounding, and eps decides"


def _hides_or_is_nan(_: Case, answer: Any, right: Any) -> bool:
    """Whether a result is 0 or NaN wherever the right one is 0.

    NaN has read nothing that was hidden, and nobody takes it for a result. A
    mean of hidden keys looks like one. It is far larger than 0.01, and what
    is 0 is so in each type of numbers.
    """
    parts = answer if isinstance(answer, (tuple, list)) else [answer]
    others = right if isinstance(right, (tuple, list)) else [right]
    for a, b in zip(parts, others):
        if not isinstance(a, Tensor) or a.shape != b.shape:
            return False
        if bool((a[b == 0].abs() > 0.01).any()):
            return False
    return True


def _keeps_k_or_equals(case: Case, answer: Any, right: Any) -> bool:
    """Whether a result of top-k has the k largest: all that equal the last of
    them, or any of these, so that there are k."""
    logits, k = case.args
    if not isinstance(answer, Tensor) or answer.shape != logits.shape:
        return False
    kept = answer > -torch.inf
    least = right.masked_fill(right == -torch.inf, torch.inf).amin(
        -1, keepdim=True
    )
    sure = logits > least
    enough = (kept.sum(-1) == k) | (kept == (logits >= least)).all(-1)
    same = torch.where(kept, answer == logits, True)
    among = ~sure | kept, ~kept | (logits >= least), same
    return bool(enough.all()) and all(bool(each.all()) for each in among)


def _merges_the_most_frequent(case: Case, answer: Any, right: Any) -> bool:
    """Whether each merge takes a pair that is as frequent as any, as bytes
    stand then; a run of three of one byte has that pair once or twice."""
    data, n_merges = case.args
    ids = list(data)
    try:
        pairs = [(int(a), int(b)) for a, b in answer]
    except (TypeError, ValueError):  # these are no pairs of numbers
        return False
    for n, pair in enumerate(pairs):
        counts = Counter(zip(ids, ids[1:]))
        apart = Counter(counts)
        for each in counts:
            if each[0] == each[1]:
                apart[each] = len(ids) - len(_joined(ids, each, -1))
        most = max(counts.values(), default=0), max(apart.values(), default=0)
        if not (0 < counts[pair] == most[0] or 0 < apart[pair] == most[1]):
            return False
        ids = _joined(ids, pair, 256 + n)
    left = Counter(zip(ids, ids[1:]))
    ended = len(pairs) < n_merges and max(left.values(), default=0) < 2
    return len(pairs) == n_merges or ended


def _joined(ids: list[int], pair: tuple[int, ...], new: int) -> list[int]:
    """Some ids in which each pair, from left to right, became a new id."""
    made: list[int] = []
    n = 0
    while n < len(ids):
        found = tuple(ids[n : n + 2]) == pair
        made.append(new if found else ids[n])
        n += 2 if found else 1
    return made


def _draw_attention(
    B: int = 2, H: int = 2, T: int = 5, S: int = 0, d: int = 8
) -> tuple[Tensor, ...]:
    """Queries, keys and values of some sizes, for cases beside the task's own.

    Shapes: q (B, H, T, d), k and v (B, H, S, d), where S = 0 means T.
    """
    sizes = (B, H, T, d), (B, H, S or T, d), (B, H, S or T, d)
    return randns(*sizes, seed=900)


def _draw_grouped(
    B: int = 2, H: int = 4, H_kv: int = 2, T: int = 5, d: int = 8
) -> tuple[Tensor, ...]:
    """The same where heads share their keys: k and v (B, H_kv, T, d)."""
    sizes = (B, H, T, d), (B, H_kv, T, d), (B, H_kv, T, d)
    return randns(*sizes, seed=910)


def _draw_heads(
    B: int = 2, T: int = 5, d_model: int = 16, n_heads: int = 4
) -> tuple[Any, ...]:
    """Tokens (B, T, d_model), the four matrices of a layer, and n_heads."""
    d = d_model
    x, *matrices = randns((B, T, d), *[(d, d)] * 4, seed=920)
    return x, *(w / d**0.5 for w in matrices), n_heads


def _heads_sizes(named: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes from which a module of multi-head attention can be made."""
    wide = len(named["w_out"])
    sizes = {"d_model": wide, "n_heads": named["n_heads"], "d_out": wide}
    return sizes | {"d_k": wide // named["n_heads"]}


def _heads_matrices(named: Mapping[str, Any]) -> dict[str, Tensor]:
    """A case's four matrices, by the names of a module's parameters.

    They are transposed, since `nn.Linear` keeps (out, in).
    """
    parts = ("query", "key", "value", "out")
    return {f"{part}.weight": named[f"w_{part}"].mT for part in parts}


_ATTENTION = AsModule(_heads_sizes, _heads_matrices, ("x", "mask"))


def _grouped_sizes(named: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a module whose heads of queries share keys and values."""
    width, d_out = named["x"].shape[-1], named["w_out"].shape[-1]
    numbers = {name: named[name] for name in ("n_heads", "n_kv_heads")}
    d_k = len(named["w_out"]) // named["n_heads"]
    return {"d_model": width, **numbers, "d_out": d_out, "d_k": d_k}


def _draw_shared(
    B: int = 2,
    T: int = 5,
    d_model: int = 16,
    n_heads: int = 4,
    n_kv_heads: int = 2,
) -> tuple[Any, ...]:
    """Tokens (B, T, d_model), the four matrices of a layer whose heads share
    keys, and the two numbers of heads."""
    narrow = d_model // n_heads * n_kv_heads
    widths = d_model, narrow, narrow, d_model
    x, *matrices = randns(
        (B, T, d_model), *((d_model, wide) for wide in widths), seed=950
    )
    return x, *(w / d_model**0.5 for w in matrices), n_heads, n_kv_heads


def _lengths(documents: Tensor, with_texts: bool) -> Any:
    """How long the texts of each row are, one after the other.

    It is a list for each row, or one list if rows have no axis.
    """
    rows = [
        torch.unique_consecutive(row, return_counts=True)[1]
        for row in documents
    ]
    if with_texts:
        return rows
    if len(rows) > 1:
        raise Unfit("several rows, and no axis for them")
    return rows[0].tolist()


def _sums_of_lengths(documents: Tensor, with_texts: bool) -> Tensor:
    """Where each text of a row begins, and where the last one ends."""
    lengths = _lengths(documents, False)
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def _places_in_texts(documents: Tensor, with_texts: bool) -> Tensor:
    """The place of each token in its own text, counted from 0."""
    found = []
    for lengths in _lengths(documents, True):
        found.append(torch.cat([torch.arange(n) for n in lengths.tolist()]))
    if with_texts:
        return torch.stack(found)
    if len(found) > 1:
        raise Unfit("several rows, and no axis for them")
    return found[0]


_INSTEAD_OF_NUMBERS = {
    "lengths": ("documents", _lengths),
    "cu_seqlens": ("documents", _sums_of_lengths),
    "positions": ("documents", _places_in_texts),
}


def _norm_sizes(named: Mapping[str, Any]) -> dict[str, Any]:
    """The width and eps, from which a module that normalises can be made."""
    return {"d_model": named["x"].shape[-1], "eps": named["eps"]}


def _norm_values(named: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weight of a norm; ones where the case has none."""
    x, weight = named["x"], named["weight"]
    ones = torch.ones(x.shape[-1], dtype=x.dtype, device=x.device)
    return {"weight": ones if weight is None else weight}


def _layer_norm_values(named: Mapping[str, Any]) -> dict[str, Tensor]:
    """A layer norm's weight and bias; zeros where there is no bias."""
    found = _norm_values(named)
    bias = named["bias"]
    zeros = torch.zeros_like(found["weight"])
    return found | {"bias": zeros if bias is None else bias}


def _draw_norm(
    B: int = 2, T: int = 5, d_model: int = 16
) -> tuple[Tensor, ...]:
    """Tokens (B, T, d_model) and a weight (d_model,)."""
    return randns((B, T, d_model), (d_model,), seed=930)


def _inner_sizes(named: Mapping[str, Any]) -> dict[str, Any]:
    """The two widths from which a feed-forward module can be made."""
    d_model, d_ff = named["w_up"].shape
    return {"d_model": d_model, "d_ff": d_ff}


def _inner_values(named: Mapping[str, Any]) -> dict[str, Tensor]:
    """A case's matrices and biases, by the names of a module's parameters."""
    return {
        "up.weight": named["w_up"].mT,
        "up.bias": named["b_up"],
        "down.weight": named["w_down"].mT,
        "down.bias": named["b_down"],
    }


def _gated_values(named: Mapping[str, Any]) -> dict[str, Tensor]:
    """A case's three matrices, by the parameters of a module with a gate."""
    parts = ("gate", "up", "down")
    return {f"{part}.weight": named[f"w_{part}"].mT for part in parts}


def _draw_rotation(
    B: int = 2, H: int = 2, T: int = 5, d: int = 8
) -> tuple[Tensor, ...]:
    """Queries (B, H, T, d) to be rotated, and the positions 0 to T − 1."""
    return *randns((B, H, T, d), seed=940), torch.arange(T)


def _counted_from_0(named: Mapping[str, Any]) -> bool:
    """Whether a case's positions are 0, 1, 2, …, as many as it has tokens.

    A function that takes no positions can then be tried on it.
    """
    positions = named["positions"]
    x = next(named[n] for n in ("x", "q") if n in named)
    if positions.numel() != x.shape[-2]:
        return False
    return positions.flatten().tolist() == [*range(x.shape[-2])]


def _text_without_ties() -> tuple[bytes, int]:
    """A text in which one pair is the most frequent at each of three steps."""
    return b"abc1abc2abc3abc4ab5ab6de7de8de9dz", 3


def _of_any_size(_: Mapping[str, Any]) -> bool:
    """The size of a tile changes no result, so a function may choose it."""
    return True


def _block_sizes(named: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of the block that a case asks for, by the book's names."""
    d = named["x"].shape[-1]
    return {"d_model": d, "n_heads": named["n_heads"], "d_ff": 4 * d}


def _block_values(named: Mapping[str, Any]) -> dict[str, Tensor]:
    """A block's matrices and biases by the book's names, out of the `state`
    of a case, which has torch's names and q, k and v in one matrix."""
    state = named["state"]
    found = {}
    for part in ("weight", "bias"):
        rows = state[f"self_attn.in_proj_{part}"].chunk(3)
        for name, value in zip(("query", "key", "value"), rows):
            found[f"{name}.{part}"] = value
        for ours, theirs in (
            ("out", "self_attn.out_proj"),
            ("up", "linear1"),
            ("down", "linear2"),
            ("attention_norm", "norm1"),
            ("feed_forward_norm", "norm2"),
        ):
            found[f"{ours}.{part}"] = state[f"{theirs}.{part}"]
    return found


_ATTEND = "Attention"
_MASKS = "Masks"
_HEADS = "Heads, shared keys and values"
_NORMS = "Norms"
_INNER = "Feed-forward layers"
_PLACES = "Positions: rotary, ALiBi, sinusoidal"
_BLOCKS = "Blocks and models"
_LOSSES = "Losses, batches and targets"
_TRAIN = "Training: accumulation, AdamW"
_BYTES = "Byte pairs and text"
_CACHE = "Caches"
_SAMPLE = "Samplers"
_ONLINE = "Online softmax, tiles, merging: forward and backward"
_GUESS = "Speculative decoding"
_LOAD = "Loaders"
_SERVE = "Serving"

_MASK_RESULT = (MASK,)
_BOTH_RESULTS = (HEADS, WEIGHTS)


def _forms() -> dict[str, Form]:  # long: one task after another
    """The form of each task that can be put to functions from elsewhere."""
    attend = Form(
        _ATTEND,
        _QKV | {"mask": MASK},
        _BOTH_RESULTS,
        draw=_draw_attention,
        free={
            "boolean, the second query fully masked": _NO_KEY,
            "additive, the second query fully masked": _NO_KEY,
            "float16, too large before the scale": _OVERFLOW,
        },
        among=dict.fromkeys(
            (
                "boolean, the second query fully masked",
                "additive, the second query fully masked",
            ),
            _hides_or_is_nan,
        ),
        alone=True,
    )
    rotation = Form(
        _PLACES,
        {"x": PAIRS, "positions": POSITIONS},
        (PAIRS,),
        draw=_draw_rotation,
        implied={"positions": _counted_from_0},
        in_float32=("positions",),
    )
    norm = Form(
        _NORMS,
        module=AsModule(_norm_sizes, _norm_values, ("x",)),
        draw=_draw_norm,
    )
    heads = Form(
        _HEADS,
        {"x": TOKENS, "mask": MASK},
        (TOKENS,),
        module=_ATTENTION,
        draw=_draw_heads,
    )
    tiles = {"rows": _of_any_size, "columns": _of_any_size}
    return {
        "scaled_dot_product_attention": attend,
        "causal_attention": Form(_ATTEND, _QKV, _BOTH_RESULTS, alone=True),
        "self_attention": Form(_ATTEND, {"x": TOKENS}),
        "simple_attention": Form(_ATTEND, {"x": TOKENS}, alone=True),
        "attention_scores": Form(_ATTEND),
        "softmax": Form(_ATTEND),
        "masked_weights": Form(
            _ATTEND,
            {"mask": MASK},
            free={
                "a query without keys": _NO_KEY,
                "float16, a query without keys": _NO_KEY,
                "nothing, and no NaN on the way": _NO_KEY,
            },
            among=dict.fromkeys(
                (
                    "a query without keys",
                    "float16, a query without keys",
                    "nothing, and no NaN on the way",
                ),
                _hides_or_is_nan,
            ),
        ),
        "mask_scores": Form(_MASKS, {"mask": MASK}),
        "additive_mask": Form(_MASKS),
        "causal_mask": Form(_MASKS, results=_MASK_RESULT),
        "window_mask": Form(_MASKS, results=_MASK_RESULT),
        "sink_mask": Form(_MASKS, results=_MASK_RESULT),
        "prefix_mask": Form(_MASKS, results=_MASK_RESULT),
        "chunk_mask": Form(_MASKS, results=_MASK_RESULT),
        "tree_mask": Form(_MASKS, results=_MASK_RESULT),
        "decoder_mask": Form(_MASKS, results=(BATCH_MASK,)),
        "batch_mask": Form(_MASKS, results=(BATCH_MASK,)),
        "document_mask": Form(
            _MASKS,
            {"documents": DOCUMENTS},
            (BATCH_MASK,),
            free={"a text with the number 0": _NOBODY},
            instead=_INSTEAD_OF_NUMBERS,
        ),
        "split_heads": Form(_HEADS),
        "merge_heads": Form(_HEADS),
        "MultiHeadAttention": heads,
        "multi_head_attention": Form(_HEADS),
        "GroupedQueryAttention": Form(
            _HEADS,
            {"x": TOKENS, "mask": MASK},
            (TOKENS,),
            module=AsModule(_grouped_sizes, _heads_matrices, ("x", "mask")),
            draw=_draw_shared,
        ),
        "grouped_attention": Form(_HEADS, _QKV, (HEADS,), draw=_draw_grouped),
        "queries_keys_values": Form(_HEADS),
        "pool_key_value": Form(_HEADS),
        "latent_attention": Form(_HEADS),
        "attend_with_sink": Form(_HEADS),
        "layer_norm": replace(
            norm,
            module=AsModule(_norm_sizes, _layer_norm_values, ("x",)),
            free={"a constant token": _CONSTANT},
        ),
        "rms_norm": norm,
        "layer_norm_backward": Form(_NORMS),
        "rms_norm_backward": Form(_NORMS),
        "gelu": Form(_INNER),
        "feed_forward": Form(
            _INNER,
            module=AsModule(_inner_sizes, _inner_values, ("x",)),
            also={
                _TANH: partial(layer_with, nn.GELU(approximate="tanh")),
                _RELU: partial(layer_with, F.relu),
            },
        ),
        "swiglu": Form(
            _INNER, module=AsModule(_inner_sizes, _gated_values, ("x",))
        ),
        "gate_backward": Form(_INNER),
        "rotate": rotation,
        "rotate_some": replace(rotation, draw=None),
        "rotary_attention": Form(
            _PLACES,
            {"q": PAIRS, "k": PAIRS, "v": HEADS, "positions": POSITIONS},
            (HEADS,),
            implied={"positions": _counted_from_0},
            in_float32=("positions",),
        ),
        "rotary_angles": Form(_PLACES, in_float32=("positions",)),
        "interpolated_angles": Form(_PLACES, in_float32=("positions",)),
        "sinusoidal": Form(_PLACES, in_float32=("positions",)),
        "to_half_layout": Form(_PLACES),
        "alibi_slopes": Form(_PLACES),
        "alibi_bias": Form(_PLACES),
        "token_positions": Form(_PLACES),
        "Block": Form(
            _BLOCKS,
            {"x": TOKENS, "mask": MASK},
            (TOKENS,),
            module=AsModule(_block_sizes, _block_values, ("x", "mask")),
            also={
                _EXACT: partial(block_with, F.gelu),
                _RELU: partial(block_with, F.relu),
            },
        ),
        "online_softmax": Form(_ONLINE),
        "softmax_backward": Form(_ONLINE),
        "attention_in_blocks": Form(
            _ONLINE, _QKV, (HEADS,), implied={"block": _of_any_size}
        ),
        "tiled_attention": Form(
            _ONLINE, _QKV, (HEADS, HEADS), implied=tiles, alone=True
        ),
        "tiled_backward": Form(_ONLINE, implied=tiles),
        "keep_top_k": Form(
            _SAMPLE,
            free={"two of four, two of them equal": _TIES},
            among={"two of four, two of them equal": _keeps_k_or_equals},
        ),
        "learn_merges": Form(
            _BYTES,
            draw=_text_without_ties,
            free=dict.fromkeys(_TEXTS_WITH_TIES, _FIRST_OF_EQUALS),
            among=dict.fromkeys(_TEXTS_WITH_TIES, _merges_the_most_frequent),
        ),
        "AdamW": Form(_TRAIN, settings=("lr", "betas", "eps", "weight_decay")),
        "cover_words": Form(_LOSSES, exact=True),
        "draw": Form(_SAMPLE, exact=True),
        "race": Form(_SAMPLE, exact=True),  # a noise of 1 − 1e-9
        "from_gpt2": Form(_LOAD, exact=True),
    } | _others()


def _others() -> dict[str, Form]:
    """The topic of each task that is called as it is, in no other form."""
    topics = {
        _BLOCKS: "pre_norm_block post_norm_block pre_norm_stack decoder_block "
        "language_model encode stream_gradient",
        _LOSSES: "cross_entropy loss_in_blocks covered_loss shifted "
        "decoder_input mean_loss perplexity bits_per_byte",
        _TRAIN: "accumulate adamw drop",
        _BYTES: "encode_bytes text_as_it_comes",
        _CACHE: "decode_step attend_stored roll_in rolling_step "
        "cached_positions new_positions decoupled_step with_prefix "
        "rows_that_fit kept_bytes answers",
        _SAMPLE: "at_temperature tempered_softmax keep_top_p "
        "keep_min_p penalise nucleus_size last_logits goes_on "
        "pad_left greedy_until chance_of_text may_come given_allowed",
        _ONLINE: "merge merge_finished log_sum_exp tiles_to_visit "
        "softmax_jacobian",
        _GUESS: "residual acceptance law_of_a_call look_up expected_calls",
        _LOAD: "config_of to_linear to_c_attn stack_key_value "
        "what_differs find_first first_wrong llama_parameters",
        _SERVE: "slots held tokens_found shares give_back",
    }
    return {
        name: Form(topic)
        for topic, names in topics.items()
        for name in names.split()
    }


@cache
def all_forms() -> dict[str, Form]:
    """The forms of tasks, by the task's name, topic by topic."""
    return _forms()
