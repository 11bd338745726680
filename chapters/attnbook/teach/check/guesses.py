"""What a wrong answer may have done, found out by doing the same on purpose.

The reference is run with two arguments exchanged, with one that counts for
nothing, or with one that is a little off. If the answer does just that on
every case, this is what it does. The same is tried with a result whose parts
stand in another order, or that an argument is multiplied by or taken from.
"""

from __future__ import annotations

import inspect
import numbers
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, permutations
from operator import neg
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.teach.check.difference import settled_difference
from attnbook.teach.check.finding import Finding, Kind
from attnbook.teach.check.guard import Clock
from attnbook.teach.check.running import Case, Outcome, outcome_of
from attnbook.teach.check.trial import Attempt, Trial
from attnbook.teach.check.words import is_numbers

#: Changes the arguments of a case; None where that cannot be done.
Changed = Callable[[Case], Case | None]


def guess(tried: Attempt) -> Finding | None:
    """What the answer does instead; None if it does none of these."""
    got = tried.got
    wanted = tried.trial.wanted
    right = tried.trial.task.right
    if all(_same(outcome.result, got[0].result) for outcome in got[1:]):
        return None  # a constant would fit many guesses by chance
    if all(d is None or d.beside_the_result for d in tried.differences):
        return None  # only a gradient is wrong
    first = tried.first
    order = [first, *(n for n in range(len(got)) if n != first)]
    given = [_given(right, tried.trial.cases[n]) for n in order]
    if all(_as_many(wanted[n].result, wanted[first].result) for n in order):
        for found, made in _made_of(wanted[first].result):
            if all(_gives(got[n], made, wanted[n]) for n in order):
                return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference gets odd arguments
        for found, change in _changes(right, given):
            if all(_does(tried, found, change, n) for n in order):
                return found
    return _beside(given, [wanted[n] for n in order], [got[n] for n in order])


def _does(tried: Attempt, found: Finding, change: Changed, n: int) -> bool:
    """Whether an outcome is what the reference makes of the changed case.

    Args:
        found: what is changed. There is one change for each, given the
            first case, which says of what kinds the arguments are.
        change: how it is changed.
        n: the number of the case.
    """
    outcome = tried.got[n]
    key = found, tried.first, n
    if key not in tried.trial.guessed:
        tried.trial.guessed[key] = _changed_outcome(tried.trial, change, n)
    other = tried.trial.guessed[key]
    if other is None:
        return False
    if outcome.error or other.error:
        return bool(outcome.error and other.error)
    return _same(outcome.result, other.result)


def _changed_outcome(trial: Trial, change: Changed, n: int) -> Outcome | None:
    """What the reference makes of case n, changed; None if it cannot be."""
    case = change(trial.cases[n])
    if case is None:
        return None
    with Clock(1.0):  # with odd arguments it may take long
        return outcome_of(trial.task.right, case)


def _same(answer: Any, other: Any) -> bool:
    """Whether two results are equal, up to a gap of 1e-9."""
    found = settled_difference(answer, other, within=1e-9, equal_nan=True)
    return found is None


def _gives(outcome: Outcome, made: Callable, wanted: Outcome) -> bool:
    """Whether an outcome is what `made` makes of the right result."""
    return not outcome.error and _same(outcome.result, made(wanted.result))


def _as_many(result: Any, other: Any) -> bool:
    """Whether two results are both tuples, with the same number of parts."""
    both = isinstance(result, tuple) and isinstance(other, tuple)
    return both and len(result) == len(other)


def _made_of(result: tuple) -> Iterator[tuple[Finding, Callable]]:
    """Yield what an answer may have done with several right results.

    Each is a finding, and a function that does the same to the right result:
    it puts the parts in another order, or gives only one of them. Nothing is
    guessed about one result, or about more than four.
    """
    if not 1 < len(result) < 5:
        return
    for order in permutations(range(len(result))):
        if list(order) != sorted(order):
            yield (
                Finding(Kind.PARTS_REORDERED),
                lambda x, order=order: tuple(x[n] for n in order),
            )
    for n in range(len(result)):
        yield Finding(Kind.PART_ALONE, count=n), lambda x, n=n: x[n]


