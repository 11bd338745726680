"""Shapes and types of tensors: the one place that says what does not fit.

A shape is written as its axes: ``"... T d_k"``. The same name is the same
size wherever it stands, and at least 1; a number is that size. Axes under
``...`` may be any, also none or empty, that broadcast with those of the other
tensors. An axis whose size is known by name is given as a keyword::

    expect("float", x=(x, "... T d_model"), d_model=512)
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

#: The kinds of numbers that can be asked for by name.
KINDS = {
    "float": (lambda dtype: dtype.is_floating_point, "of floating point"),
    "bool": (lambda dtype: dtype == torch.bool, "of booleans"),
    "integer": (lambda dtype: dtype in INTEGERS, "of integers"),
}


def expect(
    kind: str | torch.dtype | None = None, /, **named: Any
) -> tuple[int, ...]:
    """What the axes under ``...`` broadcast to, if all tensors fit.

    Args:
        kind: what all are to hold: one of `KINDS` ("float" means one type
            for all), a dtype, or anything if not given.
        named: a tensor and its axes, ``q=(q, "... T d_k")``; or the size of
            an axis, ``d_k=64``.

    Raises:
        TypeError: what is no tensor, or one of another type.
        ValueError: shapes that do not fit.
    """
    tensors, sizes = [], []
    for name, given in named.items():
        if type(given) is not tuple:
            sizes.append((name, given))
        elif isinstance(given[0], Tensor):
            tensors.append((name, given[1], given[0].shape, given[0].dtype))
        else:
            tensors.append((name, given[1], None, type(given[0])))
    return _judge(kind, tuple(tensors), tuple(sizes))


@functools.lru_cache(4096)  # a model sees the same shapes again and again
def _judge(kind, tensors, sizes):
    fits, words = KINDS.get(kind, (lambda dtype: kind in (None, dtype), kind))
    types = [dtype for *_, dtype in tensors]
    for name, _, _, dtype in tensors:
        if not isinstance(dtype, torch.dtype) or not fits(dtype):
            raise TypeError(
                f"{name} is of the wrong type; expected a tensor "
                f"{words or ''}; got {getattr(dtype, '__name__', dtype)}"
            )
    if kind == "float" and len(set(types)) > 1:
        raise TypeError(
            f"{', '.join(name for name, *_ in tensors)} are of different "
            f"types; expected one for all; got {', '.join(map(str, types))}"
        )
    known, fixed = dict(sizes), dict(sizes)

    def fail(wrong):
        wanted = [
            f"{name} ({', '.join(_label(a, fixed) for a in axes.split())})"
            for name, axes, *_ in tensors
        ]
        got = [f"{name} {tuple(shape)}" for name, _, shape, _ in tensors]
        return ValueError(
            f"{wrong}; expected {', '.join(wanted)}; got {', '.join(got)}"
        )

    leading = []
    for name, axes, shape, _ in tensors:
        wanted = axes.removeprefix("...").split()
        more = len(shape) - len(wanted)
        if more < 0:
            raise fail(f"{name} has no axis {', '.join(wanted[:-more])}")
        if more and not axes.startswith("..."):
            raise fail(f"{name} has {len(shape)} axes")
        leading.append(shape[:more])
        for axis, size in zip(wanted, shape[more:]):
            asked = int(axis) if axis.isdigit() else fixed.get(axis, size)
            if size != asked:
                raise fail(f"axis {axis} of {name} is {size}")
            if size != known.setdefault(axis, size):
                raise fail(f"{axis} is both {known[axis]} and {size}")
            if size == 0:
                raise fail(f"axis {axis} of {name} is empty")
    try:
        return tuple(torch.broadcast_shapes(*leading))
    except RuntimeError:
        raise fail("the leading axes do not broadcast") from None


def _label(axis, fixed):
    """The axis with its size, where that is known beforehand."""
    return f"{axis}={fixed[axis]}" if axis in fixed else axis


def check_tokens(layer: nn.Linear, axes: str, **tokens: Tensor) -> None:
    """Raise a clear error for tokens that a layer cannot take."""
    given = {name: (x, axes) for name, x in tokens.items()}
    expect(layer.weight.dtype, **given, d_in=layer.in_features)
