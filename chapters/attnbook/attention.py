"""Attention as pure functions: the plain path, and the fast one beside it.

Axis names: B batch, H heads, T queries, S keys, d_k width of a query or key,
d_v width of a value. Leading axes (`...`) may be any that broadcast.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.masks import check_mask, merge_causal
from attnbook.shapes import expect
from attnbook.values import check_sizes, number, whole


class Attention(NamedTuple):
    """What attention gives: `context` (..., T, d_v), `weights` (..., T, S)."""

    context: Tensor
    weights: Tensor


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Positive weights that sum to one: exp(s) / Σ exp(s) along `dim`.

    The largest score is subtracted first: exp cannot overflow, and the result
    is the same. A score of −∞ gets weight 0, also where every score is −∞
    (`torch.softmax` gives NaN there). A NaN makes all weights beside it NaN.

    Raises:
        TypeError: scores that are no floating-point tensor.
        ValueError: no score along `dim`, or one of +∞.
    """
    expect("float", scores=(scores, "..."))
    dim = whole("dim", dim, at_least=-scores.ndim, below=scores.ndim)
    if scores.shape[dim] == 0:
        raise ValueError(f"dim {dim} is empty; expected scores; got none")
    peak = scores.detach().amax(dim, keepdim=True)
    if not peak.is_meta and (peak == torch.inf).any():
        raise ValueError("scores have +inf; expected less than it; got +inf")
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
        mask: boolean, True = may attend, or floating-point, added to the
            scores. A query that may attend to no key gets zeros.
        scale: 1/√d_k if not given.

    Shapes: q (..., T, d_k), k (..., S, d_k), v (..., S, d_v); the mask
    broadcasts to (..., T, S).

    Raises:
        TypeError: inputs that are not floating-point tensors of one type.
        ValueError: shapes that do not fit, an empty sequence, numbers that
            are not finite (−∞ in a mask may be), scores that overflow.

    Source: Vaswani et al. (2017), arXiv:1706.03762, equation 1.
    """
    check_inputs(q, k, v, mask, scale)
    weights = weigh(q, k, mask=mask, scale=scale)  # (..., T, S)
    return Attention(check_finite("context", weights @ v), weights)


def weigh(
    q: Tensor, k: Tensor, *, mask: Tensor | None = None, scale: Any = None
) -> Tensor:
    """The weights alone, (..., T, S), for inputs known to be good."""
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    # Scaled before the product, which half precision might not hold.
    scores = (q * scale) @ k.transpose(-2, -1)  # (..., T, S)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    return softmax(scores)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """The same context by torch's fused kernels, which keep no weights."""
    check_inputs(q, k, v, **options)
    return check_finite("context", attend(q, k, v, **options))


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

    A query that may attend to no key is computed with every key allowed, then
    set to zero: neither value nor gradient is NaN in any version of torch.
    `causal` forbids later keys too; the queries are the last T positions.

    Shapes: q (..., H, T, d_k), k (..., H_kv, S, d_k), v (..., H_kv, S, d_v)
    → (..., H, T, d_v); heads may be missing in all three.
    """
    T, S = q.shape[-2], k.shape[-2]
    shared = min(q.ndim, k.ndim) > 2 and 1 < k.shape[-3] < q.shape[-3]
    if causal and (mask is not None or T not in (1, S)):
        mask, causal = merge_causal(mask, T, S, device=q.device), False
    lost = None
    if mask is not None:
        # As many axes as q has: the fused kernels take no mask of three.
        mask = mask[(None,) * (max(q.ndim, 2) - mask.ndim)]
        if mask.dtype == torch.bool:
            lost = ~mask.any(-1, keepdim=True)  # (..., T, 1)
            mask = mask | lost
        else:
            mask = mask.to(q.dtype)
            lost = mask.amax(-1, keepdim=True) == -torch.inf  # (..., T, 1)
            mask = mask.masked_fill(lost, 0)
    options: dict[str, Any] = dict(scale=scale, enable_gqa=shared)
    options |= dict(is_causal=causal and T > 1, dropout_p=dropout)
    context = F.scaled_dot_product_attention(q, k, v, mask, **options)
    return context if lost is None else context.masked_fill(lost, 0)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Cut the last axis into heads: (..., T, H·d) → (..., H, T, d)."""
    whole("n_heads", n_heads, at_least=1)
    if not isinstance(x, Tensor) or x.ndim < 2 or x.shape[-1] % n_heads:
        expect(x=(x, "... T width"))
        check_heads(x.shape[-1], n_heads)
    d = x.shape[-1] // n_heads
    return x.reshape(*x.shape[:-1], n_heads, d).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Heads side by side again: (..., H, T, d) → (..., T, H·d)."""
    if not isinstance(x, Tensor) or x.ndim < 3:
        expect(x=(x, "... H T d"))
    return x.transpose(-3, -2).flatten(-2)  # (..., T, H·d)


def check_heads(d_model: int, n_heads: int, n_kv_heads: int = 1) -> None:
    """Refuse heads that do not divide a width, or each other."""
    check_sizes(n_heads=n_heads, d_model=d_model, n_kv_heads=n_kv_heads)
    if d_model % n_heads or n_heads % n_kv_heads:
        raise ValueError(
            "d_model, n_heads and n_kv_heads do not fit; expected each to be "
            f"a multiple of the next; got {d_model}, {n_heads}, {n_kv_heads}"
        )


def check_inputs(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, scale: Any = None
) -> None:
    """Refuse what attention cannot take."""
    axes = dict(q=(q, "... T d_k"), k=(k, "... S d_k"), v=(v, "... S d_v"))
    batch = expect("float", **axes)
    for name, (x, _) in axes.items():
        check_finite(name, x)
    if scale is not None:
        number("scale", scale)
    if mask is not None:
        check_mask(mask, (*batch, q.shape[-2], k.shape[-2]))


def check_finite(name: str, x: Tensor) -> Tensor:
    """The tensor, if there is no NaN and no infinity in it."""
    if not x.isfinite().all():
        wrong, got = f"{name} contains NaN or inf", x[~x.isfinite()][0].item()
        raise ValueError(f"{wrong}; expected finite numbers; got {got}")
    return x