def _changes(
    right: Callable, rows: list[dict[str, Any]]
) -> Iterator[tuple[Finding, Changed]]:
    """What may have been done to the arguments, and how to do it."""
    names = list(inspect.signature(right).parameters)
    given = rows[0]
    below_0 = {n for row in rows for n, x in row.items() if _below_0(x)}
    tensors = [n for n, value in given.items() if isinstance(value, Tensor)]
    for a, b in combinations(tensors, 2):
        yield (
            Finding(Kind.EXCHANGED, argument=a, other=b),
            _changing(names, _exchanged(a, b)),
        )
    for kind, offers in (
        (Kind.IGNORED, _constants),
        (Kind.INSTEAD, _otherwise),
    ):
        for name, value in given.items():
            for offer, to in offers(value):
                if (
                    to is not neg or name in below_0
                ):  # else it would fit by chance
                    yield (
                        Finding(kind, argument=name, name=offer),
                        _changing(names, _one(name, to)),
                    )


def _below_0(x: Any) -> bool:
    """Whether there is a negative number in an argument."""
    return isinstance(x, (Tensor, float)) and bool(
        (_numbers_or_raise(x) < 0).any()
    )


def _exchanged(a: str, b: str) -> Callable[[dict], dict | None]:
    """Make a change of a case that exchanges two arguments, if it has both."""

    def change(given: dict) -> dict | None:
        both = a in given and b in given
        return {a: given[b], b: given[a]} if both else None

    return change


def _one(name: str, to: Callable) -> Callable[[dict], dict | None]:
    """Make a change of a case that puts `to(value)` for an argument."""

    def change(given: dict) -> dict | None:
        if name not in given:
            return {}
        try:
            return {name: to(given[name])}
        except (
            ArithmeticError,
            AttributeError,
            IndexError,
            RuntimeError,
            TypeError,
        ):
            return None  # in this case it is 0, or of another kind

    return change


def _constants(value: Any) -> Iterator[tuple[str, Callable]]:
    """What an argument may be taken for by one who forgets it."""
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        yield "true", torch.ones_like
    elif isinstance(value, Tensor) and value.is_floating_point():
        yield "zero", torch.zeros_like
        yield "one", torch.ones_like
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        for name, number in (("zero", 0), ("one", 1)):
            if value != number:
                yield name, lambda x, n=number: type(x)(n)


def _otherwise(value: Any) -> Iterator[tuple[str, Callable]]:
    """What an argument may become by a step too many or too few."""
    if isinstance(value, bool):
        yield "not", lambda x: not x
    elif isinstance(value, Tensor) and value.dtype == torch.bool:
        yield "truths exchanged", torch.logical_not
    elif isinstance(value, numbers.Integral):
        yield "one more", lambda x: x + 1
        yield "one less", lambda x: x - 1
    elif isinstance(value, float) and value:
        yield "negative", neg
        yield "reciprocal", lambda x: 1 / x
        yield "square", lambda x: x * x
    elif isinstance(value, (list, str, bytes)):
        yield "without the last", lambda x: x[:-1]
        yield "without the first", lambda x: x[1:]
        if value and isinstance(value[0], list):
            yield "each without its last", _each(slice(-1))
            yield "each without its first", _each(slice(1, None))
    elif isinstance(value, Tensor) and value.is_floating_point():
        yield "negative", neg
        if value.ndim > 1:
            yield "transposed", lambda x: x.mT
        if value.ndim and value.shape[-1] > 1:
            yield "times root", lambda x: x * x.shape[-1] ** 0.5
            yield "divided by root", lambda x: x / x.shape[-1] ** 0.5


def _each(part: slice) -> Callable[[list], list]:
    """Make a function that takes the same part of every list in a list."""
    return lambda x: [inner[part] for inner in x]


def _changing(names: list[str], new: Callable[[dict], dict | None]) -> Changed:
    """A change of a case, from one of its arguments by their names."""

    def change(case: Case) -> Case | None:
        given = {**dict(zip(names, case.args)), **case.kwargs}
        made = new(given)
        if made is None:
            return None
        changed = {**given, **made}
        args = tuple(changed[n] for n in names[: len(case.args)])
        kwargs = {n: changed[n] for n in case.kwargs}
        return replace(case, args=args, kwargs=kwargs)

    return change


