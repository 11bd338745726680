"""Whole messages: the verdict, the case, and as many numbers as are needed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from os.path import commonprefix
from typing import Any

from torch import Tensor

from attnbook.teach.check.difference import Difference, Differs
from attnbook.teach.check.finding import (
    CALLED_AGAIN,
    NOT_CONTIGUOUS,
    Finding,
    Help,
    Kind,
)
from attnbook.teach.check.telling.helping import help_lines
from attnbook.teach.check.telling.results import (
    gradient_words,
    headline,
    other_fields,
    place_words,
    shape_words,
    step_words,
    types_words,
)
from attnbook.teach.check.words import brief, fill, in_cases, number_kind


def inputs(args: tuple, kwargs: Mapping[str, Any]) -> str:
    """The line "called with …" with the arguments of a case, shortened.

    It is wrapped, and has about 290 characters at most.
    """
    for most in (16, 6, 3):
        named = [brief(a, most=most) for a in args]
        named += [f"{n}={brief(a, most=most)}" for n, a in kwargs.items()]
        text = ", ".join(named)
        if len(text) < 280:
            break
    text = textwrap.shorten(text, 290, placeholder=" …")
    return fill(f"called with {text}", "  ")


#: How many characters of a value a message has room for.
_ROOM = 280


def apart(a: Any, b: Any) -> tuple[str, str]:
    """Two values with as many digits as it takes to tell them apart."""
    for digits in (4, 6, 8, 12):
        pair = brief(a, digits), brief(b, digits)
        if pair[0] != pair[1]:
            return pair
    return brief(a), brief(b)


def numbers(found: Difference) -> list[str]:
    """The two lines that begin with "expected" and "got".

    They have the part of the results that differs; of a large tensor, a
    stretch of the row in which it differs most.
    """
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
    names = other_fields(answer, expected)
    if names:
        told, got = (
            ", ".join(f"{name}={x.fields[name]}" for name in names)
            for x in (expected, answer)
        )
    else:
        told, got = _from_the_difference(*apart(expected, answer))
    lines = fill(f"expected{where} {told}", "  "), fill(f"got {got}", "  ")
    return [_cut(line) for line in lines]


def _from_the_difference(a: str, b: str) -> tuple[str, str]:
    """Two texts; of long ones the part in which they differ first.

    A message has room for four lines, and has to reach the difference.
    """
    alike = len(commonprefix([a, b]))
    if max(len(a), len(b)) < _ROOM or alike < _ROOM - 100:
        return a, b
    start = a.rfind(" ", 0, alike - 60) + 1
    return f"… {a[start:]}", f"… {b[start:]}"


def _where(found: Difference) -> str:
    """The words for the part of a result in which a difference is, or ""."""
    if found.gradient_of is not None:
        return gradient_words(found)
    return place_words(found.place)


def _cut(text: str, most: int = 4) -> str:
    """The first lines of a text, and an ellipsis if there were more."""
    lines = text.splitlines()
    return "\n".join([*lines[:most], "    …"] if len(lines) > most else lines)


def difference_words(found: Difference) -> str:
    """Where two results differ, with both numbers: a line for those who want
    to know exactly, such as authors."""
    if found.kind in (Differs.CHANGED, Differs.UNCHANGED):
        kind = Kind[found.kind.name]
        return headline(
            Finding(kind, argument=found.argument, name=found.part)
        )
    steps = [step_words(step) for step in found.place]
    if found.gradient_of is not None:
        steps = [gradient_words(found)]
    return ": ".join([*steps, _at_the_place(found)])


def _at_the_place(found: Difference) -> str:
    """How two results differ at the place that a difference names."""
    answer, expected = found.answer, found.expected
    if found.kind == Differs.TYPE:
        return types_words(
            Finding(Kind.TYPE, answer=answer, expected=expected)
        )
    if found.kind == Differs.SHAPE:
        return (
            f"the answer has shape {shape_words(answer)}, "
            f"the reference {shape_words(expected)}"
        )
    at = found.worst
    place = list(found.worst)
    x, y = answer[at].item(), expected[at].item()
    if number_kind(answer) == "boolean":
        return f"first at {place}: the answer gives {x}, the reference {y}"
    why = "; the answer is float32" if found.coarse else ""
    return (
        f"worst at {place}: the answer gives {float(x):.6g}, the reference "
        f"{float(y):.6g}, |Δ| {found.gap:.2g} > {found.within:g}{why}"
    )


def not_attempted(name: str) -> str:
    """The message about a stub that nobody has begun to fill in."""
    return f"{name}: not attempted yet."


def right(name: str, cases: int, gradients: bool) -> str:
    """What a reader is told whose answer is right.

    Args:
        name: the task.
        cases: how many cases were tried.
        gradients: whether gradients were compared, too.
    """
    too = ", gradients too" if gradients else ""
    return f"{name}: right on all {cases} cases{too}."


def known_mistake(name: str, mistake: str, symptom: str, hint: str) -> str:
    """The message about an answer that makes one of the known mistakes."""
    lines = [
        f"{name}: this is a known mistake, {mistake}.",
        fill(f"what happens: {symptom}", "  "),
    ]
    if hint:
        lines.append(fill(f"hint: {hint}", "  "))
    return "\n".join(lines)


def slip(name: str, words: str, hint: str) -> str:
    """What a reader is told whose answer makes one of the task's slips.

    Args:
        name: the task.
        words: what is wrong, in a few words.
        hint: a question that helps.
    """
    head = fill(f"{name}: not right yet: {words}.")
    return f"{head}\n{fill(f'hint: {hint}', '  ')}"


def stopped(
    name: str,
    found: Finding,
    args: tuple,
    kwargs: Mapping[str, Any],
    help_: Help,
) -> str:
    """The message about an answer that raised an error, or broke a rule."""
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
    """What a reader is told whose answer gives a wrong result.

    Args:
        name: the task.
        wanted: what the task asks for, in words.
        found: what is wrong on the first case that fails.
        difference: where that case differs.
        args, kwargs: the arguments of that case.
        help_: what may help.
        forgot_return: whether the answer seems to have no `return`.
    """
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


#: In which other call an answer may be wrong that was right on all cases, and
#: what it is asked then.
AGAIN = {
    CALLED_AGAIN: (
        "It was right on all cases when it was called with each of them once. "
        "What does it keep from one call to the next?"
    ),
    NOT_CONTIGUOUS: (
        "It was right on the same numbers while all tensors were "
        "contiguous. Here some are not, as after a transpose. Does it read "
        "a tensor by its place in memory, or with the strides of another?"
    ),
}


def again(
    name: str,
    found: Finding,
    difference: Difference,
    args: tuple,
    kwargs: Mapping[str, Any],
    way: str,
) -> str:
    """What a reader is told whose answer was right on a case when it was
    called with all of them in turn, and is not in another call.

    Args:
        name: the task.
        found: what is wrong on the case now; its label says that.
        difference: where the case differs now.
        args, kwargs: the arguments of the case.
        way: what is different in this call, one of `AGAIN`.
    """
    head = f'{name}: not right yet on "{found.case}": {headline(found)}'
    lines = [
        head if found.error else fill(f"{head}."),
        fill(AGAIN[way], "  "),
        inputs(args, kwargs),
    ]
    return "\n".join([*lines, *([] if found.error else numbers(difference))])


def short_error(found: Finding) -> str:
    """The core of a verdict on an error, in a line: the case, and what
    stopped the answer there."""
    return f"{found.case}: {headline(found).splitlines()[0]}"


def short(
    found: Finding, difference: Difference, answer: Any, expected: Any
) -> str:
    """The core of a verdict on a wrong result, in a line.

    It has both results if they are short, and otherwise the place where they
    differ most.
    """
    told, got = apart(expected, answer)
    both = f"expected {told}; got {got}"
    if len(both) < 90 and told != got:
        return f"{found.case}: {both}"
    return f"{found.case}: {difference_words(difference)}"


def side_effects(left: list[str]) -> list[str]:
    """A line about what an answer had changed elsewhere; no line if that is
    nothing."""
    if not left:
        return []
    some = ", ".join(left[:3]) + (" and more" if len(left) > 3 else "")
    return [
        fill(f"your code also changed {some}; it has been set back.", "  ")
    ]


def agreement(name: str, reference: str, cases: int, gradients: bool) -> str:
    """The sentence about a function of the page that does its task."""
    too = ", gradients too" if gradients else ""
    return f"{name} agrees with {reference} {in_cases(cases)}{too}"
