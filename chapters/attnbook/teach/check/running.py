"""Where a function runs on a case: an answer, a reference, a mistake.

Whatever it raises is kept in the `Outcome`, and what it returns is made plain
data there (see `settled`). Nobody else has to guard against an answer.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.difference import (
    Difference,
    Differs,
    difference,
    settled_difference,
)
from attnbook.teach.check.guard import Clock
from attnbook.teach.check.rules import Rule, following
from attnbook.teach.check.settled import LARGEST, settled

#: Kinds of values that need no copy, because nobody can change them.
_ONE_PIECE = frozenset((type(None), bool, int, float, str, bytes))

#: What most objects are made by, when they are copied.
_MAKE_NEW = object().__reduce_ex__(4)[0]

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """One input on which functions are tried.

    Attributes:
        label: what the case is for, as pages and verdicts say it.
        args: the arguments by position.
        kwargs: the arguments by name.
    """

    label: str
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def call(*args: Any, **kwargs: Any) -> Case:
    """The arguments of a case that has keyword arguments.

    In a task's cases a tuple has positional arguments only; where some have
    names, ``call(x, dim=1)`` stands in its place.
    """
    return Case("", args, kwargs)


def as_cases(cases: Mapping[str, Any] | Iterable[Any]) -> list[Case]:
    """Make a list of `Case`s from what a task may write instead.

    That is a mapping from labels to arguments, or a list of them. Arguments
    are a tuple, or a `Case` where some have names (see `call`).
    """
    pairs: Iterable[tuple[str, Any]]
    if isinstance(cases, Mapping):
        pairs = cases.items()
    else:
        pairs = ((getattr(c, "label", ""), c) for c in cases)
    return [
        replace(given, label=label)
        if isinstance(given, Case)
        else Case(label, tuple(given))
        for label, given in pairs
    ]


@dataclass(frozen=True)
class Outcome:
    """What a function did on one case.

    Attributes:
        result: what it returned, as plain data, see `settled`.
        gradients: with respect to each tensor argument; none if the result
            does not depend on any, or if they were not asked for.
        spoilt: the arguments that it changed in place, by where they stand:
            the name, and of a model which part of it: "numbers", "mode",
            "dropout", "hooks", "requires_grad" or "gradients".
        error: what it raised.
        again: how this call differs from one with the same numbers that was
            right: "called again", or "not contiguous in memory"; or nothing.
    """

    result: Any = None
    gradients: tuple[Tensor, ...] = ()
    spoilt: dict[int | str, tuple[str, str]] = field(default_factory=dict)
    error: BaseException | None = None
    again: str = ""

    @property
    def broken_off(self) -> bool:
        """Whether something other than an ordinary `Exception` has ended it.

        Nothing that merely went wrong ends so: it was out of time, was
        interrupted, or wanted to leave Python.
        """
        return not isinstance(self.error, Exception | None)


def outcome_of(
    fn: Callable,
    case: Case,
    *,
    gradients: bool = False,
    rules: Sequence[Rule] = (),
    timed: bool = False,
) -> Outcome:
    """What `fn` does on a copy of the case's arguments.

    Args:
        gradients: run it once more, and take the gradients of Σ result ×
            fixed weights with respect to every floating-point tensor
            argument, whatever mode the caller is in.
        rules: what it has to do without; a broken rule is its error.
        timed: whether taking too long is its error.
    """
    try:
        with torch.inference_mode(False), torch.enable_grad():
            args, kwargs = _fresh(case)
            with following(rules), Clock() if timed else nullcontext():
                result = fn(*args, **kwargs)
            spoilt = _spoilt(fn, case, args, kwargs)
            with Clock() if timed else nullcontext():
                found = _gradients(fn, case) if gradients else ()
            return Outcome(settled(result), found, spoilt)
    except BaseException as error:  # a reader's code may raise anything
        return Outcome(error=error)


def attempt(
    fn: Callable,
    case: Case,
    reference: Outcome,
    *,
    gradients: bool,
    within: float,
    gradients_within: float | None = None,
    equal_nan: bool = False,
    rules: Sequence[Rule] = (),
    timed: bool = False,
) -> tuple[Outcome, Difference | None]:
    """What `fn` does, and where that differs from the reference's outcome.

    `within` is the largest gap that is allowed, `gradients_within` that of
    gradients, if it is another one.

    Gradients are taken only where the result is right: a wrong result may be
    of any size, and its gradient would be larger; and an argument that is
    changed in place torch refuses in words of its own.
    """
    outcome = outcome_of(fn, case, rules=rules, timed=timed)
    so_far = replace(outcome, gradients=reference.gradients)
    bounds: dict[str, Any] = {
        "within": within,
        "gradients_within": gradients_within,
        "equal_nan": equal_nan,
    }
    found = outcome_difference(so_far, reference, **bounds)
    if found or not gradients or outcome.error:
        return outcome, found
    # It may do something else when it is called again, so all is compared.
    outcome = outcome_of(fn, case, gradients=True, rules=rules, timed=timed)
    return outcome, outcome_difference(outcome, reference, **bounds)


def outcome_difference(
    answer: Outcome,
    expected: Outcome,
    *,
    within: float,
    gradients_within: float | None = None,
    equal_nan: bool = False,
) -> Difference | None:
    """The first difference between two outcomes, or None.

    Two errors of one type are no difference. `gradients_within` is the
    largest gap that is allowed between gradients, `within` if not given.
    """
    if answer.error or expected.error:
        if type(answer.error) is type(expected.error):
            return None
        if answer.error:
            return Difference(Differs.ERROR)
        return Difference(Differs.TYPE, answer.result, None)
    found = settled_difference(
        answer.result, expected.result, within=within, equal_nan=equal_nan
    )
    if found:
        return found
    for at in [*answer.spoilt, *expected.spoilt]:
        if at not in expected.spoilt:
            name, part = answer.spoilt[at]
            return Difference(Differs.CHANGED, argument=name, part=part)
        if at not in answer.spoilt:
            name, part = expected.spoilt[at]
            return Difference(Differs.UNCHANGED, argument=name, part=part)
    if gradients_within is None:
        gradients_within = within
    return _gradient_difference(
        answer.gradients, expected.gradients, gradients_within, equal_nan
    )


def _gradient_difference(
    answer: tuple[Tensor, ...],
    expected: tuple[Tensor, ...],
    within: float,
    equal_nan: bool,
) -> Difference | None:
    """The first difference between two functions' gradients, or None.

    A gradient that is missing counts as 0, since nothing depends on that
    argument then.
    """
    if answer is expected:
        return None
    pairs = itertools.zip_longest(answer, expected)
    for n, (a, b) in enumerate(pairs):  # None: a constant, gradient 0
        a = torch.zeros_like(b) if a is None else a
        b = torch.zeros_like(a) if b is None else b
        found = difference(a, b, within=within, equal_nan=equal_nan)
        if found:
            return replace(found, gradient_of=n)
    return None


def _fresh(case: Case) -> tuple[tuple, dict[str, Any]]:
    """A case's arguments copied, so that no call can spoil the next."""
    memo: dict[int, Any] = {}  # what is shared among them stays shared
    args = tuple(_copy(a, memo) for a in case.args)
    return args, {name: _copy(a, memo) for name, a in case.kwargs.items()}


