"""The judge: tries an answer on a task and says what came of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from attnbook.teach.check import telling
from attnbook.teach.check.finding import Finding, Help
from attnbook.teach.check.guard import Guard
from attnbook.teach.check.hints import NOTHING, help_for
from attnbook.teach.check.rules import RuleBroken
from attnbook.teach.check.task import Mistake, Task
from attnbook.teach.check.trial import Attempt, Trial


@dataclass(frozen=True)
class Verdict:
    """What the judge found.

    Attributes:
        kind: "right", "not attempted", "known mistake", "wrong" or "error".
        message: what a person is told, on several lines.
        mistake: the name of the known mistake, or the words of the slip.
        error: what the answer raised, if the reader should see it.
        short: the core of the message, on a line.
        finding: what is wrong on the first case that fails, as data; None
            where the answer is right or was not attempted.
        help: what was told besides, as data.
    """

    kind: str
    message: str
    mistake: str = ""
    error: BaseException | None = None
    short: str = ""
    finding: Finding | None = None
    help: Help = NOTHING


def judge(
    fn: Callable, task: Task, known: Mapping[str, Mistake] | None = None
) -> Verdict:
    """Try a function on every case of a task.

    Args:
        fn: the answer.
        task: what it shall do.
        known: the mistakes to recognise; the task's own mistakes and slips
            if not given, and then other help for the reader too.

    Raises:
        TypeError: if `fn` cannot be called.
        ReferenceFailed: if the task's own reference raises an error.
    """
    tried, left = attempted(fn, task)
    verdict = verdict_on(tried, known)
    if left:
        lines = [verdict.message, *telling.side_effects(left)]
        verdict = replace(verdict, message="\n".join(lines))
    return verdict


def attempted(fn: Callable, task: Task) -> tuple[Attempt, list[str]]:
    """Run a function on every case of a task, and judge nothing yet.

    Returns:
        What it did, and what it had changed elsewhere, in words; that has
        been set back.

    Raises:
        TypeError: if `fn` cannot be called.
        ReferenceFailed: if the task's own reference raises an error.
    """
    if not callable(fn):
        raise TypeError(
            f"{task.name} needs a function; expected something to call; "
            f"got {type(fn).__name__}"
        )
    trial = Trial.on(task)
    # The rules of an exercise do not hold for the task's own reference.
    rules = () if fn in (task, task.right) else task.rules
    with Guard(fn) as guard:
        if inspect.isclass(fn) and task.layer:
            fn = partial(task.layer, fn)
        got = trial.outcomes(fn, rules, timed=True)
    return trial.attempt_of(fn, got), guard.left


def verdict_on(
    tried: Attempt, known: Mapping[str, Mistake] | None = None
) -> Verdict:
    """What is to be said of what a function did (see `judge`)."""
    task = tried.trial.task
    error = tried.got[0].error
    # The stub of an exercise raises it without a message. One with a message
    # comes from torch, which has no kernel for some type.
    if isinstance(error, NotImplementedError) and not error.args:
        return Verdict("not attempted", telling.not_attempted(task.name))
    if not tried.failing:
        told = telling.right(task.name, len(tried.got), task.gradients)
        return Verdict("right", told)
    if tried.got[-1].broken_off:
        # It took too long, or wanted to end it all, whatever came before.
        return _stopped(tried, len(tried.got) - 1, NOTHING)
    if tried.got[tried.first].again:
        return _wrong_again(tried)
    if not isinstance(
        tried.error, RuleBroken
    ):  # else no result can be recognised
        if found := _recognised(tried, known):
            return found
    help_ = NOTHING if known is not None else help_for(tried)
    if tried.error:
        return _stopped(tried, tried.first, help_)
    return _wrong(tried, help_)


def _recognised(
    tried: Attempt, known: Mapping[str, Mistake] | None
) -> Verdict | None:
    """The verdict on an answer that does what a known mistake does."""
    task = tried.trial.task
    finding = tried.finding
    error = tried.error
    mistakes = task.known if known is None else known
    for name, mistake in mistakes.items():
        if tried.is_like(mistake.wrong):
            message = telling.known_mistake(
                task.name, name, mistake.symptom, mistake.hint
            )
            return Verdict(
                "known mistake", message, name, error, finding=finding
            )
    for words, slip in task.slips.items() if known is None else ():
        if tried.is_like(slip.wrong):
            message = telling.slip(task.name, words, slip.hint)
            return Verdict(
                "known mistake", message, words, error, finding=finding
            )
    return None


def _stopped(tried: Attempt, n: int, help_: Help) -> Verdict:
    """The verdict on an answer that an error, a rule or the clock has stopped.

    Args:
        tried: the attempt.
        n: the number of the case on which it was stopped.
        help_: what may help.
    """
    case = tried.trial.cases[n]
    finding = tried.finding_of(n)
    message = telling.stopped(
        tried.trial.task.name, finding, case.args, case.kwargs, help_
    )
    return Verdict(
        "error",
        message,
        error=_to_raise(finding),
        short=telling.short_error(finding),
        finding=finding,
        help=help_,
    )


def _wrong_again(tried: Attempt) -> Verdict:
    """The verdict on an answer that is right when it is called first, and not
    when it is called again, or with tensors that are not contiguous."""
    finding = tried.finding
    case = tried.trial.cases[tried.first]
    way = tried.got[tried.first].again
    told = replace(finding, case=f"{case.label}, {way}")
    message = telling.again(
        tried.trial.task.name,
        told,
        tried.difference,
        case.args,
        case.kwargs,
        way,
    )
    if finding.error:
        short = telling.short_error(told)
    else:
        answer = tried.got[tried.first].result
        wanted = tried.trial.wanted[tried.first].result
        short = telling.short(told, tried.difference, answer, wanted)
    kind = "error" if finding.error else "wrong"
    error = _to_raise(finding)
    return Verdict(kind, message, error=error, short=short, finding=finding)


def _to_raise(finding: Finding) -> BaseException | None:
    """The error that a reader should see with its traceback.

    Of a rule the reader has heard enough; there is no line to look at. What
    wanted to end the whole page may not, but for the reader's own interrupt.
    """
    error = finding.error
    if isinstance(error, RuleBroken):
        return None
    shown = isinstance(error, (Exception, KeyboardInterrupt))
    return error if shown else None


def _wrong(tried: Attempt, help_: Help) -> Verdict:
    """The verdict on an answer that gives something else than is right."""
    task = tried.trial.task
    first = tried.first
    finding = tried.finding
    case = tried.trial.cases[first]
    answer = tried.got[first]
    wanted = tried.trial.wanted
    message = telling.wrong(
        task.name,
        task.wanted,
        finding,
        tried.difference,
        case.args,
        case.kwargs,
        help_,
        forgot_return=answer.result is None
        and all(outcome.result is not None for outcome in wanted),
    )
    short = telling.short(
        finding, tried.difference, answer.result, wanted[first].result
    )
    return Verdict("wrong", message, short=short, finding=finding, help=help_)
