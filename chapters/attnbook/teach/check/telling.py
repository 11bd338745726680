"""What a reader is told of an answer that is not right.

First what is wrong, in words; then the smallest case, with as many numbers as
it takes to see it.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.guard import Guard
from attnbook.teach.check.likeness import in_length, likeness
from attnbook.teach.check.proof import (
    Case,
    Difference,
    Outcome,
    difference,
    run,
)
from attnbook.teach.check.rules import RuleBroken
from attnbook.teach.check.words import brief, fill, listed

#: What torch says, and what to do about it.
_ADVICE = {
    r"leaf Variable that requires grad.* in-place|leaf .*inplace": (
        "it writes into one of its arguments (x += …, x[…] = …). Make a new "
        "tensor, x = x + …, or work on x.clone()."
    ),
    r"modified by an inplace operation|is being modified inplace": (
        "a tensor was overwritten that the gradient still needs. Make a new "
        "tensor instead of writing into one, or write into a clone()."
    ),
    r"does not require grad and does not have a grad_fn": (
        "nothing in it depends on the arguments any more: look for detach(), "
        ".data, item(), no_grad() or torch.tensor(…) of a tensor."
    ),
    r"[Cc]an't call numpy\(\) on Tensor that requires grad": (
        "the check follows gradients, and numpy has none. Stay with torch."
    ),
    r"same dtype|expected scalar type|dtype mismatch": (
        "two number formats meet. torch.arange, torch.ones and torch.tensor "
        "make float32 or integers unless told dtype=x.dtype."
    ),
    r"view size is not compatible": (
        "a transposed tensor cannot be viewed. reshape copies it; ask first "
        "whether the numbers are in the order that you mean."
    ),
    r"Boolean value of Tensor with more than one|truth value of an array": (
        "if, and, or, not want a single True or False: write .any(), .all(), "
        "or &, |, ~ between tensors."
    ),
    r"values to unpack": (
        "this input has other axes: *rest, n, d = x.shape takes any in front."
    ),
    r"izes? of tensors? |cannot be multiplied|to have size": (
        "two sizes do not fit: print the shapes of both sides of that line."
    ),
}


def _readers_files(fn: Callable) -> set[str]:
    """Where the code of an answer stands, a class's or a wrapped one's too."""
    files = set()
    fn = inspect.unwrap(fn)
    parts = [fn, *(vars(kind).get("__call__") for kind in type(fn).__mro__)]
    if isinstance(fn, functools.partial):
        parts += [fn.func, *fn.args]
    for part in [p for p in parts if p is not None]:
        for each in vars(part).values() if inspect.isclass(part) else [part]:
            code = getattr(each, "__code__", None)
            files |= {code.co_filename} if code else set()
    return files


def line_of(error: BaseException, fn: Callable) -> str:
    """The line of the reader's own code that led to an error, or ""."""
    files = _readers_files(fn)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return f"in line {frame.lineno}: {line}".rstrip(": ")
    return ""


def error_text(error: BaseException, fn: Callable) -> str:
    """The error, the reader's line, and advice on torch's own words."""
    try:
        text = str(error)
    except Exception:  # its own text may raise too
        text = ""
    kind = type(error).__name__
    if isinstance(error, RuleBroken):
        return text
    lines = [f"your code raised {kind}" + (f": {text}" if text else "")]
    if line := line_of(error, fn):
        lines.append(f"  {line}")
    for pattern, advice in _ADVICE.items():
        if re.search(pattern, text):
            if "print the shapes" in advice and re.search(r"\.T\b", line):
                advice += (
                    " (And .T turns round all axes, also those of a batch; "
                    ".mT exchanges the last two.)"
                )
            lines.append(fill(f"that is: {advice}", "  "))
            break
    return "\n".join(lines)


def inputs(case: Case) -> str:
    """The arguments of a case, on four lines at most."""
    for most in (16, 6, 3):
        named = [brief(a, most=most) for a in case.args]
        named += [f"{n}={brief(a, most=most)}" for n, a in case.kwargs.items()]
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


def headline(found: Difference) -> str:
    """What is wrong, in a line of words."""
    if found.kind == "in place":
        return found.message
    ours, theirs = found.parts
    what = _what(found, ours, theirs)
    if found.kind.startswith("gradient"):
        if isinstance(ours, Tensor) and not ours.any():
            what = "0: look for detach(), .data, item(), no_grad() or numpy"
        return f"the values are right, {found.place} is {what}"
    if not found.place:
        return what
    verb = ":" if what.startswith(("ours", "missing", "not")) else " is"
    return f"{found.place}{verb} {what}"


def later_part(mine: Any, right: Any) -> str:
    """What can be said of a later part, where of the first nothing can."""
    if not isinstance(mine, tuple) or not isinstance(right, tuple):
        return ""
    silent = False
    for n, (a, b) in enumerate(zip(mine, right)):
        both = isinstance(a, Tensor) and isinstance(b, Tensor)
        if both and difference(a, b, within=1e-9, equal_nan=True):
            words = likeness(a, b)
            if words and not words.startswith("wrong in"):
                return f"part {n} is {words}" if silent else ""
            silent = True
    return ""


def increment(case: Case, mine: Outcome, right: Outcome) -> str:
    """How what is added to an argument differs, where that is a factor."""
    given = []
    for x in tree_leaves((case.args, case.kwargs)):
        given += x.parameters() if isinstance(x, nn.Module) else [x]
    for a, b in zip(tree_leaves(mine.result), tree_leaves(right.result)):
        for x in given:
            three = all(isinstance(y, Tensor) for y in (a, b, x))
            if three and a.shape == b.shape == x.shape and _varied(x):
                words = likeness(a.detach() - x, b.detach() - x)
                if words.startswith(("too", "of the wrong sign")):
                    what = tuple(x.shape)
                    return f"what it adds to the given {what} is {words}"
    return ""


