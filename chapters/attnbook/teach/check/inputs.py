"""Short ways to write the inputs that a task is tried on.

Small tensors are written down (`f64`, `ints`, `marks`), larger ones are drawn
from seeds (`randns`, `drawn`). Two kinds of tensors watch what an answer does
with them: `Watched` and `Wary`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.teach.check.seeded import randn


def f64(*numbers: Any) -> Tensor:
    """A tensor in float64 of some numbers, or of rows of numbers:
    ``f64(1, 2)``, ``f64([1, 2], [3, 4])``."""
    return torch.tensor(numbers, dtype=torch.float64)


def ints(*numbers: Any) -> Tensor:
    """A tensor in int64 of some whole numbers, or of rows of them."""
    return torch.tensor(numbers)


def marks(*rows: str) -> Tensor:
    """A boolean mask, a string for each row: "110" is True, True, False."""
    places = [[place == "1" for place in row] for row in rows]
    return torch.tensor(places, dtype=torch.bool)  # also where there are none


def randns(*sizes: tuple[int, ...], seed: int) -> tuple[Tensor, ...]:
    """A standard normal tensor for each of some sizes.

    The first is drawn with the seed, the next with the seed after it.
    """
    return tuple(randn(*size, seed=seed + n) for n, size in enumerate(sizes))


def drawn(module: nn.Module, *, seed: int) -> nn.Module:
    """The module in float64, with every parameter drawn anew.

    A new module has norms that change nothing and biases of 0, so an answer
    that forgets one of them would pass. Here the scales of norms are drawn
    around 1, and everything else around 0.
    """
    module = module.double()
    for n, (name, parameter) in enumerate(module.named_parameters()):
        values = randn(*parameter.shape, seed=100 * seed + n) / 2
        is_scale = parameter.ndim == 1 and name.endswith("weight")
        parameter.data = values + 1 if is_scale else values
    return module


@dataclass(frozen=True, repr=False)
class Labelled:
    """A function as an argument of a case, printed as its label.

    Attributes:
        label: what a reader sees in place of the function.
        fn: the function that is called.
        layer: the module that it belongs to, if it is part of one.
    """

    label: str
    fn: Callable
    layer: nn.Module | None = None

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __repr__(self) -> str:
        return self.label


class Watched(Tensor):
    """A tensor for exercises that have to do without something.

    No tensor of more than `LARGEST` elements may be made from it, and no
    function named in `BARRED` may be called on it. So an answer that builds
    the whole matrix, or calls the function that it should replace, gets a
    ValueError that says so.
    """

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
    """The same tensors, which now watch what is made of them: `Watched`."""
    return tuple(tensor.as_subclass(Watched) for tensor in tensors)


class Wary(Tensor):
    """A tensor from which no NaN may be made.

    That holds even for a NaN that is replaced afterwards, because it would
    come back in the backward pass, where 0 · NaN is NaN.
    """

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        made = super().__torch_function__(function, types, args, kwargs or {})
        floats = isinstance(made, Tensor) and made.is_floating_point()
        if floats and made.isnan().any():
            raise ValueError("a NaN was made on the way; expected none")
        return made


def wary(tensor: Tensor) -> Wary:
    """The same tensor, from which no NaN may be made any more: see `Wary`."""
    return tensor.as_subclass(Wary)
