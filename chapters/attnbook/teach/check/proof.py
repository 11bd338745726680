"""Checks by value: two results, or two functions on the same cases.

`agrees` prints one sentence that is the same on every machine, and raises
`Disagreement` with the worst place when the two differ. On a page it is
`check.equal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.difference import difference
from attnbook.teach.check.running import Case, as_cases, attempt, outcome_of
from attnbook.teach.check.settled import Foreign, settled
from attnbook.teach.check.telling import describe, difference_words
from attnbook.teach.check.words import (
    in_cases,
    is_numbers,
    number_kind,
    say,
    sizes,
)


class Disagreement(AssertionError):
    """Two things that should be equal are not; the message says where."""


def agrees(
    answer: Any,
    expected: Any,
    *,
    name: str = "",
    cases: Mapping[str, Any] | Iterable[Any] | None = None,
    within: float = 1e-12,
    gradients: bool = False,
    equal_nan: bool = False,
) -> None:
    """Print one sentence if two things are equal, else raise `Disagreement`.

    Args:
        answer: a result, or with `cases` a function.
        expected: the independent reference: a result, or a function that
            takes the same arguments.
        name: what the reference is, e.g. ``"torch.softmax"``.
        cases: the inputs to try: a dictionary of labels and arguments (a
            tuple, or `call`), or a list of arguments.
        within: the largest |answer − expected| allowed in any place.
        gradients: also compare the gradients of Σ result × fixed weights
            with respect to every floating-point tensor argument.
        equal_nan: let a NaN equal a NaN.

    Raises:
        Disagreement: naming the case, the place and both values.
        ValueError: if there is nothing to compare, or no gradient, or if
            the bound is not finite.
    """
    if not math.isfinite(within):
        raise ValueError(
            "the bound has to be a finite number, or nothing could differ; "
            f"expected such a number; got {within}"
        )
    bounds: dict[str, Any] = {"within": within, "equal_nan": equal_nan}
    differs = f"differs from {name}" if name else "the two differ"
    if cases is None:
        _require_numbers(expected)
        found = difference(answer, expected, **bounds)
        if found:
            raise Disagreement(f"{differs}: {difference_words(found)}")
        told = f": {_what(expected, within)}"
    else:
        tried = as_cases(cases)
        _functions_agree(answer, expected, tried, gradients, bounds, differs)
        too = ", gradients too" if gradients else ""
        told = f" {in_cases(len(tried))}, to within {within:g}{too}"
    say(f"equal to {name}{told}" if name else f"equal{told}")


def _functions_agree(
    answer: Callable,
    expected: Callable,
    cases: list[Case],
    gradients: bool,
    bounds: dict[str, Any],
    differs: str,
) -> None:
    """Try two functions on the same cases; see `agrees`.

    Raises:
        Disagreement, ValueError: as `agrees` does.
    """
    if not cases:
        raise ValueError(
            "there is nothing to compare; expected at least one case; got none"
        )
    moved = False
    for n, case in enumerate(cases):
        reference = outcome_of(expected, case, gradients=gradients)
        outcome, found = attempt(
            answer, case, reference, gradients=gradients, **bounds
        )
        for side in (outcome, reference):
            if side.error:
                raise side.error
        _require_numbers(reference.result)
        moved |= len(reference.gradients) > 0
        if found:
            label = f" ({case.label})" if case.label else ""
            given = sizes((*case.args, *case.kwargs.values()))
            raise Disagreement(
                f"{differs} on case {n}{label}, sizes {given}: "
                f"{difference_words(found)}"
            )
    if gradients and not moved:
        raise ValueError(
            "no gradient to compare; expected a reference that depends on "
            "its arguments; got constants"
        )


def _require_numbers(reference: Any) -> None:
    """Raise if a reference has nothing in it that could be compared."""
    for leaf in tree_leaves(reference):
        if leaf is not None and 0 not in getattr(leaf, "shape", ()):
            return
    raise ValueError(
        "nothing to compare; expected a reference with at least one number; "
        f"got {describe(reference)}"
    )


def _what(reference: Any, within: float) -> str:
    """The words for what was compared, ``6×3 numbers, to within 1e-12``."""
    kinds = {_kind(leaf) for leaf in tree_leaves(settled(reference))}
    kind = kinds.pop() if len(kinds) == 1 else "number"
    bound = f", to within {within:g}" if kind in ("float", "number") else ""
    whole = reference
    if isinstance(reference, (int, float)):
        whole = torch.as_tensor(reference)
    size = sizes((whole,)) or "one"
    if isinstance(reference, list) and is_numbers(reference):
        size = f"{len(tree_leaves(reference))}"  # rows need not be as long
    kind = "number" if kind in ("float", "integer") else kind
    if size in ("scalar", "one"):
        return f"one {kind}{bound}"
    return f"{size} {kind}s{bound}"


def _kind(leaf: Any) -> str:
    """The kind of numbers in a part of a result; "value" if it has none."""
    if isinstance(leaf, (Foreign, str, bytes, type(None))):
        return "value"
    return number_kind(torch.as_tensor(leaf))
