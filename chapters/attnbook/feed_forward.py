"""Feed-forward layers: each token by itself, wide, bent and narrow again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.shapes import check_tokens
from attnbook.values import check_sizes, number, one_of

#: What stands between the two matrices of a feed-forward layer, by name.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Two matrices and an activation between them, for each token alone.

    d_ff, the width inside, is 4 · d_model if not given.

    Source: Vaswani et al. (2017), arXiv:1706.03762, section 3.3.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        *,
        activation: str = "gelu_tanh",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        d_ff = 4 * d_model if d_ff is None else d_ff
        check_sizes(d_model=d_model, d_ff=d_ff)
        self.dropout = number("dropout", dropout, at_least=0, below=1)
        self.activation = one_of("activation", activation, ACTIVATIONS)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) → (..., d_ff) → (..., d_model)."""
        check_tokens(self.up.weight, "... d_model", x)
        inner = ACTIVATIONS[self.activation](self.up(x))
        return F.dropout(self.down(inner), self.dropout, self.training)


class SwiGLU(nn.Module):
    """A feed-forward layer with a gate: down(silu(gate(x)) * up(x)).

    d_ff is ⅔ · 4 · d_model if not given: three matrices hold as much as two.

    Source: Shazeer (2020), arXiv:2002.05202, equation 6.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        d_ff = round(8 * d_model / 3) if d_ff is None else d_ff
        check_sizes(d_model=d_model, d_ff=d_ff)
        self.dropout = number("dropout", dropout, at_least=0, below=1)
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) → (..., d_ff) → (..., d_model)."""
        check_tokens(self.up.weight, "... d_model", x)
        inner = F.silu(self.gate(x)) * self.up(x)  # (..., d_ff)
        return F.dropout(self.down(inner), self.dropout, self.training)


#: The feed-forward layers, by the name of what bends them.
FEED_FORWARDS = {
    name: partial(FeedForward, activation=name) for name in ACTIVATIONS
} | {"swiglu": SwiGLU}
