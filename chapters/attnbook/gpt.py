"""A small GPT: embeddings, blocks, a final norm, and a head tied to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.cache import GrowingCache, KVCache, Places
from attnbook.layers import (
    ACTIVATIONS,
    NORMS,
    TransformerBlock,
    make_norm,
)
from attnbook.positions import alibi_bias, sinusoidal, token_positions

#: How a model may be told about positions.
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a model. The defaults are those of GPT-2 small.

    Raises:
        TypeError: sizes that are not whole numbers.
        ValueError: sizes below 1, heads that do not divide the width, an
            unknown kind of positions, norm or activation, a dropout that is
            no probability.
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
    initial_std: float = 0.02  # of a new matrix; 1/√d_model keeps sizes
    n_kv_heads: int | None = None  # fewer: queries share keys and values
    d_ff: int | None = None  # inside the feed-forward; 4 · d_model
    norm: str = "layer"  # or "rms"
    norm_eps: float = 1e-5
    rotary_base: float = 10_000.0
    tied: bool = True  # whether the head is the token embedding

    def __post_init__(self) -> None:
        sizes = {
            name: getattr(self, name)
            for name in (
                "vocab_size",
                "context",
                "d_model",
                "n_heads",
                "n_layers",
                "n_kv_heads",
                "d_ff",
            )
            if name not in ("n_kv_heads", "d_ff")
            or getattr(self, name) is not None
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
        if self.n_heads % (self.n_kv_heads or self.n_heads):
            raise ValueError(
                "the heads cannot share keys and values; expected n_kv_heads "
                f"a divisor of n_heads; got {self.n_kv_heads} and "
                f"{self.n_heads}"
            )
        if self.activation not in (*ACTIVATIONS, "swiglu"):
            raise ValueError(
                f"there is no activation {self.activation!r}; expected one "
                f"of {', '.join(ACTIVATIONS)}, swiglu"
            )
        if self.norm not in NORMS:
            raise ValueError(
                f"there is no norm {self.norm!r}; expected one of "
                f"{', '.join(NORMS)}"
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
        if not 0 <= self.norm_eps < math.inf:
            raise ValueError(
                "norm_eps is added inside a root; expected a number from 0 "
                f"on; got {self.norm_eps}"
            )

    def parameter_count(self) -> int:
        """How many numbers a `GPT` of these sizes learns, by formula."""
        d, b = self.d_model, int(self.bias)
        shared = d * (self.n_kv_heads or self.n_heads) // self.n_heads
        attention = (2 * d + 2 * shared) * (d + b)  # query, key_value, out
        gated = self.activation == "swiglu"
        d_ff = self.d_ff or (round(8 * d / 3) if gated else 4 * d)
        feed_forward = (2 if gated else 1) * d_ff * (d + b) + d * (d_ff + b)
        norm = d if self.norm == "rms" else d + d * b
        table = self.context * d if self.positions == "learned" else 0
        blocks = self.n_layers * (attention + feed_forward + 2 * norm)
        vocabulary = self.vocab_size * d * (1 if self.tied else 2)
        return vocabulary + table + blocks + norm


class Plan(NamedTuple):
    """What the blocks are told: who stands where, who may look at whom.

    `positions` (T,) or (B, T); `mask` as in `attend`, or None; `causal`;
    `places` of the new tokens in the cache, if there is one.
    """

    positions: Tensor
    mask: Tensor | None
    causal: bool
    places: Places | None


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
                d_model,
                config.n_heads,
                d_ff=config.d_ff,
                activation=config.activation,
                norm=config.norm,
                norm_eps=config.norm_eps,
                bias=config.bias,
                dropout=config.dropout,
                rotary=config.positions == "rotary",
                rotary_base=config.rotary_base,
                n_kv_heads=config.n_kv_heads,
            )
            for _ in range(config.n_layers)
        )
        self.norm = make_norm(
            config.norm, d_model, eps=config.norm_eps, bias=config.bias
        )
        self.head = None  # the token embedding serves
        if not config.tied:
            self.head = nn.Linear(d_model, config.vocab_size, bias=False)
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

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options) -> GPT:
        """A model with published weights; see `pretrained.load`."""
        from attnbook.pretrained import load  # it needs this module

        return load(name_or_path, **options)

    def new_cache(self, batch: int, capacity: int | None = None) -> KVCache:
        """An empty cache for `batch` sequences; `context` tokens each if no
        capacity is given.
        """
        config, weight = self.config, self.token_embedding.weight
        return KVCache(
            batch,
            config.context if capacity is None else capacity,
            n_layers=config.n_layers,
            n_heads=config.n_kv_heads or config.n_heads,
            d_k=config.d_model // config.n_heads,
            dtype=weight.dtype,
            device=weight.device,
        )

    def forward(
        self,
        tokens: Tensor,
        *,
        real: Tensor | None = None,
        cache: KVCache | GrowingCache | None = None,
        last: bool = False,
    ) -> Tensor:
        """Logits of the token after each: (B, T, vocab_size).

        Args:
            real: True at real tokens, False at padding, shape (B, T). The
                positions count real tokens only. What comes out at padding
                means nothing.
            cache: the keys and values of earlier tokens; the new ones are
                put in. The tokens go on where each row of it ends.
            last: give the logits after each row's last real token only:
                (B, 1, vocab_size).

        Raises:
            TypeError: tokens that are not integers; a cache of another type.
            ValueError: a shape other than (B, T), a token that is not in the
                vocabulary, a sequence longer than the context, a cache that
                does not match or is full. It is as before then.
        """
        self._check(tokens, real)
        plan = self._plan(tokens, real, cache)
        self._check_length(tokens, real, plan)
        x = self.embed(tokens, plan.positions)  # (B, T, d_model)
        for index, block in enumerate(self.blocks):
            x = block(
                x,
                mask=plan.mask,
                causal=plan.causal,
                positions=plan.positions,
                cache=cache and cache.layer(index, plan.places),
            )
        if last:
            x = last_real(x, real)  # (B, 1, d_model)
        logits = self.unembed(x)  # (B, T, vocab_size)
        if cache is not None:
            cache.commit(plan.places)
        return logits

    def _plan(self, tokens, real, cache) -> Plan:
        B, T = tokens.shape
        mask, causal, places = None, True, None
        if cache is not None:
            places = cache.place(B, T, real)
            positions = places.positions.to(tokens.device)
            keys = torch.arange(places.n_keys, device=tokens.device)  # (S,)
            if places.start is None:
                # A slot is a position: whoever stands later is not seen,
                # and neither is a slot that another row alone has filled.
                mask = keys <= positions[:, None, :, None]  # (B, 1, T, S)
                causal = False
        elif real is not None:
            keys = positions = token_positions(real)  # (B, T)
            mask = real.bool()[:, None, None, :]  # (B, 1, 1, S)
        else:
            keys = positions = torch.arange(T, device=tokens.device)  # (T,)
        if self.config.positions == "alibi":
            # One mask for all blocks: the bias, and −∞ where none may look.
            bias = alibi_bias(self.config.n_heads, positions, keys)
            if mask is not None:
                bias = bias.masked_fill(~mask, -math.inf)
            if causal:  # later keys, whose distance is negative
                bias = bias.masked_fill(bias > 0, -math.inf)
            mask = bias.to(self.token_embedding.weight.dtype)
            causal = False
        return Plan(positions, mask, causal, places)

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
        """Logits: how well the stream matches each token's embedding, or
        the head's row for it where the two are not tied.
        """
        x = self.norm(x)
        if self.head is not None:
            return self.head(x)
        return F.linear(x, self.token_embedding.weight)

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
            torch.int64,
            torch.int32,
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
        low, high = torch.stack(tokens.aminmax()).tolist()
        if low < 0 or high >= self.config.vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(
                "a token is not in the vocabulary; expected numbers from 0 "
                f"to {self.config.vocab_size - 1}; got {wrong}"
            )

    def _check_length(self, tokens, real, plan):
        context = self.config.context
        if self.config.positions != "learned":
            return
        if plan.places is not None:
            length = max(plan.places.lengths)
        elif real is not None:
            length = int(real.sum(-1).max())
        else:
            length = tokens.shape[1]
        if length > context:
            raise ValueError(
                "the sequence is longer than the context; expected at most "
                f"{context} tokens; got {length}"
            )


def last_real(x: Tensor, real: Tensor | None) -> Tensor:
    """The vector of each row's last real token: (B, T, d) → (B, 1, d)."""
    if real is None:
        return x[:, -1:]
    # The last column where the count of real tokens has reached its end.
    columns = real.long().cumsum(-1).argmax(-1)  # (B,)
    return x[torch.arange(len(x), device=x.device), columns][:, None]
