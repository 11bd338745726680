"""The judge: tries an answer on a task and says what came of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from attnbook.teach.check.guard import Guard, OutOfTime
from attnbook.teach.check.hints import hints
from attnbook.teach.check.proof import Case, Outcome, outcome_difference
from attnbook.teach.check.rules import RuleBroken
from attnbook.teach.check.task import Mistake, Task
from attnbook.teach.check.telling import (
    apart,
    error_text,
    headline,
    inputs,
    line_of,
    numbers,
    side_effects,
)
from attnbook.teach.check.trial import Attempt, Trial
from attnbook.teach.check.words import fill


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
    tried, left = attempted(fn, task)
    verdict = verdict_on(tried, known)
    if left:
        lines = [verdict.message, *side_effects(left)]
        verdict = replace(verdict, message="\n".join(lines))
    return verdict


def attempted(fn: Callable, task: Task) -> tuple[Attempt, list[str]]:
    """Run a function on every case of a task, and judge nothing yet.

    Returns:
        What it did, and what it had changed elsewhere, in words; that has
        been set back.

    Raises:
        TypeError: if `fn` cannot be called.
    """
    if not callable(fn):
        raise TypeError(
            f"{task.name} needs a function; expected something to call; "
            f"got {type(fn).__name__}"
        )
    trial = Trial.on(task)
    # The reference may do what an exercise does without.
    rules = () if fn in (task, task.right) else task.rules
    with Guard(fn) as guard:
        if inspect.isclass(fn) and task.layer:
            fn = partial(task.layer, fn)
        got = list(trial.of(fn, rules, timed=True))
    return Attempt(fn, trial, got, trial.failing(got)), guard.left


def verdict_on(tried: Attempt, known: Mapping[str, Mistake] | None) -> Verdict:
    """What is to be said of what a function did (see `judge`)."""
    fn, trial, got, failing = tried.fn, tried.trial, tried.got, tried.failing
    task, first = trial.task, got[0].error
    # With a message it comes from torch, which has no kernel for a type.
    if isinstance(first, NotImplementedError) and not first.args:
        return Verdict("not attempted", f"{task.name}: not attempted yet.")
    if not failing:
        too = ", gradients too" if task.gradients else ""
        return Verdict(
            "right", f"{task.name}: right on all {len(got)} cases{too}."
        )
    case, mine = trial.cases[failing[0]], got[failing[0]]
    if got[-1].broken_off:
        return _broken_off(fn, task, trial.cases[len(got) - 1], got[-1])
    if isinstance(mine.error, RuleBroken):  # nothing is alike
        asked = hints(tried) if known is None else []
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
    help_ = hints(tried) if known is None else []
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
    trial: Trial, failing: list[int], mine: Outcome, help_: list[str]
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