def _copy(x: Any, memo: dict[int, Any]) -> Any:
    """A copy all the way down; what cannot be copied is shared."""
    if type(x) in _ONE_PIECE:
        return x
    if isinstance(x, Tensor):
        return x.detach().clone()
    if id(x) in memo:
        return memo[id(x)]
    new: Any
    if type(x) is dict:
        new = {k: _copy(v, memo) for k, v in x.items()}
    elif type(x) in (list, tuple, set):
        new = type(x)(_copy(part, memo) for part in x)
    else:
        try:
            new = _deep(x, memo)
        except Exception:
            new = x
        if isinstance(x, nn.Module):  # a copy has no gradients
            for a, b in zip(x.parameters(), new.parameters()):
                b.grad = None if a.grad is None else a.grad.clone()
    memo[id(x)] = new
    return new


def _deep(x: Any, memo: dict[int, Any]) -> Any:
    """What `copy.deepcopy` makes of something, and of a model sooner.

    A module has some twenty empty dictionaries, for hooks, and most of the
    time would be spent on them.
    """
    kind: Any = type(x)
    if kind in _ONE_PIECE:
        return x
    if id(x) in memo:
        return memo[id(x)]
    if kind in (dict, OrderedDict):
        memo[id(x)] = new = kind()
        new.update(_parts_copied(x, memo))
        return new
    holds = isinstance(x, (nn.Module, list)) or is_dataclass(kind)
    if not holds or isinstance(x, type) or hasattr(kind, "__deepcopy__"):
        return copy.deepcopy(x, memo)
    match x.__reduce_ex__(4):  # how it is copied by pickle and by `copy`
        case (make, (of,), dict() | None as state, items, None) if (
            make is _MAKE_NEW and of is kind
        ):
            memo[id(x)] = new = kind.__new__(kind)
        case _:
            return copy.deepcopy(x, memo)
    if state:
        put = getattr(new, "__setstate__", vars(new).update)
        put(_parts_copied(state, memo))
    for item in items or ():
        new.append(_deep(item, memo))
    return new


def _parts_copied(x: dict, memo: dict[int, Any]) -> dict:
    """A plain dictionary of copies, by `_deep`, of what is in one."""
    plain = _ONE_PIECE
    return {
        key if type(key) in plain else _deep(key, memo): (
            value if type(value) in plain else _deep(value, memo)
        )
        for key, value in x.items()
    }


