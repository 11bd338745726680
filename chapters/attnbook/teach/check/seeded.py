"""Numbers from a seed: the same on every machine."""

from __future__ import annotations

import torch
from torch import Tensor


def randn(*size: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers from a seed, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=dtype, device="cpu")
