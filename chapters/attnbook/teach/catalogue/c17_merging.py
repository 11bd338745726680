"""Chapter 17, attention without the matrix: tasks and known mistakes."""

import functools
import math

import torch
import torch.nn.functional as F

from attnbook.merging import Partial
from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, ints, randns, watched
from attnbook.teach.check.rules import AtMost
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(17)

INF = math.inf


def part(*rows):
    """A `Partial` whose rows are written as peak, total and context."""
    return Partial(f64(*rows)[:, :1], f64(*rows)[:, 1:2], f64(*rows)[:, 2:])


def _drawn_part(n, d, *, seed):
    """A `Partial` of n queries, d wide, with a total above 0."""
    peak, total, context = randns((n, 1), (n, 1), (n, d), seed=seed)
    return Partial(peak, total.exp(), context)


_SOME = part([0.5, 1.5, 3, -1], [-2, 1, 0.5, 2])
_OTHER = part([-0.5, 1.2, 1, 1], [3, 2.5, -1, 0])
_NONE = part([-INF, 0, 0, 0], [-INF, 0, 0, 0])
_HALF = part([-INF, 0, 0, 0], [1, 2, 3, 4])
_LAST = [3, 2.5, -1, 0]
_HIGH = part([2000, 1, 1, 0], [-131072, 2, 0, 1])
_LOW = part([0.5, 1.5, 3, -1], [-131073, 1, 0.5, 2])


@task(
    against="a loop in plain numbers",
    home="merging.merge",
    cases={
        "peaks of ln 3 and ln 6": (
            part([math.log(3), 4 / 3, 150]),
            part([math.log(6), 1, 100]),
        ),
        "the higher peak first": (_OTHER, _SOME),
        "nothing on the right": (_SOME, _NONE),
        "nothing on the left": (_NONE, _SOME),
        "peaks in the thousands, and far below 0": (_LOW, _HIGH),
        "a query without keys in one part": (
            _HALF,
            part([-2e9, 1.2, 1, 1], [3, 2.5, -1, 0]),
        ),
        "no key in either part": (_NONE, _HALF),
        "a query without keys in both": (_HALF, part([-INF, 0, 0, 0], _LAST)),
        "equal peaks": (_SOME, part([0.5, 1.2, 1, 1], [-2, 2.5, -1, 0])),
        "131 queries, 130 wide": (
            _drawn_part(131, 130, seed=40),
            _drawn_part(131, 130, seed=50),
        ),
        "128 queries, 64 wide": (
            _drawn_part(128, 64, seed=60),
            _drawn_part(128, 64, seed=70),
        ),
    },
)
def merge(a, b):
    """two parts (peak, total, context) of one attention as one part, relative
    to the higher peak; a part without keys is (−∞, 0, 0)"""
    peak, total, context = (x.clone() for x in a)
    for row in range(len(peak)):
        parts = [p for p in (a, b) if p.peak[row] > -INF]
        top = max((float(p.peak[row]) for p in parts), default=-INF)
        factors = [math.exp(float(p.peak[row]) - top) for p in parts]
        peak[row] = top
        total[row] = sum(f * p.total[row] for f, p in zip(factors, parts))
        context[row] = sum(f * p.context[row] for f, p in zip(factors, parts))
    return peak, total, context


@merge.mistake(
    "paiml/aprender #2753",
    symptom=symptoms.WRONG_SUMS,
    not_looked_up="paiml/aprender #2753",
)
def keeps_the_old_total(a, b):
    """Right while the first part has the highest score; after that what came
    before counts too much, and the text is nonsense.
    cause: The old peak is overwritten before the factor is computed, which is
    then exp(peak − peak) = 1.
    fix: Compute both factors from the old peaks, then take the new one."""
    peak = torch.maximum(a[0], b[0])
    keep = (b[0] - peak).exp()
    return peak, a[1] + keep * b[1], a[2] + keep * b[2]


