"""Attention as pure functions: the plain path, and the fast one beside it.

Axis names: B batch, H heads, T queries, S keys, d_k width of a query or key,
d_v width of a value. Leading axes (`...`) may be any that broadcast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.masks import causal_mask


class Attention(NamedTuple):
    """What attention gives: `context` (..., T, d_v), `weights` (..., T, S)."""

    context: Tensor
    weights: Tensor


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Positive weights that sum to one: exp(s) / Σ exp(s) along `dim`.

    The largest score is subtracted first, which changes nothing in the
    result and keeps exp from overflowing. A score of −∞ gets weight 0. Where
    every score is −∞ there is nothing to average, and the weights are 0;
    `torch.softmax` gives NaN there.

    Shapes:
        scores: any, of a floating-point type; the result has the same.

    Raises:
        TypeError: if `scores` is no floating-point tensor.
        ValueError: if there is no score along `dim`.
    """
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        raise TypeError(
            "the scores are no floating-point tensor; expected one; got "
            f"{getattr(scores, 'dtype', type(scores).__name__)}"
        )
    if scores.shape[dim] == 0:
        raise ValueError(
            "softmax of an empty sequence; expected at least one score "
            f"along dim {dim}; got shape {tuple(scores.shape)}"
        )
    peak = scores.detach().amax(dim, keepdim=True)
    peak = peak.masked_fill(peak == -torch.inf, 0)
    exp = (scores - peak).exp()
    total = exp.sum(dim, keepdim=True)
    return exp / total.masked_fill(total == 0, 1)


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Attention:
    """softmax(q kᵀ · scale + mask) v, every step in the open.

    Args:
        mask: boolean, True where a query may attend, or floating-point,
            added to the scaled scores. A query that may attend to no key
            gets zero weights and a zero context.
        scale: what the scores are multiplied by; 1/√d_k if not given.

    Shapes:
        q: (..., T, d_k), k: (..., S, d_k), v: (..., S, d_v)
        mask: broadcasts to (..., T, S)
        context: (..., T, d_v), weights: (..., T, S)

    Raises:
        TypeError: inputs that are not floating-point tensors of one type, or
            a mask that is neither boolean nor floating-point.
        ValueError: shapes that do not fit, an empty sequence, a NaN, a mask
            of +inf.

    Source: Vaswani et al. (2017), arXiv:1706.03762, equation 1.
    """
    check_inputs(q, k, v, mask)
    weights = weigh(q, k, mask=mask, scale=scale)  # (..., T, S)
    return Attention(weights @ v, weights)  # (..., T, d_v)


