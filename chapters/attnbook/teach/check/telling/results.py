"""One line on what is wrong with a result, made of a `Finding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from attnbook.teach.check.difference import Difference
from attnbook.teach.check.finding import Finding, Kind, Only, Step
from attnbook.teach.check.settled import Foreign
from attnbook.teach.check.telling.stops import STOPPED
from attnbook.teach.check.words import (
    brief,
    listed,
    number_kind,
    number_name,
    plain_repr,
)

#: What may have been done to the right numbers.
_FUNCTIONS = {
    "exp": "the exponential of the right numbers",
    "log": "the logarithm of the right numbers",
    "square": "the square of the right numbers",
    "root": "the root of the right numbers",
    "reciprocal": "the reciprocal of the right numbers",
    "complement": "one minus the right numbers",
    "softmax": "the softmax of the right numbers",
    "log_softmax": "the log-softmax of the right numbers",
}


def headline(found: Finding) -> str:
    """The sentence that says what is wrong, without the case and numbers."""
    if found.kind == Kind.CHANGED:
        return f"the argument {_argument(found)} was changed in place"
    if found.kind == Kind.UNCHANGED:
        return f"the {_argument(found)} that was given has not changed"
    if found.kind in STOPPED:
        return STOPPED[found.kind](found)
    words = likeness(found)
    if found.gradient_of is not None:
        return f"the values are right, {gradient_words(found)} is {words}"
    if not found.place:
        return words
    verb = ":" if found.kind in _WITHOUT_VERB else " is"
    return f"{place_words(found.place)}{verb} {words}"


def likeness(found: Finding) -> str:
    """How a result is wrong: "too large by a factor of √2"."""
    return LIKENESS[found.kind](found)


def _argument(found: Finding) -> str:
    """The words for an argument, and for the part of it that was changed."""
    part = f" (its {found.name})" if found.name else ""
    return f"{found.argument}{part}"


def gradient_words(found: Finding | Difference) -> str:
    """The words that say which argument's gradient is meant."""
    return f"the gradient of tensor argument {found.gradient_of}"


def step_words(step: Step) -> str:
    """The words for one step into a result, such as ``part 1``."""
    name, which = step
    return f"{name} {which!r}" if name == "entry" else f"{name} {which}"


def place_words(place: tuple[Step, ...]) -> str:
    """The words for a place in nested results: its steps, with commas."""
    return ", ".join(map(step_words, place))


def shape_words(x: Any) -> str:
    """A tensor's shape as Python writes it, such as ``(2, 3)``."""
    return f"{tuple(x.shape)}"


def _shapes(f: Finding) -> str:
    """The words for two shapes that differ, the answer's first."""
    return f"of shape {shape_words(f.answer)}, not {shape_words(f.expected)}"


def _places(f: Finding) -> str:
    """The words for how many places are wrong, and of how many."""
    return f"in {f.count} of {f.total} places"


def _only(only: Only | None, begin: str = ", all in ") -> str:
    """In which rows or columns all wrong places are, if not in all."""
    if only is None:
        return ""
    if only.last > only.first:
        return f"{begin}{only.name}s {only.first} to {only.last}"
    return f"{begin}{only.name} {only.first}"


def _transpose(f: Finding) -> str:
    """The words for a result that is the transpose of the right one."""
    other_shape = f.answer.shape != f.expected.shape
    return f"the transpose, {_shapes(f)}" if other_shape else "the transpose"


def _length(f: Finding) -> str:
    """How many rows, columns or parts are missing or too many, and where."""
    words = f"{f.count} {f.name}"
    if f.where == "inside":
        return f"{words}, the others right"
    return f"{words} at the {f.where}"


def _size(gap: float) -> str:
    """The word "large" for a gap above 0, and "small" for one below."""
    return "large" if gap > 0 else "small"


