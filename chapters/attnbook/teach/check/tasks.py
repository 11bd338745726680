"""Tasks and known mistakes: what a function shall do, how it goes wrong.

A task is a right answer that is independent of the book's own code, and a
list of awkward inputs, the smallest first. The same task proves the book's
function, checks a reader's, and must catch every known mistake.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch

from attnbook.teach.check.guard import Guard, OutOfTime
from attnbook.teach.check.hints import hints
from attnbook.teach.check.proof import (
    Case,
    Outcome,
    as_cases,
    attempt,
    outcome_difference,
    run,
)
from attnbook.teach.check.rules import Rule, RuleBroken
from attnbook.teach.check.telling import (
    apart,
    error_text,
    headline,
    inputs,
    line_of,
    numbers,
    side_effects,
)
from attnbook.teach.check.words import fill

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
        rules: what an answer does without, see `rules`.
        known: the known mistakes, by name.
        slips: smaller ones, recognised and answered with a hint only, by
            what is wrong, in words.
        questions: for an answer that nothing recognises, by the first case
            that it fails, or by what the check says of it there, after a "…";
            each fits whatever goes wrong there.
    """

    right: Callable
    given: Cases
    against: str
    home: str = ""
    within: float = 1e-9
    gradients: bool = False
    layer: Callable | None = None
    rules: Sequence[Rule] = ()
    known: dict[str, Mistake] = field(default_factory=dict)
    slips: dict[str, Slip] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)

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

    def slip(self, words: str, hint: str, wrong: Callable) -> None:
        """Register a slip that the exercise recognises."""
        if words in self.slips:
            raise ValueError(f"two slips are called {words!r}")
        self.slips[words] = Slip(wrong, hint)


class Slip(NamedTuple):
    """A wrong function that has no page of its own, and a question."""

    wrong: Callable
    hint: str


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
    error: BaseException | None = None
    short: str = ""


def task(
    cases: Cases,
    *,
    against: str,
    home: str = "",
    within: float = 1e-9,
    gradients: bool = False,
    layer: Callable | None = None,
    rules: Sequence[Rule] = (),
) -> Callable[[Callable], Task]:
    """Make the decorated function the right answer of a task (see `Task`)."""
    return lambda right: Task(
        right, cases, against, home, within, gradients, layer, rules
    )


def judge(
    fn: Callable, task: Task, known: Mapping[str, Mistake] | None = None
) -> Verdict:
    """Try a function on every case of a task.

    Args:
        known: the mistakes to recognise; the task's own if not given, and
            then other help for the reader too.

    Raises:
        TypeError: if `fn` cannot be called.
    """
    if not callable(fn):
        raise TypeError(
            f"{task.name} needs a function; expected something to call; "
            f"got {type(fn).__name__}"
        )
    cases = task.cases()
    wanted = [run(task.right, c, gradients=task.gradients) for c in cases]
    # The reference may do what an exercise does without.
    rules = () if fn in (task, task.right) else task.rules
    with Guard(fn) as guard:
        if inspect.isclass(fn) and task.layer:
            fn = partial(task.layer, fn)
        trial = _Trial(task, cases, wanted)
        got = list(trial.of(fn, rules, timed=True))
    verdict = _verdict(fn, trial, got, known)
    if guard.left:
        lines = [verdict.message, *side_effects(guard.left)]
        verdict = replace(verdict, message="\n".join(lines))
    return verdict


@dataclass(frozen=True)
class _Trial:
    """The cases of a task, and what its reference makes of them."""

    task: Task
    cases: list[Case]
    wanted: list[Outcome]

    @property
    def options(self) -> dict[str, Any]:
        return {"within": self.task.within, "equal_nan": True}

    def of(
        self, fn: Callable, rules: Sequence[Rule] = (), timed: bool = False
    ) -> Iterator[Outcome]:
        """What a function does on each case, until it is broken off."""
        for case, wanted in zip(self.cases, self.wanted, strict=True):
            yield (
                mine := attempt(
                    fn,
                    case,
                    wanted,
                    gradients=self.task.gradients,
                    rules=rules,
                    timed=timed,
                    **self.options,
                )
            )
            if mine.broken_off:
                return

    def same(self, a: Outcome, b: Outcome) -> bool:
        if a.error or b.error:
            return type(a.error) is type(b.error)
        return not outcome_difference(a, b, **self.options)

    def alike(self, got: Iterable[Outcome], wrong: Callable) -> bool:
        """Whether two functions do the same on every case."""
        return all(self.same(a, b) for a, b in zip(got, self.of(wrong)))

    def failing(self, got: Iterable[Outcome]) -> list[int]:
        pairs = enumerate(zip(got, self.wanted))
        return [n for n, (a, b) in pairs if not self.same(a, b)]


