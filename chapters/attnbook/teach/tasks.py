"""Tasks and known mistakes: what a function shall do, how it goes wrong.

A task is a right answer that is independent of the book's own code, and a
list of awkward inputs, the smallest first. The same task proves the book's
function, checks a reader's, and must catch every known mistake.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import re
import textwrap
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch

from attnbook.teach.proof import (
    Case,
    Outcome,
    as_cases,
    attempt,
    outcome_difference,
    run,
)
from attnbook.teach.words import brief, fill

#: Labels and arguments (a tuple, or `call`), or a function that makes them.
Cases = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


_PARTS = re.compile(r"^(cause|fix|hint): ", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Task:
    """What a function shall do. Calling it gives the right answer.

    Attributes:
        right: the independent reference; its docstring says what is wanted.
        given: the inputs under their labels, the smallest first.
        against: what the reference is, in a few words: "torch.softmax".
        home: the package's own function that does it, as
            ``"module.function"`` inside `attnbook`; empty if there is none.
        within: the largest |Δ| allowed.
        gradients: whether the gradients must be right too.
        layer: how a class does it, where one may: `layer(kind, *arguments)`.
        known: the known mistakes, by name.
    """

    right: Callable
    given: Cases
    against: str
    home: str = ""
    within: float = 1e-9
    gradients: bool = False
    layer: Callable | None = None
    known: dict[str, Mistake] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.right(*args, **kwargs)

    @property
    def name(self) -> str:
        """The function's name, on the page and as ``check.<name>``."""
        return self.right.__name__

    @property
    def chapter(self) -> int:
        """Where it is taught; 0 outside the catalogue."""
        number = re.search(r"\.c(\d+)_", self.right.__module__)
        return int(number[1]) if number else 0

    @cached_property
    def wanted(self) -> str:
        """What it returns, in one sentence."""
        return " ".join((self.right.__doc__ or "").split())

    def cases(self) -> list[Case]:
        """The inputs, the smallest first."""
        with torch.inference_mode(False):
            given = self.given() if callable(self.given) else self.given
            return as_cases(given)

    def ours(self) -> Callable:
        """The package's own function for this task."""
        module, _, function = self.home.rpartition(".")
        return getattr(importlib.import_module(f"attnbook.{module}"), function)

    def mistake(self, seen: str = "") -> Callable[[Callable], Callable]:
        """Register the decorated function as a known mistake.

        Its docstring says what one sees, then ``cause:`` and ``fix:``, and
        where an exercise asks for the task ``hint:``.

        Args:
            seen: public threads, as ``"owner/name #1, owner/name #2"``.
        """

        def register(wrong: Callable) -> Callable:
            if wrong.__name__ in self.known:
                raise ValueError(f"two mistakes are named {wrong.__name__}")
            parts = _PARTS.split(inspect.getdoc(wrong) or "")
            symptom, *rest = (" ".join(part.split()) for part in parts)
            told = dict(zip(rest[::2], rest[1::2], strict=True))
            self.known[wrong.__name__] = Mistake(
                self, wrong, symptom, seen=seen, **told
            )
            return wrong

        return register


@dataclass(frozen=True, eq=False)
class Mistake:
    """One known mistake.

    Attributes:
        task: what it gets wrong.
        wrong: the wrong function.
        symptom: what one sees, in a sentence.
        cause: why it happens.
        fix: what to write instead.
        seen: public threads where it was seen.
        hint: what a reader who made it is told; it does not give the answer.
    """

    task: Task
    wrong: Callable
    symptom: str
    cause: str
    fix: str
    seen: str = ""
    hint: str = ""

    @property
    def name(self) -> str:
        return self.wrong.__name__

    @property
    def chapter(self) -> int:
        return self.task.chapter

    def verdict(self) -> Verdict:
        """What the check of its task says of it, as of a stranger's code."""
        return judge(self.wrong, self.task, known={})

    def source(self) -> str:
        """The wrong function as it would stand in a reader's notebook."""
        source = textwrap.dedent(inspect.getsource(self.wrong))
        source = source[re.search(r"^def ", source, re.M).start() :]
        docstring = re.compile(r'\n *""".*?"""\n+', re.DOTALL)
        source = docstring.sub("\n", source, count=1).rstrip()
        return re.sub(r"  # noqa.*", "", source)


@dataclass(frozen=True)
class Verdict:
    """What `judge` found; `message` is for a person, `short` its core.

    `kind` is "right", "not attempted", "known mistake", "wrong" or "error".
    """

    kind: str
    message: str
    mistake: str = ""
    error: Exception | None = None
    short: str = ""


