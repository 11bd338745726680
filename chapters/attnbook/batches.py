"""Batches for training: pieces of one long text, drawn at random."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnbook.values import whole

#: Draws a batch: (size, generator) → tokens and targets, on the CPU.
Batches = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


def windows(numbers: Sequence[int] | Tensor, context: int) -> Batches:
    """Batches of pieces of one text, longer than `context`, drawn anywhere.

    Shapes: tokens and, one place later, their targets (B, context), int64.
    """
    numbers = torch.as_tensor(numbers, dtype=torch.int64)  # (N,)
    whole("context", context, at_least=1)
    whole("length of the text", len(numbers), above=context)

    def draw(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        last = len(numbers) - context
        starts = torch.randint(last, (size, 1), generator=generator)
        pieces = numbers[starts + torch.arange(context + 1)]
        return pieces[:, :-1], pieces[:, 1:]  # (B, context) each

    return draw
