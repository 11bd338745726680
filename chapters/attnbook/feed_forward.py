"""Feed-forward layers: each token alone, made wide, bent, and narrow again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.shapes import check_tokens
from attnbook.values import check_sizes, number, one_of

#: The functions that can stand between the two matrices, by name.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Two matrices with an activation between them, for each token alone.

    Args:
        d_model: the width of a token.
        d_ff: the width inside; 4 · d_model if not given.
        activation: a name in `ACTIVATIONS`.
        bias: whether both matrices have a bias.
        dropout: the chance with which a number of the result is set to zero
            while the layer trains.

    Raises:
        TypeError: a size or a chance of another type.
        ValueError: a size below 1, a chance outside [0, 1), or an unknown
            activation.

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
        """down(activation(up(x))): (..., d_model) → (..., d_model).

        Raises:
            TypeError: x is no tensor, or not of the weights' type.
            ValueError: x has another width, or is empty.
        """
        check_tokens(self.up.weight, "... d_model", x)
        inner = ACTIVATIONS[self.activation](self.up(x))  # (..., d_ff)
        return F.dropout(self.down(inner), self.dropout, self.training)


class SwiGLU(nn.Module):
    """A feed-forward layer with a gate: down(silu(gate(x)) * up(x)).

    Args:
        d_model: the width of a token.
        d_ff: the width inside; ⅔ · 4 · d_model if not given, so that three
            matrices hold as many numbers as the two of `FeedForward`.
        bias: whether all three matrices have a bias.
        dropout: the chance with which a number of the result is set to zero
            while the layer trains.

    Raises:
        TypeError: a size or a chance of another type.
        ValueError: a size below 1, or a chance outside [0, 1).

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
        """down(silu(gate(x)) * up(x)): (..., d_model) → (..., d_model).

        Raises:
            TypeError: x is no tensor, or not of the weights' type.
            ValueError: x has another width, or is empty.
        """
        check_tokens(self.up.weight, "... d_model", x)
        inner = F.silu(self.gate(x)) * self.up(x)  # (..., d_ff)
        return F.dropout(self.down(inner), self.dropout, self.training)


#: What makes a feed-forward layer, by the name that a block is given: an
#: activation between two matrices, or the gated layer.
FEED_FORWARDS: dict[str, Callable[..., nn.Module]] = {
    name: partial(FeedForward, activation=name) for name in ACTIVATIONS
}
FEED_FORWARDS["swiglu"] = SwiGLU
