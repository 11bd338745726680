"""What a reader is told: the one room in which findings become sentences.

First what is wrong, in words; then the smallest case, with as many numbers as
it takes to see it. Nothing is decided here. Whoever changes a sentence changes
what a reader reads, and neither which mistake is recognised nor which question
is asked.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from attnbook.teach.check.difference import Difference, Differs
from attnbook.teach.check.finding import Finding, Help, Kind, Line, Only, Step
from attnbook.teach.check.settled import Foreign
from attnbook.teach.check.words import (
    brief,
    fill,
    in_cases,
    listed,
    number_kind,
    number_name,
    plain_repr,
)

#: What torch complains about, and what to do about it (see `examine.ADVICE`).
_ADVICE = {
    "writes into a leaf": (
        "it writes into one of its arguments (x += …, x[…] = …). Make a new "
        "tensor, x = x + …, or work on x.clone()."
    ),
    "overwritten": (
        "a tensor was overwritten that the gradient still needs. Make a new "
        "tensor instead of writing into one, or write into a clone()."
    ),
    "no graph": (
        "nothing in it depends on the arguments any more: look for detach(), "
        ".data, item(), no_grad() or torch.tensor(…) of a tensor."
    ),
    "numpy": "the check follows gradients, and numpy has none. Stay with "
    "torch.",
    "formats": (
        "two number formats meet. torch.arange, torch.ones and torch.tensor "
        "make float32 or integers unless told dtype=x.dtype."
    ),
    "view": (
        "a transposed tensor cannot be viewed. reshape copies it; ask first "
        "whether the numbers are in the order that you mean."
    ),
    "one truth": (
        "if, and, or, not want a single True or False: write .any(), .all(), "
        "or &, |, ~ between tensors."
    ),
    "unpacking": (
        "this input has other axes: *rest, n, d = x.shape takes any in front."
    ),
    "sizes": (
        "two sizes do not fit: print the shapes of both sides of that line."
    ),
}
_OF_T = (
    " (And .T turns round all axes, also those of a batch; .mT exchanges the "
    "last two.)"
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

#: What stands in place of an argument that counts for nothing.
_CONSTANTS = {"true": "True everywhere", "zero": "0", "one": "1"}

#: What may have become of an argument, its name for {}.
_INSTEAD = {
    "not": "not {}",
    "truths exchanged": "{} with True and False exchanged",
    "one more": "{} + 1",
    "one less": "{} − 1",
    "reciprocal": "1/{}",
    "square": "the square of {}",
    "without the last": "{} without the last",
    "without the first": "{} without the first",
    "each without its last": "{}, each without its last",
    "each without its first": "{}, each without its first",
    "negative": "−{}",
    "transposed": "{} transposed",
    "times root": "{} times √d, d the last size of {}",
    "divided by root": "{} divided by √d, d the last size of {}",
}


# --- The first line: what is wrong -----------------------------------------


def headline(found: Finding) -> str:
    """What is wrong, in a line of words."""
    if found.kind == Kind.CHANGED:
        return f"the argument {_argument(found)} was changed in place"
    if found.kind == Kind.UNCHANGED:
        return f"the {_argument(found)} that was given has not changed"
    if found.kind in _STOPPED:
        return _STOPPED[found.kind](found)
    words = likeness(found)
    if found.gradient_of is not None:
        return f"the values are right, {_gradient(found)} is {words}"
    if not found.place:
        return words
    verb = ":" if found.kind in _WITHOUT_VERB else " is"
    return f"{_place(found.place)}{verb} {words}"


def likeness(found: Finding) -> str:
    """How a result is wrong: "too large by a factor of √2"."""
    return _LIKENESS[found.kind](found)


def _argument(found: Finding) -> str:
    part = f" (its {found.name})" if found.name else ""
    return f"{found.argument}{part}"


def _gradient(found: Finding | Difference) -> str:
    return f"the gradient of tensor argument {found.gradient_of}"


def _step(step: Step) -> str:
    name, which = step
    return f"{name} {which!r}" if name == "entry" else f"{name} {which}"


def _place(place: tuple[Step, ...]) -> str:
    return ", ".join(map(_step, place))


def _shape(x: Any) -> str:
    return f"{tuple(x.shape)}"


def _shapes(f: Finding) -> str:
    return f"of shape {_shape(f.answer)}, not {_shape(f.expected)}"


def _places(f: Finding) -> str:
    return f"in {f.count} of {f.total} places"


def _only(only: Only | None, begin: str = ", all in ") -> str:
    """In which rows or columns all wrong places are, if not in all."""
    if only is None:
        return ""
    if only.last > only.first:
        return f"{begin}{only.name}s {only.first} to {only.last}"
    return f"{begin}{only.name} {only.first}"


def _transpose(f: Finding) -> str:
    other_shape = f.answer.shape != f.expected.shape
    return f"the transpose, {_shapes(f)}" if other_shape else "the transpose"


def _length(f: Finding) -> str:
    """What a row lacks, or has too much."""
    words = f"{f.count} {f.name}"
    if f.where == "inside":
        return f"{words}, the others right"
    return f"{words} at the {f.where}"


def _size(gap: float) -> str:
    return "large" if gap > 0 else "small"


def _factor(f: Finding) -> str:
    size = max(abs(f.ratio), 1 / abs(f.ratio))
    name = number_name(size) or f"{size:.4g}"
    sign = "of the wrong sign and " if f.ratio < 0 else ""
    large = "large" if abs(f.ratio) > 1 else "small"
    return f"{sign}too {large} by a factor of {name}"


def _along(f: Finding) -> str:
    return "" if f.axis is None else f" along axis {f.axis}"


def _range(f: Finding, digits: int = 3) -> str:
    return f"{f.low:.{digits}g} to {f.high:.{digits}g}"


def _order(f: Finding) -> str:
    only = _only(f.only, ", in ")
    if f.axis is None:
        return f"the right numbers in other places{only}"
    return f"right but for the order along axis {f.axis}{only}"


def _shifted(f: Finding) -> str:
    back = "" if f.gap > 0 else " back"
    return f"one place too far{back or ' on'}{_along(f)}"


def _row_sums(f: Finding) -> str:
    low, high = f"{f.low:.6g}", f"{f.high:.6g}"
    to = low if low == high else f"{low} up to {high}"
    return f"off: its rows sum to {to}, not to one"


def _not_zero(f: Finding) -> str:
    some = "everywhere " if f.count < f.total else ""
    return f"not {some}0 where 0 is right"


def _types(f: Finding) -> str:
    """Two types, or two types of numbers."""
    both = f.answer, f.expected
    if all(isinstance(x, Tensor) for x in both):
        answer, expected = map(number_kind, both)
        return f"ours holds {answer}s, the reference {expected}s"
    answer, expected = map(describe, both)
    return f"ours is {answer}, the reference {expected}"


def _entries(f: Finding) -> str:
    """Which entries a dictionary lacks, and which it should not have."""
    missing = [name for name in f.expected if name not in f.answer]
    extra = [name for name in f.answer if name not in f.expected]
    found = []
    if missing:
        found.append(f"missing: {listed(map(repr, missing))}")
    if extra:
        found.append(f"not wanted: {listed(map(repr, extra))}")
    return "; ".join(found)


def _list_length(f: Finding) -> str:
    words = f"of {len(f.answer)} parts, not {len(f.expected)}"
    return f"{words}: {_length(f.inner)}" if f.inner else words


def _list_types(f: Finding) -> str:
    answer, expected = (
        listed(sorted({_type_name(part) for part in parts}))
        for parts in (f.answer, f.expected)
    )
    return f"of {answer}, not of {expected}"


def _type_name(x: Any) -> str:
    return type(x.value if isinstance(x, Foreign) else x).__name__


def describe(x: Any) -> str:
    """A value by its type: "a tuple of 2"."""
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


_LIKENESS: dict[Kind, Callable[[Finding], str]] = {
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
    Kind.NEARLY: lambda f: f"nearly right, off by {f.gap:.2g}",
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
    Kind.FORMAT: lambda f: f"the right numbers in another format: {_types(f)}",
    Kind.NUMBER_TYPE: _types,
    Kind.TYPE: _types,
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


# --- What stopped an answer -------------------------------------------------


def line_words(line: Line) -> str:
    """A line of the reader's, as it is quoted."""
    if not line.number:
        return "not in a line of yours"
    return f"in line {line.number}: {line.text}".rstrip(": ")


