"""How far a right program may be off in a type of numbers.

A number of a type is off by at most its unit roundoff u, as a part of itself:
2⁻⁵³ in float64, 2⁻²⁴ in float32, 2⁻¹¹ in float16, 2⁻⁸ in bfloat16. A program
rounds what it is given, and each number on the way. How much one such rounding
moves the result differs from case to case, so it is measured: the reference
runs in float64 on arguments that are each moved by u, up or down by lot, and
the root of the mean square of what that does to a number of the result is the
rounding's size there.

Between the arguments of attention and its result a program rounds about eight
times (the products, the scale, the mask, what is taken off before the
exponential, the exponential, the sum, the quotient, the average). Roundings
are independent of each other, so eight of them are √8 ≈ 2.8 times as large as
one. Of a million numbers from a normal distribution the largest is about five
times its standard deviation off. So a right program stays within √8 · 5 ≈ 14
times the measured size. 16 times are allowed, and 2u of the largest number
besides, for the rounding of the result itself, and of gradients where they
are stored.
"""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from attnbook.teach.check.running import Case, Outcome, outcome_of
from attnbook.teach.check.task import Task

#: Times the measured size of one rounding: see above.
ROUNDINGS = 16
#: How often the arguments are moved.
DRAWS = 12

#: A case says nothing where right programs differ by more than this part of
#: the largest number of its result.
MOST = 0.25


def castable(task: Task) -> bool:
    """Whether the cases of a task can be had in another type of numbers.

    Those with models or functions among their arguments cannot.
    """
    return not any(
        callable(x)
        for case in task.cases()
        for x in tree_leaves((case.args, case.kwargs))
    )


def roundoff(dtype: torch.dtype) -> float:
    """The unit roundoff u of a type of numbers: what one rounding may be off.

    It is a part of the number that is rounded, 2⁻²⁴ for float32.
    """
    return torch.finfo(dtype).eps / 2


def rounded(case: Case, dtype: torch.dtype) -> Case:
    """A case whose numbers are numbers of a type, kept in float64."""

    def one(x: Any) -> Any:
        if isinstance(x, Tensor) and x.dtype == torch.float64:
            return x.to(dtype).double()
        return x

    args, kwargs = tree_map(one, (case.args, case.kwargs))
    return replace(case, args=tuple(args), kwargs=kwargs)


def too_large(case: Case, dtype: torch.dtype) -> bool:
    """Whether a finite number of a case becomes infinite in a type."""
    return any(
        bool((x.isfinite() & x.to(dtype).isinf()).any())
        for x in tree_leaves((case.args, case.kwargs))
        if isinstance(x, Tensor) and x.is_floating_point()
    )


def bounds_of(
    task: Task, case: Case, dtype: torch.dtype, counted: tuple[str, ...] = ()
) -> tuple[float, float]:
    """The largest gap of a right result, and of right gradients.

    Args:
        task: the task, which runs in float64.
        case: one of its cases.
        dtype: the type of numbers that a program computes in.
        counted: whole numbers among the arguments, by name, with which it
            computes in float32 or better.
    """
    right = outcome_of(task.right, case, gradients=task.gradients)
    if right.error:
        return task.within, task.within
    wanted = _parts(right)
    squares = [[torch.zeros_like(x) for x in part] for part in wanted]
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        moved = _moved(task, case, dtype, counted, generator)
        found = _parts(outcome_of(task.right, moved, gradients=task.gradients))
        for part, others, sums in zip(wanted, found, squares):
            for a, b, total in zip(part, others, sums):
                total += (a - b).nan_to_num(0, 0, 0) ** 2
    u = roundoff(dtype)
    bounds = []
    for part, sums in zip(wanted, squares):
        spread = [(s / DRAWS).sqrt().max().item() for s in sums if s.numel()]
        bound = ROUNDINGS * max(spread, default=0) + 2 * u * _largest(part)
        bounds.append(max(task.within, bound))
    return bounds[0], bounds[1]


def vague(
    task: Task, cases: list[Case], bounds: Mapping[str, tuple[float, float]]
) -> list[str]:
    """The labels of cases that cannot tell a right program from a wrong one.

    Their bound is more than a part of the numbers in their result, and of
    those in the results of half of the cases. Without bounds there are none.
    """
    if not bounds:
        return []
    sizes = [
        _largest(_parts(outcome_of(task.right, case))[0]) for case in cases
    ]
    usual = statistics.median(sizes) if sizes else 0.0
    return [
        case.label
        for case, size in zip(cases, sizes)
        if case.label in bounds
        and bounds[case.label][0] > max(task.within, MOST * max(size, usual))
    ]


def _parts(outcome: Outcome) -> tuple[list[Tensor], list[Tensor]]:
    """The fractional numbers of a result, and of its gradients, in float64."""
    result = [
        torch.as_tensor(x).double()
        for x in tree_leaves(outcome.result)
        if isinstance(x, float)
        or (isinstance(x, Tensor) and x.is_floating_point())
    ]
    return result, [g.double() for g in outcome.gradients]


def _largest(numbers: list[Tensor]) -> float:
    """The largest finite number of a result, without its sign."""
    sizes = [
        x.abs().nan_to_num(0, 0, 0).max().item() for x in numbers if x.numel()
    ]
    return max(sizes, default=0)


def _moved(
    task: Task,
    case: Case,
    dtype: torch.dtype,
    counted: tuple[str, ...],
    generator: torch.Generator,
) -> Case:
    """A case whose numbers are each moved by a rounding, up or down."""
    u = roundoff(dtype)

    def move(x: Any, size: float) -> Any:
        if not isinstance(x, Tensor) or x.dtype == torch.bool:
            return x
        signs = torch.randint(0, 2, x.shape, generator=generator) * 2.0 - 1
        moved = x.double() * (1 + size * signs.double())
        return moved.to(x.dtype) if x.dtype == torch.float16 else moved

    def one(x: Any) -> Any:
        floats = isinstance(x, Tensor) and x.is_floating_point()
        return move(x, u) if floats else x

    bound = inspect.signature(task.right).bind(*case.args, **case.kwargs)
    for name, value in bound.arguments.items():
        if name in counted:
            exact = min(u, roundoff(torch.float32))
            bound.arguments[name] = move(value, exact)
        else:
            bound.arguments[name] = tree_map(one, value)
    return replace(case, args=bound.args, kwargs=bound.kwargs)
