"""What the check says of somebody's own function: `examine` and `hold`."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from attnbook.teach.check.finding import Kind
from attnbook.teach.check.judge import Verdict, judge
from attnbook.teach.check.own.bounds import (
    bounds_of,
    castable,
    rounded,
    too_large,
    vague,
)
from attnbook.teach.check.own.calling import Own, causal
from attnbook.teach.check.own.form import Form
from attnbook.teach.check.own.ways import (
    DTYPES,
    Ways,
    WrongUse,
    drawn,
    ways_of,
)
from attnbook.teach.check.proof import Disagreement
from attnbook.teach.check.registry import the_book
from attnbook.teach.check.running import Case, outcome_of
from attnbook.teach.check.task import Mistake, Slip, Task
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
    exact = _in_one(target, task, form, replace(ways, dtype="float64"))
    if exact.right or form.exact or not castable(task):
        return exact
    found = _in_one(target, task, form, replace(ways, dtype="float32"))
    if not found.right:
        return found if _is_of_type(exact) else exact
    note = "In float64 it computes in float32 on the way, so it was tried so."
    return replace(found, message=f"{found.message}\n{fill(note, '  ')}")


def _is_of_type(found: Report) -> bool:
    """Whether a function failed because of a type of numbers alone.

    It stopped where two types met, or is right to the digits of a float32.
    Then what it does in float32 says more.
    """
    finding = found.verdict.finding
    if finding is None:
        return False
    near = finding.kind == Kind.NEARLY and abs(finding.gap) < 1e-5
    return finding.advice == "formats" or near


def task_of(name: str) -> Task:
    """The task of a name.

    Raises:
        WrongUse: if there is none.
    """
    tasks = the_book().tasks
    if name not in tasks:
        near = difflib.get_close_matches(name, tasks, 3, 0.5)
        guess = f"; did you mean {listed(near)}?" if near else ""
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
        if ways.said:
            lines.append(fill(f"(yours was called with {ways.said})", "  "))
    return Report(
        right, verdict, "\n".join(lines), labels, trial.left_out, free
    )


@dataclass(frozen=True)
class Prepared:
    """A task and a function that were made to fit each other.

    Attributes:
        task: the task, with the cases that decide.
        own: the function, to be called as the task calls one.
        free: the task with the cases that do not decide.
        reasons: why they do not, by label.
        left_out: the cases that cannot be tried, and why.
        coarse: the cases that only show what is far off, or NaN.
    """

    task: Task
    own: Own
    free: Task
    reasons: Mapping[str, str]
    left_out: Mapping[str, str]
    coarse: list[str]


def prepared(target: Any, task: Task, form: Form, ways: Ways) -> Prepared:
    """Make a task and a function fit each other.

    Raises:
        WrongUse: if no case is left to be tried.
    """
    own = Own(target, task, form, ways)
    dtype = DTYPES[ways.dtype]
    cases = [_plain(case) for case in task.cases() + drawn(form, ways)]
    cases = [_with_settings(task, case, ways) for case in cases]
    cases = [case for case in cases if _chosen(case, ways)]
    left_out = {
        case.label: f"a number is too large for {ways.dtype}"
        for case in cases
        if too_large(case, dtype)
    }
    cases = [rounded(c, dtype) for c in cases if c.label not in left_out]
    left_out |= {c.label: why for c in cases if (why := own.fits(c))}
    cases = [case for case in cases if case.label not in left_out]
    bounds = _bounds(task, cases, form, ways)
    reasons = {} if ways.strict else dict(form.free)
    if ways.causal and not ways.strict:
        reasons |= {c.label: _WHICH_LAST for c in cases if _more_keys(c)}
    free = [c for c in cases if c.label in reasons]
    deciding = [case for case in cases if case not in free]
    if not deciding:
        raise WrongUse(_nothing_left(task, left_out))
    task = replace(
        task,
        given={case.label: case for case in deciding},
        bounds=bounds,
        rules=(),
        gradients=task.gradients and ways.gradients,
    )
    if own.part is None:
        own.part = _part_of(own, task)
    if own.part is not None:
        task = _first_part(task)
    others = replace(task, given={case.label: case for case in free})
    coarse = vague(task, deciding, bounds) if ways.within is None else []
    return Prepared(task, own, others, reasons, left_out, coarse)


#: Why causal functions differ where there are more keys than queries.
_WHICH_LAST = (
    "where there are more keys than queries, programs count queries from the "
    "first key or to the last"
)


def _more_keys(case: Case) -> bool:
    """Whether a case of attention has as many keys as queries."""
    floats = [
        x
        for x in case.args
        if isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1
    ]
    keys = floats[1] if len(floats) == 3 else floats[0]
    return keys.shape[-2] != floats[0].shape[-2]


def _bounds(
    task: Task, cases: list[Case], form: Form, ways: Ways
) -> dict[str, tuple[float, float]]:
    """How far results and gradients may be off, by the label of each case.

    It is empty in float64, where the task's own bounds hold.
    """
    if ways.within is not None:
        return {case.label: (ways.within, ways.within) for case in cases}
    dtype = DTYPES[ways.dtype]
    if dtype == torch.float64:
        return {}
    return {
        case.label: bounds_of(task, case, dtype, form.in_float32)
        for case in cases
    }


def _nothing_left(task: Task, left_out: Mapping[str, str]) -> str:
    """The message that no case of a task can be tried, and the reasons."""
    reasons = list(dict.fromkeys(left_out.values()))
    why = f": {listed(reasons)}" if reasons else ""
    return f"no case of {task.name} is left to be tried{why}"


def _plain(case: Case) -> Case:
    """A case whose tensors are plain ones, that watch over nothing."""

    def one(x: Any) -> Any:
        if isinstance(x, Tensor) and type(x) is not Tensor:
            return x.as_subclass(Tensor)
        return x

    args, kwargs = tree_map(one, (case.args, case.kwargs))
    return replace(case, args=tuple(args), kwargs=kwargs)


def _chosen(case: Case, ways: Ways) -> bool:
    """Whether a case is to be tried, as `ways.only` and `ways.skip` say."""
    skipped = any(word in case.label for word in ways.skip)
    wanted = any(word in case.label for word in ways.only)
    return not skipped and (wanted or not ways.only)


def _with_settings(task: Task, case: Case, ways: Ways) -> Case:
    """A case with what a function has built in: values, and causality."""
    signature = inspect.signature(task.right)
    bound = signature.bind(*case.args, **case.kwargs)
    for name, value in ways.fixed.items():
        if name not in signature.parameters:
            raise WrongUse(
                f"{task.name} has no argument called {name!r}; expected one "
                f"of {listed(signature.parameters, 12)}"
            )
        bound.arguments[name] = value
    if ways.causal:
        if "mask" not in signature.parameters:
            raise WrongUse(f"{task.name} takes no mask, so it is not causal")
        bound.apply_defaults()
        bound.arguments["mask"] = _causal_too(bound.arguments)
    return replace(case, args=bound.args, kwargs=bound.kwargs)


def _causal_too(named: Mapping[str, Any]) -> Tensor:
    """The mask of a case that hides later keys as well."""
    tensors = [
        x
        for x in named.values()
        if isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1
    ]
    keys = named.get("k", tensors[0])
    hidden = ~causal(tensors[0].shape[-2], keys.shape[-2])
    mask = named["mask"]
    if mask is None:
        return ~hidden
    if mask.dtype == torch.bool:
        return mask & ~hidden
    return mask.masked_fill(hidden, -torch.inf)


def _part_of(own: Own, task: Task) -> int | None:
    """Which part of what a function returns can be compared, if not all.

    It is asked once, on the first case. 0 where the task has several results
    and the function gives one tensor, or the other way round.
    """
    case = task.cases()[0]
    got = outcome_of(own, case).result
    wanted = outcome_of(task.right, case).result
    lists = (tuple, list)
    if isinstance(wanted, lists) and isinstance(got, Tensor):
        return 0
    several = isinstance(got, lists) and len(got) > 0
    if isinstance(wanted, Tensor) and several and isinstance(got[0], Tensor):
        return 0
    if isinstance(wanted, lists) and several and len(got) != len(wanted):
        return 0
    none = several and any(part is None for part in got[1:])
    return 0 if none else None


def _first_part(task: Task) -> Task:
    """A task of which the first part of the result is wanted alone."""

    def first(fn: Callable) -> Callable:
        @wraps(fn)
        def alone(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            several = isinstance(result, (tuple, list)) and len(result) > 0
            return result[0] if several else result

        return alone

    known: dict[str, Mistake] = {}
    for name, mistake in task.known.items():
        known[name] = replace(mistake, wrong=first(mistake.wrong))
    slips = {
        words: Slip(first(slip.wrong), slip.hint)
        for words, slip in task.slips.items()
    }
    right = first(task.right)
    return replace(task, right=right, known=known, slips=slips)


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
        text = f'not counted: "{label}", because {short}'
        lines.append(fill(text, "  "))
    return lines