@merge.mistake(
    "flashinfer-ai/flashinfer #4051, vllm-project/vllm #27491",
    symptom=symptoms.NAN,
)
def takes_infinity_from_infinity(a, b):
    """Right for most queries; where one has no key in either part, all its
    numbers are NaN.
    cause: Both peaks are −∞, and −∞ − (−∞) is NaN.
    fix: Subtract 0 where the higher peak is −∞: exp(−∞ − 0) is 0."""
    peak = torch.maximum(a[0], b[0])
    keep_a, keep_b = (a[0] - peak).exp(), (b[0] - peak).exp()
    total = keep_a * a[1] + keep_b * b[1]
    return peak, total, keep_a * a[2] + keep_b * b[2]


@merge.mistake("HabanaAI/vllm-fork #275", symptom=symptoms.NAN)
def keeps_to_the_second_peak(a, b):
    """Right for small scores; where the first peak is far above the second,
    infinity and NaN.
    cause: The exponentials are taken relative to one of the peaks, or to a
    fixed number, so that exp of the difference may overflow.
    fix: Take the higher of the two peaks: no exponent is above 0."""
    peak = b[0].masked_fill(b[0] == -INF, 0)
    keep_a, keep_b = (a[0] - peak).exp(), (b[0] - peak).exp()
    total = keep_a * a[1] + keep_b * b[1]
    return b[0], total, keep_a * a[2] + keep_b * b[2]


def _qkv(leading, T, S, d_k, d_v, *, seed, by=1):
    """Queries, keys and values; the queries are multiplied by `by`."""
    sizes = (T, d_k), (S, d_k), (S, d_v)
    q, k, v = randns(*((*leading, *size) for size in sizes), seed=seed)
    return q * by, k, v


def _allowed(T, S, causal):
    """Who sees whom: the queries are the last T of S positions."""
    later = torch.arange(S) > torch.arange(T)[:, None] + S - T
    return ~later if causal else torch.ones_like(later)


def scores_of(q, k, causal):
    """Scaled scores (..., T, S), with −∞ where a query may not look."""
    T, S = q.shape[-2], k.shape[-2]
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.masked_fill(~_allowed(T, S, causal), -INF)


_TILES = {
    "one tile": call(*_qkv((), 2, 3, 2, 2, seed=1), rows=4, columns=4),
    "three keys, two a tile": call(
        *_qkv((), 1, 3, 2, 1, seed=2), rows=1, columns=2
    ),
    "causal, two by two": call(
        *_qkv((), 4, 4, 2, 3, seed=3), causal=True, rows=2, columns=2
    ),
    "causal, the last two of five": call(
        *_qkv((), 2, 5, 3, 2, seed=4), causal=True, rows=2, columns=2
    ),
    "causal, tall tiles": call(
        *_qkv((), 7, 7, 2, 2, seed=5), causal=True, rows=3, columns=2
    ),
    "causal, wide tiles, two heads": call(
        *_qkv((2,), 7, 9, 2, 2, seed=6), causal=True, rows=2, columns=4
    ),
    "scores in the hundreds": call(
        *_qkv((), 3, 5, 2, 2, seed=7, by=300), rows=2, columns=2
    ),
    "more queries than keys, causal": call(
        *_qkv((), 3, 2, 2, 2, seed=8), causal=True, rows=2, columns=2
    ),
    "all scores below −100,000": call(
        f64([2**16], [2**16]),
        -(2**15) * f64([1], [1.5]),
        f64([1], [2]),
        causal=True,
        rows=2,
        columns=2,
    ),
    # More than one tile of any size that a program may have built in.
    "300 tokens, causal": call(
        *_qkv((), 300, 300, 2, 2, seed=9), causal=True, rows=64, columns=32
    ),
    "17 heads, 130 wide": call(
        *_qkv((17,), 5, 7, 130, 131, seed=12), causal=True, rows=2, columns=3
    ),
    "300 tokens, tiles of 130 by 131": call(
        *_qkv((), 300, 300, 2, 2, seed=15), causal=True, rows=130, columns=131
    ),
    "128 queries, 256 keys, tiles of 64 by 128": call(
        *_qkv((), 128, 256, 2, 2, seed=18), causal=True, rows=64, columns=128
    ),
}


