"""Checks by value: two results, or two functions on the same cases.

`agrees` prints one sentence that is the same on every machine, and raises
`Disagreement` with the worst place when the two differ. On a page it is
`check.equal`; `run` and `outcome_difference` serve the judge of `tasks`.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.guard import Clock
from attnbook.teach.check.rules import Rule, following
from attnbook.teach.check.words import (
    in_cases,
    is_numbers,
    plain_repr,
    say,
    sizes,
)


class Disagreement(AssertionError):
    """Two things that should be equal are not; the message says where."""


@dataclass(frozen=True)
class Difference:
    """How two results differ: the `kind`, and a `message` for a person."""

    kind: str  # "type", "shape", "nan" or "value"
    message: str
    parts: tuple = ()  # ours and the reference's, where they first differ
    place: str = ""  # which part of the whole these are
    worst: tuple[int, ...] = ()  # where in it they differ most


@dataclass(frozen=True)
class Case:
    """One input to try: what it is for, and the arguments."""

    label: str
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def call(*args: Any, **kwargs: Any) -> Case:
    """The arguments of a case that has keyword arguments."""
    return Case("", args, kwargs)


def as_cases(cases: Mapping[str, Any] | Iterable[Any]) -> list[Case]:
    """Cases from labels and arguments, or from `Case`s and arguments."""
    pairs = cases.items() if isinstance(cases, Mapping) else None
    if pairs is None:
        pairs = ((getattr(c, "label", ""), c) for c in cases)
    return [
        replace(given, label=label)
        if isinstance(given, Case)
        else Case(label, tuple(given))
        for label, given in pairs
    ]


@dataclass(frozen=True)
class Outcome:
    """What a function did on one case."""

    result: Any = None
    gradients: tuple[Tensor, ...] = ()  # none if it is constant
    # The arguments that it changed in place: where they stand → their names.
    spoilt: dict[int | str, str] = field(default_factory=dict)
    error: BaseException | None = None

    @property
    def broken_off(self) -> bool:
        """Whether it ended as nothing ends that has merely gone wrong."""
        return not isinstance(self.error, Exception | None)


def difference(
    ours: Any, theirs: Any, *, within: float, equal_nan: bool = False
) -> Difference | None:
    """The first difference between two results, or None.

    Tensors, arrays and numbers are compared in float64, place by place:
    |ours − theirs| ≤ `within`, equal shapes, no broadcasting. Booleans and
    integers must be equal. Tuples, lists and dictionaries are walked. A NaN
    differs from everything, from another NaN too unless `equal_nan`. What
    cannot be compared (a sparse tensor, a tensor without numbers) differs.
    """
    try:
        return _difference(ours, theirs, within, equal_nan)
    except Exception:  # ours may be anything
        return _type_difference(ours, theirs)


def _difference(ours, theirs, within, equal_nan):
    if isinstance(theirs, Mapping):
        if not isinstance(ours, Mapping) or set(ours) != set(theirs):
            return _type_difference(ours, theirs)
        parts = {f"entry {k!r}": (ours[k], theirs[k]) for k in theirs}
        return _part_difference(parts, within, equal_nan)
    if isinstance(theirs, (tuple, list)) and not is_numbers(theirs):
        if not isinstance(ours, (tuple, list)) or len(ours) != len(theirs):
            return _type_difference(ours, theirs)
        pairs = enumerate(zip(ours, theirs))
        parts = {f"part {n}": pair for n, pair in pairs}
        return _part_difference(parts, within, equal_nan)
    try:
        a, b = _as_tensor(ours), _as_tensor(theirs)
    except (TypeError, ValueError, RuntimeError):
        same = type(ours) is type(theirs) and ours == theirs
        return None if same else _type_difference(ours, theirs)
    whole = isinstance(ours, numbers.Integral) and not isinstance(ours, bool)
    if whole and b.is_floating_point():
        a = a.double()  # 1 for 1.0 is right
    return _tensor_difference(a, b, within, equal_nan)


def _part_difference(parts, within, equal_nan):
    """The first difference among named pairs."""
    for name, (a, b) in parts.items():
        found = _difference(a, b, within, equal_nan)
        if found:
            place = f"{name}, {found.place}" if found.place else name
            message = f"{name}: {found.message}"
            return replace(found, message=message, place=place)
    return None


def _tensor_difference(ours, theirs, within, equal_nan):
    if ours.is_complex() and theirs.is_complex():
        ours, theirs = torch.view_as_real(ours), torch.view_as_real(theirs)
    numbers_tell = ours.numel() or ours.shape == theirs.shape
    if _kind(ours) != _kind(theirs) and numbers_tell:
        return Difference(
            "type",
            f"ours holds {_kind(ours)}s, the reference {_kind(theirs)}s",
            (ours, theirs),
        )
    if ours.shape != theirs.shape:
        return Difference(
            "shape",
            f"ours has shape {tuple(ours.shape)}, "
            f"the reference {tuple(theirs.shape)}",
            (ours, theirs),
        )
    if ours.numel() == 0:
        return None
    exact = _kind(ours) != "float"
    same = ours == theirs  # equal infinities too
    a, b = ours.to(torch.float64), theirs.to(torch.float64)
    nan = a.isnan() | b.isnan()
    if equal_nan:
        same |= a.isnan() & b.isnan()
    gap = (a - b).abs().masked_fill(nan, torch.inf).masked_fill(same, 0)
    if same.all() or not exact and gap.max() <= within:
        return None
    worst = (~same).double().argmax() if exact else gap.argmax()
    # NumPy's: the one of torch imports the whole of sympy.
    place = tuple(int(i) for i in np.unravel_index(int(worst), a.shape))
    x, y = a.flatten()[worst].item(), b.flatten()[worst].item()
    if _kind(ours) == "boolean":
        return Difference(
            "value",
            f"first at {list(place)}: ours {bool(x)}, the reference {bool(y)}",
            (ours, theirs),
            worst=place,
        )
    kind = "nan" if x != x or y != y else "value"
    coarse = ours.dtype == torch.float32 != theirs.dtype and gap.max() < 1e-5
    why = "; ours is float32" if coarse else ""
    return Difference(
        kind,
        f"worst at {list(place)}: ours {x:.6g}, the reference {y:.6g}, "
        f"|Δ| {gap.flatten()[worst].item():.2g} > {within:g}{why}",
        (ours, theirs),
        worst=place,
    )


def agrees(
    ours: Any,
    theirs: Any,
    *,
    name: str = "",
    cases: Mapping[str, Any] | Iterable[Any] | None = None,
    within: float = 1e-12,
    gradients: bool = False,
    equal_nan: bool = False,
) -> None:
    """Print one sentence if two things are equal, else raise `Disagreement`.

    Args:
        ours: a result, or with `cases` a function.
        theirs: the independent reference: a result, or a function that
            takes the same arguments.
        name: what the reference is, e.g. ``"torch.softmax"``.
        cases: the inputs to try: a dictionary of labels and arguments (a
            tuple, or `call`), or a list of arguments.
        within: the largest |ours − theirs| allowed in any place.
        gradients: also compare the gradients of Σ result × fixed weights
            with respect to every floating-point tensor argument.
        equal_nan: let a NaN equal a NaN.

    Raises:
        Disagreement: naming the case, the place and both values.
        ValueError: if there is nothing to compare, or no gradient, or if
            the bound is not finite.
    """
    if not math.isfinite(within):
        raise ValueError(f"this is no bound; expected a number; got {within}")
    options = {"within": within, "equal_nan": equal_nan}
    equal = f"equal to {name}" if name else "equal"
    differs = f"differs from {name}" if name else "the two differ"
    if cases is None:
        _require_numbers(theirs)
        found = difference(ours, theirs, **options)
        if found:
            raise Disagreement(f"{differs}: {found.message}")
        say(f"{equal}: {_what(theirs, within)}")
        return
    cases = as_cases(cases)
    if not cases:
        raise ValueError("nothing to compare; expected at least one case")
    moved = False
    for n, case in enumerate(cases):
        reference = run(theirs, case, gradients=gradients)
        mine = attempt(ours, case, reference, gradients=gradients, **options)
        for side in (mine, reference):
            if side.error:
                raise side.error
        _require_numbers(reference.result)
        moved |= len(reference.gradients) > 0
        found = outcome_difference(mine, reference, **options)
        if found:
            label = f" ({case.label})" if case.label else ""
            raise Disagreement(
                f"{differs} on case {n}{label}, "
                f"sizes {_sizes_of(case)}: {found.message}"
            )
    if gradients and not moved:
        raise ValueError(
            "no gradient to compare; expected a reference that depends on "
            "its arguments; got constants"
        )
    too = ", gradients too" if gradients else ""
    say(f"{equal} {in_cases(len(cases))}, to within {within:g}{too}")


def run(
    fn: Callable,
    case: Case,
    *,
    gradients: bool = False,
    rules: Sequence[Rule] = (),
    timed: bool = False,
) -> Outcome:
    """What `fn` does on a copy of the case's arguments.

    With `gradients`, it runs once more, and the gradients of Σ result × fixed
    weights are taken with respect to every floating-point tensor argument,
    whatever mode the caller is in. Where it breaks one of the `rules`, or
    with `timed` takes too long, that is its error. Whatever it raises is kept
    in the outcome.
    """
    try:
        with torch.inference_mode(False), torch.enable_grad():
            args, kwargs = _fresh(case)
            with Clock() if timed else nullcontext(), following(rules):
                result = fn(*args, **kwargs)
            spoilt = _spoilt(fn, case, args, kwargs)
            with Clock() if timed else nullcontext():
                found = _gradients(fn, case) if gradients else ()
    except BaseException as error:  # a reader's code may raise anything
        return Outcome(error=error)
    return Outcome(result, found, spoilt)


def attempt(
    fn: Callable,
    case: Case,
    reference: Outcome,
    *,
    gradients: bool,
    within: float,
    equal_nan: bool = False,
    rules: Sequence[Rule] = (),
    timed: bool = False,
) -> Outcome:
    """What `fn` does, its gradients only where its result is right.

    A wrong result may be of any size, and its gradient would be larger; and
    an argument that it changes in place torch refuses in words of its own.
    """
    mine = run(fn, case, rules=rules, timed=timed)
    options = {"within": within, "equal_nan": equal_nan}
    if not gradients or mine.error or reference.error:
        return mine
    if mine.spoilt.keys() != reference.spoilt.keys():
        return mine
    if difference(mine.result, reference.result, **options):
        return mine
    return run(fn, case, gradients=True, rules=rules, timed=timed)


def outcome_difference(
    ours: Outcome, theirs: Outcome, *, within: float, equal_nan: bool = False
) -> Difference | None:
    """The first difference between two outcomes, errors aside, or None."""
    options = {"within": within, "equal_nan": equal_nan}
    found = difference(ours.result, theirs.result, **options)
    if found:
        return found
    for at in [*ours.spoilt, *theirs.spoilt]:
        if at not in theirs.spoilt:
            told = f"the argument {ours.spoilt[at]} was changed in place"
            return Difference("in place", told)
        if at not in ours.spoilt:
            told = f"the {theirs.spoilt[at]} that was given has not changed"
            return Difference("in place", told)
    pairs = itertools.zip_longest(ours.gradients, theirs.gradients)
    for n, (a, b) in enumerate(pairs):  # None: a constant, gradient 0
        a = torch.zeros_like(b) if a is None else a
        b = torch.zeros_like(a) if b is None else b
        found = difference(a, b, **options)
        if found:
            which = f"the gradient of tensor argument {n}"
            message = f"{which}: {found.message}"
            kind = f"gradient {found.kind}"
            return replace(found, kind=kind, message=message, place=which)
    return None


def _fresh(case):
    """The arguments copied, so that no function can spoil another's."""
    memo: dict[int, Any] = {}  # what is shared among them stays shared
    args = tuple(_copy(a, memo) for a in case.args)
    return args, {name: _copy(a, memo) for name, a in case.kwargs.items()}


