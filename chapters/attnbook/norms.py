"""Norms: every vector brought to one size, as functions and as layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnbook.shapes import check_tokens
from attnbook.values import number, one_of, whole


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 over the last axis, then stretched and shifted.

    The variance is the biased one, Σ (x − mean)² / d; `eps` is in the root.
    Shapes: x (..., d), weight and bias (d,) → (..., d).
    Source: Ba, Kiros and Hinton (2016), arXiv:1607.06450, equation 4.
    """
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(variance + eps)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def rms_norm(
    x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Root mean square 1 over the last axis, then stretched: no mean taken.
    Shapes: x (..., d), weight (d,) → (..., d).
    Source: Zhang and Sennrich (2019), arXiv:1910.07467, equation 4.
    """
    normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return normal if weight is None else normal * weight


class LayerNorm(nn.LayerNorm):
    """`layer_norm` with a learned weight and bias, by torch's kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """Each vector normalised by itself: (..., width)."""
        check_tokens(self.weight, "... width", x)
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """`rms_norm` with a learned weight, by torch's kernel; never a bias."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Each vector divided by its root mean square: (..., width)."""
        check_tokens(self.weight, "... width", x)
        return super().forward(x)


#: The two kinds of norm, by name.
NORMS = ("layer", "rms")


def make_norm(
    kind: str, width: int, *, eps: float = 1e-5, bias: bool = True
) -> nn.Module:
    """A `LayerNorm` or an `RMSNorm`."""
    whole("width", width, at_least=1)
    number("eps", eps, at_least=0)
    if one_of("norm", kind, NORMS) == "rms":
        return RMSNorm(width, eps=eps)
    return LayerNorm(width, eps=eps, bias=bias)
