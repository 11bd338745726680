"""What the check says of somebody's own function: `examine` and `hold`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.finding import Kind
from attnbook.teach.check.judge import Verdict, judge
from attnbook.teach.check.own.bounds import castable
from attnbook.teach.check.own.form import Form
from attnbook.teach.check.own.prepare import Prepared, prepared
from attnbook.teach.check.own.ways import Ways, WrongUse, ways_of
from attnbook.teach.check.proof import Disagreement
from attnbook.teach.check.registry import the_book
from attnbook.teach.check.running import outcome_of
from attnbook.teach.check.task import Task
from attnbook.teach.check.trial import makes_float32
from attnbook.teach.check.words import fill, in_cases, listed


@dataclass(frozen=True)
class Report:
    """What was found out about somebody's own function.

    Attributes:
        right: whether it is right on all cases that were tried.
        verdict: what the judge says of it.
        message: what a person is told, on several lines.
        labels: the cases that were tried.
        left_out: the cases that were not, and why.
        free: the cases that do not decide on which it does something else
            than the task's reference, and what.
    """

    right: bool
    verdict: Verdict
    message: str
    labels: list[str] = field(default_factory=list)
    left_out: Mapping[str, str] = field(default_factory=dict)
    free: Mapping[str, str] = field(default_factory=dict)


def hold(target: Any, name: str, **ways: Any) -> str:
    """Hold a function against a task: one sentence if it is right.

    Args:
        target: the function, or a module or a class of modules.
        name: the task.
        ways: how it is called and compared, see `Ways`.

    Raises:
        Disagreement: if it is wrong, with the case and what is wrong there.
        WrongUse: if there is no such task, or the function cannot be called
            as the task would have it.
    """
    found = examine(target, name, **ways)
    if not found.right:
        raise Disagreement(found.message) from found.verdict.error
    return found.message


def examine(target: Any, name: str, **options: Any) -> Report:
    """Find out whether a function does a task, and say so (see `hold`).

    Raises:
        WrongUse: see `hold`.
    """
    return examined(target, task_of(name), form_of(name), ways_of(options))


def examined(target: Any, task: Task, form: Form, ways: Ways) -> Report:
    """The same of a task, a form of it and ways that are at hand."""
    found = _in_types(target, task, form, ways)
    if found.right or found.verdict.kind != "wrong":
        return found
    for words, right in form.also.items():
        # A mistake that is known by the task's own reference is none here.
        by = wraps(task.right)(partial(right))
        other = replace(task, right=by, known={}, slips={})
        by_other = _in_types(target, other, form, ways)
        if by_other.right:
            message = f"{by_other.message}\n{fill(words, '  ')}"
            return replace(by_other, message=message)
    return found


def _in_types(target: Any, task: Task, form: Form, ways: Ways) -> Report:
    """The same by the task's own reference alone."""
    if ways.dtype != "auto":
        return _in_one(target, task, form, ways)
    precise = replace(ways, dtype="float64")
    exact = _in_one(target, task, form, precise)
    if exact.right or form.exact or not castable(task):
        return exact
    if not _stopped_by_types(exact):
        trial = prepared(target, task, form, precise)
        if not makes_float32(trial.own, trial.task.cases()):
            return exact
    found = _in_one(target, task, form, replace(ways, dtype="float32"))
    if not found.right:
        return found if _is_of_type(exact) else exact
    note = "In float64 it computes in float32 on the way, so it was tried so."
    return replace(found, message=f"{found.message}\n{fill(note, '  ')}")


def _stopped_by_types(found: Report) -> bool:
    """Whether a function stopped where two types of numbers met."""
    finding = found.verdict.finding
    return finding is not None and finding.advice == "formats"


def _is_of_type(found: Report) -> bool:
    """Whether a function failed because of a type of numbers alone.

    It stopped where two types met, or is right to the digits of a float32.
    Then what it does in float32 says more.
    """
    finding = found.verdict.finding
    if finding is None:
        return False
    near = finding.kind == Kind.NEARLY and abs(finding.gap) < 1e-5
    return _stopped_by_types(found) or near


def task_of(name: str) -> Task:
    """The task of a name.

    Raises:
        WrongUse: if there is none.
    """
    tasks = the_book().tasks
    if name not in tasks:
        near = difflib.get_close_matches(name, tasks)
        package = the_book().package
        guess = f"; `python -m {package} check --list` lists all"
        if near:
            guess = f"; did you mean {listed(near)}?"
        raise WrongUse(f"there is no task called {name!r}{guess}")
    return tasks[name]


