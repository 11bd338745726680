"""What a wrong result has in common with the right one.

A factor, a sign, a transpose, a shift, another order: where the difference is
of such a kind, the one who made it knows the line by hearing of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.teach.check.finding import Finding, Kind, Only
from attnbook.teach.check.words import number_name


def likeness(answer: Tensor, expected: Tensor) -> Finding | None:
    """How two tensors that differ differ; None if nothing can be said.

    What is said is said of the answer: its ratio is answer / expected.
    """
    if answer.is_complex() != expected.is_complex():
        return None
    if answer.is_complex():
        answer, expected = map(torch.view_as_real, (answer, expected))
    if answer.shape != expected.shape:
        return _in_shape(answer, expected)
    if answer.dtype == expected.dtype == torch.bool:
        return _of_truths(answer, expected)
    a, b = answer.to(torch.float64), expected.to(torch.float64)
    if n := int((a.isnan() & ~b.isnan()).sum()):
        return Finding(Kind.NAN, count=n, total=a.numel())
    if n := int((a.isinf() & ~b.isinf()).sum()):
        return Finding(Kind.INFINITE, count=n, total=a.numel())
    if _equal(a, b):
        gap = (a - b).abs().nan_to_num(0, 0).max().item()
        return Finding(Kind.NEARLY, gap=gap)
    if a.numel() == 1:
        return _of_one(a.item(), b.item(), expected.is_floating_point())
    for how in (_by_function, _by_numbers, _by_places, _by_sums):
        if found := how(a, b):
            return found
    return _where_wrong(a, b, expected.is_floating_point())


def _where_wrong(a: Tensor, b: Tensor, floats: bool) -> Finding | None:
    """In how many places two tensors differ, where it is not in all."""
    wrong = ~_near(a, b)
    n = int(wrong.sum())
    zero = b == 0
    weights = floats and bool((b >= 0).all())
    if weights and (wrong & zero).any():
        return Finding(
            Kind.NOT_ZERO,
            count=int((wrong & zero).sum()),
            total=int(zero.sum()),
        )
    if n == a.numel():
        return None
    return Finding(
        Kind.SOME_PLACES, count=n, total=a.numel(), only=_only(wrong)
    )


#: What may be left of an axis.
_PARTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "first": lambda x, axis: x.select(axis, 0),
    "last": lambda x, axis: x.select(axis, -1),
    "sum": lambda x, axis: x.sum(axis),
    "mean": lambda x, axis: x.mean(axis),
}

#: What may have been done too much or, read backwards, too little.
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "square": torch.square,
    "root": torch.sqrt,
    "reciprocal": torch.reciprocal,
    "complement": lambda x: 1 - x,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
}


def _only(wrong: Tensor) -> Only | None:
    """In which rows or columns all wrong places are, if not in all."""
    for axis, name in ((-1, "column"), (-2, "row")):
        if wrong.ndim < 2 or wrong.shape[axis] < 3:
            continue
        at = wrong.movedim(axis, 0).flatten(1).any(1).nonzero()[:, 0].tolist()
        first = at[0]
        last = at[-1]
        if len(at) == last - first + 1 < wrong.shape[axis]:
            return Only(name, first, last)
    return None


def _size(b: Tensor) -> float:
    """The largest absolute value among the finite numbers; 1 if none is."""
    size = b.abs().max().item() if b.numel() else 1.0
    if math.isfinite(size):
        return size
    finite = b[b.isfinite()]
    return finite.abs().max().item() if finite.numel() else 1.0


def _near(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors are equal, up to 1e-7 of the largest number."""
    close = (a - b).abs() <= 1e-7 * _size(b)
    return (a == b) | close | (a.isnan() & b.isnan())


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape and nearly the same numbers."""
    if a.shape != b.shape or a.numel() == 0:
        return a.shape == b.shape
    gap = (a - b).abs().max().item()
    if math.isfinite(gap):  # then so are all numbers, and the largest tells
        return gap <= 1e-7 * _size(b)
    return bool(_near(a, b).all())


def _in_shape(answer: Tensor, expected: Tensor) -> Finding:
    """What a result of another shape has in common with the right one."""
    a, b = answer.to(torch.float64), expected.to(torch.float64)

    def found(kind: Kind, **more: Any) -> Finding:
        return Finding(kind, answer=answer, expected=expected, **more)

    if a.ndim > 1 and _equal(a.mT, b):
        return found(Kind.TRANSPOSE)
    if a.numel() == b.numel() and _equal(a.flatten(), b.flatten()):
        return found(Kind.RESHAPED)
    rows = a.ndim == b.ndim == 1
    if rows and (length := in_length(a, b, _equal)):
        return found(
            Kind.LENGTH,
            count=length.count,
            name=length.name,
            where=length.where,
        )
    for axis in range(-1, -b.ndim - 1, -1):
        for name, part in _PARTS.items() if b.shape[axis] else ():
            kept = part(b, axis)
            if a.numel() == kept.numel() and _equal(
                a.flatten(), kept.flatten()
            ):
                return found(Kind.ALONG_AXIS, name=name, axis=axis)
    tables = a.ndim == b.ndim == 2 and a.shape[1] == b.shape[1]
    if tables and (length := in_length(a, b, _equal)):
        return found(
            Kind.LENGTH,
            count=length.count,
            name=length.name,
            where=length.where,
        )
    return found(Kind.SHAPE)


def in_length(
    answer: Sequence | Tensor,
    expected: Sequence | Tensor,
    same: Callable[[Any, Any], bool],
) -> Finding | None:
    """What a row lacks, or has too much, where the rest of it is right."""
    n, m = len(answer), len(expected)
    short, long = (answer, expected) if n < m else (expected, answer)
    few = len(short)
    more = len(long) - len(short)
    if n == m or not few:
        return None
    if same(long[:few], short):
        where = "end"
    elif same(long[more:], short):
        where = "beginning"
    else:
        rest = iter(long)
        if not all(any(same(x, y) for y in rest) for x in short):
            return None
        where = "inside"
    name = "missing" if n < m else "too many"
    return Finding(Kind.LENGTH, count=more, name=name, where=where)


def _of_truths(a: Tensor, b: Tensor) -> Finding:
    """What two tensors of truths of one shape have in common.

    Args:
        a: the answer's.
        b: the right one.
    """
    if a.numel() == 1:
        return Finding(Kind.TRUTH, answer=bool(a), expected=bool(b))
    if (a != b).all():
        return Finding(Kind.TRUTHS_EXCHANGED)
    if a.ndim > 1 and torch.equal(a.mT, b):
        return Finding(Kind.TRANSPOSE, answer=a, expected=b)
    extra, missing = int((a & ~b).sum()), int((b & ~a).sum())
    if extra and missing:
        kind = Kind.SOME_PLACES
    else:
        kind = Kind.TRUE_TOO_OFTEN if extra else Kind.TRUE_TOO_SELDOM
    return Finding(kind, count=extra + missing, total=a.numel())


def _of_one(a: float, b: float, fractional: bool) -> Finding:
    """What a single number has in common with the right one.

    Args:
        a: the answer's.
        b: the right one.
        fractional: whether they are no whole numbers.
    """
    gap = a - b
    if a == -b:
        return Finding(Kind.SIGN, ratio=-1.0)
    if not fractional and abs(gap) == 1:
        return Finding(Kind.ONE_OFF, gap=gap)
    if a and b and (factor := _factor(a / b, only_named=True)):
        return factor
    one = torch.tensor([[a], [b]]).double()
    if function := _by_function(one[0], one[1]):
        return function
    return Finding(Kind.TOO_LARGE, gap=gap)


def _by_numbers(a: Tensor, b: Tensor) -> Finding | None:
    """A sign, a factor or a number added, everywhere or row by row."""
    if _equal(-a, b):
        return Finding(Kind.SIGN, ratio=-1.0)
    finite = a.isfinite() & b.isfinite()
    if not _equal(a[~finite], b[~finite]):
        return None
    return _by_offset(a, b, finite) or _by_factor(a, b, finite)


def _by_offset(a: Tensor, b: Tensor, finite: Tensor) -> Finding | None:
    """That a number was added to the right result, the same everywhere, or
    one for each row or column; None, if that is not so."""
    gaps = (a - b)[finite]
    if len(gaps) > 1 and _equal(gaps, gaps.mean().expand_as(gaps)):
        return Finding(Kind.OFFSET, gap=gaps.mean().item())
    for axis, name in ((-1, "row"), (-2, "column")):
        if a.ndim > 1 and a.shape[axis] > 1 and finite.all():
            gaps = (a - b).masked_fill(_near(a, b), 0)
            each = gaps.narrow(axis, 0, 1)
            often = 2 * (~_near(a, b)).sum() >= a.numel()
            if often and _equal(gaps, each.expand_as(gaps)):
                low, high = (x.item() for x in each.aminmax())
                return Finding(
                    Kind.OFFSET_ALONG, name=name, low=low, high=high
                )
    return None


def _by_factor(a: Tensor, b: Tensor, finite: Tensor) -> Finding | None:
    """That the answer is the right one times a factor, which is the same for
    all numbers, or one for each row; None, if it is not."""
    counts = finite & (b != 0)
    if not counts.any() or (a[finite & (b == 0)] != 0).any():
        return None
    ratios = torch.where(counts, a / b, torch.nan)
    middle = ratios.nanmedian()
    if _equal(ratios[counts], middle.expand_as(ratios[counts])):
        return _factor(middle.item())
    if a.ndim < 2 or a.shape[-1] < 2:
        return None
    rows = ratios.nanmedian(-1, keepdim=True).values
    if not _equal(ratios[counts], rows.expand_as(ratios)[counts]):
        return None
    low, high = (x.item() for x in rows[~rows.isnan()].aminmax())
    if f"{low:.3g}" == f"{high:.3g}":
        return None
    return Finding(Kind.FACTOR_BY_ROW, low=low, high=high)


def _factor(ratio: float, *, only_named: bool = False) -> Finding | None:
    """A ratio, unless it is 1; with `only_named` one that has a name."""
    if not math.isfinite(ratio) or ratio == 0 or abs(ratio - 1) < 1e-6:
        return None
    size = max(abs(ratio), 1 / abs(ratio))
    name = number_name(size)
    if only_named and not name or f"{size:.4g}" == "1":
        return None
    return Finding(Kind.FACTOR, ratio=ratio)


def _by_places(a: Tensor, b: Tensor) -> Finding | None:
    """That the answer has the right numbers in other places; None, if it has
    not."""
    if a.ndim > 1 and _equal(a.mT, b):
        return Finding(Kind.TRANSPOSE, answer=a, expected=b)
    # Weights of 0 and 1, or two numbers, trade places whatever was done.
    tells = not ((b == 0) | (b == 1)).all()
    for axis in range(-1, -a.ndim - 1, -1):
        n = a.shape[axis]
        named = axis if a.ndim > 1 else None
        if n > 2:
            if tells and _equal(a.flip(axis), b):
                return Finding(Kind.BACKWARDS, axis=named)
            first, last = a.narrow(axis, 0, n - 1), a.narrow(axis, 1, n - 1)
            if _equal(last, b.narrow(axis, 0, n - 1)):
                return Finding(Kind.SHIFTED, axis=named, gap=1.0)
            if _equal(first, b.narrow(axis, 1, n - 1)):
                return Finding(Kind.SHIFTED, axis=named, gap=-1.0)
    sorted_alike = _equal(a.flatten().sort().values, b.flatten().sort().values)
    if not tells or not sorted_alike:
        return None
    only = _only(~_near(a, b))
    for axis in range(-1, -a.ndim - 1, -1):
        if a.ndim > 1 and _slices(a, axis) == _slices(b, axis):
            return Finding(Kind.ORDER, axis=axis, only=only)
    return Finding(Kind.ORDER, only=only)


def _by_function(a: Tensor, b: Tensor) -> Finding | None:
    """That something was done to the right numbers, such as a softmax; None,
    if nothing was found."""
    few = a.numel() > 1 and b.max() == b.min()
    if few or (b == b.round()).all():  # they fit many functions by chance
        return None
    for name, of in _FUNCTIONS.items():
        if name in ("softmax", "log_softmax") and a.shape[-1] < 2:
            continue  # a row of one number gives 1 or 0 always
        if _equal(a, of(b)):
            return Finding(Kind.FUNCTION, name=name)
    return None


def _by_sums(a: Tensor, b: Tensor) -> Finding | None:
    """Weights that should sum to one in each row, and do not."""
    rows = b.sum(-1)
    ones = (b.sum(-1) - 1).abs() < 1e-6
    if not ((b >= 0).all() and ones.any() and (ones | (rows == 0)).all()):
        return None
    counts = (b == b.round()).all()  # they count things, and are no weights
    if b.shape[-1] < 2 or counts or _equal(a.sum(-1), rows):
        return None
    if a.ndim > 1:
        columns = a.sum(-2)
        of_one = (columns - 1).abs() < 1e-6
        if of_one.any() and (of_one | (columns == 0)).all():
            return Finding(Kind.COLUMN_SUMS)
    low, high = (x.item() for x in a.sum(-1)[ones].aminmax())
    return Finding(Kind.ROW_SUMS, low=low, high=high)


def _slices(x: Tensor, axis: int) -> list[Any]:
    """The slices of a tensor along an axis, sorted, so that order is left out.

    Numbers are rounded to a millionth of the largest one.
    """
    finite = x[x.isfinite()]
    size = (finite.abs().max().item() if finite.numel() else 0.0) or 1.0
    rows = (x / size).round(decimals=6).movedim(axis, 0).flatten(1)
    return sorted(rows.tolist())
