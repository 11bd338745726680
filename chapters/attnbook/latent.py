"""Fewer keys: attention whose cache holds less than a key for each head.

`pool_heads` makes few heads of keys and values out of a trained model's many.
`LatentAttention` has all of them made from one short vector a token.
`read_window` sees the last keys and the first, all that a rolling cache holds.

Axis names: H heads, T queries, S keys; widths d_k of a head, d_c of a latent,
d_r of what is rotated.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

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
from attnbook.values import bad_value, check_sizes

#: Of a latent attention: queries (..., H, T, d_k) and their rotated part
#: (..., H, T, d_r); then what is kept, r (..., 1, S, d_r), c (..., 1, S, d_c).
Parts = tuple[Tensor, Tensor, Tensor, Tensor]
#: Positions without end that need no bias: those that a ring may have.
ENDLESS = ("rotary", "sinusoidal", "none")


class LatentAttention(nn.Module):
    """Heads whose keys and values come from one short vector a token.

    A token keeps its latent c, and a rotated part r that all heads share. In
    head h its key is [c U_h, r], and its value c V_h. Queries have two parts
    as well, of which the second is rotated. There are no biases.

    Args:
        d_latent, d_rotary: how many numbers c and r have.
        rotary: options of `rotary_angles`.

    Shapes: x (..., T, d_model) → (..., T, d_model).
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
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.d_latent, self.d_rotary = d_latent, d_rotary
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
        """Queries of x (..., T, d_model), and all that is kept, as `Parts`."""
        check_tokens(self.query.weight, "... T d_model", x)
        if positions is None and cache is not None:
            positions = cache.places.positions
        elif positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        angles = self.rotary(positions=positions[..., None, :])
        q = split_heads(self.query(x), self.n_heads)
        q, turned = q.split((self.d_k, self.d_rotary), -1)
        kept = self.compress(x).unsqueeze(-3)  # (..., 1, T, d_r + d_c)
        r, c = kept.split((self.d_rotary, self.d_latent), -1)
        turned, r = rotate(turned, angles), rotate(r, angles)
        return q, turned, *((r, c) if cache is None else cache.extend(r, c))

    def absorbing_pays(self, T: int, S: int) -> bool:
        """Whether `absorbed` takes fewer products than `expanded`."""
        d_c, d_k = self.d_latent, self.d_k
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
        """As `MultiHeadAttention`; its cache holds r as keys, c as values."""
        parts = self.project(x, positions, cache)
        T, S = x.shape[-2], parts[-1].shape[-2]
        if causal:
            mask = merge_causal(mask, T, S, device=x.device)
        if self.absorbing_pays(T, S):
            return self.absorbed(parts, mask)
        return self.expanded(parts, mask)

    def expanded(self, parts: Parts, mask: Tensor | None = None) -> Tensor:
        """Attention over keys and values that are made for every head."""
        q, turned, r, c = parts
        made = self.expand(c.squeeze(-3)).chunk(2, -1)  # (..., S, H·d_k) each
        k, v = (split_heads(a, self.n_heads) for a in made)
        shared = r.expand(*k.shape[:-1], -1)  # (..., H, S, d_r)
        q, k = torch.cat([q, turned], -1), torch.cat([k, shared], -1)
        return self.out(merge_heads(attend(q, k, v, mask=mask)))

    def absorbed(self, parts: Parts, mask: Tensor | None = None) -> Tensor:
        """The same with no key or value made: the queries ask the latents.

        q · (c U) is (q Uᵀ) · c, and Σ w (c V) is (Σ w c) V.
        """
        q, turned, r, c = parts
        heads = 2, self.n_heads, self.d_k
        U, V = self.expand.weight.unflatten(0, heads)  # (H, d_k, d_c) each
        scale = 1 / math.sqrt(self.d_k + self.d_rotary)
        scores = (turned * scale) @ r.mT  # (..., H, T, S), of these alone
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -torch.inf)
        elif mask is not None:
            scores = scores + mask.to(scores.dtype)
        weights = weigh(q @ U, c, mask=scores, scale=scale)  # (..., H, T, S)
        context = weights @ c @ V.mT  # (..., H, T, d_c), then d_k
        return self.out(merge_heads(context))


def use_latent(model: GPT, *, d_latent: int, d_rotary: int) -> GPT:
    """Give a GPT new weights, and latent attention in all its blocks.

    Its cache is a `KVCache` of one head, d_k = d_rotary and d_v = d_latent.
    """
    config = model.config
    if config.positions != "rotary":
        raise bad_value(ValueError, "positions", config.positions, "rotary")
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
