"""Make a task and somebody's function fit each other.

The task gets the cases that decide, with what the function has built in and
with bounds for its type of numbers; the others are kept with the reasons.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from attnbook.teach.check.own.bounds import (
    bounds_of,
    rounded,
    too_large,
    vague,
)
from attnbook.teach.check.own.calling import Own
from attnbook.teach.check.own.form import Form
from attnbook.teach.check.own.layouts import causal
from attnbook.teach.check.own.ways import DTYPES, Ways, WrongUse, drawn
from attnbook.teach.check.running import (
    Case,
    outcome_difference,
    outcome_of,
)
from attnbook.teach.check.task import Mistake, Slip, Task
from attnbook.teach.check.words import listed


@dataclass(frozen=True)
class Prepared:
    """A task and a function that were made to fit each other.

    Attributes:
        task: the task, with the cases that decide.
        own: the function, to be called as the task calls one.
        free: the task with the cases that do not decide.
        reasons: why they do not, by label; and of those cases that decide
            all the same, since the function does what no right program does.
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
    if cases and own.part is None:
        own.part = _part_of(own, task, cases[0])
    if own.part is not None:
        task = _first_part(task)
    reasons = {} if ways.strict else _reasons(cases, form, ways)
    free = [
        case
        for case in cases
        if case.label in reasons and _is_open(own, task, case, ways)
    ]
    deciding = [case for case in cases if case not in free]
    if not deciding:
        open_ = {case.label: reasons[case.label] for case in free}
        raise WrongUse(_nothing_left(task, {**left_out, **open_}))
    task = replace(
        task,
        given={case.label: case for case in deciding},
        bounds=bounds,
        rules=(),
        gradients=task.gradients and ways.gradients,
    )
    others = replace(task, given={case.label: case for case in free})
    coarse = vague(task, deciding, bounds) if ways.within is None else []
    return Prepared(task, own, others, reasons, left_out, coarse)


#: Why causal functions differ where there are more keys than queries.
_WHICH_LAST = (
    "where there are more keys than queries, programs count queries from the "
    "first key or to the last"
)


def _reasons(cases: list[Case], form: Form, ways: Ways) -> dict[str, str]:
    """Why cases do not decide, by label."""
    found = dict(form.free)
    if ways.causal:
        found |= {c.label: _WHICH_LAST for c in cases if _more_keys(c)}
    return found


def _is_open(own: Own, task: Task, case: Case, ways: Ways) -> bool:
    """Whether a case on which right programs differ decides nothing.

    It decides where the function's result is none that right programs give,
    and where it is the reference's: then its gradient has to be so too. If a
    mask hides by the lowest finite number, nothing else than a mean is
    possible for a query without keys, so this is asked of no such function.
    """
    is_among = own.form.among.get(case.label)
    if is_among is None or ways.masks == "lowest":
        return True
    answer = outcome_of(own, case, timed=True)
    right = outcome_of(task.right, case)
    if answer.error:
        return True
    if not outcome_difference(answer, right, within=1e-6, equal_nan=True):
        return False
    return is_among(case, answer.result, right.result)


def _more_keys(case: Case) -> bool:
    """Whether a case of attention has more keys, or fewer, than queries."""
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
        bound.arguments.setdefault("mask", None)
        bound.arguments["mask"] = _causal_too(bound.arguments)
    given = {**bound.arguments}
    for name, parameter in signature.parameters.items():
        if parameter.kind == parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    args = [given.pop(name) for name in [*given][: len(case.args)]]
    return replace(case, args=tuple(args), kwargs=given)


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


def _part_of(own: Own, task: Task, case: Case) -> int | None:
    """Which part of what a function returns can be compared, if not all.

    It is asked once, on the first case. 0 where the task has one result and
    the function several, or where the task has several, of which the first
    may stand alone, and the function returns no others.
    """
    got = outcome_of(own, case).result
    wanted = outcome_of(task.right, case).result
    lists = (tuple, list)
    several = isinstance(got, lists) and len(got) > 0
    if isinstance(wanted, Tensor) and several and isinstance(got[0], Tensor):
        return 0
    if not isinstance(wanted, lists) or not own.form.alone:
        return None
    if not several:
        return 0 if isinstance(got, Tensor) else None
    some = len(got) != len(wanted) or any(part is None for part in got[1:])
    return 0 if some else None


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