def _spoilt(
    fn: Callable, case: Case, args: tuple, kwargs: dict[str, Any]
) -> dict[int | str, tuple[str, str]]:
    """The arguments that a function has changed in place: see `Outcome`."""
    before = [*case.args, *case.kwargs.values()]
    after = [*args, *kwargs.values()]
    at = [*range(len(args)), *kwargs]
    found: dict[int | str, tuple[str, str]] = {}
    for where, a, b in zip(at, before, after, strict=True):
        try:
            changed = _changed(a, b)
        except Exception:  # what stands there now cannot even be compared
            changed = True
        if changed:
            names = _names(fn, len(args))
            name = names[where] if isinstance(where, int) else where
            found[where] = name, _part_changed(a, b)
    return found


def _part_changed(before: Any, after: Any) -> str:
    """Which part of a model was changed, as one of the names of `_inside`.

    It is "" for anything that is no model.
    """
    if not isinstance(before, nn.Module):
        return ""
    a, b = _inside(before), _inside(after)
    return next(part for part in a if _changed(a[part], b[part]))


def _changed(before: Any, after: Any) -> bool:
    """Whether an argument is another after a call than it was before."""
    if type(before) in (int, float, str):  # there may be thousands in a list
        return before != after and before == before
    if isinstance(before, Tensor):
        if _plainly_equal(after, before):
            return False
        return difference(after, before, within=0, equal_nan=True) is not None
    if isinstance(before, nn.Module):
        return _changed(_inside(before), _inside(after))
    if isinstance(before, dict):
        return list(before) != list(after) or any(
            _changed(before[k], after[k]) for k in before
        )
    if isinstance(before, (list, tuple)):
        return len(before) != len(after) or any(map(_changed, before, after))
    if isinstance(before, (set, int, float, str)):
        return before != after and before == before  # NaN is no change
    return False


def _plainly_equal(after: Any, before: Tensor) -> bool:
    """Whether two tensors in memory have the same numbers, without a NaN.

    This is so of nearly all arguments, and is seen at once. Nothing of a
    tensor's own class is asked.
    """
    with torch._C.DisableTorchFunctionSubclass():
        return (
            isinstance(after, Tensor)
            and before.layout == after.layout == torch.strided
            and before.device == after.device == _CPU
            and (before.dtype, before.shape) == (after.dtype, after.shape)
            and not (before.is_nested or after.is_nested)
            and before.numel() <= LARGEST
            and torch.equal(after, before)
        )


def _inside(module: nn.Module) -> dict[str, Any]:
    """The parts of a model that an answer may change, by their names."""
    parts = [*module.modules()]
    return {
        "numbers": dict(module.state_dict()),
        "mode": [part.training for part in parts],
        "dropout": [part.p for part in parts if isinstance(part, nn.Dropout)],
        "hooks": [
            sum(len(v) for k, v in vars(part).items() if k.endswith("_hooks"))
            for part in parts
        ],
        "requires_grad": [p.requires_grad for p in module.parameters()],
        # Whether there is one at all is said beside it: None is no number.
        "gradients": [(p.grad is None, p.grad) for p in module.parameters()],
    }


def _names(fn: Callable, count: int) -> list[str]:
    """The names of a function's first arguments, or their numbers as text."""
    try:
        names = list(inspect.signature(fn).parameters)[:count]
    except (TypeError, ValueError):  # some built-in functions have none
        names = []
    return names + [str(n) for n in range(len(names), count)]


def _gradients(fn: Callable, case: Case) -> tuple[Tensor, ...]:
    """The gradients of Σ result × fixed weights with respect to each
    floating-point tensor among the arguments; none if nothing depends on
    them."""
    args, kwargs = _fresh(case)
    leaves = [
        a.requires_grad_()
        for a in (*args, *kwargs.values())
        if isinstance(a, Tensor) and a.is_floating_point()
    ]
    total = sum(
        (part * _fixed_weights(part)).sum()
        for part in tree_leaves(fn(*args, **kwargs))
        if isinstance(part, Tensor) and part.requires_grad
    )
    if not isinstance(total, Tensor):  # nothing depends on the arguments
        return ()
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return tuple(
        torch.zeros_like(leaf) if g is None else g
        for leaf, g in zip(leaves, found)
    )


def _fixed_weights(part: Tensor) -> Tensor:
    """A weight for each number of a result, by which its sum is taken.

    The gradient of the plain sum would hide errors that cancel; these weights
    are all different, and the same at each call.
    """
    ramp = torch.arange(part.numel(), dtype=torch.float64)
    weights = torch.cos(ramp + 1).reshape(part.shape)
    return weights.to(part.device, part.dtype)
