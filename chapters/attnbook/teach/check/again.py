"""An answer that was right is called again, in two other ways.

First with each case once more: it may have kept something from another call,
such as a buffer that only grows, or a mask that was written into. Then with
tensors of the same numbers that lie otherwise in memory.

A tensor is numbers in memory and the strides by which they are read, which
say how far apart two neighbours along each axis lie. After a transpose the
numbers lie where they lay, and the strides are others. A program that reads
memory by itself, such as a kernel, may use the strides of another tensor, and
is right all the same as long as both lie alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from attnbook.teach.check.finding import CALLED_AGAIN, LAID_OTHERWISE
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

    The largest case comes first. With tensors that lie otherwise, the answer
    may refuse by an error, but not take forever. Nor is it wrong where the
    reference itself would be, whose sums are in another order then.

    Args:
        call: calls the answer with a case.
        cases: on which it was right, the smallest first.
        reference: what gives the right result.
        is_wrong: whether an outcome of a case, by its number, is wrong.

    Returns:
        The number of a case, and what the answer does there; None if it is
        right in all calls.
    """
    backwards = [*reversed(list(enumerate(cases)))]
    for n, case in backwards:
        outcome = call(case)
        if is_wrong(outcome, n):
            return n, replace(outcome, again=CALLED_AGAIN)
    for n, case in backwards:
        laid = relaid(case, n)
        if laid is None:
            continue
        outcome = call(laid)
        may_be = outcome.error is None or outcome.broken_off
        if not may_be or not is_wrong(outcome, n):
            continue
        if not is_wrong(outcome_of(reference, laid), n):
            return n, replace(outcome, again=LAID_OTHERWISE)
    return None


def relaid(case: Case, n: int) -> Case | None:
    """A case with the same numbers, some of whose tensors lie the other way.

    In these the first axis is the one along which neighbours lie side by side.
    Which tensors they are depends on n: the argument in place i, counted from
    1, is one if the binary digit n mod 3 of i is 1. So any two of the first
    seven arguments lie differently for some n.

    Returns:
        None if no tensor would lie differently.
    """
    digit = n % _DIGITS
    places: list[Any] = [*case.args, *case.kwargs.values()]
    laid = [
        _the_other_way(x) if i >> digit & 1 else x
        for i, x in enumerate(places, start=1)
    ]
    if all(new is old for new, old in zip(laid, places)):
        return None
    here = len(case.args)
    named = dict(zip(case.kwargs, laid[here:]))
    return replace(case, args=tuple(laid[:here]), kwargs=named)


def _the_other_way(x: Any) -> Any:
    """A tensor with its axes in memory from the last to the first; anything
    else, and a tensor that would lie as it does, as it is."""
    if not isinstance(x, Tensor) or sum(size > 1 for size in x.shape) < 2:
        return x
    order = tuple(reversed(range(x.ndim)))
    return x.detach().permute(order).contiguous().permute(order)