def _copy(x, memo):
    """A copy all the way down; what cannot be copied is shared."""
    if isinstance(x, Tensor):
        return x.detach().clone()
    if id(x) in memo:
        return memo[id(x)]
    if type(x) is dict:
        new = {k: _copy(v, memo) for k, v in x.items()}
    elif type(x) in (list, tuple, set):
        new = type(x)(_copy(part, memo) for part in x)
    else:
        try:
            new = copy.deepcopy(x, memo)
        except Exception:
            new = x
        if isinstance(x, nn.Module):  # whose gradients stay behind
            for a, b in zip(x.parameters(), new.parameters()):
                b.grad = None if a.grad is None else a.grad.clone()
    memo[id(x)] = new
    return new


def _spoilt(fn, case, args, kwargs):
    """The arguments that were changed in place, by where they stand."""
    before = [*case.args, *case.kwargs.values()]
    after = [*args, *kwargs.values()]
    at = [*range(len(args)), *kwargs]
    names = [*_names(fn, len(args)), *kwargs]
    found = {}
    for where, name, a, b in zip(at, names, before, after, strict=True):
        try:
            changed = _changed(a, b)
        except Exception:  # what stands there now cannot even be compared
            changed = True
        if changed:
            found[where] = name + _part_changed(a, b)
    return found


