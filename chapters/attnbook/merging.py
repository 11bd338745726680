"""Softmax in parts that merge: attention without the matrix of weights.

Parts merge in any order and any grouping, so keys may be read in tiles, split
among workers, or shared by many texts. Shapes and types are those that
`attention.scaled_dot_product_attention` takes, but that a mask is boolean.
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

    `peak` (..., T, 1) is the largest score, `total` (..., T, 1) the sum of
    exp(s − peak), `context` (..., T, d_v) the sum of exp(s − peak) v. With no
    key they are −∞, 0, 0. A finished result is a part too: (lse, 1, context).
    """

    peak: Tensor
    total: Tensor
    context: Tensor


class Finished(NamedTuple):
    """The `context` (..., T, d_v), and log Σ exp(s) as `lse` (..., T, 1); 0
    and −∞ for a query without keys."""

    context: Tensor
    lse: Tensor


def attend_to_part(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None
) -> Partial:
    """What these keys contribute to each query; all their scores at once."""
    q, k, v, hidden = ready(q, k, v, mask)
    return _weighed((q @ k.mT).masked_fill(hidden, -torch.inf), v)


def merge(a: Partial, b: Partial) -> Partial:
    """Two parts of one attention, over different keys, as one.

    It is commutative and associative, and a part without keys changes nothing.

    Source: Milakov and Gimelshein (2018), arXiv:1805.02867, section 3.1.
    """
    axes = dict(peak="... T 1", total="... T 1", context="... T d_v")
    named = {f"{n} of a": (getattr(a, n), axes[n]) for n in axes}
    named |= {f"{n} of b": (getattr(b, n), axes[n]) for n in axes}
    expect("float", **named)
    peak = torch.maximum(a.peak.detach(), b.peak.detach())
    keep_a, keep_b = ((x.peak - _finite(peak)).exp() for x in (a, b))
    total = keep_a * a.total + keep_b * b.total
    return Partial(peak, total, keep_a * a.context + keep_b * b.context)


def finish(part: Partial) -> Finished:
    """Context and log-sum-exp of a part, as if its keys were all there are."""
    total = part.total.masked_fill(part.total == 0, 1)  # there is no key
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

    The matrix of weights is never there, not in the backward pass either,
    which computes each tile again: memory grows with T + S, not with T·S.
    Gradients flow from the context and from `lse`, once, not twice. `causal`:
    the queries are the last T of S positions, and see no later key; with more
    queries than keys the first ones see none.

    Source: Dao (2023), arXiv:2307.08691, algorithms 1 and 2.
    """
    check_sizes(rows=rows, columns=columns)
    inputs = ready(q, k, v, mask)
    return Finished(*_Tiled.apply(*inputs, causal, rows, columns))


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, *how):
        zero = torch.zeros_like(q[..., :1])  # no key yet
        context = q.new_zeros(*q.shape[:-1], v.shape[-1])
        part = Partial(zero - torch.inf, zero, context)
        for i, j, scores in _tiles(q, k, *how):
            old = Partial(*(x[..., i, :] for x in part))
            new = merge(old, _weighed(scores, v[..., j, :]))
            for x, rows in zip(part, new):
                x[..., i, :] = rows
        ctx.how, found = how, finish(part)
        ctx.save_for_backward(q, k, v, *found)
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_context, d_lse):
        q, k, v, context, lse = ctx.saved_tensors
        # What the softmax subtracts: Σ over keys of weight · its gradient.
        D = (d_context * context).sum(-1, keepdim=True) - d_lse  # (..., T, 1)
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for i, j, scores in _tiles(q, k, *ctx.how):
            weights = (scores - _finite(lse[..., i, :])).exp()
            d_weights = d_context[..., i, :] @ v[..., j, :].mT
            d_scores = weights * (d_weights - D[..., i, :])
            dv[..., j, :] += weights.mT @ d_context[..., i, :]
            dq[..., i, :] += d_scores @ k[..., j, :]
            dk[..., j, :] += d_scores.mT @ q[..., i, :]
        return dq, dk, dv, *[None] * len(ctx.how)


def _tiles(q, k, hidden, causal, rows, columns):
    """Each tile: its queries, its keys, and their scores."""
    T, S = q.shape[-2], k.shape[-2]
    for top in range(0, T, rows):
        i = slice(top, min(top + rows, T))
        end = S - T + i.stop if causal else S  # all that the last one sees
        for left in range(0, end, columns):
            j = slice(left, min(left + columns, end))
            scores = q[..., i, :] @ k[..., j, :].mT  # (..., rows, columns)
            scores.masked_fill_(hidden[..., i, j], -torch.inf)
            after = S - T + top + 1 - left  # the first that not all may see
            if causal and after < columns:
                later = torch.ones_like(scores, dtype=torch.bool).triu(after)
                scores.masked_fill_(later, -torch.inf)
            yield i, j, scores


def _weighed(scores, v):
    """The part of keys with these scores (..., T, S), and values v."""
    peak = scores.detach().amax(-1, keepdim=True)
    exp = (scores - _finite(peak)).exp()
    return Partial(peak, exp.sum(-1, keepdim=True), exp @ v)


def _finite(peak):  # −∞ − (−∞) would be NaN
    return peak.masked_fill(peak == -torch.inf, 0)


def ready(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, ...]:
    """q scaled by 1/√d_k, k and v, and True at hidden pairs: views with all
    leading axes."""
    axes = dict(q=(q, "... T d_k"), k=(k, "... S d_k"), v=(v, "... S d_v"))
    size = *expect("float", **axes), q.shape[-2], k.shape[-2]
    mask = q.new_ones((), dtype=torch.bool) if mask is None else mask
    expect("bool", mask=(mask, "..."))
    check_mask(mask, size)
    q = q / math.sqrt(q.shape[-1])
    q, k, v = (x.expand(*size[:-2], *x.shape[-2:]) for x in (q, k, v))
    return q, k, v, (~mask).expand(size)