def _varied(x: Tensor) -> bool:
    """Whether a factor between two such tensors is no chance."""
    return x.detach().unique().numel() > 2


def _what(found: Difference, ours: Any, theirs: Any) -> str:
    both = isinstance(ours, Tensor) and isinstance(theirs, Tensor)
    if found.kind.endswith("type"):
        if both and _same_numbers(ours, theirs):
            return f"the right numbers in another format: {found.message}"
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            return _names(ours, theirs)
        if isinstance(theirs, (str, bool, int, float, type(None))):
            return f"{brief(ours)} where {brief(theirs)} is right"
        if isinstance(ours, (tuple, list)) and isinstance(
            theirs, (tuple, list)
        ):
            return _of_lists(ours, theirs)
        return found.message.removeprefix(f"{found.place}: ")
    if both:
        try:
            if words := likeness(ours, theirs):
                return words
        except Exception:  # ours may be of any kind
            pass
    return "wrong in every place" if both else found.message


def _of_lists(ours: Sequence, theirs: Sequence) -> str:
    """How many parts there are, or of what kind."""
    n, m = len(ours), len(theirs)
    if n == m:
        kinds = (
            listed(sorted({type(part).__name__ for part in parts}))
            for parts in (ours, theirs)
        )
        return "of {}, not of {}".format(*kinds)
    words = f"of {n} parts, not {m}"
    how = in_length(ours, theirs, _same_parts)
    return f"{words}: {how}" if how else words


def out_of_step(ours: Any, theirs: Any) -> str:
    """In words, where a list has the right parts in other places."""
    lists = isinstance(ours, (tuple, list)), isinstance(theirs, (tuple, list))
    if not all(lists) or len(ours) != len(theirs) or len(ours) < 2:
        return ""
    if _same_parts(ours[::-1], theirs):
        return "the right parts stand in the reverse order"
    if len(ours) > 2 and not _same_parts(theirs[1:-1], theirs[2:]):
        if _same_parts(ours[1:], theirs[:-1]):
            return "all comes one place late"
        if _same_parts(ours[:-1], theirs[1:]):
            return "all comes one place early"
    return ""


def _same_parts(a: Any, b: Any) -> bool:
    return difference(a, b, within=1e-9, equal_nan=True) is None


def _names(ours: Mapping, theirs: Mapping) -> str:
    """Which entries a dictionary lacks, and which it should not have."""
    found = []
    for words, names in (
        ("missing", [n for n in theirs if n not in ours]),
        ("not wanted", [n for n in ours if n not in theirs]),
    ):
        if names:
            found.append(f"{words}: {listed(map(repr, names))}")
    return "; ".join(found)


def _same_numbers(a: Tensor, b: Tensor) -> bool:
    try:
        like = a.shape == b.shape and a.device == b.device
        return bool(like and (a.double() == b.double()).all())
    except Exception:
        return False


def numbers(found: Difference) -> list[str]:
    """Expected and got: the part that differs, of a large one a row."""
    if found.kind == "in place":
        return []
    ours, theirs = found.parts
    where = f" in {found.place}" if found.place else ""
    large = isinstance(theirs, Tensor) and theirs.numel() > 16
    if large and found.worst:
        *row, column = found.worst
        start = max(0, min(column - 3, theirs.shape[-1] - 8))
        ours, theirs = (
            x[tuple(row)][start : start + 8] for x in (ours, theirs)
        )
        where += f" at {[*row, f'{start}:'] if start else row}"
    expected, got = apart(theirs, ours)
    lines = [fill(f"expected{where} {expected}", "  ")]
    return [*map(_cut, [*lines, fill(f"got {got}", "  ")])]


def _cut(text: str, most: int = 4) -> str:
    lines = text.splitlines()
    return "\n".join([*lines[:most], "    …"] if len(lines) > most else lines)


class _Float32(TorchFunctionMode):
    """Notes the reader's line in which a float32 is first made of others."""

    def __init__(self, files: set[str]) -> None:
        super().__init__()
        self.files, self.line = files, ""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if not self.line and _is_float32(made):
            given = tree_leaves((args, kwargs or {}))
            if not any(map(_is_float32, given)):
                self.line = self._here()
        return made

    def _here(self) -> str:
        for frame in reversed(traceback.extract_stack()):
            if frame.filename in self.files:
                return f"in line {frame.lineno}: {frame.line}"
        return "not in a line of yours"


def _is_float32(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype == torch.float32


def float32_line(fn: Callable, case: Case) -> str:
    """The line in which an answer makes a float32 of none, or ""."""
    if any(map(_is_float32, tree_leaves((case.args, case.kwargs)))):
        return ""
    watch = _Float32(_readers_files(fn))

    def watched(*args: Any, **kwargs: Any) -> Any:
        with watch:
            return fn(*args, **kwargs)

    with Guard(fn):  # it has been tried, and is tried once more
        run(watched, case, timed=True)
    return watch.line


def side_effects(left: list[str]) -> list[str]:
    """A remark on what an answer had changed, or nothing."""
    if not left:
        return []
    some = ", ".join(left[:3]) + (" and more" if len(left) > 3 else "")
    return [
        fill(f"your code also changed {some}; it has been set back.", "  ")
    ]
