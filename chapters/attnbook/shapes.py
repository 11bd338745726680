"""Shapes and types of tensors: the one place that says what does not fit.

A shape is written as its axes: ``"... T d_k"``. The same name is the same
size wherever it stands, and at least 1; a number is that size. Axes under
``...`` may be any, also none or empty, that broadcast with those of the other
tensors. An axis whose size is known by name is given as a keyword::

    expect("float", x=(x, "... T d_model"), d_model=512)
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor, nn

#: The kinds of numbers that can be asked for by name.
KINDS = {
    "float": (lambda x: x.is_floating_point(), "a floating-point tensor"),
    "bool": (lambda x: x.dtype == torch.bool, "a boolean tensor"),
    "integer": (
        lambda x: (
            x.dtype in (torch.uint8, torch.int8, torch.int16)
            or x.dtype in (torch.int32, torch.int64)
        ),
        "a tensor of integers",
    ),
}


def expect(
    kind: str | torch.dtype | None = None,
    /,
    **named: tuple[Any, str] | int,
) -> tuple[int, ...]:
    """Raise a clear error for tensors that do not fit together.

    Args:
        kind: what all are to hold: one of `KINDS` ("float" means one type
            for all), a dtype, or anything if not given.
        named: a tensor and its axes, ``q=(q, "... T d_k")``; or the size of
            an axis, ``d_k=64``.

    Returns:
        What the axes under ``...`` broadcast to.

    Raises:
        TypeError: what is no tensor, or one of another type.
        ValueError: shapes that do not fit.
    """
    sizes: dict[str, int] = {}
    shapes, axes, dtypes = {}, {}, {}
    for name, given in named.items():
        if isinstance(given, tuple):
            x = expect_tensor(name, given[0], kind)
            shapes[name], dtypes[name] = x.shape, x.dtype
            axes[name], numbers = _read(given[1])
            sizes |= numbers
        else:
            sizes[name] = given
    if kind == "float" and len(set(dtypes.values())) > 1:
        raise TypeError(
            f"{', '.join(shapes)} are of different types; expected one for "
            f"all; got {', '.join(str(dtype) for dtype in dtypes.values())}"
        )
    fixed, leading = set(sizes), []

    def fail(wrong: str) -> ValueError:
        known = {a: a if a.isdigit() else f"{a}={sizes[a]}" for a in fixed}
        wanted = [
            f"{name} ({', '.join(known.get(a, a) for a in written)})"
            for name, written in axes.items()
        ]
        got = [f"{name} {tuple(shape)}" for name, shape in shapes.items()]
        return ValueError(
            f"{wrong}; expected {', '.join(wanted)}; got {', '.join(got)}"
        )

    for name, shape in shapes.items():
        dots = axes[name][:1] == ["..."]
        wanted = axes[name][dots:]
        more = len(shape) - len(wanted)
        if more < 0:
            raise fail(f"{name} has no axis {', '.join(wanted[:-more])}")
        if more and not dots:
            raise fail(f"{name} has {len(shape)} axes")
        leading.append(shape[:more])
        for axis, size in zip(wanted, shape[more:]):
            known = sizes.setdefault(axis, size)
            if size != known and axis in fixed:
                raise fail(f"axis {axis} of {name} is {size}")
            if size != known:
                raise fail(f"{axis} is both {known} and {size}")
            if size == 0:
                raise fail(f"axis {axis} of {name} is empty")
    batch = []
    # By hand: `torch.broadcast_shapes` takes as long as a small layer.
    for many in itertools.zip_longest(*map(reversed, leading), fillvalue=1):
        found = {size for size in many if size != 1}
        if len(found) > 1:
            raise fail("the leading axes do not broadcast")
        batch.append(found.pop() if found else 1)
    return tuple(reversed(batch))


@functools.cache
def _read(written: str) -> tuple[list[str], dict[str, int]]:
    """The axes, and the sizes of those that are numbers."""
    axes = written.split()
    return axes, {axis: int(axis) for axis in axes if axis.isdigit()}


def expect_tensor(
    name: str, x: Any, kind: str | torch.dtype | None = None
) -> Tensor:
    """The tensor, if it is one of this kind.

    Raises:
        TypeError: anything else.
    """
    if isinstance(kind, str):
        fits, words = KINDS[kind]
    else:
        fits = lambda x: kind is None or x.dtype == kind  # noqa: E731
        words = "a tensor" if kind is None else f"a tensor of {kind}"
    if not isinstance(x, Tensor) or not fits(x):
        raise TypeError(
            f"{name} is of the wrong type; expected {words}; "
            f"got {getattr(x, 'dtype', type(x).__name__)}"
        )
    return x


def check_tokens(
    layer: nn.Linear, axes: str = "... T d_in", **tokens: Tensor
) -> None:
    """Raise a clear error for tokens that a layer cannot take."""
    given = {name: (x, axes) for name, x in tokens.items()}
    expect(layer.weight.dtype, **given, d_in=layer.in_features)