def _factor(f: Finding) -> str:
    """The words for a result that is too large or small by a factor.

    A factor that has a name, such as √d, is called by it.
    """
    size = max(abs(f.ratio), 1 / abs(f.ratio))
    name = number_name(size) or f"{size:.4g}"
    sign = "of the wrong sign and " if f.ratio < 0 else ""
    large = "large" if abs(f.ratio) > 1 else "small"
    return f"{sign}too {large} by a factor of {name}"


def _along(f: Finding) -> str:
    """The words for the axis along which something is found; "" for all."""
    return "" if f.axis is None else f" along axis {f.axis}"


def _range(f: Finding, digits: int = 3) -> str:
    """The words for the range in which ratios or gaps lie."""
    return f"{f.low:.{digits}g} to {f.high:.{digits}g}"


def _order(f: Finding) -> str:
    """The words for the right numbers in a wrong order."""
    only = _only(f.only, ", in ")
    if f.axis is None:
        return f"the right numbers in other places{only}"
    return f"right but for the order along axis {f.axis}{only}"


def _shifted(f: Finding) -> str:
    """The words for a result that is one place too far on, or back."""
    back = "" if f.gap > 0 else " back"
    return f"one place too far{back or ' on'}{_along(f)}"


def _row_sums(f: Finding) -> str:
    """The words for weights whose rows do not add up to one."""
    low, high = f"{f.low:.6g}", f"{f.high:.6g}"
    to = low if low == high else f"{low} up to {high}"
    return f"off: its rows sum to {to}, not to one"


def _not_zero(f: Finding) -> str:
    """The words for numbers that are there where 0 is right."""
    some = "everywhere " if f.count < f.total else ""
    return f"not {some}0 where 0 is right"


def types_words(f: Finding) -> str:
    """That the answer has another type than the reference, or holds another
    type of numbers."""
    both = f.answer, f.expected
    if all(isinstance(x, Tensor) for x in both):
        answer, expected = map(number_kind, both)
        return f"the answer holds {answer}s, the reference {expected}s"
    if told := _other_fields(f):
        return told
    answer, expected = map(describe, both)
    return f"the answer is {answer}, the reference {expected}"


def other_fields(answer: Any, expected: Any) -> list[str]:
    """The names of the fields in which two objects of a dataclass differ.

    It is empty if the two are no objects of one dataclass.
    """
    both = (answer, expected)
    if not all(isinstance(x, Foreign) and x.fields for x in both):
        return []
    if answer.fields.keys() != expected.fields.keys():
        return []
    got, right = answer.fields, expected.fields
    return [name for name in right if got[name] != right[name]]


def _other_fields(f: Finding) -> str:
    """The words for two objects of a dataclass: the fields that differ."""
    told = (
        f"{name}: the answer {f.answer.fields[name]}, the reference "
        f"{f.expected.fields[name]}"
        for name in other_fields(f.answer, f.expected)
    )
    return "; ".join(told)


def _entries(f: Finding) -> str:
    """The words for entries that a dictionary lacks, or has too many."""
    missing = [name for name in f.expected if name not in f.answer]
    extra = [name for name in f.answer if name not in f.expected]
    found = []
    if missing:
        found.append(f"missing: {listed(map(repr, missing))}")
    if extra:
        found.append(f"not wanted: {listed(map(repr, extra))}")
    return "; ".join(found)


def _list_length(f: Finding) -> str:
    """The words for a list that has another number of parts."""
    words = f"of {len(f.answer)} parts, not {len(f.expected)}"
    return f"{words}: {_length(f.inner)}" if f.inner else words


def _list_types(f: Finding) -> str:
    """The words for a list whose parts are of other types."""
    answer, expected = (
        listed(sorted({_type_name(part) for part in parts}))
        for parts in (f.answer, f.expected)
    )
    return f"of {answer}, not of {expected}"


def _type_name(x: Any) -> str:
    """The name of an object's type, also of one that is a `Foreign`."""
    return type(x.value if isinstance(x, Foreign) else x).__name__