def _raised(found: Finding) -> str:
    """The error, the reader's line, and advice on torch's own words."""
    try:
        text = str(found.error)
    except Exception:  # its own text may raise too
        text = ""
    kind = type(found.error).__name__
    lines = [f"your code raised {kind}" + (f": {text}" if text else "")]
    if found.line:
        lines.append(f"  {line_words(found.line)}")
    if found.advice:
        advice = _ADVICE[found.advice]
        quoted = found.line.text if found.line else ""
        if found.advice == "sizes" and re.search(r"\.T\b", quoted):
            advice += _OF_T
        lines.append(fill(f"that is: {advice}", "  "))
    return "\n".join(lines)


def _out_of_time(found: Finding) -> str:
    where = f"; stopped {line_words(found.line)}" if found.line else ""
    return f"{found.error}{where}\n  Does a loop in it ever end?"


_STOPPED: dict[Kind, Callable[[Finding], str]] = {
    Kind.ERROR: _raised,
    Kind.OUT_OF_MEMORY: _raised,
    Kind.BROKEN_OFF: _raised,
    Kind.OUT_OF_TIME: _out_of_time,
    Kind.USES_AUTOGRAD: lambda f: "this exercise does without autograd",
    Kind.USES_FUNCTION: lambda f: f"this exercise does without {f.name}",
    Kind.HOLDS_TOO_MUCH: lambda f: (
        "too many numbers held at once; expected at most "
        f"{f.total} in all new tensors together; got {f.count}"
    ),
}


