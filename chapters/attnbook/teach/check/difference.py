"""Compare two results: whether they differ, and at which place first.

Everything in the engine that compares numbers does it by `difference`, so that
the same gap is judged alike everywhere.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.teach.check.finding import Step
from attnbook.teach.check.settled import Foreign, settled
from attnbook.teach.check.words import is_numbers, number_kind


class Differs(StrEnum):
    """The ways in which two results can differ."""

    TYPE = "type"
    SHAPE = "shape"
    NAN = "nan"
    VALUE = "value"
    CHANGED = "an argument was changed in place"
    UNCHANGED = "an argument was not changed in place"
    ERROR = "an error was raised, or another one"


@dataclass(frozen=True)
class Difference:
    """Where two results differ first.

    Attributes:
        kind: in what they differ.
        answer, expected: the two parts that differ.
        place: the steps from the whole results to these parts.
        gradient_of: the number of the tensor argument whose gradients these
            are; None where the results differ.
        worst: the index in a tensor at which they differ most; for whole
            numbers and booleans, at which they differ first.
        gap: |answer − expected| there; infinite for a NaN.
        within: the largest gap that was allowed.
        argument: the argument that was changed, or should have been.
        part: of a model, what of it was changed, such as "numbers" or "mode";
            `running` has all of them.
        coarse: whether the answer is float32, the expected is not, and the
            gap is no larger than that explains.
    """

    kind: Differs
    answer: Any = None
    expected: Any = None
    place: tuple[Step, ...] = ()
    gradient_of: int | None = None
    worst: tuple[int, ...] = ()
    gap: float = 0.0
    within: float = 0.0
    argument: str = ""
    part: str = ""
    coarse: bool = False

    @property
    def beside_the_result(self) -> bool:
        """Whether the results agree, and the difference is in something else.

        That is a gradient, or an argument that was changed in place.
        """
        beside = (Differs.CHANGED, Differs.UNCHANGED)
        return self.gradient_of is not None or self.kind in beside


def difference(
    answer: Any, expected: Any, *, within: float, equal_nan: bool = False
) -> Difference | None:
    """The first difference between two results, or None.

    Tensors, arrays and numbers are compared in float64, place by place:
    |answer − expected| ≤ `within`, equal shapes, no broadcasting. Booleans
    and integers must be equal. Tuples, lists and dictionaries are walked. A
    NaN differs from everything, from another NaN too unless `equal_nan`. What
    cannot be compared (a sparse tensor, a tensor without numbers) differs.
    """
    return settled_difference(
        settled(answer), settled(expected), within=within, equal_nan=equal_nan
    )


def settled_difference(
    answer: Any, expected: Any, *, within: float, equal_nan: bool
) -> Difference | None:
    """The same as `difference`, for results that `settled` has made plain."""
    if type(answer) is type(expected) is Tensor:  # as nearly all are
        return _of_tensors(answer, expected, within, equal_nan)
    if isinstance(expected, Mapping):
        if not isinstance(answer, Mapping) or set(answer) != set(expected):
            return Difference(Differs.TYPE, answer, expected)
        pairs = ((("entry", k), answer[k], expected[k]) for k in expected)
        return _of_parts(pairs, within, equal_nan)
    if isinstance(expected, (tuple, list)) and not is_numbers(expected):
        lists = isinstance(answer, (tuple, list))
        if not lists or len(answer) != len(expected):
            return Difference(Differs.TYPE, answer, expected)
        both = enumerate(zip(answer, expected))
        return _of_parts(
            ((("part", n), a, b) for n, (a, b) in both), within, equal_nan
        )
    a, b = _as_tensor(answer), _as_tensor(expected)
    if a is None or b is None:
        if _same_value(answer, expected):
            return None
        return Difference(Differs.TYPE, answer, expected)
    whole = isinstance(answer, numbers.Integral)
    if whole and not isinstance(answer, bool) and b.is_floating_point():
        a = a.double()  # 1 for 1.0 is right
    return _of_tensors(a, b, within, equal_nan)


def _of_parts(
    parts: Iterable[tuple[Step, Any, Any]], within: float, equal_nan: bool
) -> Difference | None:
    """The first difference among pairs of parts, or None.

    Args:
        parts: the place of each pair, the answer's part and the expected one.
        within, equal_nan: as for `difference`.
    """
    for step, a, b in parts:
        found = settled_difference(a, b, within=within, equal_nan=equal_nan)
        if found:
            return replace(found, place=(step, *found.place))
    return None


def _same_value(answer: Any, expected: Any) -> bool:
    """Whether two values that cannot be compared as numbers are equal."""
    if isinstance(answer, Foreign) and isinstance(expected, Foreign):
        return answer.same(expected)
    return type(answer) is type(expected) and bool(answer == expected)


def _as_tensor(x: Any) -> Tensor | None:
    """A number or a list of numbers as a tensor; None for anything else."""
    if isinstance(x, Tensor):
        return x
    if x is None or isinstance(x, (Foreign, Mapping, str, bytes)):
        return None
    try:
        # By way of NumPy, for which a float is one of 64 bits.
        return torch.as_tensor(np.asarray(x))
    except (TypeError, ValueError, RuntimeError):
        return None  # rows of several lengths, or numbers beside texts


def _of_tensors(
    answer: Tensor, expected: Tensor, within: float, equal_nan: bool
) -> Difference | None:
    """The first difference between two tensors, or None.

    Their kinds are compared first (numbers or truths), then their shapes, and
    then their numbers.
    """
    if answer.is_complex() and expected.is_complex():
        answer, expected = map(torch.view_as_real, (answer, expected))
    kind = number_kind(answer)
    numbers_tell = answer.numel() or answer.shape == expected.shape
    if kind != number_kind(expected) and numbers_tell:
        return Difference(Differs.TYPE, answer, expected)
    if answer.shape != expected.shape:
        return Difference(Differs.SHAPE, answer, expected)
    if answer.numel() == 0:
        return None
    return _of_places(answer, expected, within, equal_nan)


def _of_places(
    answer: Tensor, expected: Tensor, within: float, equal_nan: bool
) -> Difference | None:
    """The worst place of two tensors of one shape and type of numbers."""
    if answer.dtype == expected.dtype and torch.equal(answer, expected):
        return None  # most answers are equal to the digit
    exact = number_kind(answer) != "float"
    a, b = answer.to(torch.float64), expected.to(torch.float64)
    gap = (a - b).abs()
    largest = gap.max().item()
    nan = torch.zeros_like(gap, dtype=torch.bool)
    if not math.isfinite(largest):
        same = answer == expected  # equal infinities too
        nan = a.isnan() | b.isnan()
        if equal_nan:
            same |= a.isnan() & b.isnan()
        gap = gap.masked_fill(nan, torch.inf).masked_fill(same, 0)
        largest = gap.max().item()
    differ = answer != expected if exact else gap > within
    if not differ.any():
        return None
    worst = int(differ.double().argmax() if exact else gap.argmax())
    # NumPy's: the one of torch imports the whole of sympy.
    place = tuple(int(i) for i in np.unravel_index(worst, a.shape))
    is_nan = bool(nan.flatten()[worst])
    coarse = answer.dtype == torch.float32 != expected.dtype
    return Difference(
        Differs.NAN if is_nan else Differs.VALUE,
        answer,
        expected,
        worst=place,
        gap=gap.flatten()[worst].item(),
        within=within,
        coarse=bool(coarse and largest < 1e-5),
    )