def describe(x: Any) -> str:
    """What kind of value something is, such as "a tuple of 2"."""
    if x is None:
        return "None"
    if isinstance(x, Foreign):
        return x.told
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}"
    if isinstance(x, Mapping):
        return f"a dictionary with keys {sorted(map(str, x))}"
    if isinstance(x, Tensor):
        return f"a tensor of {x.dtype}, {x.layout}"
    return f"{type(x).__name__} {plain_repr(x)}"[:60]


LIKENESS: dict[Kind, Callable[[Finding], str]] = {
    Kind.SHAPE: _shapes,
    Kind.TRANSPOSE: _transpose,
    Kind.RESHAPED: lambda f: f"the right numbers, but {_shapes(f)}",
    Kind.ALONG_AXIS: lambda f: (
        f"the {f.name} along axis {f.axis} alone, {_shapes(f)}"
    ),
    Kind.LENGTH: lambda f: f"{_shapes(f)}: {_length(f)}",
    Kind.NAN: lambda f: (
        "all NaN" if f.count == f.total else f"NaN {_places(f)}"
    ),
    Kind.INFINITE: lambda f: f"infinite {_places(f)}",
    Kind.NEARLY: lambda f: f"off by {f.gap:.2g}",
    Kind.SIGN: lambda f: "of the wrong sign",
    Kind.FACTOR: _factor,
    Kind.OFFSET: lambda f: (
        f"too {_size(f.gap)} by {abs(f.gap):.4g} everywhere"
    ),
    Kind.ONE_OFF: lambda f: "one too many" if f.gap > 0 else "one too few",
    Kind.TOO_LARGE: lambda f: f"too {_size(f.gap)} by {abs(f.gap):.4g}",
    Kind.OFFSET_ALONG: lambda f: (
        f"off by a number in each {f.name}, {_range(f)}"
    ),
    Kind.FACTOR_BY_ROW: lambda f: (
        f"off by a factor in each row, from {_range(f)}"
    ),
    Kind.FUNCTION: lambda f: _FUNCTIONS[f.name],
    Kind.BACKWARDS: lambda f: f"backwards{_along(f)}",
    Kind.SHIFTED: _shifted,
    Kind.ORDER: _order,
    Kind.COLUMN_SUMS: lambda f: "off: its columns sum to one, its rows do not",
    Kind.ROW_SUMS: _row_sums,
    Kind.NOT_ZERO: _not_zero,
    Kind.SOME_PLACES: lambda f: f"wrong {_places(f)}{_only(f.only)}",
    Kind.EVERY_PLACE: lambda f: "wrong in every place",
    Kind.TRUTH: lambda f: (
        f"{bool(f.answer)} where {bool(f.expected)} is right"
    ),
    Kind.TRUTHS_EXCHANGED: lambda f: "True and False exchanged",
    Kind.TRUE_TOO_OFTEN: lambda f: f"True {_places(f)} too many",
    Kind.TRUE_TOO_SELDOM: lambda f: f"True {_places(f)} too few",
    Kind.FORMAT: lambda f: (
        f"the right numbers in another format: {types_words(f)}"
    ),
    Kind.NUMBER_TYPE: types_words,
    Kind.TYPE: types_words,
    Kind.VALUE: lambda f: (
        f"{brief(f.answer)} where {brief(f.expected)} is right"
    ),
    Kind.ENTRIES: _entries,
    Kind.LIST_LENGTH: _list_length,
    Kind.LIST_TYPES: _list_types,
    Kind.ZERO_GRADIENT: lambda f: (
        "0: look for detach(), .data, item(), no_grad() or numpy"
    ),
}

#: Kinds whose words have a verb of their own, or need none.
_WITHOUT_VERB = {
    Kind.NUMBER_TYPE,
    Kind.TYPE,
    Kind.ENTRIES,
    Kind.NOT_ZERO,
}
