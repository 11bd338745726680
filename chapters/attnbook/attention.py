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

from attnbook.masks import check_mask, merge_causal
from attnbook.shapes import expect
from attnbook.values import check_sizes, number, whole


class Attention(NamedTuple):
    """What attention gives: `context` (..., T, d_v), `weights` (..., T, S)."""

    context: Tensor
    weights: Tensor


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Positive weights that sum to one: exp(s) / Σ exp(s) along `dim`.

    The largest score is subtracted first: then exp cannot overflow, and the
    result is the same. A score of −∞ gets weight 0. Where every score is −∞
    all weights are 0, while `torch.softmax` gives NaN there. A NaN among the
    scores makes all weights beside it NaN.

    Shapes: scores (...) → the same.

    Raises:
        TypeError: scores that are no floating-point tensor.
        ValueError: no score along `dim`, or a score of +∞.
    """
    expect("float", scores=(scores, "..."))
    dim = whole("dim", dim, at_least=-scores.ndim, below=scores.ndim)
    if scores.shape[dim] == 0:
        raise ValueError(
            f"axis {dim} of the scores is empty; expected at least one score "
            f"to share the weight; got shape {tuple(scores.shape)}"
        )
    peak = scores.detach().amax(dim, keepdim=True)
    if not peak.is_meta and (peak == torch.inf).any():
        raise ValueError(
            "a score is +inf, and no weight could be shared with it; "
            "expected finite numbers, or −inf for a weight of 0; got +inf"
        )
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
    q: Tensor,
    k: Tensor,
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The weights of `scaled_dot_product_attention` alone: (..., T, S).

    The inputs are known to be good: a layer that has checked them calls this.

    Shapes: q (..., T, d_k), k (..., S, d_k), mask broadcasts to (..., T, S).
    """
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
    """The context of `scaled_dot_product_attention`, by torch's fused kernel.

    A fused kernel does all steps at once and never has the matrix of weights
    in memory, so the weights cannot be returned. Arguments, shapes and errors
    are those of `scaled_dot_product_attention`; the result is (..., T, d_v).
    """
    check_inputs(q, k, v, mask, scale)
    return check_finite("context", attend(q, k, v, mask=mask, scale=scale))


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
    """Attention by torch's fused kernel, for inputs known to be good.

    This is what the layers call. A query that may attend to no key is first
    computed with every key allowed, and its context then set to zero: so
    neither a value nor a gradient is NaN in any version of torch.

    Args:
        mask: boolean or added; broadcasts to (..., H, T, S).
        causal: forbid later keys too; the queries are the last T positions.
        scale: 1/√d_k if not given.
        dropout: the chance with which a weight is set to zero.

    Shapes: q (..., H, T, d_k), k (..., H_kv, S, d_k), v (..., H_kv, S, d_v)
    → (..., H, T, d_v). All three may be without the axis of heads.
    """
    T, S = q.shape[-2], k.shape[-2]
    # Torch has to be told if a group of queries' heads shares keys; a single
    # head of keys broadcasts by itself.
    shared = min(q.ndim, k.ndim) > 2 and 1 < k.shape[-3] < q.shape[-3]
    if causal and (mask is not None or T not in (1, S)):
        mask = merge_causal(mask, T, S, device=q.device)
        causal = False
    lost = None
    if mask is not None:
        mask, lost = _with_some_key(mask, q)
    if shared and T == 1:
        context = _attend_in_groups(q, k, v, mask, dropout, scale)
    else:
        context = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=causal and T > 1,
            scale=scale,
            enable_gqa=shared,
        )
    return context if lost is None else context.masked_fill(lost, 0)


def _with_some_key(mask, q):
    """A mask that lets each query attend to some key, and which queries had
    none before: (..., T, 1)."""
    # As many axes as q has: the fused kernels take no mask of three.
    mask = mask[(None,) * (max(q.ndim, 2) - mask.ndim)]
    if mask.dtype == torch.bool:
        lost = ~mask.any(-1, keepdim=True)  # (..., T, 1)
        mask = mask | lost
    else:
        mask = mask.to(q.dtype)
        lost = mask.amax(-1, keepdim=True) == -torch.inf  # (..., T, 1)
        mask = mask.masked_fill(lost, 0)
    return mask, lost


