"""A small GPT: embeddings, blocks, a final norm, and a head tied to them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.attention import merge_causal
from attnbook.layers import LayerNorm, TransformerBlock
from attnbook.masks import positions as positions_of
from attnbook.positions import alibi_bias, sinusoidal

#: How a model may be told about positions.
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a model. The defaults are those of GPT-2 small.

    Raises:
        ValueError: sizes below 1, heads that do not divide the width, an
            unknown kind of positions, a dropout that is no probability.
    """

    vocab_size: int = 50_257
    context: int = 1024  # the longest sequence that it was made for
    d_model: int = 768
    n_heads: int = 12  # each of width d_model / n_heads
    n_layers: int = 12
    dropout: float = 0.0  # a probability, so a float
    bias: bool = True
    positions: str = "learned"  # one of POSITIONS
    activation: str = "gelu_tanh"  # what GPT-2 was trained with
    initial_std: float = 0.02  # of a matrix; 1/√d_model learns sooner if small

    def __post_init__(self) -> None:
        sizes = {
            name: getattr(self, name)
            for name in (
                "vocab_size", "context", "d_model", "n_heads", "n_layers"
            )
        }
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int):
                raise TypeError(
                    f"{name} is no whole number; expected an int; got {size!r}"
                )
        if min(sizes.values()) < 1:
            raise ValueError(
                f"a size is below 1; expected positive sizes; got {sizes}"
            )
        if self.d_model % self.n_heads:
            raise ValueError(
                "the heads do not divide the width; expected d_model a "
                f"multiple of n_heads; got {self.d_model} and {self.n_heads}"
            )
        if self.positions not in POSITIONS:
            raise ValueError(
                f"there are no positions {self.positions!r}; expected one "
                f"of {', '.join(POSITIONS)}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(
                "dropout is a probability below 1; expected one; "
                f"got {self.dropout}"
            )
        if not 0 < self.initial_std < math.inf:
            raise ValueError(
                "initial_std is no size of a weight; expected a number "
                f"above 0; got {self.initial_std}"
            )

    def parameter_count(self) -> int:
        """How many numbers a `GPT` of these sizes learns, by formula."""
        d, b = self.d_model, int(self.bias)
        attention = 4 * d * d + 4 * d * b  # query, key_value, out
        feed_forward = 8 * d * d + 5 * d * b  # up, down
        norm = d + d * b
        table = self.context * d if self.positions == "learned" else 0
        blocks = self.n_layers * (attention + feed_forward + 2 * norm)
        return self.vocab_size * d + table + blocks + norm


class GPT(nn.Module):
    """A language model: tokens in, scores for each next token out.

    Shapes: tokens (B, T), integers → logits (B, T, vocab_size).

    Source: Radford et al. (2019), "Language Models are Unsupervised
    Multitask Learners": GPT-2.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        d_model = config.d_model
        self.token_embedding = nn.Embedding(config.vocab_size, d_model)
        self.position_embedding = None
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.context, d_model)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                d_model, config.n_heads, bias=config.bias,
                dropout=config.dropout, activation=config.activation,
                rotary=config.positions == "rotary",
            )
            for _ in range(config.n_layers)
        )
        self.norm = LayerNorm(d_model, bias=config.bias)
        self._initialise()

    def _initialise(self) -> None:
        """Small weights, so that the first guess is nearly uniform.

        What writes to the residual stream starts smaller by √(2 n_layers),
        as that many such terms are added up.
        """
        std = self.config.initial_std
        added = std / math.sqrt(2 * self.config.n_layers)
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                nn.init.normal_(parameter, std=added)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, *, real: Tensor | None = None) -> Tensor:
        """Logits of the token after each: (B, T, vocab_size).

        Args:
            real: True at real tokens, False at padding, shape (B, T). The
                positions count real tokens only. What comes out at padding
                means nothing.

        Raises:
            TypeError: tokens that are not integers.
            ValueError: a shape other than (B, T), a token that is not in the
                vocabulary, a sequence longer than the context.
        """
        self._check(tokens, real)
        T, mask = tokens.shape[1], None
        positions = torch.arange(T, device=tokens.device)  # (T,)
        if real is not None:
            positions = positions_of(real)  # (B, T)
            mask = real.bool()[:, None, None, :]  # (B, 1, 1, S)
        x = self.embed(tokens, positions)  # (B, T, d_model)
        causal = True
        if self.config.positions == "alibi":
            # One mask for all blocks: the bias, and −∞ where none may look.
            bias = alibi_bias(self.config.n_heads, positions, positions)
            if mask is not None:
                bias = bias.masked_fill(~mask, -math.inf)
            mask = merge_causal(bias, T, T, device=x.device).to(x.dtype)
            causal = False
        for block in self.blocks:
            x = block(x, mask=mask, causal=causal, positions=positions)
        return self.unembed(x)  # (B, T, vocab_size)

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The start of the residual stream: (B, T, d_model).

        The positions (B, T), or (T,) for all sequences.
        """
        x = self.token_embedding(tokens)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        elif self.config.positions == "sinusoidal":
            waves = sinusoidal(positions, self.config.d_model)
            # As small as the embeddings are at the start.
            x = x + self.config.initial_std * waves.to(x.dtype)
        return F.dropout(x, self.config.dropout, self.training)

    def unembed(self, x: Tensor) -> Tensor:
        """Logits: how well the stream matches each token's embedding."""
        return F.linear(self.norm(x), self.token_embedding.weight)

    def loss(
        self, tokens: Tensor, targets: Tensor, *, real: Tensor | None = None
    ) -> Tensor:
        """Mean cross-entropy in nats over the targets that are not −100."""
        logits = self(tokens, real=real)
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-100
        )

    def _check(self, tokens, real):
        if not isinstance(tokens, Tensor) or tokens.dtype not in (
            torch.int64, torch.int32
        ):
            raise TypeError(
                "the tokens are of the wrong type; expected a tensor of "
                "integers; got "
                f"{getattr(tokens, 'dtype', type(tokens).__name__)}"
            )
        if tokens.ndim != 2 or 0 in tokens.shape:
            raise ValueError(
                "the tokens have the wrong shape; expected (B, T), both at "
                f"least 1; got {tuple(tokens.shape)}"
            )
        if real is not None and real.shape != tokens.shape:
            raise ValueError(
                "the padding mask does not fit the tokens; expected "
                f"{tuple(tokens.shape)}; got {tuple(real.shape)}"
            )
        config = self.config
        if (
            config.positions == "learned" and tokens.shape[1] > config.context
        ):
            raise ValueError(
                "the sequence is longer than the context; expected at most "
                f"{config.context} tokens; got {tokens.shape[1]}"
            )
        low, high = tokens.min().item(), tokens.max().item()
        if low < 0 or high >= config.vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(
                "a token is not in the vocabulary; expected numbers from 0 "
                f"to {config.vocab_size - 1}; got {wrong}"
            )
