"""A peer for the comparison: a plain GPT, laid out as nanoGPT's.

It has no checks and no options, nothing but the arithmetic. The layout (one
projection for query, key and value, torch's fused attention, exact GELU, tied
head) is that of github.com/karpathy/nanoGPT; the code is not.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainBlock(nn.Module):
    """A causal block with its norms first.

    Shapes: (B, T, d_model) → (B, T, d_model).
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm_1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, 4 * d_model)
        self.down = nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        B, T, d_model = x.shape
        q, k, v = (
            a.view(B, T, self.n_heads, -1).transpose(1, 2)
            for a in self.qkv(self.norm_1(x)).split(d_model, 2)
        )  # (B, H, T, d_k) each
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(context.transpose(1, 2).reshape(B, T, d_model))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class PlainGPT(nn.Module):
    """A GPT with learned positions.

    Shapes: tokens (B, T) → logits (B, T, vocab_size).
    """

    def __init__(
        self,
        vocab_size: int,
        context: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context, d_model)
        self.blocks = nn.Sequential(
            *(PlainBlock(d_model, n_heads) for _ in range(n_layers))
        )
        self.norm = nn.LayerNorm(d_model)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.tokens(tokens) + self.positions(positions))
        return F.linear(self.norm(x), self.tokens.weight)