def _attend_in_groups(q, k, v, mask, dropout, scale):
    """What `attend` computes for one query a head, where heads share keys.

    Torch would copy the keys for each head of queries. Here the heads that
    share keys are several queries of one head.

    Shapes: q (..., H, 1, d_k), mask (..., H or 1, 1, S) → (..., H, 1, d_v).
    """
    n_kv_heads = k.shape[-3]
    q = q.squeeze(-2).unflatten(-2, (n_kv_heads, -1))
    if mask is not None and mask.shape[-3] > 1:
        mask = mask.squeeze(-2).unflatten(-2, (n_kv_heads, -1))
    context = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale
    )  # (..., H_kv, H / H_kv, d_v)
    return context.flatten(-3, -2)[..., None, :]


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Cut the last axis into heads: (..., T, H·d) → (..., H, T, d).

    Raises:
        TypeError: x is no tensor, or n_heads no whole number.
        ValueError: x has fewer than two axes, or a width that the number of
            heads does not divide.
    """
    whole("n_heads", n_heads, at_least=1)
    if not isinstance(x, Tensor) or x.ndim < 2 or x.shape[-1] % n_heads:
        expect(x=(x, "... T width"))
        check_heads(x.shape[-1], n_heads)
    d = x.shape[-1] // n_heads
    return x.reshape(*x.shape[:-1], n_heads, d).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Put the heads side by side again: (..., H, T, d) → (..., T, H·d).

    Raises:
        TypeError: x is no tensor.
        ValueError: x has fewer than three axes.
    """
    if not isinstance(x, Tensor) or x.ndim < 3:
        expect(x=(x, "... H T d"))
    return x.transpose(-3, -2).flatten(-2)  # (..., T, H·d)


def check_heads(d_model: int, n_heads: int, n_kv_heads: int = 1) -> None:
    """Check that a width can be shared out among heads.

    Each head gets d_model / n_heads numbers, and each head of keys and values
    serves n_heads / n_kv_heads heads of queries; both must be whole.

    Raises:
        TypeError, ValueError: a number that is not whole or below 1, or heads
            that do not divide the width or each other.
    """
    check_sizes(n_heads=n_heads, d_model=d_model, n_kv_heads=n_kv_heads)
    if d_model % n_heads:
        raise ValueError(
            "d_model cannot be shared out among n_heads; expected a multiple; "
            f"got d_model {d_model} and n_heads {n_heads}"
        )
    if n_heads % n_kv_heads:
        raise ValueError(
            "n_heads cannot share n_kv_heads evenly; expected a multiple; got "
            f"n_heads {n_heads} and n_kv_heads {n_kv_heads}"
        )


def check_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> None:
    """Check that these can be the inputs of attention.

    Raises:
        TypeError: q, k, v that are not floating-point tensors of one type; a
            mask that is neither boolean nor floating-point; a scale that is
            no number.
        ValueError: shapes that do not fit, or numbers that are not finite.
    """
    axes = {"q": "... T d_k", "k": "... S d_k", "v": "... S d_v"}
    inputs = {"q": q, "k": k, "v": v}
    batch = expect("float", **{n: (x, axes[n]) for n, x in inputs.items()})
    for name, x in inputs.items():
        check_finite(name, x)
    if scale is not None:
        number("scale", scale)
    if mask is not None:
        check_mask(mask, (*batch, q.shape[-2], k.shape[-2]))


def check_finite(name: str, x: Tensor) -> Tensor:
    """The tensor itself, if there is no NaN and no infinity in it.

    `name` is what the message calls it.

    Raises:
        ValueError: there is one; the message shows the first.
    """
    finite = x.isfinite()
    if not finite.all():
        raise ValueError(
            f"{name} contains NaN or infinity; expected finite numbers; got "
            f"{x[~finite][0].item()}"
        )
    return x