# --- What may help ----------------------------------------------------------


def help_lines(found: Help) -> list[str]:
    """What may help, in a line or two."""
    lines = []
    if found.finding:
        lines.append(_HELP[found.finding.kind](found.finding))
    if found.question:
        begin = "perhaps" if found.perhaps else "hint"
        lines.append(f"{begin}: {found.question}")
    return [fill(line, "  ") for line in lines]


def _float32(f: Finding) -> str:
    return (
        "it is right to the digits of a float32, and no further: the first is "
        f"made {line_words(f.line or Line(0, ''))}"
    )


def _instead(f: Finding) -> str:
    what = _INSTEAD[f.name].replace("{}", f.argument)
    return f"it gives the right result for {what}."


def _subtracted(f: Finding) -> str:
    return f"it gives {_measure(f)} minus the right result."


def _times(f: Finding) -> str:
    what = _measure(f)
    if abs(f.ratio) == 2:
        what = f"the square of {what}"
    done = "times" if f.ratio > 0 else "divided by"
    return f"it gives the right result {done} {what}."


def _measure(f: Finding) -> str:
    return f"the length of {f.argument}" if f.name == "length" else f.argument


def _increment(f: Finding) -> str:
    words = likeness(f.inner) if f.inner else ""
    return f"what it adds to the given {_shape(f.answer)} is {words}."


