"""Matrices in 8 bits, for the page "How fast is it".

They are a quarter of float32 to read. Each row of a matrix is rounded once,
with a scale of its own. Each token is rounded as it comes, with a scale of its
own, so that its result does not depend on the other tokens. Tokens get 7 bits,
because some processors add two products in 16 bits, which would overflow with
8.

Source: Jacob et al. (2018), arXiv:1712.05877; Dettmers et al. (2022),
arXiv:2208.07339, for a scale to each row and each token.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Int8Linear(nn.Module):
    """An `nn.Linear` in 8 bits, for inference in float32.

    Shapes: x (..., in_features) → (..., out_features).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        # The model asks a layer for the type and shape of its weight. This
        # one has both, and no numbers.
        self.weight = torch.empty_like(weight, device="meta")
        rounded, self.scales = _round(weight, 127)  # (out, in), (out, 1)
        self.zero = torch.zeros(self.out_features, dtype=torch.int64)
        self.packed = torch.ops.onednn.qlinear_prepack(
            rounded.to(torch.int8), None
        )

    def forward(self, x: Tensor) -> Tensor:
        """The product x Wᵀ + b, with both x and W rounded."""
        rows = x.reshape(-1, self.in_features)
        rounded, scale = _round(rows, 63)
        # The kernel takes unsigned numbers, and the one of them that stands
        # for 0.
        product = torch.ops.onednn.qlinear_pointwise(
            (rounded + 64).to(torch.uint8),
            1.0,
            64,
            self.packed,
            self.scales[:, 0],
            self.zero,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )  # (rows, out)
        product = (product * scale).view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


def _round(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Round each row to whole numbers, by a scale of its own.

    Args:
        x: numbers, (..., d).
        most: the largest whole number that may come out.

    Returns:
        whole numbers from −most to most, (..., d), and the scales, (..., 1).
    """
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-30) / most  # (..., 1)
    return (x / scale).round(), scale
