"""Norms: they bring every vector to one size, as functions and as layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnbook.shapes import check_tokens
from attnbook.values import number, one_of, whole

#: Types with 16 bits a number. Norms of such vectors are computed in 32 bits.
_HALVES = (torch.float16, torch.bfloat16)


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
) -> Tensor:
    """Bring each vector to mean 0 and variance 1, then stretch and shift it.

    The variance is the biased one, Σ (x − mean)² / d. `eps` is added to it
    under the root, so that a constant vector does not divide by zero. Without
    a `weight` nothing is stretched, without a `bias` nothing is shifted.

    Vectors of 16 bits a number are normalised in 32 bits and the result is
    rounded to their type, as in torch. In float16 the square of 256 is
    already infinite, and for vectors with a standard deviation below about
    0.025 the gradient of the reciprocal root is.

    Shapes: x (..., d), weight and bias (d,) → (..., d).
    Source: Ba, Kiros and Hinton (2016), arXiv:1607.06450, equation 4.
    """
    if x.dtype in _HALVES:
        wide = layer_norm(x.float(), weight, bias, eps=eps)
        return wide.to(x.dtype)
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(variance + eps)
    if weight is not None:
        normal = normal * weight
    return normal if bias is None else normal + bias


def rms_norm(
    x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Divide each vector by its root mean square, then stretch it.

    Unlike `layer_norm` it takes no mean away, and never shifts. `eps` is
    added to the mean square under the root. Vectors of 16 bits a number are
    normalised in 32 bits, for the reasons given in `layer_norm`.

    Shapes: x (..., d), weight (d,) → (..., d).
    Source: Zhang and Sennrich (2019), arXiv:1910.07467, equation 4.
    """
    if x.dtype in _HALVES:
        return rms_norm(x.float(), weight, eps=eps).to(x.dtype)
    normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return normal if weight is None else normal * weight


class LayerNorm(nn.LayerNorm):
    """`layer_norm` as a layer: torch's kernel, and clear errors.

    The weight starts as ones and the bias as zeros; both are learned.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each vector by itself: (..., width) → (..., width).

        Raises:
            TypeError: x is no tensor, or not of the weight's type.
            ValueError: x has another width, or is empty.
        """
        check_tokens(self.weight, "... width", x)
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """`rms_norm` as a layer: torch's kernel, and clear errors.

    The weight starts as ones and is learned. There is never a bias.
    """

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Divide each vector by its root mean square: (..., width).

        Raises:
            TypeError: x is no tensor, or not of the weight's type.
            ValueError: x has another width, or is empty.
        """
        check_tokens(self.weight, "... width", x)
        return super().forward(x)


#: The two kinds of norm, by the name that `make_norm` takes.
NORMS = ("layer", "rms")


def make_norm(
    kind: str, width: int, *, eps: float = 1e-5, bias: bool = True
) -> nn.Module:
    """A new `LayerNorm` ("layer") or `RMSNorm` ("rms") of this width.

    `bias` is for the layer norm alone; the other never has one.

    Raises:
        TypeError: a width or an eps of another type.
        ValueError: another kind, a width below 1, or a negative eps.
    """
    whole("width", width, at_least=1)
    number("eps", eps, at_least=0)
    if one_of("norm", kind, NORMS) == "rms":
        return RMSNorm(width, eps=eps)
    return LayerNorm(width, eps=eps, bias=bias)
