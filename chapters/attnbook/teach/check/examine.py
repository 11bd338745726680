"""From the first case that went wrong to a `Finding` about it."""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from attnbook.teach.check.difference import (
    Difference,
    Differs,
    settled_difference,
)
from attnbook.teach.check.finding import Finding, Kind, Line
from attnbook.teach.check.guard import OutOfTime
from attnbook.teach.check.likeness import in_length, likeness
from attnbook.teach.check.rules import RuleBroken

#: What torch and Python complain about, by their own words.
ADVICE = {
    r"leaf Variable that requires grad.* in-place|leaf .*inplace": (
        "writes into a leaf"
    ),
    r"modified by an inplace operation|is being modified inplace": (
        "overwritten"
    ),
    r"does not require grad and does not have a grad_fn": "no graph",
    r"[Cc]an't call numpy\(\) on Tensor that requires grad": "numpy",
    r"same dtype|expected scalar type|dtype mismatch": "formats",
    r"view size is not compatible": "view",
    r"Boolean value of Tensor with more than one|truth value of an array": (
        "one truth"
    ),
    r"values to unpack": "unpacking",
    r"izes? of tensors? |cannot be multiplied|to have size": "sizes",
}

#: How PyTorch and NumPy say that there is no memory left.
_NO_MEMORY = re.compile("can't allocate memory|[Uu]nable to allocate")


def examined_error(
    error: BaseException, fn: Callable, case: str, given: Iterable[Any] = ()
) -> Finding:
    """The `Finding` about an error that an answer has raised.

    `given` are the case's arguments: one of them may have raised it.
    """
    if isinstance(error, RuleBroken):
        broken = error.finding
        return Finding(
            broken.kind,
            case=case,
            name=broken.name,
            count=broken.count,
            total=broken.total,
            error=error,
        )
    text = _text_of(error)
    if isinstance(error, OutOfTime):
        kind = Kind.OUT_OF_TIME
    elif isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        kind = Kind.OUT_OF_MEMORY
    elif isinstance(error, Exception):
        kind = Kind.ERROR
    else:
        kind = Kind.BROKEN_OFF
    said = (name for words, name in ADVICE.items() if re.search(words, text))
    of_another = kind == Kind.ERROR and _raised_inside(error, given)
    return Finding(
        kind,
        case=case,
        advice="given" if of_another else next(said, ""),
        line=line_of(error, fn),
        error=error,
    )


def _raised_inside(error: BaseException, given: Iterable[Any]) -> bool:
    """Whether a function that the case gave to the answer raised an error."""
    codes = set()
    for x in given:
        if callable(x) and not isinstance(x, nn.Module):
            own = getattr(x, "__code__", None)
            codes.add(own or getattr(type(x).__call__, "__code__", None))
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code in codes for frame, _ in frames)


def _text_of(error: BaseException) -> str:
    """What an error says, or "" if its text cannot be asked for."""
    try:
        return str(error)
    except Exception:  # its own text may raise too
        return ""


def readers_files(fn: Callable) -> set[str]:
    """Where the code of an answer stands, a class's or a wrapped one's too."""
    files = set()
    fn = inspect.unwrap(fn)
    if isinstance(fn, nn.Module):
        fn = type(fn)
    parts = [fn, *(vars(kind).get("__call__") for kind in type(fn).__mro__)]
    if isinstance(fn, functools.partial):
        parts += [fn.func, *fn.args]
    for part in [p for p in parts if p is not None]:
        for each in vars(part).values() if inspect.isclass(part) else [part]:
            code = getattr(each, "__code__", None)
            files |= {code.co_filename} if code else set()
    return files


def line_of(error: BaseException, fn: Callable) -> Line | None:
    """The line of the reader's own code that led to an error."""
    files = readers_files(fn)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files and frame.lineno:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return Line(frame.lineno, line)
    return None


def examined(found: Difference, case: str) -> Finding:
    """The `Finding` about a difference: its kind, and what belongs to it."""
    place, gradient_of = found.place, found.gradient_of
    answer, expected = found.answer, found.expected

    def finding(kind: Kind, **more: Any) -> Finding:
        more = {"answer": answer, "expected": expected} | more
        return Finding(
            kind, case=case, place=place, gradient_of=gradient_of, **more
        )

    if found.kind in (Differs.CHANGED, Differs.UNCHANGED):
        kind = Kind[found.kind.name]
        return finding(kind, argument=found.argument, name=found.part)
    if gradient_of is not None and not answer.any():
        return finding(Kind.ZERO_GRADIENT)
    if found.kind == Differs.TYPE:
        inner = _lists(answer, expected)
        return finding(_of_types(answer, expected), inner=inner)
    like = likeness(answer, expected)
    if like is None:
        return finding(Kind.EVERY_PLACE)
    told = {
        name: getattr(like, name)
        for name in ("name", "where", "axis", "ratio", "gap", "low", "high")
    }
    told |= {"count": like.count, "total": like.total, "only": like.only}
    return finding(like.kind, **told)


def _of_types(answer: Any, expected: Any) -> Kind:
    """Which kind of finding two results of different types make."""
    if isinstance(answer, Tensor) and isinstance(expected, Tensor):
        complex_numbers = answer.is_complex() or expected.is_complex()
        same = (
            not complex_numbers
            and answer.shape == expected.shape
            and bool((answer.double() == expected.double()).all())
        )
        return Kind.FORMAT if same else Kind.NUMBER_TYPE
    if isinstance(answer, Mapping) and isinstance(expected, Mapping):
        return Kind.ENTRIES
    if isinstance(expected, (str, bool, int, float, type(None))):
        return Kind.VALUE
    lists = (tuple, list)
    if isinstance(answer, lists) and isinstance(expected, lists):
        alike = len(answer) == len(expected)
        return Kind.LIST_TYPES if alike else Kind.LIST_LENGTH
    return Kind.TYPE


def _lists(answer: Any, expected: Any) -> Finding | None:
    """The `Finding` about two lists of different lengths or types of parts."""
    lists = (tuple, list)
    if not isinstance(answer, lists) or not isinstance(expected, lists):
        return None
    return in_length(answer, expected, same_parts)


def same_parts(a: Any, b: Any) -> bool:
    """Whether two parts of results are equal, up to a gap of 1e-9.

    A NaN is equal to a NaN here.
    """
    return settled_difference(a, b, within=1e-9, equal_nan=True) is None