@task(
    against="torch's softmax and logsumexp",
    home="merging.tiled_attention",
    gradients=True,
    cases=_TILES,
)
def tiled_attention(q, k, v, *, causal=False, **tile):
    """the context and the log of the sum of exponentials, (..., T, 1); a query
    that sees no key gets 0 and −∞"""
    scores = scores_of(q, k, causal)
    lost = (scores == -INF).all(-1, keepdim=True)
    scores = scores.masked_fill(lost, 0)
    context = (scores.softmax(-1) @ v).masked_fill(lost, 0)
    return context, scores.logsumexp(-1, keepdim=True).masked_fill(lost, -INF)


@tiled_attention.mistake(
    "gittensor-ai-lab/sparkinfer #3, NVIDIA/cutlass #2336",
    symptom=symptoms.SEES_WRONG_TOKENS,
)
def lines_up_the_first_tokens(q, k, v, *, causal=False, **tile):
    """Right for a whole text; with keys from a cache a new token does not see
    the latest ones.
    cause: The bound of the tiles is taken from the row in the matrix, not
    from the position: query i stands at S − T + i.
    fix: Add S − T to the row, in the bound and in the mask."""
    later = torch.arange(k.shape[-2]) > torch.arange(q.shape[-2])[:, None]
    scores = scores_of(q, k, False).masked_fill(later & causal, -INF)
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


@tiled_attention.mistake(
    "jax-ml/jax #27224, 66RING/tiny-flash-attention #12",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def drops_the_short_tile(q, k, v, *, causal=False, **tile):
    """Right for lengths that are multiples of a tile; for all others the last
    keys count for nothing.
    cause: The number of tiles is S // columns, which leaves out the rest.
    fix: Round up, and let the last tile be shorter, or mask what is behind
    its end."""
    S = k.shape[-2]
    if whole := S // tile["columns"] * tile["columns"]:
        blind = torch.arange(S) >= whole
        scores = scores_of(q, k, causal).masked_fill(blind, -INF)
        return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)
    return tiled_attention.right(q, k, v, causal=causal)


@tiled_attention.mistake(
    "ROCm/rocMLIR #2165", symptom=symptoms.SEES_WRONG_TOKENS
)
def stops_at_the_first_row(q, k, v, *, causal=False, **tile):
    """Right with one query a tile; with more, all but the first of each tile
    miss their latest keys.
    cause: A tile of keys is skipped where its first key is later than the
    first query of the rows. The last query may see it.
    fix: Skip it where its first key is later than the last query."""
    T, S = q.shape[-2], k.shape[-2]
    first = torch.arange(T) // tile["rows"] * tile["rows"] + S - T
    skipped = (
        torch.arange(S) // tile["columns"] * tile["columns"] > first[:, None]
    )
    scores = scores_of(q, k, causal).masked_fill(skipped & causal, -INF)
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


@tiled_attention.mistake(
    "Dao-AILab/flash-attention #978", symptom=symptoms.NAN
)
def says_infinity_for_no_key(q, k, v, *, causal=False, **tile):
    """The contexts are right. Merged with another part, a query without keys
    here wipes out what it found there, or all is NaN.
    cause: The log of an empty sum is given as +∞, so that exp(s − lse) is 0
    in the backward pass. As a weight for merging it is the largest of all.
    fix: Give −∞: it is log 0, and as a weight it counts nothing."""
    context, lse = tiled_attention.right(q, k, v, causal=causal)
    return context, lse.masked_fill(lse == -INF, INF)


def _backward_case(case):
    """The inputs of a backward pass, from those of a forward pass."""
    q, k, v = case.args
    context, lse = tiled_attention.right(*case.args, **case.kwargs)
    d_context, d_lse = randns(context.shape, lse.shape, seed=98)
    given = q, k, v, context, lse, d_context, d_lse
    return call(*given, **case.kwargs)


@task(
    against="torch's autograd",
    cases={label: _backward_case(case) for label, case in _TILES.items()},
)
def tiled_backward(
    q, k, v, context, lse, d_context, d_lse, *, causal=False, **tile
):
    """the gradients with respect to q, k and v, given the one with respect to
    the context and the one with respect to the log"""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    again = tiled_attention.right(*leaves, causal=causal)
    return torch.autograd.grad(again, leaves, (d_context, d_lse))


