"""Shapes and types of tensors: the one place that says what does not fit.

A shape is written as its axes: ``"... T d_k"``. The same name is the same
size wherever it stands, and at least 1; a number is that size. Axes under
``...`` may be any, also none or empty, that broadcast with those of the other
tensors. An axis whose size is known by name is given as a keyword::

    expect("float", x=(x, "... T d_model"), d_model=512)
"""

import functools
from typing import Any

import torch
from torch import Tensor

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

#: The kinds of numbers that can be asked for by name.
KINDS = {
    "float": lambda dtype: dtype.is_floating_point,
    "bool": lambda dtype: dtype == torch.bool,
    "bool or float": lambda d: d == torch.bool or d.is_floating_point,
    "integer": lambda dtype: dtype in INTEGERS,
}


def expect(
    kind: str | torch.dtype | None = None, /, **named: Any
) -> tuple[int, ...]:
    """What the axes under ``...`` broadcast to, if all tensors fit.

    `kind` is what all are to hold: one of `KINDS` ("float" means one type for
    all), a dtype, or anything if not given. What is no tensor, or of another
    type, is a TypeError; shapes that do not fit are a ValueError.
    """
    tensors: list[tuple] = []
    sizes = []
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
    fits = KINDS.get(kind, lambda dtype: kind in (None, dtype))
    sizes, known = dict(sizes), dict(sizes)

    def fail(wrong, error=ValueError):
        label = {axis: f"{axis}={size}" for axis, size in sizes.items()}
        wanted, got = [], []
        for name, axes, shape, dtype in tensors:
            if error is TypeError:
                wanted.append(f"{name} of {kind or 'torch'}")
                got.append(f"{name} of {getattr(dtype, '__name__', dtype)}")
            else:
                axes = ", ".join(label.get(a, a) for a in axes.split())
                wanted.append(f"{name} ({axes})")
                got.append(f"{name} {tuple(shape)}")
        return error(
            f"{wrong}; expected {', '.join(wanted)}; got {', '.join(got)}"
        )

    for name, _, _, dtype in tensors:
        if not isinstance(dtype, torch.dtype) or not fits(dtype):
            raise fail(f"{name} is of the wrong type", TypeError)
    if kind == "float" and len({dtype for *_, dtype in tensors}) > 1:
        names = ", ".join(name for name, *_ in tensors)
        raise fail(f"{names} are of different types", TypeError)
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
            asked = int(axis) if axis.isdigit() else sizes.get(axis, size)
            if size != asked or size == 0:
                raise fail(f"axis {axis} of {name} is {size or 'empty'}")
            if size != known.setdefault(axis, size):
                raise fail(f"{axis} is both {known[axis]} and {size}")
    try:
        return tuple(torch.broadcast_shapes(*leading))
    except RuntimeError:
        raise fail("the leading axes do not broadcast") from None


def check_tokens(
    weight: Tensor, axes: str, x: Tensor, name: str = "x"
) -> None:
    """Refuse tokens that do not fit a weight, whose last axis is theirs.

    In every layer of every step, so what fits is seen at a glance.
    """
    if (
        not isinstance(x, Tensor)
        or x.dtype != weight.dtype
        or x.shape[-1:] != weight.shape[-1:]
        or 0 in x.shape
    ):
        width = weight.shape[-1]
        expect(weight.dtype, **{name: (x, axes), axes.split()[-1]: width})