def task(
    cases: Cases,
    *,
    against: str,
    home: str = "",
    within: float = 1e-9,
    gradients: bool = False,
    layer: Callable | None = None,
) -> Callable[[Callable], Task]:
    """Make the decorated function the right answer of a task (see `Task`)."""
    return lambda right: Task(
        right, cases, against, home, within, gradients, layer
    )


def judge(
    fn: Callable, task: Task, known: Mapping[str, Mistake] | None = None
) -> Verdict:
    """Try a function on every case of a task.

    Args:
        known: the mistakes to recognise; the task's own if not given.

    Raises:
        TypeError: if `fn` cannot be called.
    """
    if not callable(fn):
        raise TypeError(
            f"{task.name} needs a function; expected something to call; "
            f"got {type(fn).__name__}"
        )
    if inspect.isclass(fn) and task.layer:
        fn = partial(task.layer, fn)
    cases = task.cases()
    options = {"within": task.within, "equal_nan": True}
    wanted = [run(task.right, c, gradients=task.gradients) for c in cases]

    def tried(fn: Callable) -> list[Outcome]:
        return [
            attempt(fn, c, w, gradients=task.gradients, **options)
            for c, w in zip(cases, wanted, strict=True)
        ]

    got = tried(fn)
    first = got[0].error
    # With a message it comes from torch, which has no kernel for a type.
    if isinstance(first, NotImplementedError) and not first.args:
        return Verdict("not attempted", f"{task.name}: not attempted yet.")
    pairs = zip(got, wanted, strict=True)
    failing = [n for n, (a, b) in enumerate(pairs) if not _same(a, b, options)]
    if not failing:
        too = ", gradients too" if task.gradients else ""
        return Verdict(
            "right", f"{task.name}: right on all {len(cases)} cases{too}."
        )
    case, mine, right = (each[failing[0]] for each in (cases, got, wanted))
    for name, mistake in (task.known if known is None else known).items():
        theirs = zip(got, tried(mistake.wrong), strict=True)
        if all(_same(a, b, options) for a, b in theirs):
            lines = [
                f"{task.name}: this is a known mistake, {name}.",
                fill(f"what happens: {mistake.symptom}", "  "),
            ]
            if mistake.hint:
                lines.append(fill(f"hint: {mistake.hint}", "  "))
            message = "\n".join(lines)
            return Verdict("known mistake", message, name, mine.error)
    if mine.error:
        where = _where(mine.error, fn)
        message = f"{task.name}: {where}\n{_inputs(case)}"
        short = f"{case.label}: {where.splitlines()[0]}"
        return Verdict("error", message, error=mine.error, short=short)
    expected, received = _apart(right.result, mine.result)
    found = outcome_difference(mine, right, **options)
    forgot = mine.result is None and all(w.result is not None for w in wanted)
    lines = [
        f"{task.name}: not right yet.",
        fill(f"wanted: {task.wanted}", "  "),
        _inputs(case),
        fill(f"expected {expected}", "  "),
        fill(f"got {received}", "  "),
        fill(found.message, "  "),
        *["  was a return forgotten?"] * forgot,
    ]
    both = f"expected {expected}; got {received}"
    short = f"{case.label}: {both if len(both) < 90 else found.message}"
    return Verdict("wrong", "\n".join(lines), short=short)


def _same(a: Outcome, b: Outcome, options: dict[str, Any]) -> bool:
    if a.error or b.error:
        return type(a.error) is type(b.error)
    return not outcome_difference(a, b, **options)


def _where(error: Exception, fn: Callable) -> str:
    """The error, and the line of the reader's own code that led to it."""
    try:
        says = f"{type(error).__name__}: {error}"
    except Exception:  # its own text may raise too
        says = type(error).__name__
    code = getattr(fn, "__code__", None) or getattr(
        type(fn).__call__, "__code__", None
    )
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if code and frame.filename == code.co_filename:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            says += f"\n  in line {frame.lineno}: {line}"
            break
    return f"your code raised {says}"


def _inputs(case: Case) -> str:
    named = [brief(a) for a in case.args]
    named += [f"{name}={brief(a)}" for name, a in case.kwargs.items()]
    called = fill(f"called with {', '.join(named)}", "  ")
    return f"  the case: {case.label}\n{called}"


def _apart(a: Any, b: Any) -> tuple[str, str]:
    """Two values with as many digits as it takes to tell them apart."""
    for digits in (4, 6, 8, 12):
        pair = brief(a, digits), brief(b, digits)
        if pair[0] != pair[1]:
            return pair
    return brief(a), brief(b)