def _part_changed(before, after):
    """Of a model, what of it: " (its hooks)"."""
    if not isinstance(before, nn.Module):
        return ""
    a, b = _inside(before), _inside(after)
    return f" ({next(part for part in a if _changed(a[part], b[part]))})"


def _changed(before, after):
    if isinstance(before, Tensor):
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


def _inside(module):
    parts = [*module.modules()]
    return {
        "its numbers": dict(module.state_dict()),
        "its mode": [part.training for part in parts],
        "its hooks": [
            sum(len(v) for k, v in vars(part).items() if k.endswith("_hooks"))
            for part in parts
        ],
    }


def _names(fn, count):
    try:
        names = list(inspect.signature(fn).parameters)[:count]
    except (TypeError, ValueError):  # some built-in functions have none
        names = []
    return names + [str(n) for n in range(len(names), count)]


def _gradients(fn, case):
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
    """Unequal weights, so that errors in a gradient cannot cancel."""
    ramp = torch.arange(part.numel(), dtype=torch.float64)
    weights = torch.cos(ramp + 1).reshape(part.shape)
    return weights.to(part.device, part.dtype)


def _require_numbers(reference: Any) -> None:
    """Raise if a reference has nothing in it that could be compared."""
    for leaf in tree_leaves(reference):
        if leaf is not None and 0 not in getattr(leaf, "shape", ()):
            return
    raise ValueError(
        "nothing to compare; expected a reference with at least one number; "
        f"got {_describe(reference)}"
    )