def whole_backward(q, k, v, lse, d_context, D, causal, scale=True):
    """The backward pass with the whole matrix, for variants of it."""
    at = lse.masked_fill(lse == -INF, INF)
    weights = (scores_of(q, k, causal) - at).exp()
    d_scores = weights * (d_context @ v.mT - D)
    by = 1 / math.sqrt(q.shape[-1]) if scale else 1.0
    return d_scores @ k * by, d_scores.mT @ q * by, weights.mT @ d_context


@tiled_backward.mistake(symptom=symptoms.WRONG_GRADIENTS)
def leaves_the_row_sum_out(
    q, k, v, context, lse, d_context, d_lse, *, causal=False, **tile
):
    """The forward pass is perfect and dv is right; dq and dk are not, and the
    loss falls slowly or not at all.
    cause: The derivative of softmax subtracts Σ weight · gradient. A tile
    does not know this sum over the whole row, and it was forgotten.
    fix: Compute D = rowsum(dO ∘ O) before the tiles, and subtract it."""
    return whole_backward(q, k, v, lse, d_context, -d_lse, causal)


@tiled_backward.mistake(
    "triton-lang/triton #7216, hao-ai-lab/FastVideo #925",
    symptom=symptoms.WRONG_GRADIENTS,
)
def forgets_the_mask_going_back(
    q, k, v, context, lse, d_context, d_lse, *, causal=False, **tile
):
    """Outputs and loss are right; the gradients are far too large, and come
    also from keys that the query does not see.
    cause: The backward pass computes the scores again, without the mask.
    fix: Mask each tile again before the exponential is taken."""
    D = (d_context * context).sum(-1, keepdim=True) - d_lse
    scale = 1 / math.sqrt(q.shape[-1])
    weights = (q @ k.mT * scale - lse).exp()  # (..., T, S)
    d_scores = weights * (d_context @ v.mT - D) * scale
    return d_scores @ k, d_scores.mT @ q, weights.mT @ d_context


@tiled_backward.mistake(symptom=symptoms.WRONG_GRADIENTS)
def forgets_the_scale_going_back(
    q, k, v, context, lse, d_context, d_lse, *, causal=False, **tile
):
    """dv is right; dq and dk are √d_k times too large.
    cause: The scores are q k / √d_k, and the derivative of that product has
    the factor as well.
    fix: Multiply the gradient of the scores by 1/√d_k, once."""
    D = (d_context * context).sum(-1, keepdim=True) - d_lse
    return whole_backward(q, k, v, lse, d_context, D, causal, scale=False)


@tiled_backward.mistake(symptom=symptoms.WRONG_GRADIENTS)
def keeps_the_last_rows_alone(
    q, k, v, context, lse, d_context, d_lse, *, causal=False, **tile
):
    """Right while all queries fit in one tile; with more tiles dk and dv are
    too small.
    cause: A key's gradient is assigned by each tile of queries, where it has
    to be added up over all of them.
    fix: Start dk and dv at zero and add, as a key serves every query."""
    D = (d_context * context).sum(-1, keepdim=True) - d_lse
    dq, _, _ = whole_backward(q, k, v, lse, d_context, D, causal)
    last = (q.shape[-2] - 1) // tile["rows"] * tile["rows"]
    gone = (torch.arange(q.shape[-2]) < last)[:, None]
    d_context, D = d_context.masked_fill(gone, 0), D.masked_fill(gone, 0)
    _, dk, dv = whole_backward(q, k, v, lse, d_context, D, causal)
    return dq, dk, dv


@tiled_backward.mistake(
    "xlite-dev/ffpa-attn #300", symptom=symptoms.WRONG_GRADIENTS
)
def lines_up_the_first_tokens_going_back(
    q, k, v, context, lse, d_context, d_lse, *, causal=False, **tile
):
    """Right for a whole text. With more keys than queries the outputs are
    right, and the gradients are wrong or NaN.
    cause: The forward pass counts positions from the end, the backward pass
    from the start.
    fix: Let both ask the same function who sees whom."""
    T, S = q.shape[-2], k.shape[-2]
    later = torch.arange(S) > torch.arange(T)[:, None]
    at = lse.masked_fill(lse == -INF, INF)
    scores = scores_of(q, k, False).masked_fill(later & causal, -INF)
    weights = (scores - at).exp()
    D = (d_context * context).sum(-1, keepdim=True) - d_lse
    d_scores = weights * (d_context @ v.mT - D) / math.sqrt(q.shape[-1])
    return d_scores @ k, d_scores.mT @ q, weights.mT @ d_context


