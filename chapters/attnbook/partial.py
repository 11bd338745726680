"""Softmax in parts that merge: attention without the matrix of weights.

Parts merge in any order and any grouping, so keys may be read in tiles, split
among workers, or shared by many texts. Axis names: T queries, S keys, d_k
width of a query or key, d_v width of a value; leading axes (`...`) may be any
that broadcast. The scores are q kᵀ/√d_k; a mask is boolean, True = may attend,
and broadcasts to (..., T, S).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbook.config import check_sizes, whole
from attnbook.masks import check_mask
from attnbook.shapes import expect


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
    """The `context` (..., T, d_v), and log Σ exp(s) as `lse` (..., T, 1).

    A query without keys has the context 0, and −∞ for its log.
    """

    context: Tensor
    lse: Tensor


def partial(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None
) -> Partial:
    """What these keys contribute to each query; all their scores at once.

    Shapes: q (..., T, d_k), k (..., S, d_k), v (..., S, d_v).

    Raises:
        TypeError: inputs that are not floating-point tensors of one type, a
            mask that is not boolean.
        ValueError: shapes that do not fit.
    """
    q, k, v, mask = _ready(q, k, v, mask)
    return _partial(q, k, v, mask)


def merge(*parts: Partial) -> Partial:
    """Parts of one attention, over different keys, as one.

    It is commutative and associative, and a part without keys changes nothing.

    Raises:
        TypeError: parts that are not floating-point tensors of one type.
        ValueError: no part, or shapes that do not fit.

    Source: Milakov and Gimelshein (2018), arXiv:1805.02867, section 3.1.
    """
    whole("number of parts to merge", len(parts), at_least=1)
    axes = ("... T 1", "... T 1", "... T d_v")
    named: dict[str, Any] = {}
    for n, part in enumerate(parts):
        names = (f"{name} {n}" for name in Partial._fields)
        named |= dict(zip(names, zip(part, axes)))
    expect("float", **named)
    peak = functools.reduce(torch.maximum, [p.peak.detach() for p in parts])
    at = _finite(peak)  # −∞ − (−∞) would be NaN
    factors = [(p.peak - at).exp() for p in parts]  # (..., T, 1), at most 1
    total = sum(f * p.total for f, p in zip(factors, parts))
    context = sum(f * p.context for f, p in zip(factors, parts))
    return Partial(peak, total, context)


def finish(part: Partial) -> Finished:
    """Context and log-sum-exp of a part, as if its keys were all there are."""
    empty = part.total == 0
    total = part.total.masked_fill(empty, 1)
    lse = (part.peak + total.log()).masked_fill(empty, -torch.inf)
    return Finished(part.context / total, lse)


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
    queries than keys the first ones see none. Shapes, errors: see `partial`.

    Source: Dao (2023), arXiv:2307.08691, algorithms 1 and 2.
    """
    check_sizes(rows=rows, columns=columns)
    q, k, v, mask = _ready(q, k, v, mask)
    plan = _Plan(mask, causal, rows, columns)
    return Finished(*_TiledAttention.apply(q, k, v, plan))


