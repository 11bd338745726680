"""Sentences that may help: what an answer seems to do, or a question."""

from __future__ import annotations

from collections.abc import Callable

from attnbook.teach.check.finding import Finding, Help, Kind, Line
from attnbook.teach.check.telling.results import (
    likeness,
    place_words,
    shape_words,
)
from attnbook.teach.check.telling.stops import line_words
from attnbook.teach.check.words import fill

#: The value that an ignored argument might as well have had, in words.
_CONSTANTS = {"true": "True everywhere", "zero": "0", "one": "1"}

#: What may have been used instead of an argument, whose name replaces {}.
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


def help_lines(found: Help) -> list[str]:
    """The lines of a verdict that may help its reader: one or two, or none."""
    lines = []
    if found.finding:
        lines.append(HELP[found.finding.kind](found.finding))
    if found.question:
        begin = "perhaps" if found.perhaps else "hint"
        lines.append(f"{begin}: {found.question}")
    return [fill(line, "  ") for line in lines]


def _float32(f: Finding) -> str:
    """The sentence that a result has the precision of a float32 only."""
    return (
        "it is right to the digits of a float32, and no further: the first is "
        f"made {line_words(f.line or Line(0, ''))}"
    )


def _instead(f: Finding) -> str:
    """The sentence that the result would be right for other arguments."""
    what = _INSTEAD[f.name].replace("{}", f.argument)
    return f"it gives the right result for {what}."


def _ignored(f: Finding) -> str:
    """The sentence that an argument counts for nothing.

    Where the answer's code reads it, that is said too: else its author would
    look for a name that was forgotten.
    """
    words = (
        f"it gives the right result for {f.argument} = "
        f"{_CONSTANTS[f.name]}, whatever {f.argument} is"
    )
    if f.advice != "read":
        return f"{words}."
    return (
        f"{words}, although your code reads it: what it is compared or "
        "computed with makes it count for nothing."
    )


def _subtracted(f: Finding) -> str:
    """The sentence that the right result was subtracted from an argument."""
    return f"it gives {_measure(f)} minus the right result."


def _times(f: Finding) -> str:
    """The sentence that the right result was multiplied or divided."""
    what = _measure(f)
    if abs(f.ratio) == 2:
        what = f"the square of {what}"
    done = "times" if f.ratio > 0 else "divided by"
    return f"it gives the right result {done} {what}."


def _measure(f: Finding) -> str:
    """The words for an argument, or for its length."""
    return f"the length of {f.argument}" if f.name == "length" else f.argument


def _increment(f: Finding) -> str:
    """The sentence about what an answer adds to a tensor it was given."""
    words = likeness(f.inner) if f.inner else ""
    return f"what it adds to the given {shape_words(f.answer)} is {words}."


HELP: dict[Kind, Callable[[Finding], str]] = {
    Kind.FLOAT32: _float32,
    Kind.ALMOST: lambda f: (
        "hint: all its numbers are near the right ones. Is one of them "
        "rounded, something small added, a derivative a quotient of "
        "differences, or a formula another one that comes near here?"
    ),
    Kind.EXCHANGED: lambda f: (
        f"it gives the right result for {f.argument} and {f.other} exchanged."
    ),
    Kind.IGNORED: _ignored,
    Kind.INSTEAD: _instead,
    Kind.PARTS_REORDERED: lambda f: (
        "the parts of the result are right, in another order."
    ),
    Kind.PART_ALONE: lambda f: f"this is part {f.count} of the result alone.",
    Kind.SUBTRACTED: _subtracted,
    Kind.TIMES: _times,
    Kind.INCREMENT: _increment,
    Kind.LATER_PART: lambda f: (
        f"{place_words(f.place)} is {likeness(f.inner) if f.inner else ''}."
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
    Kind.HANDS_BACK: lambda f: (
        "hint: in which places does your code use a number of tensor argument "
        f"{f.gradient_of}, and does each of them hand its gradient back?"
    ),
    Kind.MAKES_NAN: lambda f: (
        "which line makes 0/0, ∞/∞, ∞ − ∞ or 0 · ∞ of these numbers?"
    ),
}
