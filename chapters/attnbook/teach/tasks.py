"""Tasks: what a function of the book shall do, and how to judge one.

A task is a right answer that is independent of the book's own code, and a
list of awkward inputs, the smallest first. The same task proves the book's
function, checks a reader's, and must catch every known mistake.
"""

from __future__ import annotations

import importlib
import linecache
import textwrap
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from attnbook.teach.proof import Case, Outcome, outcome_difference, run

if TYPE_CHECKING:
    from attnbook.teach.mistakes import Mistake


@dataclass(frozen=True)
class Task:
    """What a function shall do.

    Attributes:
        name: the function's name, on the page and as ``check.<name>``.
        chapter: where it is taught.
        wanted: what it returns, in one sentence.
        right: the independent reference.
        cases: a function that makes the inputs, the smallest first.
        within: the largest |Δ| allowed.
        gradients: whether the gradients must be right too.
        home: the package's own function that does it, as
            ``"module.function"`` inside `attnbook`; empty if there is none.
    """

    name: str
    chapter: int
    wanted: str
    right: Callable
    cases: Callable[[], list[Case]]
    within: float = 1e-9
    gradients: bool = False
    home: str = ""

    def ours(self) -> Callable:
        """The package's own function for this task."""
        module, _, function = self.home.rpartition(".")
        return getattr(importlib.import_module(f"attnbook.{module}"), function)


@dataclass(frozen=True)
class Verdict:
    """What `judge` found; `message` is for a person.

    `kind` is "right", "not attempted", "known mistake", "wrong" or "error".
    """

    kind: str
    message: str
    mistake: str = ""
    error: Exception | None = None


_TASKS: dict[str, Task] = {}


def task(**about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as the right answer of a task."""

    def register(right: Callable) -> Callable:
        found = Task(name=right.__name__, right=right, **about)
        if found.name in _TASKS:
            raise ValueError(f"there are two tasks named {found.name}")
        _TASKS[found.name] = found
        return right

    return register


def all_tasks() -> dict[str, Task]:
    """Every task of the book by name, in the order of the chapters."""
    importlib.import_module("attnbook.teach.catalogue")
    return dict(sorted(_TASKS.items(), key=lambda item: item[1].chapter))


def judge(
    fn: Callable, task: Task, known: dict[str, Mistake] | None = None
) -> Verdict:
    """Try a function on every case of a task.

    Args:
        known: the mistakes to recognise, by name.

    Raises:
        TypeError: if `fn` cannot be called.
    """
    if not callable(fn):
        raise TypeError(
            f"{task.name} needs a function; expected something to call; "
            f"got {type(fn).__name__}"
        )
    cases = task.cases()
    got = [run(fn, case, gradients=task.gradients) for case in cases]
    first = got[0].error
    # With a message it comes from torch, which has no kernel for a type.
    if isinstance(first, NotImplementedError) and not first.args:
        return Verdict("not attempted", f"{task.name}: not attempted yet.")
    wanted = [
        run(task.right, case, gradients=task.gradients) for case in cases
    ]
    failing = next(
        (n for n in range(len(cases)) if not _same(got[n], wanted[n], task)),
        None,
    )
    if failing is None:
        too = ", gradients too" if task.gradients else ""
        return Verdict(
            "right", f"{task.name}: right on all {len(cases)} cases{too}."
        )
    case, mine = cases[failing], got[failing]
    for name, mistake in (known or {}).items():
        theirs = [
            run(mistake.wrong, c, gradients=task.gradients) for c in cases
        ]
        if all(_same(a, b, task) for a, b in zip(got, theirs)):
            return Verdict(
                "known mistake",
                f"{task.name}: this is a known mistake, {name}.\n"
                + fill(f"what happens: {mistake.symptom}", "  ")
                + "\n"
                + fill(f"hint: {mistake.hint}", "  "),
                mistake=name,
                error=mine.error,
            )
    if mine.error:
        return Verdict(
            "error",
            f"{task.name}: {_where(mine.error, fn)}\n{_inputs(case)}",
            error=mine.error,
        )
    found = outcome_difference(
        mine, wanted[failing], within=task.within, equal_nan=True
    )
    expected, received = _apart(wanted[failing].result, mine.result)
    return Verdict(
        "wrong",
        f"{task.name}: not right yet.\n"
        + fill(f"wanted: {task.wanted}", "  ")
        + f"\n{_inputs(case)}\n"
        + fill(f"expected {expected}", "  ")
        + "\n"
        + fill(f"got {received}", "  ")
        + "\n"
        + fill(found.message, "  "),
    )


def _same(a: Outcome, b: Outcome, task: Task) -> bool:
    if a.error or b.error:
        return type(a.error) is type(b.error)
    return not outcome_difference(a, b, within=task.within, equal_nan=True)


def _where(error: Exception, fn: Callable) -> str:
    """The error, and the line of the reader's own code that led to it."""
    what = f"your code raised {type(error).__name__}: {error}"
    code = getattr(fn, "__code__", None) or getattr(
        type(fn).__call__, "__code__", None
    )
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if code and frame.filename == code.co_filename:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return f"{what}\n  in line {frame.lineno}: {line}"
    return what


def _inputs(case: Case) -> str:
    named = [brief(a) for a in case.args]
    named += [f"{name}={brief(a)}" for name, a in case.kwargs.items()]
    called = fill(f"called with {', '.join(named)}", "  ")
    return f"  the case: {case.label}\n{called}"


def fill(text: str, indent: str = "") -> str:
    """Text wrapped at 79 columns, later lines two columns further in."""
    return textwrap.fill(
        text, 79, initial_indent=indent, subsequent_indent=indent + "  "
    )


def brief(value: Any, digits: int = 4) -> str:
    """A value on a line or two: small tensors whole, larger ones by shape."""
    if isinstance(value, (tuple, list)) and any(
        isinstance(v, Tensor) for v in value
    ):
        return "(" + ", ".join(brief(v, digits) for v in value) + ")"
    if isinstance(value, Mapping):
        inside = (f"{k!r}: {brief(v, digits)}" for k, v in value.items())
        return "{" + ", ".join(inside) + "}"
    if not isinstance(value, Tensor):
        if isinstance(value, float):
            return f"{value:.{digits + 2}g}"
        return repr(value)
    if value.numel() > 16:
        return f"a tensor of shape {tuple(value.shape)}"
    value = value.detach().cpu()
    if value.is_floating_point():
        value = value.double().round(decimals=digits) + 0.0
    return str(value.tolist())


def _apart(a: Any, b: Any) -> tuple[str, str]:
    """Two values with as many digits as it takes to tell them apart."""
    for digits in (4, 6, 8, 12):
        pair = brief(a, digits), brief(b, digits)
        if pair[0] != pair[1]:
            return pair
    return brief(a), brief(b)