def split_attention(
    q: Tensor, k: Tensor, v: Tensor, *, parts: int, mask: Tensor | None = None
) -> Finished:
    """Attention with the keys cut into parts, each done alone, then merged.

    The parts are independent, so that workers can share even a single query.
    Shapes and errors as in `partial`.

    Source: Dao et al. (2023), Flash-Decoding for long-context inference.
    """
    q, k, v, mask = _ready(q, k, v, mask)
    S = k.shape[-2]
    size = -(-S // whole("parts", parts, at_least=1, at_most=S))
    masks = [None] * parts if mask is None else mask.split(size, -1)
    pieces = zip(k.split(size, -2), v.split(size, -2), masks)
    return finish(merge(*(_partial(q, *piece) for piece in pieces)))


def shared_prefix(q: Tensor, k: Tensor, v: Tensor) -> Partial:
    """What a prefix that all texts of a batch share contributes to each.

    The queries of all texts meet it in one product, which reads its keys and
    values once and not B times.

    Shapes: q (B, H, T, d_k), k (H, P, d_k), v (H, P, d_v).

    Source: Juravsky et al. (2024), arXiv:2402.05099.
    """
    expect("float", q=(q, "B H T d_k"), k=(k, "H P d_k"), v=(v, "H P d_v"))
    folded = q.transpose(0, 1).flatten(1, 2)  # (H, B·T, d_k)
    size = len(q), q.shape[-2]
    part = partial(folded, k, v)
    return Partial(*(x.unflatten(1, size).transpose(0, 1) for x in part))


class _Plan(NamedTuple):
    """What the tiles need besides q, k and v."""

    mask: Tensor | None
    causal: bool
    rows: int
    columns: int

    def keys(self, i: slice, T: int, S: int, device: Any) -> Iterator[tuple]:
        """The tiles of keys that queries i have to see, with their masks."""
        end = min(S, i.stop + S - T) if self.causal else S
        for j in _slices(end, self.columns):
            mask = None if self.mask is None else self.mask[..., i, j]
            diagonal = i.start + S - T - j.start  # where query i.start stands
            size = i.stop - i.start, j.stop - j.start
            if self.causal and diagonal < size[1] - 1:
                past = torch.ones(size, device=device).tril(diagonal).bool()
                mask = past if mask is None else mask & past
            yield j, mask


class _TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, plan):
        T, S = q.shape[-2], k.shape[-2]
        done = []
        for i in _slices(T, plan.rows):
            zero = torch.zeros_like(q[..., i, :1])  # no key yet: the unit
            part = Partial(zero - torch.inf, zero, zero * v[..., :1, :])
            for j, mask in plan.keys(i, T, S, q.device):
                tile = q[..., i, :], k[..., j, :], v[..., j, :]
                part = merge(part, _partial(*tile, mask))
            done.append(finish(part))
        context, lse = (torch.cat(parts, -2) for parts in zip(*done))
        ctx.save_for_backward(q, k, v, context, lse)
        ctx.plan = plan
        return context, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, d_context, d_lse):
        q, k, v, context, lse = ctx.saved_tensors
        T, S, plan = q.shape[-2], k.shape[-2], ctx.plan
        # What the softmax subtracts: Σ over keys of weight · its gradient.
        D = (d_context * context).sum(-1, keepdim=True) - d_lse  # (..., T, 1)
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for i in _slices(T, plan.rows):
            rows, d_out = q[..., i, :], d_context[..., i, :]
            for j, mask in plan.keys(i, T, S, q.device):
                scores = _scores(rows, k[..., j, :], mask)
                weights = (scores - _finite(lse[..., i, :])).exp()
                d_weights = d_out @ v[..., j, :].mT  # (..., rows, columns)
                d_scores = weights * (d_weights - D[..., i, :])
                dv[..., j, :] += weights.mT @ d_out
                dq[..., i, :] += d_scores @ k[..., j, :]
                dk[..., j, :] += d_scores.mT @ rows
        return dq, dk, dv, None


def _slices(n, size):
    return [slice(a, min(a + size, n)) for a in range(0, n, size)]


def _partial(q, k, v, mask):
    scores = _scores(q, k, mask)  # (..., T, S)
    peak = scores.detach().amax(-1, keepdim=True)
    exp = (scores - _finite(peak)).exp()
    return Partial(peak, exp.sum(-1, keepdim=True), exp @ v)


def _scores(q, k, mask):
    scores = q @ k.mT
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def _finite(peak):
    return peak.masked_fill(peak == -torch.inf, 0)


def _ready(q, k, v, mask):
    """The inputs with all leading axes, as views; q scaled by 1/√d_k."""
    axes = dict(q=(q, "... T d_k"), k=(k, "... S d_k"), v=(v, "... S d_v"))
    batch = expect("float", **axes)
    if mask is not None:
        size = *batch, q.shape[-2], k.shape[-2]
        expect("bool", mask=(mask, "..."))
        check_mask(mask, size)
        mask = mask.expand(size)
    q = q / math.sqrt(q.shape[-1])
    return *(x.expand(*batch, *x.shape[-2:]) for x in (q, k, v)), mask