def _sizes_of(case: Case) -> str:
    return sizes((*case.args, *case.kwargs.values()))


def _what(reference, within):
    """What was compared, in words: ``6×3 numbers, to within 1e-12``."""
    kinds = set()
    for leaf in tree_leaves(reference):
        try:
            kinds.add(_kind(_as_tensor(leaf)))
        except (TypeError, ValueError, RuntimeError):
            kinds.add("value")
    kind = kinds.pop() if len(kinds) == 1 else "number"
    bound = f", to within {within:g}" if kind in ("float", "number") else ""
    size = sizes((_as_array(reference),)) or "one"
    if isinstance(reference, list) and is_numbers(reference):
        size = f"{len(tree_leaves(reference))}"  # rows need not be as long
    kind = "number" if kind in ("float", "integer") else kind
    if size in ("scalar", "one"):
        return f"one {kind}{bound}"
    return f"{size} {kind}s{bound}"


def _as_tensor(x):
    if isinstance(x, Tensor):
        # A subclass could say of itself that it is equal to everything.
        with torch._C.DisableTorchFunctionSubclass():
            return x.detach().as_subclass(Tensor).cpu()
    # By way of NumPy, for which a float is one of 64 bits.
    return torch.as_tensor(np.asarray(x))


def _as_array(x):
    return torch.as_tensor(x) if isinstance(x, (int, float)) else x


def _kind(x: Tensor) -> str:
    if x.dtype == torch.bool:
        return "boolean"
    if x.is_complex():
        return "complex number"
    return "float" if x.is_floating_point() else "integer"


def _type_difference(ours, theirs) -> Difference:
    return Difference(
        "type",
        f"ours is {_describe(ours)}, the reference {_describe(theirs)}",
        (ours, theirs),
    )


def _describe(x) -> str:
    if x is None:
        return "None"
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}"
    if isinstance(x, Mapping):
        return f"a dictionary with keys {sorted(map(str, x))}"
    if isinstance(x, Tensor):
        return f"a tensor of {x.dtype}, {x.layout}"
    return f"{type(x).__name__} {plain_repr(x)}"[:60]
