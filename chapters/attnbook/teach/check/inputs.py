"""What the cases of the catalogue are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.teach.check.seeded import randn


def f64(*numbers: Any) -> Tensor:
    """Numbers, or rows of numbers, in float64."""
    return torch.tensor(numbers, dtype=torch.float64)


def ints(*numbers: Any) -> Tensor:
    """Whole numbers, or rows of them."""
    return torch.tensor(numbers)


def marks(*rows: str) -> Tensor:
    """A boolean mask from strings: "110" is True, True, False."""
    places = [[place == "1" for place in row] for row in rows]
    return torch.tensor(places, dtype=torch.bool)  # also where there are none


def randns(*sizes: tuple[int, ...], seed: int) -> tuple[Tensor, ...]:
    """Standard normal tensors of several sizes, from seeds in a row."""
    return tuple(randn(*size, seed=seed + n) for n, size in enumerate(sizes))


def drawn(module: nn.Module, *, seed: int) -> nn.Module:
    """A module in float64 with every parameter drawn, its norms' too."""
    module = module.double()
    for n, (name, parameter) in enumerate(module.named_parameters()):
        values = randn(*parameter.shape, seed=100 * seed + n) / 2
        is_scale = parameter.ndim == 1 and name.endswith("weight")
        parameter.data = values + 1 if is_scale else values
    return module


@dataclass(frozen=True, repr=False)
class Labelled:
    """A function that is printed as its label; `layer` is where it is from."""

    label: str
    fn: Callable
    layer: nn.Module | None = None

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __repr__(self) -> str:
        return self.label


class Watched(Tensor):
    """A tensor from which no large one may be made, and that `BARRED` may not
    be called on: an answer that builds the matrix, or calls the function, that
    an exercise does without is told so."""

    LARGEST = 10_000
    BARRED: tuple[str, ...] = ()

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in cls.BARRED:
            raise ValueError(f"this exercise does without {function.__name__}")
        made = super().__torch_function__(function, types, args, kwargs or {})
        if isinstance(made, Tensor) and made.numel() > cls.LARGEST:
            raise ValueError(
                "a tensor too large for this exercise; expected at most "
                f"{cls.LARGEST} elements here; got {tuple(made.shape)}"
            )
        return made


def watched(*tensors: Tensor) -> tuple[Watched, ...]:
    return tuple(tensor.as_subclass(Watched) for tensor in tensors)


class Wary(Tensor):
    """A tensor from which no NaN may be made, not even one that is replaced
    afterwards: in the backward pass it would come back."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        made = super().__torch_function__(function, types, args, kwargs or {})
        floats = isinstance(made, Tensor) and made.is_floating_point()
        if floats and made.isnan().any():
            raise ValueError("a NaN was made on the way; expected none")
        return made


def wary(tensor: Tensor) -> Wary:
    return tensor.as_subclass(Wary)
