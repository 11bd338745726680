"""What a wrong answer may have done, found out by doing the same on purpose.

The reference is run with two arguments exchanged, with one that counts for
nothing, or with one that is a little off. If the answer does just that on
every case, this is what it does. So it is with a result whose parts stand in
another order, or that an argument is multiplied by or taken from.
"""

from __future__ import annotations

import inspect
import numbers
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, permutations
from operator import neg
from typing import Any

import torch
from torch import Tensor

from attnbook.teach.check.guard import Clock
from attnbook.teach.check.proof import Case, Outcome, difference, run

Changed = Callable[[Case], Case]


def guess(
    right: Callable,
    cases: list[Case],
    wanted: list[Outcome],
    got: list[Outcome],
    failing: list[int],
) -> str:
    """What the answer does instead, in words; empty if none of these."""
    if all(_same(mine.result, got[0].result) for mine in got[1:]):
        return ""  # what is always the same fits too much
    if all(_same(a.result, b.result) for a, b in zip(got, wanted)):
        return ""  # only a gradient is wrong
    first = failing[0]
    order = [first, *(n for n in range(len(got)) if n != first)]
    given = [_given(right, cases[n]) for n in order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a reference was not made for
        for words, made in _made_of(wanted[first].result):
            if all(_gives(got[n], made, wanted[n]) for n in order):
                return words
        for words, change in _changes(right, given):
            if all(_does(right, change(cases[n]), got[n]) for n in order):
                return f"it gives the right result for {words}"
        return _beside(given, wanted, got, order)


def _does(right: Callable, case: Case, mine: Outcome) -> bool:
    with Clock(1.0):  # of what a reference was not made for
        theirs = run(right, case)
    if mine.error or theirs.error:
        return bool(mine.error and theirs.error)
    return _same(mine.result, theirs.result)


def _same(mine: Any, theirs: Any) -> bool:
    return difference(mine, theirs, within=1e-9, equal_nan=True) is None


def _gives(mine: Outcome, made: Callable, wanted: Outcome) -> bool:
    return not mine.error and _same(mine.result, made(wanted.result))


def _made_of(result: Any) -> Iterator[tuple[str, Callable]]:
    """What may be made of several results, where they are few."""
    if not isinstance(result, tuple) or not 1 < len(result) < 5:
        return
    for order in permutations(range(len(result))):
        if list(order) != sorted(order):
            words = "the parts of the result are right, in another order"
            yield words, lambda x, order=order: tuple(x[n] for n in order)
    for n in range(len(result)):
        yield f"this is part {n} of the result alone", lambda x, n=n: x[n]


def _changes(right: Callable, rows: list) -> Iterator[tuple[str, Changed]]:
    names, given = list(inspect.signature(right).parameters), rows[0]
    below_0 = {n for row in rows for n, x in row.items() if _below_0(x)}
    tensors = [n for n, value in given.items() if isinstance(value, Tensor)]
    for a, b in combinations(tensors, 2):
        words = f"{a} and {b} exchanged"
        yield words, _changing(names, lambda x, a=a, b=b: {a: x[b], b: x[a]})
    for offers in (_instead, _otherwise):
        for name, value in given.items():
            for words, to in offers(name, value):
                if to is not neg or name in below_0:  # else by chance
                    yield words, _changing(names, _one(name, to))


def _below_0(x: Any) -> bool:
    return isinstance(x, (Tensor, float)) and bool((_numbers(x) < 0).any())


def _one(name: str, to: Callable) -> Callable[[dict], dict]:
    return lambda given: {name: to(given[name])} if name in given else {}


def _instead(name: str, value: Any) -> Iterator[tuple[str, Callable]]:
    """What an argument may be taken for by one who forgets it."""
    for words, to in _constants(value):
        yield f"{name} = {words}, whatever {name} is", to


def _constants(value: Any) -> Iterator[tuple[str, Callable]]:
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        yield "True everywhere", torch.ones_like
    elif isinstance(value, Tensor) and value.is_floating_point():
        yield "0", torch.zeros_like
        yield "1", torch.ones_like
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        for number in (0, 1):
            if value != number:
                yield f"{number}", lambda x, n=number: type(x)(n)


def _otherwise(name: str, value: Any) -> Iterator[tuple[str, Callable]]:
    """What an argument may become by a step too many or too few."""
    if isinstance(value, bool):
        yield f"not {name}", lambda x: not x
    elif isinstance(value, Tensor) and value.dtype == torch.bool:
        yield f"{name} with True and False exchanged", torch.logical_not
    elif isinstance(value, numbers.Integral):
        yield f"{name} + 1", lambda x: x + 1
        yield f"{name} − 1", lambda x: x - 1
    elif isinstance(value, float) and value:
        yield f"−{name}", neg
        yield f"1/{name}", lambda x: 1 / x
        yield f"the square of {name}", lambda x: x * x
    elif isinstance(value, (list, str, bytes)):
        yield f"{name} without the last", lambda x: x[:-1]
        yield f"{name} without the first", lambda x: x[1:]
        if value and isinstance(value[0], list):
            yield f"{name}, each without its last", _each(slice(-1))
            yield f"{name}, each without its first", _each(slice(1, None))
    elif isinstance(value, Tensor) and value.is_floating_point():
        yield f"−{name}", neg
        if value.ndim > 1:
            yield f"{name} transposed", lambda x: x.mT
        if value.ndim and value.shape[-1] > 1:
            d = f"√d, d the last size of {name}"
            yield f"{name} times {d}", lambda x: x * x.shape[-1] ** 0.5
            yield f"{name} divided by {d}", lambda x: x / x.shape[-1] ** 0.5


def _each(part: slice) -> Callable[[list], list]:
    return lambda x: [inner[part] for inner in x]


def _changing(names: list[str], new: Callable[[dict], dict]) -> Changed:
    def change(case: Case) -> Case:
        given = {**dict(zip(names, case.args)), **case.kwargs}
        changed = {**given, **new(given)}
        args = tuple(changed[n] for n in names[: len(case.args)])
        return replace(
            case, args=args, kwargs={n: changed[n] for n in case.kwargs}
        )

    return change


def _beside(
    given: list[dict], wanted: list[Outcome], got: list[Outcome], order: list
) -> str:
    """What an argument does to the result, beside its part in it."""
    rows = []
    for n, arguments in zip(order, given):
        try:
            pair = map(_numbers, (got[n].result, wanted[n].result))
            rows.append((arguments, *pair))
        except Exception:  # these are no numbers
            return ""
    if _same(*rows[0][1:]):  # only a gradient is wrong
        return ""
    for words, make in _makings(rows[0][0]):
        with suppress(Exception):  # an argument of another kind, or shape
            if all(_same(ours, make(x, theirs)) for x, ours, theirs in rows):
                return f"it gives {words}"
    return ""


def _makings(given: dict[str, Any]) -> Iterator[tuple[str, Callable]]:
    """Words, and what is made of all arguments and the right result."""
    for name, value in given.items():
        size, what = lambda x, n=name: x[n], name
        if isinstance(value, (list, str, bytes)) or getattr(value, "ndim", 0):
            yield (
                f"{name} minus the right result",
                lambda x, r, n=name: _numbers(x[n]) - r,
            )
            size, what = lambda x, n=name: len(x[n]), f"the length of {name}"
        elif not isinstance(value, (int, float)):
            continue
        yield f"{what} minus the right result", lambda x, r, s=size: s(x) - r
        for power, factor in ((1, what), (2, f"the square of {what}")):
            yield (
                f"the right result times {factor}",
                lambda x, r, s=size, p=power: r * s(x) ** p,
            )
            yield (
                f"the right result divided by {factor}",
                lambda x, r, s=size, p=power: r / s(x) ** p,
            )


def _numbers(x: Any) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def _given(right: Callable, case: Case) -> dict[str, Any]:
    names = inspect.signature(right).parameters
    return {**dict(zip(names, case.args)), **case.kwargs}