def weigh(
    q: Tensor,
    k: Tensor,
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The weights alone, for inputs known to be good: (..., T, S)."""
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    # Scaled before the product, which half precision might not hold.
    scores = (q * scale) @ k.transpose(-2, -1)  # (..., T, S)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    return softmax(scores)


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The same context by torch's fused kernels, which keep no weights.

    Arguments, shapes and errors as in `scaled_dot_product_attention`; the
    result is the context alone. What torch gives for a query that may attend
    to no key depends on its version and backend: such a row is computed
    with every key allowed, then set to zero, so that neither the value nor
    the gradient is ever NaN.
    """
    check_inputs(q, k, v, mask)
    return attend(q, k, v, mask=mask, scale=scale)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`fused_attention` for inputs known to be good; layers call it.

    Args:
        causal: forbid later keys too; the queries are the last T of the S
            positions. A kernel knows this pattern without a mask where there
            is no other one and T = S.
        dropout: probability that a weight is set to zero.

    Keys and values may have fewer heads than the queries: head h of q then
    reads head h // (H / H_kv) of k and v, as if `repeat_heads` had been
    called.
    """
    options = {"scale": scale, "dropout_p": dropout}
    if min(q.ndim, k.ndim) > 2 and 1 < k.shape[-3] < q.shape[-3]:
        options["enable_gqa"] = True
    T, S = q.shape[-2], k.shape[-2]
    if causal and (mask is not None or T not in (1, S)):
        mask = merge_causal(mask, T, S, device=q.device)
        causal = False
    if mask is None:
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=causal and T > 1, **options
        )
    # As many axes as q has: the fused kernels take no mask of three.
    mask = mask[(None,) * (max(q.ndim, 2) - mask.ndim)]
    if mask.dtype == torch.bool:
        lost = ~mask.any(-1, keepdim=True)  # (..., T, 1)
        mask = mask | lost
    else:
        mask = mask.to(q.dtype)
        lost = mask.amax(-1, keepdim=True) == -torch.inf  # (..., T, 1)
        mask = mask.masked_fill(lost, 0)
    context = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, **options
    )
    return context.masked_fill(lost, 0)  # (..., T, d_v)


def merge_causal(
    mask: Tensor | None, n_queries: int, n_keys: int, *, device=None
) -> Tensor:
    """A mask, boolean or additive, with later keys forbidden as well.

    Shapes: mask broadcasts to (..., T, S); the result is (..., T, S).
    """
    causal = causal_mask(n_queries, n_keys).to(device)  # (T, S)
    if mask is None:
        return causal
    if mask.dtype == torch.bool:
        return mask & causal
    return mask.masked_fill(~causal, -torch.inf)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Cut the last axis into heads: (..., T, H·d) → (..., H, T, d).

    Raises:
        ValueError: if the heads do not divide the width, or x has no axis
            of tokens.
    """
    if x.ndim < 2:
        raise ValueError(
            "x has no axis of tokens; expected (..., T, width); "
            f"got x {tuple(x.shape)}"
        )
    width = x.shape[-1]
    if n_heads < 1 or width % n_heads:
        raise ValueError(
            f"{n_heads} heads do not divide a width of {width}; expected "
            f"a head count that divides it; got x {tuple(x.shape)}"
        )
    x = x.unflatten(-1, (n_heads, width // n_heads))  # (..., T, H, d)
    return x.transpose(-3, -2)  # (..., H, T, d)


def repeat_heads(x: Tensor, n_heads: int) -> Tensor:
    """Each head several times in a row: (..., H_kv, S, d) → (..., H, S, d).

    Raises:
        ValueError: if n_heads is no multiple of the heads of x.

    Source: Ainslie et al. (2023), arXiv:2305.13245, section 2.2.
    """
    if x.ndim < 3 or n_heads < 1 or n_heads % x.shape[-3]:
        raise ValueError(
            "the heads cannot be shared out; expected (..., H_kv, S, d) with "
            f"H_kv a divisor of {n_heads}; got {tuple(x.shape)}"
        )
    return x.repeat_interleave(n_heads // x.shape[-3], -3)


def merge_heads(x: Tensor) -> Tensor:
    """Heads side by side again: (..., H, T, d) → (..., T, H·d).

    Raises:
        ValueError: if x has no axis of heads.
    """
    if x.ndim < 3:
        raise ValueError(
            "x has no axis of heads; expected (..., H, T, d); "
            f"got x {tuple(x.shape)}"
        )
    return x.transpose(-3, -2).flatten(-2)  # (..., T, H·d)


def check_inputs(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> None:
    """Raise a clear error for inputs that attention cannot take."""
    for name, x in {"q": q, "k": k, "v": v}.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise TypeError(
                f"{name} is no floating-point tensor; expected one; got "
                f"{getattr(x, 'dtype', type(x).__name__)}"
            )
        if x.ndim < 2 or 0 in x.shape[-2:]:
            raise ValueError(
                f"{name} has an empty or missing axis; expected "
                f"(..., length, width), both at least 1; "
                f"got {tuple(x.shape)}"
            )
        if x.isnan().any():
            raise ValueError(
                f"{name} contains NaN; expected numbers only; got "
                f"{int(x.isnan().sum())} NaN in {tuple(x.shape)}"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            "q, k and v are of different types; expected one for all; got "
            f"{q.dtype}, {k.dtype}, {v.dtype}"
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            "q and k have different widths; expected the same d_k; "
            f"got q {tuple(q.shape)}, k {tuple(k.shape)}"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            "k and v have different lengths; expected one value a key; "
            f"got k {tuple(k.shape)}, v {tuple(v.shape)}"
        )
    try:
        batch = torch.broadcast_shapes(
            q.shape[:-2], k.shape[:-2], v.shape[:-2]
        )
    except RuntimeError:
        raise ValueError(
            "the leading axes of q, k and v do not broadcast; expected axes "
            f"that do; got q {tuple(q.shape)}, k {tuple(k.shape)}, "
            f"v {tuple(v.shape)}"
        ) from None
    if mask is not None:
        check_mask(mask, (*batch, q.shape[-2], k.shape[-2]))


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise a clear error for a mask that does not fit scores of a shape."""
    if not isinstance(mask, Tensor) or not (
        mask.dtype == torch.bool or mask.is_floating_point()
    ):
        raise TypeError(
            "the mask is of the wrong type; expected a boolean tensor "
            "(True = may attend) or a floating-point one (added to the "
            f"scores); got {getattr(mask, 'dtype', type(mask).__name__)}"
        )
    try:
        fits = torch.broadcast_shapes(mask.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            "the mask does not fit the scores; expected a shape that "
            f"broadcasts to {shape}; got {tuple(mask.shape)}"
        )
    # One look: it is neither where the largest is below +∞, and not NaN.
    if mask.is_floating_point() and not mask.amax() < torch.inf:
        bad = mask.isnan() | (mask == torch.inf)
        raise ValueError(
            "the mask contains NaN or +inf; expected numbers or −inf; got "
            f"{int(bad.sum())} of them in {tuple(mask.shape)}"
        )