_HELP: dict[Kind, Callable[[Finding], str]] = {
    Kind.FLOAT32: _float32,
    Kind.ALMOST: lambda f: (
        "hint: it is nearly right. Is a number in it rounded, something small "
        "added, or a derivative a quotient of differences?"
    ),
    Kind.EXCHANGED: lambda f: (
        f"it gives the right result for {f.argument} and {f.other} exchanged."
    ),
    Kind.IGNORED: lambda f: (
        f"it gives the right result for {f.argument} = "
        f"{_CONSTANTS[f.name]}, whatever {f.argument} is."
    ),
    Kind.INSTEAD: _instead,
    Kind.PARTS_REORDERED: lambda f: (
        "the parts of the result are right, in another order."
    ),
    Kind.PART_ALONE: lambda f: f"this is part {f.count} of the result alone.",
    Kind.SUBTRACTED: _subtracted,
    Kind.TIMES: _times,
    Kind.INCREMENT: _increment,
    Kind.LATER_PART: lambda f: (
        f"{_place(f.place)} is {likeness(f.inner) if f.inner else ''}."
    ),
    Kind.LIST_REVERSED: lambda f: (
        "the right parts stand in the reverse order."
    ),
    Kind.LIST_LATE: lambda f: "all comes one place late.",
    Kind.LIST_EARLY: lambda f: "all comes one place early.",
    Kind.CUTS_GRADIENT: lambda f: (
        f"hint: {f.name}, in your code, lets no gradient through. Does one "
        "have to pass there?"
    ),
    Kind.MAKES_NAN: lambda f: (
        "which line makes 0/0, ∞/∞, ∞ − ∞ or 0 · ∞ of these numbers?"
    ),
}


# --- The case, and the numbers ----------------------------------------------


def inputs(args: tuple, kwargs: Mapping[str, Any]) -> str:
    """The arguments of a case, on four lines at most."""
    for most in (16, 6, 3):
        named = [brief(a, most=most) for a in args]
        named += [f"{n}={brief(a, most=most)}" for n, a in kwargs.items()]
        text = ", ".join(named)
        if len(text) < 280:
            break
    text = textwrap.shorten(text, 290, placeholder=" …")
    return fill(f"called with {text}", "  ")


def apart(a: Any, b: Any) -> tuple[str, str]:
    """Two values with as many digits as it takes to tell them apart."""
    for digits in (4, 6, 8, 12):
        pair = brief(a, digits), brief(b, digits)
        if pair[0] != pair[1]:
            return pair
    return brief(a), brief(b)


def numbers(found: Difference) -> list[str]:
    """Expected and got: the part that differs, of a large one a row."""
    if found.kind in (Differs.CHANGED, Differs.UNCHANGED):
        return []
    answer, expected = found.answer, found.expected
    where = f" in {_where(found)}" if _where(found) else ""
    large = isinstance(expected, Tensor) and expected.numel() > 16
    if large and found.worst:
        *row, column = found.worst
        start = max(0, min(column - 3, expected.shape[-1] - 8))
        answer, expected = (
            x[tuple(row)][start : start + 8] for x in (answer, expected)
        )
        where += f" at {[*row, f'{start}:'] if start else row}"
    told, got = apart(expected, answer)
    lines = fill(f"expected{where} {told}", "  "), fill(f"got {got}", "  ")
    return [_cut(line) for line in lines]


def _where(found: Difference) -> str:
    if found.gradient_of is not None:
        return _gradient(found)
    return _place(found.place)


def _cut(text: str, most: int = 4) -> str:
    lines = text.splitlines()
    return "\n".join([*lines[:most], "    …"] if len(lines) > most else lines)


def difference_words(found: Difference) -> str:
    """Where two results differ first, with both numbers: for authors."""
    if found.kind in (Differs.CHANGED, Differs.UNCHANGED):
        kind = Kind[found.kind.name]
        return headline(
            Finding(kind, argument=found.argument, name=found.part)
        )
    steps = [_step(step) for step in found.place]
    if found.gradient_of is not None:
        steps = [_gradient(found)]
    return ": ".join([*steps, _of_place(found)])


