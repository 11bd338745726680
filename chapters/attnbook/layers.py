"""Layers: the blocks that hold weights, on the functions of `attention`.

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
from attnbook.masks import check_mask, merge_causal
from attnbook.norms import make_norm
from attnbook.positions import UNSCALED, rotary_angles, rotate
from attnbook.shapes import check_tokens, expect
from attnbook.values import bad_value, check_sizes, number, one_of


class Stages(NamedTuple):
    """Every tensor on the way through one head, by name."""

    q: Tensor  # (..., T, d_k)
    k: Tensor  # (..., S, d_k)
    v: Tensor  # (..., S, d_v)
    scores: Tensor  # (..., T, S), as the next two
    masked: Tensor
    weights: Tensor
    context: Tensor  # (..., T, d_v)


class SelfAttention(nn.Module):
    """One head of self-attention, whose tensors can be seen on the way.

    Shapes: x (..., T, d_in) → context (..., T, d_v); d_v is d_k if not given.
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
        """x (..., T, d_in) → q, k (..., T, d_k) and v (..., T, d_v)."""
        expect(x=(x, "... T d_in"))
        check_tokens(self.query.weight, "... T d_in", x)
        return self.query(x), self.key(x), self.value(x)

    def stages(self, x: Tensor, mask: Tensor | None = None) -> Stages:
        """Every tensor on the way; `mask` is boolean, True = may attend."""
        if mask is not None:
            expect("bool", mask=(mask, "..."))
        q, k, v = self.project(x)
        check_inputs(q, k, v, mask)
        masked = scores = (q / math.sqrt(q.shape[-1])) @ k.mT
        if mask is not None:
            masked = scores.masked_fill(~mask, -math.inf)
        weights = softmax(masked)
        return Stages(q, k, v, scores, masked, weights, weights @ v)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The context, one vector of width d_v a token: (..., T, d_v)."""
        return self.stages(x, mask).context


class WithWeights(NamedTuple):
    """A layer's result, with the weights that led to it."""

    out: Tensor  # (..., T, d_model)
    weights: Tensor  # (..., H, T, S)


class MultiHeadAttention(nn.Module):
    """Several heads side by side, and the matrix W_O that mixes them.

    With a `memory`, which gives keys and values, it is cross-attention.

    Args:
        d_model: width of all tokens, shared out among the n_heads heads.
        dropout: of the weights, and then of the result, in training.
        rotary: whether to rotate queries and keys, as `rotary_angles` says.
        qkv_bias: biases for queries, keys and values, whatever `bias` says.
        n_kv_heads: heads of keys and values, each for a group of queries'
            heads; n_heads if not given.

    Shapes: x (..., T, d_model), memory (..., S, d_model) → as x.
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
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_heads(d_model, n_heads, n_kv_heads)
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.dropout = number("dropout", dropout, at_least=0, below=1)
        self.rotary, scaling = rotary, rotary_scaling
        self.angles = partial(rotary_angles, base=rotary_base, scaling=scaling)
        d_keys = n_kv_heads * (d_model // n_heads)  # H_kv·d_k
        self.query = nn.Linear(d_model, d_model, bias=bias or qkv_bias)
        self.key_value = nn.Linear(d_model, 2 * d_keys, bias=bias or qkv_bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)  # W_O

    def project(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q (..., H, T, d_k); k, v (..., H_kv, S, d_k), also of the cache."""
        check_tokens(self.query.weight, "... T d_model", x)
        if memory is None:
            memory = x
        elif self.rotary or cache is not None:
            words = "none, where keys are rotary or in a cache"
            raise bad_value(ValueError, "a memory", "one", words)
        else:
            shape = memory, "... S d_model"
            expect("float", x=(x, "... T d_model"), memory=shape)
        q = split_heads(self.query(x), self.n_heads)
        keys_values = self.key_value(memory).chunk(2, -1)
        k, v = (split_heads(a, self.n_kv_heads) for a in keys_values)
        if self.rotary:
            if positions is None and cache is not None:
                positions = cache.places.positions
            elif positions is None:
                positions = torch.arange(x.shape[-2], device=x.device)
            at = positions[..., None, :]  # the same for every head
            angles = self.angles(at, q.shape[-1])
            q, k = rotate(q, angles), rotate(k, angles)
        return (q, k, v) if cache is None else (q, *cache.extend(k, v))

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """The fast path, by a fused kernel: (..., T, d_model).

        `mask`, boolean or added, broadcasts to (..., H, T, S); `causal`
        forbids later keys too; `positions` (..., T) are for rotary, from 0
        or the cache's end if not given; `cache` has earlier keys and values.
        """
        q, k, v = self.project(x, memory, positions, cache)
        _check_scores(mask, q, k)
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
        **others: Any,
    ) -> WithWeights:
        """The plain path, as `forward`; the weights are before dropout."""
        q, k, v = self.project(x, memory, **others)
        _check_scores(mask, q, k)
        group = self.n_heads // self.n_kv_heads  # heads that share keys
        k, v = (a.repeat_interleave(group, -3) for a in (k, v))
        if causal:
            size = q.shape[-2], k.shape[-2]
            mask = merge_causal(mask, *size, device=q.device)
        weights = weigh(q, k, mask=mask)  # (..., H, T, S)
        kept = F.dropout(weights, self.dropout, self.training)
        out = self.out(merge_heads(kept @ v))  # (..., T, d_model)
        out = F.dropout(out, self.dropout, self.training)
        return WithWeights(out, weights)


def attention_weights(
    model: nn.Module, *args: object, **kwargs: object
) -> list[Tensor]:
    """The weights of every `MultiHeadAttention` in a model, (..., H, T, S)
    each, in the order in which they run when it is called like this."""
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
        norm_first: pre-norm (GPT-2) or post-norm (the first transformer).
        activation, norm: names in `FEED_FORWARDS` and `NORMS`.
        attention: more options of it, `rotary`, `n_kv_heads`, `qkv_bias`.

    Shapes: x (..., T, d_model) → as x.
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
        new_norm = partial(make_norm, norm, d_model, eps=norm_eps, bias=bias)
        new_ff = FEED_FORWARDS[one_of("activation", activation, FEED_FORWARDS)]
        self.norm_first = norm_first
        self.attention = MultiHeadAttention(
            d_model, n_heads, bias=bias, dropout=dropout, **attention
        )
        self.attention_norm = new_norm()
        self.feed_forward = new_ff(d_model, d_ff, bias=bias, dropout=dropout)
        self.feed_forward_norm = new_norm()

    def forward(self, x: Tensor, **attention: Any) -> Tensor:
        """The stream after the block; options are the attention's."""
        x = self.add(x, self.attention, self.attention_norm, **attention)
        return self.add(x, self.feed_forward, self.feed_forward_norm)

    def add(
        self,
        x: Tensor,
        layer: Callable[..., Tensor],
        norm: nn.Module,
        **options: object,
    ) -> Tensor:
        """The stream with what a layer adds to it, the norm in its place."""
        if self.norm_first:
            return x + layer(norm(x), **options)
        return norm(x + layer(x, **options))


def _check_scores(mask, q, k):
    """Refuse a mask that does not fit the heads."""
    if mask is not None:
        batch = expect(q=(q, "... H T d_k"), k=(k, "... H_kv S d_k"))
        check_mask(mask, (*batch, *q.shape[-3:-1], k.shape[-2]))
