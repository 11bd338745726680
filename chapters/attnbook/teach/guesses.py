"""What a wrong answer may have done, found out by doing the same on purpose.

The reference is run with two arguments exchanged, or with one that counts for
nothing. If the answer does just that on every case, this is what it does.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from attnbook.teach.proof import Case, Outcome, difference, run

Changed = Callable[[Case], Case]


def guess(
    right: Callable, cases: list[Case], got: list[Outcome], failing: list[int]
) -> str:
    """What the answer does instead, in words; empty if none of these."""
    first = failing[0]
    order = [first, *(n for n in range(len(got)) if n != first)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a reference was not made for
        for words, change in _changes(right, cases[first]):
            if all(_does(right, change(cases[n]), got[n]) for n in order):
                return words
    return ""


def _does(right: Callable, case: Case, mine: Outcome) -> bool:
    theirs = run(right, case)
    if mine.error or theirs.error:
        return bool(mine.error and theirs.error)
    options = {"within": 1e-9, "equal_nan": True}
    return difference(mine.result, theirs.result, **options) is None


def _changes(right: Callable, case: Case) -> Iterator[tuple[str, Changed]]:
    names = list(inspect.signature(right).parameters)
    given = {**dict(zip(names, case.args)), **case.kwargs}
    tensors = [n for n, value in given.items() if isinstance(value, Tensor)]
    for a, b in combinations(tensors, 2):
        words = f"it gives the right result for {a} and {b} exchanged"
        yield words, _changing(names, lambda x, a=a, b=b: {a: x[b], b: x[a]})
    for name, value in given.items():
        if len(given) == 1:
            break  # an answer that takes it for 0 answers all cases alike
        for words, to in _instead(value):
            yield (
                f"it gives the right result for {name} = {words}, whatever "
                f"{name} is",
                _changing(
                    names,
                    lambda x, n=name, to=to: {n: to(x[n])} if n in x else {},
                ),
            )


def _instead(value: Any) -> Iterator[tuple[str, Callable]]:
    """What an argument may be taken for by one who forgets it."""
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        yield "True everywhere", torch.ones_like
    elif isinstance(value, Tensor) and value.is_floating_point():
        yield "0", torch.zeros_like
        yield "1", torch.ones_like
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        for number in (0, 1):
            if value != number:
                yield f"{number}", lambda x, n=number: type(x)(n)


def _changing(names: list[str], new: Callable[[dict], dict]) -> Changed:
    def change(case: Case) -> Case:
        given = {**dict(zip(names, case.args)), **case.kwargs}
        changed = {**given, **new(given)}
        args = tuple(changed[n] for n in names[: len(case.args)])
        return replace(
            case, args=args, kwargs={n: changed[n] for n in case.kwargs}
        )

    return change
