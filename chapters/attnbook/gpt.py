"""A small GPT: embeddings, blocks, a final norm, and a head.

The head, which makes logits of vectors, is the token embedding once more
(weight tying) unless the configuration says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.attention import check_heads
from attnbook.cache import KVCache, LayerCache, Places
from attnbook.config import check_fields, option
from attnbook.feed_forward import FEED_FORWARDS
from attnbook.layers import MultiHeadAttention, TransformerBlock
from attnbook.norms import NORMS, make_norm
from attnbook.positions import alibi_bias, sinusoidal, token_positions
from attnbook.shapes import expect
from attnbook.values import number

#: The ways in which a model can be told about positions.
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")


@dataclass(frozen=True)
class GPTConfig:
    """The sizes and settings of a model; the defaults are GPT-2 small's.

    Raises:
        TypeError: a value of the wrong type.
        ValueError: a value outside its range, or heads that do not divide the
            width or each other.
    """

    vocab_size: int = option(50_257, "tokens that there are", at_least=1)
    context: int = option(1024, "longest sequence, in tokens", at_least=1)
    d_model: int = option(768, "width of the residual stream", at_least=1)
    n_heads: int = option(12, "heads a block", at_least=1)
    n_layers: int = option(12, "blocks", at_least=1)
    dropout: float = option(0.0, "chance to be dropped", at_least=0, below=1)
    bias: bool = option(True, "biases in the layers")
    positions: str = option("learned", "kind of positions", choices=POSITIONS)
    activation: str = option(
        "gelu_tanh", "of the feed-forward layers", choices=FEED_FORWARDS
    )
    initial_std: float = option(0.02, "deviation of a new matrix", above=0)
    n_kv_heads: int | None = option(None, "heads of keys/values", at_least=1)
    d_ff: int | None = option(None, "inner width of blocks", at_least=1)
    norm: str = option("layer", "kind of norm", choices=NORMS)
    norm_eps: float = option(1e-5, "added inside the norms' root", at_least=0)
    rotary_base: float = option(10_000.0, "base of rotation", at_least=1)
    rotary_scaling: tuple[float, float, float, float] = option(
        (1, 1, 4, 8192), "Llama 3.1's factor, low, high, context", above=0
    )
    qkv_bias: bool = option(False, "biases in queries, keys, values anyhow")
    tied: bool = option(True, "the token embedding as the output head")
    d_head: int | None = option(None, "width of a head", at_least=1)
    qk_norm: bool = option(False, "norms on each head's queries and keys")

    def __post_init__(self) -> None:
        check_fields(self)
        n_kv_heads = self.n_kv_heads or self.n_heads
        width = self.d_model
        if self.d_head is not None:  # then heads need not share d_model out
            width = self.n_heads * self.d_head
        check_heads(width, self.n_heads, n_kv_heads)
        _, low, high, _ = self.rotary_scaling
        number("rotary_scaling's high", high, above=low)

    def head_width(self) -> int:
        """The width of a head's queries and keys, d_k: `d_head` if given."""
        return self.d_head or self.d_model // self.n_heads

    def parameter_count(self) -> int:
        """How many numbers a `GPT` of these sizes learns, by formula.

        No model is built for it.

        >>> GPTConfig().parameter_count()  # GPT-2 small
        124439808
        """
        d = self.d_model
        bias = int(self.bias)  # a bias is one more input, which is always 1
        n_kv_heads = self.n_kv_heads or self.n_heads
        d_head = self.head_width()
        d_queries = self.n_heads * d_head  # of all heads of queries
        d_keys = n_kv_heads * d_head  # of all heads of keys
        qkv = (d_queries + 2 * d_keys) * (d + max(bias, int(self.qkv_bias)))
        qk_norms = 2 * d_head if self.qk_norm else 0
        attention = qkv + qk_norms + d * (d_queries + bias)
        if self.activation == "swiglu":
            d_ff = self.d_ff or round(8 * d / 3)
            widening = 2 * d_ff * (d + bias)  # the gate has a matrix, too
        else:
            d_ff = self.d_ff or 4 * d
            widening = d_ff * (d + bias)
        feed_forward = widening + d * (d_ff + bias)
        norm = d if self.norm == "rms" else d + d * bias
        blocks = self.n_layers * (attention + feed_forward + 2 * norm)
        table = self.context * d if self.positions == "learned" else 0
        vocabulary = self.vocab_size * d
        if not self.tied:
            vocabulary *= 2  # the head has a matrix of its own
        return vocabulary + table + blocks + norm


#: Runs one block: its number, the block, and the residual stream before it;
#: the result is the stream after it.
RunBlock = Callable[[int, Any, Tensor], Tensor]