def _of_place(found: Difference) -> str:
    answer, expected = found.answer, found.expected
    if found.kind == Differs.TYPE:
        return _types(Finding(Kind.TYPE, answer=answer, expected=expected))
    if found.kind == Differs.SHAPE:
        return (
            f"ours has shape {_shape(answer)}, "
            f"the reference {_shape(expected)}"
        )
    at, place = found.worst, list(found.worst)
    x, y = answer[at].item(), expected[at].item()
    if number_kind(answer) == "boolean":
        return f"first at {place}: ours {x}, the reference {y}"
    why = "; ours is float32" if found.coarse else ""
    return (
        f"worst at {place}: ours {float(x):.6g}, the reference "
        f"{float(y):.6g}, |Δ| {found.gap:.2g} > {found.within:g}{why}"
    )


# --- Whole messages ---------------------------------------------------------


def not_attempted(name: str) -> str:
    """Of a stub that nobody has begun to fill in."""
    return f"{name}: not attempted yet."


def right(name: str, cases: int, gradients: bool) -> str:
    """Of an answer that is right."""
    too = ", gradients too" if gradients else ""
    return f"{name}: right on all {cases} cases{too}."


def known_mistake(name: str, mistake: str, symptom: str, hint: str) -> str:
    """Of an answer that is one of the known mistakes."""
    lines = [
        f"{name}: this is a known mistake, {mistake}.",
        fill(f"what happens: {symptom}", "  "),
    ]
    if hint:
        lines.append(fill(f"hint: {hint}", "  "))
    return "\n".join(lines)


def slip(name: str, words: str, hint: str) -> str:
    """Of an answer that is one of the known slips."""
    head = fill(f"{name}: not right yet: {words}.")
    return f"{head}\n{fill(f'hint: {hint}', '  ')}"


def stopped(
    name: str,
    found: Finding,
    args: tuple,
    kwargs: Mapping[str, Any],
    help_: Help,
) -> str:
    """Of an answer that raised an error, or broke a rule."""
    head = f'{name}: not right yet on "{found.case}": {headline(found)}'
    return "\n".join([head, inputs(args, kwargs), *help_lines(help_)])


def wrong(
    name: str,
    wanted: str,
    found: Finding,
    difference: Difference,
    args: tuple,
    kwargs: Mapping[str, Any],
    help_: Help,
    *,
    forgot_return: bool,
) -> str:
    """Of an answer that gives something else than is right."""
    told = headline(found)
    lines = [fill(f'{name}: not right yet on "{found.case}": {told}.')]
    if forgot_return:
        lines.append("  was a return forgotten?")
    lines += help_lines(help_)
    lines.append(fill(f"wanted: {wanted}", "  "))
    lines.append(inputs(args, kwargs))
    lines += numbers(difference)
    if difference.kind == Differs.VALUE:
        lines.append(fill(difference_words(difference), "  "))
    return "\n".join(lines)


def short_error(found: Finding) -> str:
    """The core of a verdict on an error."""
    return f"{found.case}: {headline(found).splitlines()[0]}"


def short(
    found: Finding, difference: Difference, answer: Any, expected: Any
) -> str:
    """The core of a verdict: both numbers if they are few, else where."""
    told, got = apart(expected, answer)
    both = f"expected {told}; got {got}"
    if len(both) < 90 and told != got:
        return f"{found.case}: {both}"
    return f"{found.case}: {difference_words(difference)}"


def side_effects(left: list[str]) -> list[str]:
    """A remark on what an answer had changed, or nothing."""
    if not left:
        return []
    some = ", ".join(left[:3]) + (" and more" if len(left) > 3 else "")
    return [
        fill(f"your code also changed {some}; it has been set back.", "  ")
    ]


def agreement(name: str, reference: str, cases: int, gradients: bool) -> str:
    """Of a function of the page that does its task."""
    too = ", gradients too" if gradients else ""
    return f"{name} agrees with {reference} {in_cases(cases)}{too}"
