"""Layers: the blocks that hold weights, on the functions of `attention`."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnbook.attention import check_inputs, softmax


class Stages(NamedTuple):
    """Every tensor on the way through one head, by name.

    Shapes: `q` (..., T, d_k), `k` (..., S, d_k), `v` (..., S, d_v); `scores`,
    `masked` and `weights` (..., T, S); `context` (..., T, d_v).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor
    masked: Tensor
    weights: Tensor
    context: Tensor


class SelfAttention(nn.Module):
    """One head of self-attention: each stage a method, in the order used.

    Args:
        d_in: width of a token.
        d_k: width of a query and of a key.
        d_v: width of a value, and so of the result; d_k if not given.
        bias: whether the three projections add a bias.

    Shapes: x (..., T, d_in) → context (..., T, d_v).

    Raises:
        ValueError: a width below 1; an input whose last axis is not d_in.
        TypeError: an input of another type than the weights; a mask that is
            not boolean.
    """

    def __init__(
        self, d_in: int, d_k: int, d_v: int | None = None, *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        d_v = d_k if d_v is None else d_v
        if min(d_in, d_k, d_v) < 1:
            raise ValueError(
                "a width is below 1; expected positive widths; "
                f"got d_in={d_in}, d_k={d_k}, d_v={d_v}"
            )
        self.query = nn.Linear(d_in, d_k, bias=bias)
        self.key = nn.Linear(d_in, d_k, bias=bias)
        self.value = nn.Linear(d_in, d_v, bias=bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (..., T, d_in) → q, k (..., T, d_k) and v (..., T, d_v)."""
        weight = self.query.weight
        if not isinstance(x, Tensor) or x.dtype != weight.dtype:
            raise TypeError(
                "the tokens are of the wrong type; expected a tensor of "
                f"{weight.dtype}; got "
                f"{getattr(x, 'dtype', type(x).__name__)}"
            )
        d_in = self.query.in_features
        if x.ndim < 2 or x.shape[-1] != d_in:
            raise ValueError(
                "the tokens have the wrong shape; expected "
                f"(..., T, {d_in}); got x {tuple(x.shape)}"
            )
        return self.query(x), self.key(x), self.value(x)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """q (..., T, d_k), k (..., S, d_k) → scaled scores (..., T, S)."""
        return (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)

    def apply_mask(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores with −∞ wherever the boolean mask is False; a new tensor."""
        if mask is None:
            return scores
        return scores.masked_fill(~mask, -torch.inf)

    def stages(self, x: Tensor, mask: Tensor | None = None) -> Stages:
        """Every tensor on the way; `mask` is boolean, True = may attend."""
        if mask is not None and (
            not isinstance(mask, Tensor) or mask.dtype != torch.bool
        ):
            raise TypeError(
                "the mask is of the wrong type; expected a boolean tensor "
                "(True = may attend); got "
                f"{getattr(mask, 'dtype', type(mask).__name__)}"
            )
        q, k, v = self.project(x)
        check_inputs(q, k, v, mask)
        scores = self.score(q, k)  # (..., T, T)
        masked = self.apply_mask(scores, mask)
        weights = softmax(masked)  # (..., T, T)
        return Stages(q, k, v, scores, masked, weights, weights @ v)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The context, one vector of width d_v a token: (..., T, d_v)."""
        return self.stages(x, mask).context
