"""Sentences on what has stopped an answer: an error, a rule, or the clock."""

from __future__ import annotations

import re
from collections.abc import Callable

from attnbook.teach.check.finding import Finding, Kind, Line
from attnbook.teach.check.words import fill

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
    "given": (
        "it was raised inside a function that your code was given and calls. "
        "What shall your answer be then?"
    ),
    "sizes": (
        "two sizes do not fit: print the shapes of both sides of that line."
    ),
}
_OF_T = (
    " (And .T turns round all axes, also those of a batch; .mT exchanges the "
    "last two.)"
)


def line_words(line: Line) -> str:
    """The words for a line of the reader's code: its number and its text."""
    if not line.number:
        return "not in a line of yours"
    return f"in line {line.number}: {line.text}".rstrip(": ")


def _raised(found: Finding) -> str:
    """The sentence about an error: its type and text, the line, and advice.

    Advice comes where torch's own words do not say what to do.
    """
    try:
        text = str(found.error)
    except Exception:  # its own text may raise too
        text = ""
    kind = type(found.error).__name__
    who = "your code"
    if found.advice == "given":
        who = "a function that your code calls"
    lines = [f"{who} raised {kind}" + (f": {text}" if text else "")]
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
    """The sentence about an answer that took too long, and where it was."""
    where = f"; stopped {line_words(found.line)}" if found.line else ""
    return f"{found.error}{where}\n  Does a loop in it ever end?"


STOPPED: dict[Kind, Callable[[Finding], str]] = {
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
