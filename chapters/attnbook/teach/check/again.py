"""An answer that was right is called again, in two other ways.

First with each case once more: it may have kept something from another call,
such as a buffer that only grows, or a mask that was written into. Then with
tensors of the same numbers that are not contiguous.

A tensor is numbers in memory, and strides, which say for each axis how far
apart in memory two neighbours along it are. A contiguous tensor lies in memory
row after row. After a transpose the same numbers are where they were, only the
strides have changed, and the tensor is not contiguous. A program that reads
memory by itself, such as a kernel, may use the strides of another tensor. Then
it is right as long as both have the same strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from attnbook.teach.check.finding import CALLED_AGAIN, NOT_CONTIGUOUS
from attnbook.teach.check.running import Case, Outcome, outcome_of

#: By as many binary digits two of up to seven arguments are told apart.
_DIGITS = 3


def wrong_again(
    call: Callable[[Case], Outcome],
    cases: Sequence[Case],
    reference: Callable,
    is_wrong: Callable[[Outcome, int], bool],
) -> tuple[int, Outcome] | None:
    """Where an answer that was right on all cases is wrong in another call.

    The largest case comes first. An answer may refuse tensors that are not
    contiguous, with an error, but it may not take forever. Where the reference
    itself gives something else for them, because its sums are in another
    order, nothing is asked of the answer.

    Args:
        call: calls the answer with a case.
        cases: on which it was right, the smallest first.
        reference: what gives the right result.
        is_wrong: whether an outcome of a case, by its number, is wrong.

    Returns:
        The number of a case, and what the answer does there; None if it is
        right in all calls.
    """
    backwards = list(enumerate(cases))[::-1]
    for n, case in backwards:
        outcome = call(case)
        if is_wrong(outcome, n):
            return n, replace(outcome, again=CALLED_AGAIN)
    for n, case in backwards:
        laid = relaid(case, n)
        if laid is None:
            continue
        outcome = call(laid)
        if outcome.error is not None and not outcome.broken_off:
            continue  # it refuses them
        if not is_wrong(outcome, n):
            continue
        if not is_wrong(outcome_of(reference, laid), n):
            return n, replace(outcome, again=NOT_CONTIGUOUS)
    return None


def relaid(case: Case, n: int) -> Case | None:
    """A case with the same numbers, in which some tensors are not contiguous.

    In these the numbers lie in memory column after column, as in Fortran.
    Which tensors they are depends on n: the argument in place i, counted from
    1, is one if the binary digit n mod 3 of i is 1. So of any two of the first
    seven arguments, for some n one is contiguous and the other is not.

    Returns:
        None if no tensor would change.
    """
    digit = n % _DIGITS
    places: list[Any] = [*case.args, *case.kwargs.values()]
    laid = [
        _column_by_column(x) if i >> digit & 1 else x
        for i, x in enumerate(places, start=1)
    ]
    if all(new is old for new, old in zip(laid, places)):
        return None
    here = len(case.args)
    named = dict(zip(case.kwargs, laid[here:]))
    return replace(case, args=tuple(laid[:here]), kwargs=named)


def _column_by_column(x: Any) -> Any:
    """A tensor whose numbers lie in memory column after column.

    Anything else is returned as it is, and so is a tensor that has fewer than
    two axes with more than one place, since it is contiguous either way.
    """
    if not isinstance(x, Tensor) or sum(size > 1 for size in x.shape) < 2:
        return x
    order = tuple(reversed(range(x.ndim)))
    return x.detach().permute(order).contiguous().permute(order)
