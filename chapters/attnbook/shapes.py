"""Shapes and types of tensors: one place that checks what fits together.

A shape is written as the names of its axes: ``"... T d_k"``. An axis of the
same name has the same size in every tensor of a call, and at least 1; a
number in place of a name asks for that size. ``...`` stands for any leading
axes, also none, which must broadcast with those of the other tensors. An
axis whose size is known is given as a keyword::

    expect("float", x=(x, "... T d_model"), d_model=512)

raises a TypeError unless x is a floating-point tensor, and a ValueError
unless it has two axes or more, the last of them of size 512.
"""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

#: What the kinds that can be asked for by name are called in a message.
WORDS = {
    "float": "floating-point numbers",
    "bool": "booleans",
    "bool or float": "booleans or floating-point numbers",
    "integer": "integers",
}
#: How each kind is told by a tensor's dtype.
KINDS = {
    "float": lambda dtype: dtype.is_floating_point,
    "bool": lambda dtype: dtype == torch.bool,
    "bool or float": lambda d: d == torch.bool or d.is_floating_point,
    "integer": lambda dtype: dtype in INTEGERS,
}


class _Given(NamedTuple):
    """What is known of one tensor: enough to check it, and hashable."""

    name: str
    axes: str
    shape: torch.Size | None  # None if it is no tensor
    dtype: Any  # the Python type if it is no tensor


def expect(
    kind: str | torch.dtype | None = None, /, **named: Any
) -> tuple[int, ...]:
    """Check that tensors have the types and shapes that they should have.

    Args:
        kind: the numbers that all of them hold: a name in `KINDS` (where
            "float" also asks for one type in all), a dtype, or anything if
            not given.
        named: under the name that a message shall use, a tensor with its
            axes, ``x=(x, "... T d")``, or the size of an axis, ``d=512``.

    Returns:
        The sizes that the axes under ``...`` broadcast to.

    Raises:
        TypeError: something that is no tensor, or one of another type.
        ValueError: shapes that do not fit.

    >>> q, k = torch.ones(7, 3, 8), torch.ones(5, 8)
    >>> expect("float", q=(q, "... T d_k"), k=(k, "... S d_k"))
    (7,)
    """
    tensors = []
    sizes = []
    for name, given in named.items():
        if type(given) is not tuple:
            sizes.append((name, given))
            continue
        x, axes = given
        if isinstance(x, Tensor):
            tensors.append(_Given(name, axes, x.shape, x.dtype))
        else:
            tensors.append(_Given(name, axes, None, type(x)))
    if torch.compiler.is_compiling():  # a compiler sees through no cache
        return _leading_axes.__wrapped__(kind, tuple(tensors), tuple(sizes))
    return _leading_axes(kind, tuple(tensors), tuple(sizes))


@functools.lru_cache(4096)  # a model sees the same shapes again and again
def _leading_axes(kind, tensors, sizes):
    """What `expect` returns, or its error, for tensors of these shapes."""
    _check_types(kind, tensors)
    asked = dict(sizes)  # sizes that were given as keywords
    found = dict(sizes)  # and those that tensors have had so far
    leading = []
    for given in tensors:
        named = given.axes.removeprefix("...").split()
        n_leading = len(given.shape) - len(named)
        if n_leading < 0:
            lost = ", ".join(named[:-n_leading])
            raise _misfit(f"{given.name} has no axis {lost}", tensors, asked)
        if n_leading and not given.axes.startswith("..."):
            count = len(given.shape)
            raise _misfit(f"{given.name} has {count} axes", tensors, asked)
        leading.append(given.shape[:n_leading])
        for axis, size in zip(named, given.shape[n_leading:]):
            wrong = _wrong_size(axis, size, given.name, asked, found)
            if wrong:
                raise _misfit(wrong, tensors, asked)
    try:
        return tuple(torch.broadcast_shapes(*leading))
    except RuntimeError:
        wrong = "the leading axes do not broadcast"
        raise _misfit(wrong, tensors, asked) from None


def _wrong_size(axis, size, name, asked, found):
    """What is wrong with the size of an axis, in words; "" if it is right.

    A size that is seen for the first time is noted in `found`.
    """
    wanted = int(axis) if axis.isdigit() else asked.get(axis, size)
    if size == 0:
        return f"axis {axis} of {name} is empty"
    if size != wanted:
        return f"axis {axis} of {name} is {size}"
    if size != found.setdefault(axis, size):
        return f"{axis} is both {found[axis]} and {size}"
    return ""


def _check_types(kind, tensors):
    """Raise a TypeError unless all are tensors that hold this kind."""
    fits = KINDS.get(kind, lambda dtype: kind in (None, dtype))
    words = "a tensor"
    if kind is not None:
        words += f" of {WORDS.get(kind, kind)}"
    for given in tensors:
        if not isinstance(given.dtype, torch.dtype):
            raise TypeError(
                f"{given.name} is of the wrong type; expected {words}; got a "
                f"value of type {given.dtype.__name__}"
            )
        if not fits(given.dtype):
            raise TypeError(
                f"{given.name} is of the wrong type; expected {words}; got "
                f"one of {given.dtype}"
            )
    if kind == "float" and len({given.dtype for given in tensors}) > 1:
        names = ", ".join(given.name for given in tensors)
        got = ", ".join(f"{given.name} of {given.dtype}" for given in tensors)
        raise TypeError(
            f"{names} are of different types; expected one type of "
            f"floating-point numbers for all; got {got}"
        )


def _misfit(wrong, tensors, asked):
    """The ValueError that names all shapes, as expected and as they came."""
    expected = []
    got = []
    for name, axes, shape, _ in tensors:
        sized = [f"{a}={asked[a]}" if a in asked else a for a in axes.split()]
        expected.append(f"{name} ({', '.join(sized)})")
        got.append(f"{name} {tuple(shape)}")
    return ValueError(
        f"{wrong}; expected {', '.join(expected)}; got {', '.join(got)}"
    )


def check_tokens(
    weight: Tensor, axes: str, x: Tensor, name: str = "x"
) -> None:
    """Check that tokens fit a weight: its type, its last axis, nothing empty.

    `axes` are those of x, whose last one is the weight's last one as well.
    Every layer asks this in every step, so what fits is let through by a
    quick look, and only what does not goes to `expect`, for its message.

    Raises:
        TypeError: x is no tensor, or not of the weight's type.
        ValueError: x has another width, too few axes or an empty one.
    """
    if (
        not isinstance(x, Tensor)
        or x.dtype != weight.dtype
        or x.shape[-1:] != weight.shape[-1:]
        or 0 in x.shape
    ):
        width = weight.shape[-1]
        expect(weight.dtype, **{name: (x, axes), axes.split()[-1]: width})