def _done(S, *, seed, by=1.0):
    """A finished result of two queries: the context and the log."""
    q, k, v = _qkv((), 2, S, 3, 2, seed=seed, by=by)
    return tiled_attention.right(q, k, v)


_EMPTY = (torch.zeros(2, 2, dtype=torch.float64), f64([-INF], [-INF]))


@task(
    against="torch.logsumexp and softmax",
    cases={
        "112.5 with a total of 4, 100 with one of 6": (
            (f64([112.5]), f64([math.log(4)])),
            (f64([100]), f64([math.log(6)])),
        ),
        "three keys and five": (_done(3, seed=20), _done(5, seed=30)),
        "nothing in the second": (_done(3, seed=20), _EMPTY),
        "scores in the thousands": (
            (
                f64([1, 2], [3, 4], [6, 7], [4, 2]),
                f64([2000], [-131072], [-2000], [-2e9]),
            ),
            (
                f64([5, 0], [0, 1], [8, 9], [0, 0]),
                f64([2001], [-131074], [2000], [-INF]),
            ),
        ),
        "nothing in either": (_EMPTY, _EMPTY),
        "131 queries, 130 wide": (
            randns((131, 130), (131, 1), seed=40),
            randns((131, 130), (131, 1), seed=42),
        ),
        "128 queries, 64 wide": (
            randns((128, 64), (128, 1), seed=44),
            randns((128, 64), (128, 1), seed=46),
        ),
    },
)
def merge_finished(a, b):
    """two finished results (context, lse) over different keys as one, a pair
    too; without any key the context is 0 and lse −∞"""
    both = torch.stack([a[1], b[1]])
    lse = both.logsumexp(0)
    shares = both.masked_fill((lse == -INF).expand_as(both), 0).softmax(0)
    return shares[0] * a[0] + shares[1] * b[0], lse


@merge_finished.mistake(symptom=symptoms.WRONG_IN_THE_NEXT_CASE)
def averages_the_halves(a, b):
    """Right where both parts hold half of the weight; else the part with few
    or unimportant keys counts as much as the other.
    cause: Two averages are averaged evenly. Their totals are not equal.
    fix: Weigh each by its total, exp(lse), relative to the sum of both.
    hint: Three keys hold all of the weight and two hold none. What should the
    second part count?"""
    return (a[0] + b[0]) / 2, torch.logaddexp(a[1], b[1])


