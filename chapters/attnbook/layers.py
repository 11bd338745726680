"""Layers: the blocks that hold weights, built on the functions of `attention`.

`bias=True`, torch's and GPT-2's choice, is the default everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.attention import (
    attend,
    check_heads,
    check_inputs,
    merge_heads,
    softmax,
    split_heads,
    weigh,
)
from attnbook.cache import LayerCache
from attnbook.feed_forward import FEED_FORWARDS
from attnbook.masks import check_head_mask, merge_causal
from attnbook.norms import make_norm
from attnbook.positions import UNSCALED, rotation_of, turn_halves
from attnbook.shapes import check_tokens, expect
from attnbook.values import check_sizes, number, one_of


class Stages(NamedTuple):
    """Every tensor that one head computes on the way, in order, by name.

    `SelfAttention.stages` returns it, so that a page can show each step.
    """

    q: Tensor  # (..., T, d_k)
    k: Tensor  # (..., S, d_k)
    v: Tensor  # (..., S, d_v)
    scores: Tensor  # (..., T, S), scaled
    masked: Tensor  # (..., T, S), the scores with −∞ where mask is False
    weights: Tensor  # (..., T, S)
    context: Tensor  # (..., T, d_v)


class SelfAttention(nn.Module):
    """One head of self-attention, whose tensors can be seen on the way.

    Args:
        d_in: the width of a token.
        d_k: the width of its query and its key.
        d_v: the width of its value; d_k if not given.
        bias: whether the three projections have a bias.

    Shapes: x (..., T, d_in) → context (..., T, d_v).

    Raises:
        TypeError, ValueError: a size that is no whole number from 1 on.
    """

    def __init__(
        self, d_in: int, d_k: int, d_v: int | None = None, *, bias: bool = True
    ) -> None:
        super().__init__()
        d_v = d_k if d_v is None else d_v
        check_sizes(d_in=d_in, d_k=d_k, d_v=d_v)
        self.query = nn.Linear(d_in, d_k, bias=bias)
        self.key = nn.Linear(d_in, d_k, bias=bias)
        self.value = nn.Linear(d_in, d_v, bias=bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (..., T, d_in) → q, k (..., T, d_k) and v (..., T, d_v).

        Raises:
            TypeError: x is no tensor, or not of the weights' type.
            ValueError: x has another width, or is empty.
        """
        expect(x=(x, "... T d_in"))
        check_tokens(self.query.weight, "... T d_in", x)
        return self.query(x), self.key(x), self.value(x)

    def stages(self, x: Tensor, mask: Tensor | None = None) -> Stages:
        """Every tensor on the way from x (..., T, d_in) to the context.

        `mask` is boolean, True = may attend, and broadcasts to (..., T, S);
        here S is T.

        Raises:
            TypeError: x is no tensor of the weights' type, or the mask is
                not boolean.
            ValueError: shapes that do not fit, numbers that are not finite.
        """
        if mask is not None:
            expect("bool", mask=(mask, "..."))
        q, k, v = self.project(x)
        check_inputs(q, k, v, mask)
        scores = (q / math.sqrt(q.shape[-1])) @ k.mT
        masked = scores
        if mask is not None:
            masked = scores.masked_fill(~mask, -math.inf)
        weights = softmax(masked)
        return Stages(q, k, v, scores, masked, weights, weights @ v)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The context, one vector of width d_v a token: (..., T, d_v).

        Arguments and errors are those of `stages`.
        """
        return self.stages(x, mask).context


class WithWeights(NamedTuple):
    """A layer's result, and the attention weights that led to it.

    The fused kernels of the fast path do not give the weights away, so a layer
    is asked for them on purpose.
    """

    out: Tensor  # (..., T, d_model)
    weights: Tensor  # (..., H, T, S)


class MultiHeadAttention(nn.Module):
    """Several heads side by side, and the matrix W_O that mixes them.

    It is self-attention unless it is called with a `memory`, from which the
    keys and values then come: cross-attention.

    Args:
        d_model: the width of all tokens.
        n_heads: the number of heads of queries.
        bias: whether all projections have a bias.
        dropout: the chance with which a weight, and then a number of the
            result, is set to zero in training.
        rotary: whether to rotate queries and keys by their positions.
        rotary_base, rotary_scaling: how fast, see `rotary_angles`.
        n_kv_heads: the number of heads of keys and values, each shared by a
            group of queries' heads (grouped-query attention, GQA; with one
            of them multi-query attention, MQA); n_heads if not given.
        qkv_bias: biases for queries, keys and values, whatever `bias` says.
        d_head: the width of a head; d_model / n_heads if not given.
        qk_norm: whether each head's queries and keys are normalised, by an
            RMS norm, before they are rotated (QK-norm), which keeps scores
            from growing.
        norm_eps: the epsilon of these norms.

    Shapes: x (..., T, d_model), memory (..., S, d_model) → as x.

    Raises:
        TypeError, ValueError: sizes that are no whole numbers from 1 on, or
            heads that do not divide them; a dropout outside [0, 1).

    Source: Vaswani et al. (2017), arXiv:1706.03762, section 3.2.2; Ainslie
    et al. (2023), arXiv:2305.13245, for the shared keys and values.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: bool = False,
        rotary_base: float = 10_000.0,
        rotary_scaling: tuple[float, float, float, float] = UNSCALED,
        n_kv_heads: int | None = None,
        qkv_bias: bool = False,
        d_head: int | None = None,
        qk_norm: bool = False,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if d_head is None:
            check_heads(d_model, n_heads, n_kv_heads)
            d_head = d_model // n_heads
        check_sizes(d_model=d_model, n_heads=n_heads, d_head=d_head)
        d_queries = n_heads * d_head  # H·d_k
        check_heads(d_queries, n_heads, n_kv_heads)
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.dropout = number("dropout", dropout, at_least=0, below=1)
        self.rotary = rotary
        self.rotation = partial(
            rotation_of, width=d_head, base=rotary_base, scaling=rotary_scaling
        )
        d_keys = n_kv_heads * d_head  # H_kv·d_k
        self.query = nn.Linear(d_model, d_queries, bias=bias or qkv_bias)
        self.key_value = nn.Linear(d_model, 2 * d_keys, bias=bias or qkv_bias)
        self.query_norm = self.key_norm = None
        if qk_norm:
            self.query_norm = make_norm("rms", d_head, eps=norm_eps)
            self.key_norm = make_norm("rms", d_head, eps=norm_eps)
        self.out = nn.Linear(d_queries, d_model, bias=bias)  # W_O

    def project(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x, and the keys and values that they may look at.

        With a cache, the new keys and values are written into it, and those
        of all earlier tokens come back with them.

        Shapes: x (..., T, d_model) → q (..., H, T, d_k), k and v
        (..., H_kv, S, d_k). Arguments and errors are those of `forward`.
        """
        check_tokens(self.query.weight, "... T d_model", x)
        if memory is None:
            memory = x
        else:
            self._check_memory(x, memory, cache)
        q = split_heads(self.query(x), self.n_heads)
        keys_values = self.key_value(memory).chunk(2, -1)
        k, v = (split_heads(a, self.n_kv_heads) for a in keys_values)
        if self.query_norm is not None and self.key_norm is not None:
            q = self.query_norm(q)
            k = self.key_norm(k)
        if self.rotary:
            if rotation is None:
                if positions is None and cache is not None:
                    positions = cache.places.positions
                elif positions is None:
                    positions = torch.arange(x.shape[-2], device=x.device)
                # The same for every head.
                rotation = self.rotation(positions[..., None, :])
            cos, sin = (part.to(q.dtype) for part in rotation)
            # All heads in one call: in a step, each call counts.
            turned = turn_halves(torch.cat([q, k], -3), cos, sin)
            q, k = turned.split([self.n_heads, self.n_kv_heads], -3)
        if cache is not None:
            k, v = cache.extend(k, v)
        return q, k, v

    def _check_memory(self, x, memory, cache):
        """Refuse a memory that does not fit, or where none can be."""
        if self.rotary:
            raise ValueError(
                "a layer with rotary positions cannot look at a memory, "
                "because it rotates keys by the positions of x; expected "
                "memory=None; got a memory"
            )
        if cache is not None:
            raise ValueError(
                "a layer with a cache cannot look at a memory, because the "
                "cache holds the keys of earlier tokens of x; expected "
                "memory=None; got a memory"
            )
        expect(
            "float",
            x=(x, "... T d_model"),
            memory=(memory, "... S d_model"),
        )

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """The fast path, by a fused kernel: (..., T, d_model).

        Args:
            memory: where keys and values come from, (..., S, d_model); x if
                not given. Rotary and cached keys can only come from x.
            mask: boolean, True = may attend, or added to the scores;
                broadcasts to (..., H, T, S).
            causal: forbid later keys too; the queries are the last T of the
                S positions.
            positions: the positions of the tokens, integers (..., T), for
                rotary layers. If not given, they follow those in the cache,
                or count from 0.
            cache: the layer's part of a cache, with earlier keys and values.
            rotation: cosines and sines (..., 1, T, d_k / 2) for the positions
                (see `rotation_of`), if they have been computed already. A
                model hands them to all its blocks.

        Raises:
            TypeError: x, memory or mask is no tensor of a fitting type.
            ValueError: shapes that do not fit; a memory where keys are
                rotary or cached.
        """
        q, k, v = self.project(x, memory, positions, cache, rotation)
        check_head_mask(mask, q, k)
        dropout = self.dropout if self.training else 0.0
        context = attend(q, k, v, mask=mask, causal=causal, dropout=dropout)
        out = self.out(merge_heads(context))  # (..., T, d_model)
        return F.dropout(out, self.dropout, self.training)

    def with_weights(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
    ) -> WithWeights:
        """The plain path, which has the weights and returns them, too.

        Arguments, errors and `out` are those of `forward`. The weights are
        those before dropout.
        """
        q, k, v = self.project(x, memory, positions, cache, rotation)
        check_head_mask(mask, q, k)
        group = self.n_heads // self.n_kv_heads  # heads that share keys
        k, v = (a.repeat_interleave(group, -3) for a in (k, v))
        if causal:
            mask = merge_causal(
                mask, q.shape[-2], k.shape[-2], device=q.device
            )
        weights = weigh(q, k, mask=mask)  # (..., H, T, S)
        kept = F.dropout(weights, self.dropout, self.training)
        out = self.out(merge_heads(kept @ v))  # (..., T, d_model)
        out = F.dropout(out, self.dropout, self.training)
        return WithWeights(out, weights)


def attention_weights(
    model: nn.Module, *args: object, **kwargs: object
) -> list[Tensor]:
    """The weights of every `MultiHeadAttention` in a model: (..., H, T, S).

    The model is called with the given arguments, without gradients; the list
    has one tensor for each time that such a layer runs, in that order. Each
    layer is computed twice, once by the plain path for its weights.
    """
    found = []

    def keep(layer, args, kwargs):
        found.append(layer.with_weights(*args, **kwargs).weights)

    with ExitStack() as hooks, torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, MultiHeadAttention):
                hook = layer.register_forward_pre_hook(keep, with_kwargs=True)
                hooks.callback(hook.remove)
        model(*args, **kwargs)
    return found


class TransformerBlock(nn.Module):
    """Attention and feed-forward, each added to the residual stream.

    Pre-norm: x + attention(norm(x)), then x + feed_forward(norm(x)).
    Post-norm: norm(x + attention(x)), then norm(x + feed_forward(x)).

    Args:
        d_model: the width of the residual stream.
        n_heads: the number of heads.
        d_ff: the width inside the feed-forward layer, which has a default.
        norm_first: pre-norm, as in GPT-2, or post-norm, as in the first
            transformer.
        activation: the feed-forward layer, a name in `FEED_FORWARDS`.
        norm: the kind of norm, a name in `NORMS`.
        norm_eps: what is added under the norms' root.
        bias: whether all layers have biases.
        dropout: of the attention's weights, and of both layers' results.
        attention: more options of `MultiHeadAttention`: `rotary`,
            `rotary_base`, `rotary_scaling`, `n_kv_heads`, `qkv_bias`.

    Shapes: x (..., T, d_model) → as x.

    Raises:
        TypeError, ValueError: sizes that do not fit, or unknown names.

    Source: Vaswani et al. (2017), arXiv:1706.03762, figure 1; Xiong et al.
    (2020), arXiv:2002.04745, figure 1, for the two places of the norm.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_ff: int | None = None,
        norm_first: bool = True,
        activation: str = "gelu_tanh",
        norm: str = "layer",
        norm_eps: float = 1e-5,
        bias: bool = True,
        dropout: float = 0.0,
        **attention: Any,
    ) -> None:
        super().__init__()
        one_of("activation", activation, FEED_FORWARDS)
        new_norm = partial(make_norm, norm, d_model, eps=norm_eps, bias=bias)
        self.norm_first = norm_first
        self.attention = MultiHeadAttention(
            d_model,
            n_heads,
            bias=bias,
            dropout=dropout,
            norm_eps=norm_eps,
            **attention,
        )
        self.attention_norm = new_norm()
        self.feed_forward = FEED_FORWARDS[activation](
            d_model, d_ff, bias=bias, dropout=dropout
        )
        self.feed_forward_norm = new_norm()

    def forward(self, x: Tensor, **attention: Any) -> Tensor:
        """The residual stream after the block: (..., T, d_model).

        The keyword arguments are those of `MultiHeadAttention.forward`, and
        so are the errors.
        """
        x = self.add(x, self.attention, self.attention_norm, **attention)
        return self.add(x, self.feed_forward, self.feed_forward_norm)

    def add(
        self,
        x: Tensor,
        layer: Callable[..., Tensor],
        norm: nn.Module,
        **options: Any,
    ) -> Tensor:
        """The stream x with what a layer adds to it, the norm in its place.

        `layer` is called with the (normalised) stream and the options. It
        need not be a module: the server passes functions that do a layer's
        work in another way.
        """
        if self.norm_first:
            return x + layer(norm(x), **options)
        return norm(x + layer(x, **options))