class GPT(nn.Module):
    """A language model: tokens (B, T) → logits (B, T, vocab_size).

    Its weights are small random numbers until it is trained or loaded.

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
                rotary_scaling=config.rotary_scaling,
                qkv_bias=config.qkv_bias,
                n_kv_heads=config.n_kv_heads,
                d_head=config.d_head,
                qk_norm=config.qk_norm,
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
        """Draw small weights, so that the first guess is nearly uniform."""
        std = self.config.initial_std
        # The residual stream adds up the results of 2 · n_layers layers, and
        # shall not grow with their number.
        added = std / math.sqrt(2 * self.config.n_layers)
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                nn.init.normal_(parameter, std=added)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def new_cache(self, batch: int, capacity: int | None = None) -> KVCache:
        """An empty cache for keys and values of this model.

        It has `batch` rows with room for `capacity` tokens each, which is
        the model's context if not given. Its type and device are the
        weights'.

        Raises:
            TypeError, ValueError: a number that is not whole, or below 1.
        """
        config = self.config
        weight = self.token_embedding.weight
        return KVCache(
            batch,
            config.context if capacity is None else capacity,
            n_layers=config.n_layers,
            n_heads=config.n_kv_heads or config.n_heads,
            d_k=config.head_width(),
            dtype=weight.dtype,
            device=weight.device,
        )

    def forward(
        self,
        tokens: Tensor,
        *,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KVCache | None = None,
        last: bool = False,
    ) -> Tensor:
        """For each token the logits of the one after it: (B, T, vocab_size).

        Args:
            tokens: the tokens' numbers, integers (B, T).
            real: False (or 0) at padding, (B, T). Positions then count real
                tokens only, and what comes out at padding means nothing.
            segments: numbers (B, T) that tell packed texts apart: where the
                number changes, another text begins. A token attends only to
                its own text, whose positions begin at 0, so each text gets
                what it gets alone. Padding is given a number of its own.
            cache: the keys and values of earlier tokens; those of the new
                ones are added to it.
            last: give logits after each row's last real token only:
                (B, 1, vocab_size).

        Raises:
            TypeError: tokens that are not integers, or a cache whose numbers
                are of another type than the model's.
            ValueError: a token outside the vocabulary; more tokens than the
                model's context; a cache that does not match the model or is
                full. The cache then is as it was before.
        """
        self._check(tokens, real)
        places = None
        if segments is not None:
            expect(
                "integer", tokens=(tokens, "B T"), segments=(segments, "B T")
            )
            other = "real" if cache is None else "cache"
            if real is not None or cache is not None:
                raise ValueError(
                    "segments stand alone; expected padding to have a segment "
                    f"of its own, and no cache; got {other} beside segments"
                )
        if cache is not None:
            places = cache.place(len(tokens), tokens.shape[1], real)
        plan = self._plan(tokens, real, places, segments)
        x = self.embed(tokens, plan["positions"])  # (B, T, d_model)
        x = self.run_blocks(x, cache=cache, places=places, **plan)
        if last:
            x = last_real(x, real)  # (B, 1, d_model)
        logits = self.unembed(x)  # (B, T, vocab_size)
        if cache is not None and places is not None:
            cache.commit(places)
        return logits

    def _check(self, tokens, real):
        """Raise if the model cannot read these tokens, before it computes.

        Args:
            tokens: their numbers, (B, T).
            real: False at padding, (B, T), or None.

        Raises:
            TypeError: a tensor of another type.
            ValueError: other shapes, or a token outside the vocabulary.
        """
        expect("integer", tokens=(tokens, "B T"))
        if real is not None:
            expect(real=(real, "B T"), B=len(tokens), T=tokens.shape[1])
        vocab_size = self.config.vocab_size
        for token in torch.stack(tokens.aminmax()).tolist():
            if not 0 <= token < vocab_size:
                raise ValueError(
                    "a token is not in the model's vocabulary; expected "
                    f"numbers from 0 to {vocab_size - 1}; got {token}"
                )

    def _plan(self, tokens, real, places, segments=None):
        """What each block is told of the tokens: a dictionary of options.

        `positions` are where the tokens are, (T,) or (B, T). `mask`, boolean
        or added, broadcasts to (B, H, T, S); it is None where `causal`, which
        forbids later keys, is all that is needed. `rotation` holds cosines
        and sines for the layers of a model with rotary positions.
        """
        config = self.config
        mask = None
        causal = True
        if places is not None:
            positions = places.positions.to(tokens.device)
            keys = torch.arange(places.n_keys, device=tokens.device)  # (S,)
            if places.slots is not None:
                # In the cache a slot's number is its token's position. So this
                # hides later tokens, and slots that only longer rows have
                # filled.
                mask = keys <= positions[:, None, :, None]  # (B, 1, T, S)
                causal = False
        elif segments is not None:
            text, positions = texts_of(segments)  # (B, T) each
            keys = positions
            mask = (text[:, :, None] == text[:, None, :])[:, None]
        elif real is not None:
            positions = token_positions(real)  # (B, T)
            keys = positions
            mask = real.bool()[:, None, None, :]  # (B, 1, 1, S)
        else:
            T = tokens.shape[1]
            positions = torch.arange(T, device=tokens.device)  # (T,)
            keys = positions
        if config.positions == "learned":
            self._check_length(int(positions.max()) + 1)
        if config.positions == "alibi":
            # One mask for all blocks: the bias, and −∞ at hidden keys.
            bias = alibi_bias(config.n_heads, positions, keys)
            if mask is not None:
                bias = bias.masked_fill(~mask, -math.inf)
            if causal:  # later keys, whose distance is negative
                bias = bias.masked_fill(bias > 0, -math.inf)
            bias = bias.to(self.token_embedding.weight.dtype)
            mask = bias if bias.ndim == 4 else bias[None]  # (B or 1, H, T, S)
            causal = False
        plan = {"positions": positions, "mask": mask, "causal": causal}
        return plan | self._rotation(positions)

    def _rotation(self, positions):
        """The option `rotation` for all blocks, if they turn by the same
        angles: a dictionary, which is empty where they do not.

        Shapes: positions (T,) or (B, T).
        """
        layers = [block.attention for block in self.blocks]
        same = all(isinstance(layer, MultiHeadAttention) for layer in layers)
        if self.config.positions != "rotary" or not same:
            return {}
        cos, sin = layers[0].rotation(positions[..., None, :])  # for all heads
        dtype = self.token_embedding.weight.dtype
        return {"rotation": (cos.to(dtype), sin.to(dtype))}

    def _check_length(self, length):
        """Refuse a text for whose last token there is no position."""
        context = self.config.context
        if length > context:
            raise ValueError(
                "the text's length is more than the model's context, because "
                "there is a learned vector for each position in it; expected "
                f"at most {context} tokens; got {length}"
            )

    def run_blocks(
        self,
        x: Tensor,
        run_block: RunBlock | None = None,
        *,
        cache: KVCache | None = None,
        places: Places | None = None,
        **options: Any,
    ) -> Tensor:
        """Send the residual stream x through all blocks, one after the other.

        Whoever runs a model's blocks comes through here, so that what happens
        between two blocks is written down once.

        Args:
            run_block: what to do at each block, given its number, the block
                and x; it returns x after the block. If not given, the block
                is called with `options` and with its part of the cache.
            cache, places: where the blocks read and write keys and values.

        Shapes: x (..., T, d_model) → the same.
        """
        for n, block in enumerate(self.blocks):
            if run_block is not None:
                x = run_block(n, block, x)
                continue
            part = None
            if cache is not None and places is not None:
                part = LayerCache(cache, n, places)
            x = block(x, **options, cache=part)
        return x

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """What the residual stream begins with: (B, T, d_model).

        That is each token's embedding, and, where the model learned or
        computes vectors for positions, the vector of its position.

        Shapes: tokens (B, T), positions (T,) or (B, T), all integers.
        """
        x = self.token_embedding(tokens.long())
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        elif self.config.positions == "sinusoidal":
            waves = sinusoidal(positions, self.config.d_model)
            # Scaled to the size that the embeddings have before training.
            x = x + self.config.initial_std * waves.to(x.dtype)
        return F.dropout(x, self.config.dropout, self.training)

    def unembed(self, x: Tensor) -> Tensor:
        """The logits of what the residual stream has become.

        Each is the product of a normalised vector with one token's row of
        the head, or of the embedding where the two are tied.

        Shapes: x (..., d_model) → (..., vocab_size).
        """
        x = self.norm(x)
        if self.head is None:
            return F.linear(x, self.token_embedding.weight)
        return self.head(x)


def last_real(x: Tensor, real: Tensor | None) -> Tensor:
    """The vector of each row's last real token: (B, T, d) → (B, 1, d).

    `real` (B, T) is False or 0 at padding; if it is None, all are real.
    """
    if real is None:
        return x[:, -1:]
    # The count of real tokens is highest from the last real one on; argmax
    # finds the first column where it is.
    columns = real.long().cumsum(-1).argmax(-1)  # (B,)
    return x[torch.arange(len(x), device=x.device), columns][:, None]


def texts_of(segments: Tensor) -> tuple[Tensor, Tensor]:
    """The number of each token's text in its row, and its place in that text.

    A text begins where the segment's number changes.

    Shapes: segments (B, T) → two tensors (B, T), int64, both from 0 on.

    >>> texts_of(torch.tensor([[5, 5, 5, 2, 2, 5]]))
    (tensor([[0, 0, 0, 1, 1, 2]]), tensor([[0, 1, 2, 0, 1, 0]]))
    """
    begins = torch.zeros_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    columns = torch.arange(segments.shape[1], device=segments.device)  # (T,)
    first = (begins * columns).cummax(-1).values  # (B, T): where it began
    return begins.long().cumsum(-1), columns - first
