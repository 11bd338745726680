"""The layout of a GGUF file: where its metadata and its tensors lie.

Nothing in a file is trusted: each length is held against what is left of the
file before anything is read or made of it, so that a damaged file gives an
error, in a time and a memory that its own size bounds. `layout` looks at
everything but the tensors' numbers, which `gguf.read` unpacks afterwards.

Source: the specification, github.com/ggml-org/ggml, docs/gguf.md.
"""

import math
import struct
from typing import Any, NamedTuple

import numpy as np

from attnbook.files import shown
from attnbook.packed import TYPES, Stored

#: The versions that have this layout. (Version 1 had shorter lengths.)
VERSIONS = (2, 3)
#: A tensor has at most so many axes; llama.cpp does not read more either.
MOST_AXES = 4
#: A tensor begins at a multiple of so many bytes, unless a file says another
#: number.
ALIGNMENT = 32

#: The types of single values in the metadata: `struct`'s letters for them.
_SINGLE = {
    0: "B",  # unsigned 8 bits
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
#: The type of a text, and that of a list.
_STRING = 8
_ARRAY = 9


#: A tensor's name, its shape, how it is stored, and the offset that the file
#: says it has.
Announced = tuple[str, tuple[int, ...], Stored, int]


class TensorInfo(NamedTuple):
    """Where a tensor's numbers lie in a file, and how they are to be read.

    This is known before any of the numbers themselves is read.
    """

    shape: tuple[int, ...]  # as torch has it: the axis that varies fastest
    # is the last one; a file lists it first
    stored: Stored
    start: int  # of its first byte, in the file
    n_bytes: int


class Cursor:
    """Reads a file's bytes from the first on, and never beyond the last.

    Each of its methods takes in words what is to be read, for the message of
    the ValueError that it raises where the file does not have it.
    """

    def __init__(self, data: np.ndarray) -> None:
        self.data = data  # (N,), uint8
        self.at = 0

    def left(self) -> int:
        """How many bytes of the file come after what has been read."""
        return len(self.data) - self.at

    def take(self, n: int, what: str) -> bytes:
        """The next n bytes; `what` they are to be, for the message."""
        if n > self.left():
            raise ValueError(
                f"{what} of {n} bytes was to begin at byte {self.at}, but "
                f"the file ends after {len(self.data)} bytes"
            )
        part = self.data[self.at : self.at + n].tobytes()
        self.at += n
        return part

    def numbers(self, types: str, what: str) -> tuple:
        """The next numbers of the file, each with its low byte first.

        Args:
            types: their types, as letters of the module `struct`.
            what: what they are, for the message if the file ends too early.
        """
        little_endian = "<" + types
        size = struct.calcsize(little_endian)
        return struct.unpack(little_endian, self.take(size, what))

    def count(self, what: str, least_bytes: int) -> int:
        """A number of things that follow, each of at least so many bytes."""
        (n,) = self.numbers("Q", f"the number of {what}")
        if n * least_bytes > self.left():
            raise ValueError(
                f"it announces {n} {what} in the {self.left()} bytes that "
                f"are left, where each takes at least {least_bytes}"
            )
        return n

    def text(self, what: str) -> str:
        """The next text of the file: its length in bytes, then UTF-8.

        Args:
            what: what it is, for the message if the file ends too early.
        """
        length = self.count(f"bytes of {what}", 1)
        return self.take(length, what).decode("utf-8")

    def value(self, kind: int, key: str) -> Any:
        """A value of the metadata: one number, one text, or a list."""
        what = f"the value of {shown(key)}"
        if kind in _SINGLE:
            return self.numbers(_SINGLE[kind], what)[0]
        if kind == _STRING:
            return self.text(what)
        if kind != _ARRAY:
            raise ValueError(f"{what} is of type {kind}, which there is not")
        (inner,) = self.numbers("I", f"the type within {what}")
        if inner == _STRING:
            n = self.count(f"texts in {what}", 8)
            return [self.text(what) for _ in range(n)]
        if inner not in _SINGLE:
            raise ValueError(
                f"{what} is a list of type {inner}; expected numbers or texts"
            )
        size = struct.calcsize("<" + _SINGLE[inner])
        n = self.count(f"numbers in {what}", size)
        return list(self.numbers(f"{n}{_SINGLE[inner]}", what))


def layout(data: np.ndarray) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    """The metadata of a file, and where each of its tensors lies.

    Args:
        data: all bytes of the file, (N,), uint8. Only those before the
            tensors' numbers are read.

    Raises:
        ValueError: anything in it that does not fit. By then nothing has been
            made but the metadata itself.
    """
    cursor = Cursor(data)
    letters = cursor.take(4, "the letters GGUF")
    if letters != b"GGUF":
        raise ValueError(f"it begins with {letters!r} and not with b'GGUF'")
    (version,) = cursor.numbers("I", "the version")
    if version not in VERSIONS:
        raise ValueError(
            f"it says version {version}, which is none of "
            f"{', '.join(map(str, VERSIONS))}"
        )
    # The fewest bytes that describe a tensor: the length of its name, the
    # number of its axes, one axis, a type and an offset. For a key: the length
    # of its name, its type and a value of one byte.
    n_tensors = cursor.count("tensors", 8 + 4 + 8 + 4 + 8)
    n_keys = cursor.count("keys", 8 + 4 + 1)
    metadata: dict[str, Any] = {}
    for _ in range(n_keys):
        key = cursor.text("a key's name")
        if key in metadata:
            raise ValueError(f"it has the key {shown(key)} twice")
        (kind,) = cursor.numbers("I", f"the type of {shown(key)}")
        metadata[key] = cursor.value(kind, key)
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 8 or alignment % 8:
        raise ValueError(
            "general.alignment has to be a multiple of 8; it is "
            f"{shown(alignment)}"
        )
    announced = [_tensor_info(cursor) for _ in range(n_tensors)]
    return metadata, _placed(announced, cursor, alignment)


def _tensor_info(cursor: Cursor) -> Announced:
    """The name, shape, way of storing and offset of the next tensor."""
    name = cursor.text("a tensor's name")
    (n_axes,) = cursor.numbers("I", f"the number of axes of {shown(name)}")
    if not 1 <= n_axes <= MOST_AXES:
        raise ValueError(
            f"tensor {shown(name)} has {n_axes} axes; expected 1 to "
            f"{MOST_AXES}"
        )
    axes = cursor.numbers(f"{n_axes}Q", f"the sizes of {shown(name)}")
    (kind,) = cursor.numbers("I", f"the type of {shown(name)}")
    (offset,) = cursor.numbers("Q", f"the place of {shown(name)}")
    if kind not in TYPES:
        known = ", ".join(stored.name for stored in TYPES.values())
        raise ValueError(
            f"tensor {shown(name)} is stored as type {kind} of ggml; this "
            f"book reads {known}"
        )
    stored = TYPES[kind]
    if 0 in axes or axes[0] % stored.weights:
        raise ValueError(
            f"tensor {shown(name)} has the sizes {axes}; expected none of 0, "
            f"and rows of a multiple of {stored.weights}, as {stored.name} "
            "has so many weights in a block"
        )
    return name, axes[::-1], stored, offset


def _placed(
    announced: list[Announced], cursor: Cursor, alignment: int
) -> dict[str, TensorInfo]:
    """Where each tensor lies, if together they are the rest of the file."""
    base = _up(cursor.at, alignment)
    size = len(cursor.data)
    infos: dict[str, TensorInfo] = {}
    expected = 0  # the offset of the next tensor: they lie without gaps
    end = base
    for name, shape, stored, offset in announced:
        if name in infos:
            raise ValueError(f"it has the tensor {shown(name)} twice")
        if offset != expected:
            raise ValueError(
                f"tensor {shown(name)} was to begin {offset} bytes after "
                f"byte {base}; the tensors before it end at {expected}"
            )
        n_bytes = math.prod(shape) // stored.weights * stored.size
        end = base + offset + n_bytes
        if end > size:
            raise ValueError(
                f"tensor {shown(name)} {shape} is not whole: it was to end "
                f"at byte {end}, and the file has {size} bytes"
            )
        infos[name] = TensorInfo(shape, stored, base + offset, n_bytes)
        expected = _up(offset + n_bytes, alignment)
    if size > _up(end, alignment):
        raise ValueError(
            f"its tensors end at byte {end}, but the file has {size} bytes"
        )
    return infos


def _up(n, step):
    """The first multiple of a step that is n or more."""
    return -(-n // step) * step
