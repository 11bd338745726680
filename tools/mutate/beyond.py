"""Whether the cases of a task are larger than what programs have built in.

Public programs take heads in blocks of 16 and keys in blocks of 64 or 128,
have tables for eight pages, and count in bytes. Some are wrong behind the
first block, some in a last one that is not full. An answer of that kind is
right on all cases that are smaller. So each size of each argument has to be,
in some case, larger than the usual blocks and no multiple of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

#: The largest usual block: of tokens, keys, widths and words of a vocabulary;
#: and of what is fewer: heads, texts, pages, ranks, experts, entries of lists.
LONG, FEW = 128, 16

#: The smallest usual block. All larger ones are multiples of it.
BLOCK = 16

#: Whole numbers that count what is few.
COUNTS = {"n_heads", "n_kv_heads", "n_layers", "every"}

#: Axes of fractional numbers along which there are few, by an argument's name:
#: the rows of these matrices are texts, groups, ranks or tokens of a decision.
ROWS = {
    ("advantage", -2),
    ("before", -1),
    ("before", -2),
    ("beta", -2),
    ("chance", -1),
    ("kind", -2),
    ("log_alpha", -2),
    ("log_ratio", -2),
    ("logits", -2),
    ("losses", -2),
    ("noise", -2),
    ("parts", -2),
    ("probabilities", -2),
    ("rewards", -2),
    ("router", -1),
    ("sink", -1),
}

#: Axes of whole numbers and of marks along which there are few.
VECTORS = {("before", -1), ("chosen", -1), ("lengths", -1)}


class Size(NamedTuple):
    """A size of an argument of a case.

    Attributes:
        place: the argument, and which size of it: "q: axis -2".
        block: the usual block, such as 128.
        beyond: whether the size is larger, and leaves the last block short.
    """

    place: str
    block: int
    beyond: bool


def sizes_of(name: str, value: Any) -> Iterator[Size]:
    """The sizes of an argument: a whole number itself, the axes of tensors
    and the lengths of texts and lists, inside of lists too."""
    if type(value) is int:
        block = FEW if name in COUNTS else LONG
        yield Size(name, block, value > block)
    elif isinstance(value, Tensor):
        for axis, size in enumerate(value.shape, -value.ndim):
            block = FEW if _is_few(name, axis, value) else LONG
            yield _size(f"{name}: axis {axis}", size, block)
    elif isinstance(value, (str, bytes)):
        yield _size(f"{name}: characters", len(value), LONG)
    elif isinstance(value, (list, tuple, set, Mapping)):
        yield _size(f"{name}: entries", len(value), FEW)
        inside = value.values() if isinstance(value, Mapping) else value
        for each in inside:
            if not isinstance(each, int):
                yield from sizes_of(name, each)


def _size(place: str, size: int, block: int) -> Size:
    """A size of something that may be taken block by block."""
    return Size(place, block, size > block and size % BLOCK != 0)


def _is_few(name: str, axis: int, x: Tensor) -> bool:
    """Whether there are few along an axis: along all but the last two, and of
    whole numbers and marks all but the last."""
    if x.is_floating_point():
        return axis < -2 or (name, axis) in ROWS
    return axis < -1 or (name, axis) in VECTORS