@merge_finished.mistake(
    "flashinfer-ai/flashinfer #2113", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def reads_a_log_to_the_base_of_two(a, b):
    """Off by a few percent: the part with the larger total counts too little.
    Long prefixes suffer most.
    cause: One side takes the logarithm to base 2, as kernels do because exp2
    is fast, the other side to base e.
    fix: Say the base where a log is handed over; log2 x times ln 2 is ln x.
    hint: To which base is your exponential taken?"""
    lse = torch.log2(torch.exp2(a[1]) + torch.exp2(b[1]))
    at = lse.masked_fill(lse == -INF, 0)
    f, g = (torch.exp2(x[1] - at) for x in (a, b))
    return f * a[0] + g * b[0], lse


@merge_finished.mistake(symptom=symptoms.NAN)
def raises_e_to_the_log(a, b):
    """Right for small scores; with logs in the hundreds infinity over
    infinity, and the context is NaN.
    cause: exp(lse) is the total itself, the very number that the peak was
    subtracted to avoid.
    fix: Subtract the larger log before the exponential.
    hint: How large is exp(2000)?"""
    f, g = a[1].exp(), b[1].exp()
    total = (f + g).masked_fill(f + g == 0, 1)
    return (f * a[0] + g * b[0]) / total, (f + g).log()


@merge_finished.mistake("flashinfer-ai/flashinfer #4051", symptom=symptoms.NAN)
def makes_nan_of_two_nothings(a, b):
    """Right until both parts are empty for a query: NaN.
    cause: Both logs are −∞, and −∞ − (−∞) is NaN.
    fix: Subtract 0 where the larger log is −∞.
    hint: What is −∞ − (−∞)?"""
    top = torch.maximum(a[1], b[1])
    f, g = (a[1] - top).exp(), (b[1] - top).exp()
    return (f * a[0] + g * b[0]) / (f + g), top + (f + g).log()


@task(
    against="the whole mask, looked through",
    cases={
        "four by four, two a tile": (4, 4, 2, 2),
        "one new token, five keys": (1, 5, 1, 2),
        "the last three of seven": (3, 7, 2, 2),
        "tall tiles, a short one": (7, 7, 3, 2),
        "wide tiles": (13, 25, 11, 12),
        "more queries than keys": (3, 2, 1, 1),
        "131 queries, tiles of ten by eleven": (131, 140, 10, 11),
        "large tiles": (300, 400, 131, 140),
        "128 queries, 256 keys, tiles of 64 by 128": (128, 256, 64, 128),
    },
)
def tiles_to_visit(T, S, rows, columns):
    """the tiles that a causal mask leaves, row by row: for each the first
    query, the first key, and whether the tile needs a mask"""
    allowed = _allowed(T, S, True)
    found = []
    for i in range(0, T, rows):
        for j in range(0, S, columns):
            tile = allowed[i : i + rows, j : j + columns]
            if tile.any():
                found.append((i, j, not bool(tile.all())))
    return found


def visit(T, S, rows, columns, seen, full):
    """The tiles (i, j) that are visited, and whether each needs a mask.

    Args:
        T, S: how many queries and keys there are.
        rows, columns: the sizes of a tile.
        seen: says whether a tile is visited at all.
        full: says whether all its queries see all its keys.
    """
    tiles = [(i, j) for i in range(0, T, rows) for j in range(0, S, columns)]
    return [(i, j, not full(i, j)) for i, j in tiles if seen(i, j)]


@tiles_to_visit.mistake(
    "NVIDIA/cutlass #2336", symptom=symptoms.SEES_WRONG_TOKENS
)
def counts_from_the_first_key(T, S, rows, columns):
    """Right for T = S; a new token behind a cache visits one tile, the first.
    cause: Query i is taken to stand at position i. It stands at S − T + i.
    fix: Add S − T to the query's number.
    hint: Where does the first of your queries stand among the keys?"""
    return visit(
        T, S, rows, columns,
        lambda i, j: j <= min(i + rows, T) - 1,
        lambda i, j: min(j + columns, S) - 1 <= i,
    )  # fmt: skip


@tiles_to_visit.mistake(
    "ROCm/rocMLIR #2165", symptom=symptoms.SEES_WRONG_TOKENS
)
def asks_the_first_query_alone(T, S, rows, columns):
    """Tiles on the diagonal are missing: the later queries of a tile lose
    keys that they may see.
    cause: A tile is left out where its first query sees nothing of it.
    fix: Ask the last query of the tile, which sees the most.
    hint: Which query of a tile sees the most?"""
    return visit(
        T, S, rows, columns,
        lambda i, j: j <= i + S - T,
        lambda i, j: min(j + columns, S) - 1 <= i + S - T,
    )  # fmt: skip


@tiles_to_visit.mistake(symptom=symptoms.SEES_WRONG_TOKENS)
def lets_the_last_query_judge(T, S, rows, columns):
    """Some tiles on the diagonal go without a mask, and their first queries
    see later keys.
    cause: A tile is taken for full where its last query sees all of it.
    fix: Ask the first query, which sees the least.
    hint: Which query of a tile sees the least?"""
    return visit(
        T, S, rows, columns,
        lambda i, j: j <= min(i + rows, T) - 1 + S - T,
        lambda i, j: min(j + columns, S) - 1 <= min(i + rows, T) - 1 + S - T,
    )  # fmt: skip


def _batch(B, H, T, P, S, *, seed, d_k=3, d_v=2, by=1):
    """q of T new tokens a text, times `by`; the shared prefix; each text's own
    keys."""
    prefix = (H, P, d_k), (H, P, d_v)
    own = (B, H, S, d_k), (B, H, S, d_v)
    q, *others = randns((B, H, T, d_k), *prefix, *own, seed=seed)
    return q * by, *others


@task(
    against="each text alone, its keys in one row",
    gradients=True,
    rules=(functools.partial(AtMost, 50_000),),  # of 256,000 in ten copies
    cases={
        "two shared keys, one own": _batch(1, 1, 1, 2, 1, seed=38),
        "two texts, one head": _batch(2, 1, 1, 3, 2, seed=40),
        "three texts, two heads": _batch(3, 2, 1, 4, 2, seed=50),
        "three tokens after two": _batch(2, 2, 3, 4, 5, seed=55),
        "scores in the thousands": _batch(3, 1, 2, 3, 3, seed=58, by=3000),
        "two tokens, all scores below −10⁹": (
            f64([2**16], [2**16])[None, None],
            -(2**15) * f64([1.5])[None],
            f64([1])[None],
            -(2**15) * f64([1.25], [1])[None, None],
            f64([2], [4])[None, None],
        ),
        "a long prefix, one own key": _batch(
            10, 2, 1, 100, 1, seed=60, d_k=128, d_v=128
        ),
        "17 texts, 17 heads": _batch(17, 17, 1, 2, 1, seed=70),
        "three tokens after 131 and 134, 130 wide": _batch(
            1, 1, 3, 131, 137, seed=80, d_k=130, d_v=131
        ),
        "sixteen tokens after 128 and 48": _batch(1, 1, 16, 128, 64, seed=90),
    },
)
def with_prefix(q, prefix_k, prefix_v, k, v):
    """the context (B, H, T, d_v) of the last T tokens of each of B texts,
    over a prefix that all share, (H, P, d), and keys of its own, (B, H, S, d),
    these behind a causal mask"""
    T, P, S = q.shape[-2], prefix_k.shape[-2], k.shape[-2]
    seen = torch.cat([torch.ones(T, P).bool(), _allowed(T, S, True)], -1)
    rows = []
    for b in range(len(q)):
        keys = torch.cat([prefix_k, k[b]], -2)
        values = torch.cat([prefix_v, v[b]], -2)
        rows.append(
            F.scaled_dot_product_attention(q[b], keys, values, attn_mask=seen)
        )
    return torch.stack(rows)


def totals_and_contexts(q, prefix_k, prefix_v, k, v, causal=True, asked=None):
    """Totals and contexts of prefix and own keys, relative to the highest
    score of both; no copy of the prefix. `asked` are the queries in the order
    in which they ask the prefix, (..., H, ..., d), where it is another."""
    asked = q if asked is None else asked
    shared = torch.einsum("bhtd,hpd->bhtp", asked, prefix_k)
    shared = shared.reshape(*q.shape[:-1], -1) / math.sqrt(q.shape[-1])
    scores = shared, scores_of(q, k, causal)
    peak = torch.cat(scores, -1).amax(-1, keepdim=True)
    exp, own = ((x - peak).exp() for x in scores)
    again = exp.reshape(*asked.shape[:-1], -1)
    context = torch.einsum("bhtp,hpe->bhte", again, prefix_v)
    totals = (x.sum(-1, keepdim=True) for x in (exp, own))
    own_context = own @ v
    return *totals, context.reshape(own_context.shape), own_context


@with_prefix.mistake(symptom=symptoms.WRONG_IN_THE_NEXT_CASE)
def averages_prefix_and_own(q, prefix_k, prefix_v, k, v):
    """Plausible texts; the few own tokens count as much as a long prefix.
    cause: Two finished contexts are averaged evenly.
    fix: Merge totals and contexts first, divide once.
    hint: How many keys has the prefix, and how many has the text?"""
    t, u, c, d = totals_and_contexts(q, prefix_k, prefix_v, k, v)
    return (c / t + d / u) / 2


@with_prefix.mistake(symptom=symptoms.WRONG_IN_A_BATCH)
def counts_the_prefix_once_for_all(q, prefix_k, prefix_v, k, v):
    """Right for one text or one head; with more, a query meets the prefix of
    another head.
    cause: The texts' queries are folded into one row of queries by a reshape
    from (B, H) to (H, B), which moves no number.
    fix: Transpose B and H before the rows are joined, and after they are cut.
    hint: Does a reshape from (B, H, …) to (H, B, …) move a number?"""
    rows = q.reshape(1, q.shape[1], -1, q.shape[-1])
    t, u, c, d = totals_and_contexts(q, prefix_k, prefix_v, k, v, asked=rows)
    return (c + d) / (t + u)


@with_prefix.mistake(symptom=symptoms.WRONG_SUMS)
def divides_by_the_own_total(q, prefix_k, prefix_v, k, v):
    """The contexts are too large: the weights sum to more than one.
    cause: The contexts are added, and divided by one of the totals.
    fix: The totals add up as the contexts do.
    hint: Over which keys does your total run?"""
    _, u, c, d = totals_and_contexts(q, prefix_k, prefix_v, k, v)
    return (c + d) / u


_LONG = watched(randn(40, 3, seed=82), randn(300, 3, seed=83))


@task(
    against="torch's cross_entropy",
    gradients=True,
    cases={
        "one place, four words, two a block": (
            *randns((1, 2), (4, 2), seed=70), ints(3), 2,
        ),
        "a short last block": (
            *randns((3, 2), (5, 2), seed=72), ints(0, 4, 2), 2,
        ),
        "logits in the hundreds": (
            400 * randn(3, 2, seed=74), randn(7, 2, seed=75), ints(1, 6, 3), 3,
        ),
        "logits far below zero": (
            f64([-(2**16)], [900]), f64([2**15], [49152], [2**16]),
            ints(1, 2), 2,
        ),
        "40 places, 300 words": (*_LONG, torch.arange(40) * 7, 50),
        "131 places, 130 wide, blocks of 130": (
            *randns((131, 130), (300, 130), seed=84),
            torch.arange(131) * 2 + 37,
            130,
        ),
        "16 places, 128 words, blocks of 64": (
            *randns((16, 2), (128, 2), seed=86),
            torch.arange(16) * 8 + 7,
            64,
        ),
    },
)  # fmt: skip
def loss_in_blocks(x, weight, targets, block):
    """the mean cross-entropy of targets (T,) under the logits x @ weight.T,
    the words read `block` at a time"""
    x, weight = (a.as_subclass(torch.Tensor) for a in (x, weight))
    return F.cross_entropy(x @ weight.T, targets)


def blocks_of(x, weight, block):
    """Logits in blocks of the vocabulary, (..., block) each."""
    return [x @ rows.mT for rows in weight.split(block)]


@loss_in_blocks.mistake(
    "apple/ml-cross-entropy #59", symptom=symptoms.OTHER_SCORE
)
def looks_for_the_word_in_every_block(x, weight, targets, block):
    """The loss is far off, or infinite: each block reports a score for a
    target that lies in another.
    cause: The target's number is taken modulo the block, or clamped into it,
    also where the word stands elsewhere.
    fix: Take the score from the block that holds the word, and from no other.
    hint: In how many of your blocks does a target stand?"""
    logits = blocks_of(x, weight, block)
    found = 0
    for part in logits:
        index = (targets % block).clamp(max=part.shape[-1] - 1)
        found = found + part.gather(-1, index[:, None])[:, 0]
    total = torch.stack([p.logsumexp(-1) for p in logits]).logsumexp(0)
    return (total - found).mean()


@loss_in_blocks.mistake(symptom=symptoms.OTHER_SCORE)
def adds_up_the_blocks_losses(x, weight, targets, block):
    """The loss is larger the smaller the blocks are.
    cause: The logs of the blocks' totals are added, as one adds losses. What
    adds up is the totals.
    fix: Merge peak and total over the blocks, take the log once.
    hint: What adds up over blocks, the totals or their logs?"""
    own = (x * weight[targets]).sum(-1)
    return (
        sum(p.logsumexp(-1) for p in blocks_of(x, weight, block)) - own
    ).mean()


@loss_in_blocks.mistake(symptom=symptoms.NAN)
def has_no_peak(x, weight, targets, block):
    """Right for small logits; for large ones the loss is infinite.
    cause: The totals are sums of plain exponentials, which overflow.
    fix: Keep a running peak beside the running total.
    hint: How large are the largest and the smallest of your exponentials?"""
    own = (x * weight[targets]).sum(-1)
    total = sum(p.exp().sum(-1) for p in blocks_of(x, weight, block))
    return (total.log() - own).mean()
