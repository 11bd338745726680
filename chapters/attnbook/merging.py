"""Attention computed part by part, without the matrix of all weights.

The keys are cut into parts; `attend_to_part` says what one part contributes
to each query, and `merge` makes one part of two. Parts merge in any order
and any grouping, so keys may be read in tiles, be shared out among workers,
or serve many texts at once. The way is known as the online softmax.

Shapes and types are those that `attention.scaled_dot_product_attention`
takes, except that a mask must be boolean. Axis names: T queries, S keys, d_k
width of a query or key, d_v width of a value; leading axes (`...`) may be any
that broadcast.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbook.masks import check_mask
from attnbook.shapes import expect
from attnbook.values import check_sizes


class Partial(NamedTuple):
    """What a part of the keys contributes to each query.

    `peak` is the largest score s, `total` the sum of exp(s − peak), and
    `context` the sum of exp(s − peak) v over the keys. For a query that sees
    no key they are −∞, 0 and 0. A finished result can be merged as well: it
    is the part (lse, 1, context).
    """

    peak: Tensor  # (..., T, 1)
    total: Tensor  # (..., T, 1)
    context: Tensor  # (..., T, d_v)


class Finished(NamedTuple):
    """The context, and the logarithm of what its weights were divided by.

    `lse`, log-sum-exp, is log Σ exp(s). A query that sees no key has the
    context 0 and the lse −∞.
    """

    context: Tensor  # (..., T, d_v)
    lse: Tensor  # (..., T, 1)


def attend_to_part(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None
) -> Partial:
    """What these keys contribute to each query.

    All scores of this part are in memory at once, (..., T, S). `mask` is
    boolean, True = may attend, and broadcasts to them.

    Shapes: q (..., T, d_k), k (..., S, d_k), v (..., S, d_v).

    Raises:
        TypeError: inputs that are not floating-point tensors of one type, or
            a mask that is not boolean.
        ValueError: shapes that do not fit, or no key.
    """
    q, k, v, hidden = ready(q, k, v, mask)
    return _weighed((q @ k.mT).masked_fill(hidden, -torch.inf), v)


def merge(a: Partial, b: Partial) -> Partial:
    """One part out of two, which belong to the same queries.

    The order of the two does not matter, nor does the grouping of several
    (up to rounding), and a part without keys changes nothing.

    Shapes: those of `Partial`, in both.

    Raises:
        TypeError: parts that are not floating-point tensors of one type.
        ValueError: shapes that do not fit.

    Source: Milakov and Gimelshein (2018), arXiv:1805.02867, section 3.1.
    """
    axes = {"peak": "... T 1", "total": "... T 1", "context": "... T d_v"}
    named = {
        f"{name} of {label}": (getattr(part, name), axes[name])
        for label, part in (("a", a), ("b", b))
        for name in axes
    }
    expect("float", **named)
    peak = torch.maximum(a.peak.detach(), b.peak.detach())
    keep_a = (a.peak - _finite(peak)).exp()  # at most 1
    keep_b = (b.peak - _finite(peak)).exp()
    total = keep_a * a.total + keep_b * b.total
    return Partial(peak, total, keep_a * a.context + keep_b * b.context)


def finish(part: Partial) -> Finished:
    """Context and log-sum-exp of a part, as if its keys were all there are."""
    total = part.total.masked_fill(part.total == 0, 1)  # where no key is
    return Finished(part.context / total, part.peak + total.log())


def tiled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    rows: int = 128,
    columns: int = 128,
) -> Finished:
    """Attention in tiles of `rows` queries and `columns` keys.

    The whole matrix of weights never exists, not in the backward pass either,
    which computes each tile again: memory grows with T + S, not with T·S.
    Gradients flow from both results, the context and `lse`; gradients of
    gradients are not to be had.

    Args:
        mask: boolean, True = may attend; broadcasts to (..., T, S).
        causal: the queries are the last T of S positions, and see no later
            key. With more queries than keys the first ones see none.

    Shapes: q (..., T, d_k), k (..., S, d_k), v (..., S, d_v).

    Raises:
        TypeError: inputs that are not floating-point tensors of one type, a
            mask that is not boolean, sizes that are no whole numbers.
        ValueError: shapes that do not fit, no key, a size below 1.

    Source: Dao (2023), arXiv:2307.08691, algorithms 1 and 2.
    """
    check_sizes(rows=rows, columns=columns)
    inputs = ready(q, k, v, mask)
    return Finished(*_Tiled.apply(*inputs, causal, rows, columns))


class _Tiled(torch.autograd.Function):
    """`tiled_attention` and its gradients, for inputs made `ready`."""

    @staticmethod
    def forward(ctx, q, k, v, *options):
        """Merge tile by tile into a part that begins without keys."""
        zero = torch.zeros_like(q[..., :1])
        context = q.new_zeros(*q.shape[:-1], v.shape[-1])
        part = Partial(zero - torch.inf, zero, context)
        for i, j, scores in _tiles(q, k, *options):
            old = Partial(*(x[..., i, :] for x in part))
            new = merge(old, _weighed(scores, v[..., j, :]))
            for x, rows in zip(part, new):
                x[..., i, :] = rows
        found = finish(part)
        ctx.options = options
        ctx.save_for_backward(q, k, v, *found)
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_context, d_lse):
        """Gradients of q, k and v, from scores that are computed again."""
        q, k, v, context, lse = ctx.saved_tensors
        # What the softmax subtracts: Σ over keys of weight · its gradient.
        D = (d_context * context).sum(-1, keepdim=True) - d_lse  # (..., T, 1)
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for i, j, scores in _tiles(q, k, *ctx.options):
            weights = (scores - _finite(lse[..., i, :])).exp()
            d_weights = d_context[..., i, :] @ v[..., j, :].mT
            d_scores = weights * (d_weights - D[..., i, :])
            dv[..., j, :] += weights.mT @ d_context[..., i, :]
            dq[..., i, :] += d_scores @ k[..., j, :]
            dk[..., j, :] += d_scores.mT @ q[..., i, :]
        no_gradients = [None] * len(ctx.options)
        return dq, dk, dv, *no_gradients


def _tiles(q, k, hidden, causal, rows, columns):
    """Yield each tile: the slices of its queries and keys, and its scores.

    A tile that no query may look at, because all of its keys are later, is
    left out. The scores (..., rows, columns) are −∞ at hidden pairs.
    """
    T, S = q.shape[-2], k.shape[-2]
    for top in range(0, T, rows):
        i = slice(top, min(top + rows, T))
        end = S
        if causal:
            end = S - T + i.stop  # after the last key that any of them sees
        for left in range(0, end, columns):
            j = slice(left, min(left + columns, end))
            scores = q[..., i, :] @ k[..., j, :].mT  # (..., rows, columns)
            scores.masked_fill_(hidden[..., i, j], -torch.inf)
            # The first column, within the tile, that is later than a query.
            after = S - T + top + 1 - left
            if causal and after < columns:
                later = torch.ones_like(scores, dtype=torch.bool).triu(after)
                scores.masked_fill_(later, -torch.inf)
            yield i, j, scores


def _weighed(scores, v):
    """The part of the keys with these scores (..., T, S) and values v."""
    peak = scores.detach().amax(-1, keepdim=True)
    exp = (scores - _finite(peak)).exp()
    return Partial(peak, exp.sum(-1, keepdim=True), exp @ v)


def _finite(peak):
    """The peak, or 0 where it is −∞, because −∞ − (−∞) would be NaN."""
    return peak.masked_fill(peak == -torch.inf, 0)


def ready(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Check the inputs of attention, and give them all leading axes.

    Returns:
        q scaled by 1/√d_k, k, v, and a boolean tensor (..., T, S) that is
        True at pairs which are hidden. They are views where they can be.

    Raises:
        TypeError, ValueError: as `attend_to_part` says.
    """
    axes = {
        "q": (q, "... T d_k"),
        "k": (k, "... S d_k"),
        "v": (v, "... S d_v"),
    }
    batch = expect("float", **axes)
    scores = (*batch, q.shape[-2], k.shape[-2])
    if mask is None:
        mask = q.new_ones((), dtype=torch.bool)
    expect("bool", mask=(mask, "..."))
    check_mask(mask, scores)
    q = q / math.sqrt(q.shape[-1])
    q, k, v = (x.expand(*batch, *x.shape[-2:]) for x in (q, k, v))
    return q, k, v, (~mask).expand(scores)
