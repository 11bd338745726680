"""Random numbers that are drawn from a seed, the same on every machine."""

from __future__ import annotations

import torch
from torch import Tensor


def randn(*size: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A tensor of standard normal numbers, drawn on the CPU from a seed.

    They are drawn on the CPU because a card would draw others.
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=dtype, device="cpu")