def _verdict(
    fn: Callable,
    trial: _Trial,
    got: list[Outcome],
    known: Mapping[str, Mistake] | None,
) -> Verdict:
    task, first = trial.task, got[0].error
    # With a message it comes from torch, which has no kernel for a type.
    if isinstance(first, NotImplementedError) and not first.args:
        return Verdict("not attempted", f"{task.name}: not attempted yet.")
    failing = trial.failing(got)
    if not failing:
        too = ", gradients too" if task.gradients else ""
        return Verdict(
            "right", f"{task.name}: right on all {len(got)} cases{too}."
        )
    case, mine = trial.cases[failing[0]], got[failing[0]]
    if got[-1].broken_off:
        return _broken_off(fn, task, trial.cases[len(got) - 1], got[-1])
    if isinstance(mine.error, RuleBroken):  # nothing is alike
        asked = hints(fn, trial, got, failing) if known is None else []
        return _error(fn, task, case, mine, *asked)
    for name, mistake in (task.known if known is None else known).items():
        if trial.alike(got, mistake.wrong):
            lines = [
                f"{task.name}: this is a known mistake, {name}.",
                fill(f"what happens: {mistake.symptom}", "  "),
            ]
            if mistake.hint:
                lines.append(fill(f"hint: {mistake.hint}", "  "))
            message = "\n".join(lines)
            return Verdict("known mistake", message, name, mine.error)
    if known is None:
        for words, slip in task.slips.items():
            if trial.alike(got, slip.wrong):
                head = fill(f"{task.name}: not right yet: {words}.")
                message = f"{head}\n{fill(f'hint: {slip.hint}', '  ')}"
                return Verdict("known mistake", message, words, mine.error)
    help_ = hints(fn, trial, got, failing) if known is None else []
    if mine.error:
        return _error(fn, task, case, mine, *help_)
    return _wrong(trial, failing, mine, help_)


def _error(
    fn: Callable, task: Task, case: Case, mine: Outcome, *help_: str
) -> Verdict:
    told = error_text(mine.error, fn)
    head = f'{task.name}: not right yet on "{case.label}": {told}'
    message = "\n".join([head, inputs(case), *help_])
    # Of a rule the reader has heard enough; there is no line to look at.
    error = None if isinstance(mine.error, RuleBroken) else mine.error
    short = f"{case.label}: {told.splitlines()[0]}"
    return Verdict("error", message, error=error, short=short)


def _wrong(
    trial: _Trial, failing: list[int], mine: Outcome, help_: list[str]
) -> Verdict:
    case, right = (each[failing[0]] for each in (trial.cases, trial.wanted))
    found = outcome_difference(mine, right, **trial.options)
    told = headline(found)
    forgot = mine.result is None and all(
        w.result is not None for w in trial.wanted
    )
    name = trial.task.name
    lines = [
        fill(f'{name}: not right yet on "{case.label}": {told}.'),
        *["  was a return forgotten?"] * forgot,
        *help_,
        fill(f"wanted: {trial.task.wanted}", "  "),
        inputs(case),
        *numbers(found),
        *[fill(found.message, "  ")] * (found.kind.split()[-1] == "value"),
    ]
    expected, received = apart(right.result, mine.result)
    both = f"expected {expected}; got {received}"
    numbers_tell = len(both) < 90 and expected != received
    short = f"{case.label}: {both if numbers_tell else found.message}"
    return Verdict("wrong", "\n".join(lines), short=short)


def _broken_off(
    fn: Callable, task: Task, case: Case, mine: Outcome
) -> Verdict:
    """A case that took too long, or an answer that wanted to end it all."""
    if isinstance(mine.error, OutOfTime):
        line = line_of(mine.error, fn)
        where = f"; stopped {line}" if line else ""
        told = f"{mine.error}{where}\n  Does a loop in it ever end?"
    else:
        told = error_text(mine.error, fn)
    head = f'{task.name}: not right yet on "{case.label}": {told}'
    # An interrupt is the reader's own wish; nothing else ends the page.
    interrupt = isinstance(mine.error, KeyboardInterrupt)
    return Verdict(
        "error",
        f"{head}\n{inputs(case)}",
        error=mine.error if interrupt else None,
        short=f"{case.label}: {told.splitlines()[0]}",
    )