def _beside(
    given: list[dict[str, Any]], wanted: list[Outcome], got: list[Outcome]
) -> Finding | None:
    """What an argument does to the result, beside its part in it."""
    answers, rights = _all_numbers(got), _all_numbers(wanted)
    if answers is None or rights is None:
        return None
    if _same(answers[0], rights[0]):  # only a gradient is wrong
        return None
    rows = list(zip(given, answers, rights))
    for found, make in _makings(given[0]):
        if all(_made_so(make, *row) for row in rows):
            return found
    return None


def _made_so(
    make: Callable, arguments: dict[str, Any], answer: Tensor, right: Tensor
) -> bool:
    """Whether an answer is what is made of the arguments and the right one."""
    try:
        made = make(arguments, right)
    except (ArithmeticError, KeyError, RuntimeError, TypeError, ValueError):
        return False  # this case has no such argument, or of another shape
    return _same(answer, made)


#: Makes something of all arguments of a case and of its right result.
Making = Callable[[dict[str, Any], Tensor], Tensor]


def _makings(given: dict[str, Any]) -> Iterator[tuple[Finding, Making]]:
    """Findings, and what is made then of all arguments and the right result.

    An argument that is a number is subtracted from the result or multiplied
    by it; of a list or a tensor it is the length, too.
    """
    for argument, value in given.items():
        if isinstance(value, (list, str, bytes)) or _has_axes(value):
            yield (
                Finding(Kind.SUBTRACTED, argument=argument),
                _minus_the_right(_value_of(argument)),
            )
            name = "length"
            measure = _length_of(argument)
        elif isinstance(value, (int, float)):
            name = ""
            measure = _value_of(argument)
        else:
            continue
        yield (
            Finding(Kind.SUBTRACTED, argument=argument, name=name),
            _minus_the_right(measure),
        )
        for power in (1, -1, 2, -2):
            yield (
                Finding(Kind.TIMES, argument=argument, name=name, ratio=power),
                _times_the_right(measure, power),
            )


def _minus_the_right(measure: Callable[[dict], Any]) -> Making:
    """Make a function that subtracts the right result from a measure."""
    return lambda given, right: _numbers_or_raise(measure(given)) - right


def _times_the_right(measure: Callable[[dict], Any], power: int) -> Making:
    """Make a function that multiplies the right result by a measure.

    With a power of 2 it multiplies by the square; with a negative power it
    divides.
    """

    def times(given: dict[str, Any], right: Tensor) -> Tensor:
        factor = measure(given) ** abs(power)
        return right * factor if power > 0 else right / factor

    return times


def _has_axes(value: Any) -> bool:
    """Whether an argument is a tensor or an array of at least one axis."""
    return isinstance(value, (Tensor, np.ndarray)) and value.ndim > 0


def _length_of(argument: str) -> Callable[[dict], int]:
    """Make a function that measures the length of an argument of a case."""
    return lambda given: len(given[argument])


def _value_of(argument: str) -> Callable[[dict], Any]:
    """Make a function that gives the value of an argument of a case."""
    return lambda given: given[argument]


def _all_numbers(outcomes: list[Outcome]) -> list[Tensor] | None:
    """All results as tensors; None if one of them is no numbers."""
    found = []
    for outcome in outcomes:
        numbers = _numbers(outcome.result)
        if numbers is None:
            return None
        found.append(numbers)
    return found


def _numbers(x: Any) -> Tensor | None:
    """A tensor, number or list of numbers as a tensor in float64; None for
    anything else."""
    plain = isinstance(x, (Tensor, bool, int, float, np.ndarray, np.generic))
    if not plain and not (isinstance(x, (list, tuple)) and is_numbers(x)):
        return None
    try:
        return torch.as_tensor(x, dtype=torch.float64)
    except (TypeError, ValueError):  # rows of several lengths
        return None


def _numbers_or_raise(x: Any) -> Tensor:
    """Numbers as a float64 tensor.

    Raises:
        TypeError, ValueError, RuntimeError: they are no numbers, or rows of
            several lengths.
    """
    return torch.as_tensor(x, dtype=torch.float64)


def _given(right: Callable, case: Case) -> dict[str, Any]:
    """All arguments of a case by their names, as the reference calls them."""
    names = inspect.signature(right).parameters
    return {**dict(zip(names, case.args)), **case.kwargs}
