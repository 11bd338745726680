"""Multi-head latent attention (MLA), whose cache holds one vector a token.

From this vector, the latent, the keys and values of all heads are made when
they are needed, or never: `LatentAttention.absorbed` does without them.

Axis names: H heads, T queries, S keys; widths d_k of a head, d_c of a latent,
d_r of what is rotated.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnbook.attention import (
    attend,
    check_heads,
    merge_heads,
    split_heads,
    weigh,
)
from attnbook.cache import LayerCache
from attnbook.gpt import GPT
from attnbook.masks import merge_causal
from attnbook.positions import rotary_angles, rotate
from attnbook.shapes import check_tokens
from attnbook.values import check_sizes


class Parts(NamedTuple):
    """What latent attention is computed from: queries, and what is kept."""

    q: Tensor  # (..., H, T, d_k)
    q_rotated: Tensor  # (..., H, T, d_r)
    r: Tensor  # (..., 1, S, d_r), kept: rotated, and shared by all heads
    c: Tensor  # (..., 1, S, d_c), kept: the latents


class LatentAttention(nn.Module):
    """Attention whose keys and values all come from one short vector a token.

    Of each token a latent c is kept, and a rotated part r that all heads
    share. In head h the token's key is [c U_h, r] and its value is c V_h.
    Queries have two parts as well, of which the second is rotated. There are
    no biases.

    Args:
        d_model: the width of a token; each head has d_k = d_model / n_heads.
        n_heads: the number of heads.
        d_latent: how many numbers c has, d_c.
        d_rotary: how many numbers r has, d_r; an even number.
        rotary: `base` and `scaling`, options of `rotary_angles`.

    Shapes: x (..., T, d_model) → (..., T, d_model).

    Raises:
        TypeError, ValueError: sizes that are no whole numbers from 1 on, or
            heads that do not divide the width.

    Source: DeepSeek-AI (2024), arXiv:2405.04434, section 2.1.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_latent: int,
        d_rotary: int,
        **rotary: Any,
    ) -> None:
        super().__init__()
        check_heads(d_model, n_heads)
        check_sizes(d_latent=d_latent, d_rotary=d_rotary)
        self.n_heads = n_heads
        self.d_k = d_model // n_heads
        self.d_latent = d_latent
        self.d_rotary = d_rotary
        self.rotary = partial(rotary_angles, width=d_rotary, **rotary)
        d_query = n_heads * (self.d_k + d_rotary)
        self.query = nn.Linear(d_model, d_query, bias=False)
        self.compress = nn.Linear(d_model, d_rotary + d_latent, bias=False)
        self.expand = nn.Linear(d_latent, 2 * d_model, bias=False)  # U and V
        self.out = nn.Linear(d_model, d_model, bias=False)  # W_O

    def project(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Parts:
        """The queries of x (..., T, d_model), and all that is kept so far.

        With a cache, what is new is written into it, and what is kept of all
        earlier tokens comes back with it. Arguments and errors are those of
        `forward`.
        """
        check_tokens(self.query.weight, "... T d_model", x)
        if positions is None and cache is not None:
            positions = cache.places.positions
        elif positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        angles = self.rotary(positions=positions[..., None, :])
        queries = split_heads(self.query(x), self.n_heads)
        q, q_rotated = queries.split((self.d_k, self.d_rotary), -1)
        kept = self.compress(x).unsqueeze(-3)  # (..., 1, T, d_r + d_c)
        r, c = kept.split((self.d_rotary, self.d_latent), -1)
        q_rotated = rotate(q_rotated, angles)
        r = rotate(r, angles)
        if cache is not None:
            r, c = cache.extend(r, c)
        return Parts(q, q_rotated, r, c)

    def absorbing_pays(self, T: int, S: int) -> bool:
        """Whether `absorbed` takes fewer multiplications than `expanded`.

        T is the number of queries, S that of the keys. It does for few
        queries and many keys, as in decoding.
        """
        d_c = self.d_latent
        d_k = self.d_k
        return T * d_c * d_k + T * S * d_c < S * d_c * d_k + T * S * d_k

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """The context of each token: (..., T, d_model).

        Arguments are those of `MultiHeadAttention.forward`. The cache holds r
        as the keys and c as the values of a single head.

        Raises:
            TypeError: x is no tensor, or not of the weights' type.
            ValueError: x has another width or is empty, d_rotary is odd, or
                the cache does not match.
        """
        parts = self.project(x, positions, cache)
        T, S = x.shape[-2], parts.c.shape[-2]
        if causal:
            mask = merge_causal(mask, T, S, device=x.device)
        if self.absorbing_pays(T, S):
            return self.absorbed(parts, mask)
        return self.expanded(parts, mask)

    def expanded(self, parts: Parts, mask: Tensor | None = None) -> Tensor:
        """Attention over keys and values that are made for every head.

        `mask`, boolean or added, broadcasts to (..., H, T, S); the result is
        (..., T, d_model).
        """
        q, q_rotated, r, c = parts
        made = self.expand(c.squeeze(-3)).chunk(2, -1)  # (..., S, H·d_k) each
        k, v = (split_heads(a, self.n_heads) for a in made)
        shared = r.expand(*k.shape[:-1], -1)  # (..., H, S, d_r)
        queries = torch.cat([q, q_rotated], -1)
        keys = torch.cat([k, shared], -1)
        return self.out(merge_heads(attend(queries, keys, v, mask=mask)))

    def absorbed(self, parts: Parts, mask: Tensor | None = None) -> Tensor:
        """The same result, without a key or a value ever being made.

        The score q · (c U) is (q Uᵀ) · c, and the context Σ w (c V) is
        (Σ w c) V, so U and V can be multiplied with the queries and with the
        averages instead of with every latent. Shapes are as in `expanded`.
        """
        q, q_rotated, r, c = parts
        heads = (2, self.n_heads, self.d_k)
        U, V = self.expand.weight.unflatten(0, heads)  # (H, d_k, d_c) each
        scale = 1 / math.sqrt(self.d_k + self.d_rotary)
        # What the rotated parts add to the scores goes in as a mask.
        scores = (q_rotated * scale) @ r.mT  # (..., H, T, S)
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -torch.inf)
        elif mask is not None:
            scores = scores + mask.to(scores.dtype)
        weights = weigh(q @ U, c, mask=scores, scale=scale)  # (..., H, T, S)
        averages = weights @ c  # (..., H, T, d_c)
        context = averages @ V.mT  # (..., H, T, d_k)
        return self.out(merge_heads(context))


def use_latent(model: GPT, *, d_latent: int, d_rotary: int) -> GPT:
    """Give a GPT latent attention in all its blocks, and new weights.

    The model is changed, and returned; it has to be trained from the start.
    The cache that it needs is a `KVCache` with a single head, of which d_k is
    d_rotary and d_v is d_latent.

    Raises:
        TypeError, ValueError: sizes that are no whole numbers from 1 on, or
            a model whose positions are not rotary.
    """
    config = model.config
    if config.positions != "rotary":
        raise ValueError(
            "latent attention rotates a part of its keys, so the model's "
            f"positions must be rotary; expected 'rotary'; got "
            f"{config.positions!r}"
        )
    for block in model.blocks:
        block.attention = LatentAttention(
            config.d_model,
            config.n_heads,
            d_latent=d_latent,
            d_rotary=d_rotary,
            base=config.rotary_base,
            scaling=config.rotary_scaling,
        )
    model._initialise()
    return model