def form_of(name: str) -> Form:
    """The forms that a task may have; none of its own if nothing is said."""
    return the_book().forms.get(name, Form(""))


def _in_one(target: Any, task: Task, form: Form, ways: Ways) -> Report:
    """Try a function in one type of numbers, and report what was found.

    Raises:
        WrongUse: the task's cases cannot be had in that type.
    """
    if ways.dtype != "float64" and (form.exact or not castable(task)):
        raise WrongUse(
            f"the cases of {task.name} hang on single digits, or have models "
            "in them, so their type of numbers cannot be chosen; expected "
            f"auto or float64; got {ways.dtype}"
        )
    trial = prepared(target, task, form, ways)
    verdict = judge(trial.own, trial.task)
    free = _free(trial)
    labels = [case.label for case in trial.task.cases()]
    right = verdict.kind == "right"
    if right:
        lines = [_agreement(trial, ways, len(labels))]
        lines += _notes(trial, free, ways)
    else:
        lines = [verdict.message]
        lines += _why_it_counts(trial, verdict)
        if ways.said:
            lines.append(fill(f"(yours was called with {ways.said})", "  "))
    return Report(
        right, verdict, "\n".join(lines), labels, trial.left_out, free
    )


def _why_it_counts(trial: Prepared, verdict: Verdict) -> list[str]:
    """What is to be said of a wrong result where right programs differ, or of
    one that comes without the others."""
    finding = verdict.finding
    if finding is None:
        return []
    if finding.case in trial.reasons:
        return [
            fill(
                f"({trial.reasons[finding.case]}; yours does none of this, so "
                f"it counts; --skip leaves a case out)",
                "  ",
            )
        ]
    wanted = outcome_of(trial.task.right, trial.task.cases()[0]).result
    lists = (tuple, list)
    one = finding.kind == Kind.TYPE and trial.own.part is None
    if (
        one
        and isinstance(wanted, lists)
        and not isinstance(finding.answer, lists)
    ):
        return [fill("(--result 0 compares the first result alone)", "  ")]
    return []


def _free(trial: Prepared) -> dict[str, str]:
    """What a function does on the cases that do not decide, and why not."""
    found = {}
    for case in trial.free.cases():
        one = replace(trial.free, given={case.label: case})
        verdict = judge(trial.own, one)
        if verdict.kind != "right":
            said = verdict.short.removeprefix(f"{case.label}: ")
            found[case.label] = f"{trial.reasons[case.label]}; {said}"
    return found


def _agreement(trial: Prepared, ways: Ways, cases: int) -> str:
    """The sentence for a function that is right wherever it was tried."""
    task = trial.task
    too = ", gradients too" if task.gradients else ""
    largest = max((b for b, _ in task.bounds.values()), default=task.within)
    bound = f"to within {largest:.2g}"
    if ways.within is None and task.bounds:
        bound = f"to within {largest:.2g}, which {ways.dtype} explains"
    how = f", in {ways.dtype} {bound}" if _has_floats(task) else ""
    some = ""
    if trial.own.part is not None:
        some = "; of what it returns, one part was compared"
    return fill(
        f"{trial.own.__name__} agrees with {task.against} "
        f"{in_cases(cases)}{too}{how}{some}"
    )


def _has_floats(task: Task) -> bool:
    """Whether a task's results are numbers that may be nearly right."""
    return any(
        isinstance(x, float)
        or (isinstance(x, Tensor) and x.is_floating_point())
        for case in task.cases()
        for x in tree_leaves(outcome_of(task.right, case).result)
    )


def _notes(trial: Prepared, free: Mapping[str, str], ways: Ways) -> list[str]:
    """What else is to be said: what was left out, what does not decide."""
    lines = []
    reasons: dict[str, list[str]] = {}
    for label, why in trial.left_out.items():
        reasons.setdefault(why, []).append(f'"{label}"')
    for why, labels in reasons.items():
        text = f"not tried, because {why}: {listed(labels)}"
        lines.append(fill(text, "  "))
    if trial.coarse:
        labels = [f'"{label}"' for label in trial.coarse]
        text = f"in {ways.dtype} only a large error would be seen on "
        lines.append(fill(text + listed(labels), "  "))
    for label, short in free.items():
        text = f'not counted (--strict counts it): "{label}", because {short}'
        lines.append(fill(text, "  "))
    return lines
