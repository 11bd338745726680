"""What a wrong result has in common with the right one, in words.

A factor, a sign, a transpose, a shift, another order: where the difference is
of such a kind, the one who made it knows the line by hearing it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

#: Numbers with names, beside roots and fractions.
_NAMED = {
    math.pi: "π",
    2 * math.pi: "2π",
    math.e: "e",
    1 / math.log(2): "1/ln 2",
    math.log(10): "ln 10",
}


def likeness(ours: Tensor, theirs: Tensor) -> str:
    """How two tensors that differ differ; empty if there are no words for it.

    It is said of ours: ``too large by a factor of √2``.
    """
    if ours.shape != theirs.shape:
        return _in_shape(ours, theirs)
    if ours.dtype == theirs.dtype == torch.bool:
        return _of_truths(ours, theirs)
    a, b = ours.to(torch.float64), theirs.to(torch.float64)
    if n := int((a.isnan() & ~b.isnan()).sum()):
        return "all NaN" if n == a.numel() else f"NaN {_places(n, a)}"
    if n := int((a.isinf() & ~b.isinf()).sum()):
        return f"infinite {_places(n, a)}"
    if _equal(a, b):
        gap = (a - b).abs().nan_to_num(0, 0).max().item()
        return f"nearly right, off by {gap:.2g}"
    if a.numel() == 1:
        return _of_one(a.item(), b.item(), theirs.is_floating_point())
    for how in (_by_function, _by_numbers, _by_places, _by_sums):
        if words := how(a, b):
            return words
    wrong = ~_near(a, b)
    n, zero = int(wrong.sum()), b == 0
    weights = theirs.is_floating_point() and (b >= 0).all()
    if weights and (wrong & zero).any():
        some = (wrong & zero).sum() < zero.sum()
        return f"not {'everywhere ' * some}0 where 0 is right"
    return "" if n == a.numel() else f"wrong {_places(n, a)}{_only(wrong)}"


#: What may be left of an axis.
_PARTS = {
    "the first": lambda x, axis: x.select(axis, 0),
    "the last": lambda x, axis: x.select(axis, -1),
    "the sum": lambda x, axis: x.sum(axis),
    "the mean": lambda x, axis: x.mean(axis),
}

#: What may have been done too much or, read backwards, too little.
_FUNCTIONS = {
    "the exponential of the right numbers": torch.exp,
    "the logarithm of the right numbers": torch.log,
    "the square of the right numbers": torch.square,
    "the root of the right numbers": torch.sqrt,
    "the reciprocal of the right numbers": torch.reciprocal,
    "one minus the right numbers": lambda x: 1 - x,
    "the softmax of the right numbers": lambda x: x.softmax(-1),
    "the log-softmax of the right numbers": lambda x: x.log_softmax(-1),
}


def _places(n: int, x: Tensor) -> str:
    return f"in {n} of {x.numel()} places"


def _only(wrong: Tensor) -> str:
    """In which rows or columns all wrong places are, if not in all."""
    for axis, name in ((-1, "column"), (-2, "row")):
        if wrong.ndim < 2 or wrong.shape[axis] < 3:
            continue
        at = wrong.movedim(axis, 0).flatten(1).any(1).nonzero()[:, 0].tolist()
        first, last = at[0], at[-1]
        if len(at) == last - first + 1 < wrong.shape[axis]:
            to = f"s {first} to {last}" if last > first else f" {first}"
            return f", all in {name}{to}"
    return ""


def _near(a: Tensor, b: Tensor) -> Tensor:
    size = b[b.isfinite()].abs().max() if b.isfinite().any() else 1.0
    return (a == b) | ((a - b).abs() <= 1e-7 * size) | (a.isnan() & b.isnan())


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(_near(a, b).all())


def _in_shape(ours: Tensor, theirs: Tensor) -> str:
    shapes = f"of shape {tuple(ours.shape)}, not {tuple(theirs.shape)}"
    a, b = ours.to(torch.float64), theirs.to(torch.float64)
    if a.ndim > 1 and _equal(a.mT, b):
        return f"the transpose, {shapes}"
    if a.numel() == b.numel() and _equal(a.flatten(), b.flatten()):
        return f"the right numbers, but {shapes}"
    if a.ndim == b.ndim == 1 and (words := in_length(a, b, _equal)):
        return f"{shapes}: {words}"
    for axis in range(-1, -b.ndim - 1, -1):
        for words, part in _PARTS.items():
            if _equal(a.flatten(), part(b, axis).flatten()):
                return f"{words} along axis {axis} alone, {shapes}"
    if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[1]:
        words = in_length(a, b, _equal)
        return f"{shapes}: {words}" if words else shapes
    return shapes


def in_length(
    ours: Sequence, theirs: Sequence, same: Callable[[Any, Any], bool]
) -> str:
    """What a row lacks, or has too much, where the rest of it is right."""
    n, m = len(ours), len(theirs)
    short, long = (ours, theirs) if n < m else (theirs, ours)
    few, more = len(short), len(long) - len(short)
    if n == m or not few:
        return ""
    what = "missing" if n < m else "too many"
    if same(long[:few], short):
        return f"{more} {what} at the end"
    if same(long[more:], short):
        return f"{more} {what} at the beginning"
    rest = iter(long)
    if all(any(same(x, y) for y in rest) for x in short):
        return f"{more} {what}, the others right"
    return ""


def _of_truths(a: Tensor, b: Tensor) -> str:
    if a.numel() == 1:
        return f"{bool(a)} where {bool(b)} is right"
    if (a != b).all():
        return "True and False exchanged"
    if a.ndim > 1 and torch.equal(a.mT, b):
        return "the transpose"
    extra, missing = int((a & ~b).sum()), int((b & ~a).sum())
    if extra and missing:
        return f"wrong {_places(extra + missing, a)}"
    few = f"{extra or missing} of {a.numel()} places"
    return f"True in {few} too {'many' if extra else 'few'}"


def _of_one(a: float, b: float, fractional: bool) -> str:
    gap = a - b
    if a == -b:
        return "of the wrong sign"
    if not fractional and abs(gap) == 1:
        return "one too many" if gap > 0 else "one too few"
    factor = _factor(a / b, only_named=True) if b and a else ""
    if words := factor or _by_function(*torch.tensor([[a], [b]]).double()):
        return words
    return f"too {'large' if gap > 0 else 'small'} by {abs(gap):.4g}"


def _by_numbers(a: Tensor, b: Tensor) -> str:
    """A sign, a factor or a number added, everywhere or row by row."""
    if _equal(-a, b):
        return "of the wrong sign"
    finite = a.isfinite() & b.isfinite()
    counts = finite & (b != 0)
    if not _equal(a[~finite], b[~finite]):
        return ""
    gaps = (a - b)[finite]
    if len(gaps) > 1 and _equal(gaps, gaps.mean().expand_as(gaps)):
        gap = gaps.mean().item()
        large = "large" if gap > 0 else "small"
        return f"too {large} by {abs(gap):.4g} everywhere"
    for axis, name in ((-1, "row"), (-2, "column")):
        if a.ndim > 1 and a.shape[axis] > 1 and finite.all():
            gaps = (a - b).masked_fill(_near(a, b), 0)
            each = gaps.narrow(axis, 0, 1)
            often = 2 * (~_near(a, b)).sum() >= a.numel()
            if often and _equal(gaps, each.expand_as(gaps)):
                low, high = (f"{x.item():.3g}" for x in each.aminmax())
                return f"off by a number in each {name}, {low} to {high}"
    if not counts.any() or (a[finite & (b == 0)] != 0).any():
        return ""
    ratios = torch.where(counts, a / b, torch.nan)
    middle = ratios.nanmedian()
    if _equal(ratios[counts], middle.expand_as(ratios[counts])):
        return _factor(middle.item())
    rows = ratios.nanmedian(-1, keepdim=True).values
    if a.shape[-1] > 1 and a.ndim > 1:
        if _equal(ratios[counts], rows.expand_as(ratios)[counts]):
            some = rows[~rows.isnan()]
            low, high = (f"{x.item():.3g}" for x in some.aminmax())
            if low != high:
                return f"off by a factor in each row, from {low} to {high}"
    return ""


def _factor(ratio: float, *, only_named: bool = False) -> str:
    """A ratio in words: ``too small by a factor of √2``."""
    if not math.isfinite(ratio) or ratio == 0 or abs(ratio - 1) < 1e-6:
        return ""
    size = max(abs(ratio), 1 / abs(ratio))
    name = _name(size)
    if only_named and not name:
        return ""
    sign = "of the wrong sign and " if ratio < 0 else ""
    large = "large" if abs(ratio) > 1 else "small"
    name = name or f"{size:.4g}"
    return f"{sign}too {large} by a factor of {name}" if name != "1" else ""


def _name(size: float) -> str:
    """A number above 1 by its name, if it has one."""

    def is_it(number: float) -> bool:
        return abs(number / size - 1) < 1e-6

    for number, name in _NAMED.items():
        if is_it(number):
            return name
    if is_it(round(size)) and size < 1e6:
        return str(round(size))
    if size**2 < 1024.5 and is_it(math.sqrt(round(size**2))):
        return f"√{round(size**2)}"
    for under in range(2, 13):
        if size < 100 and is_it(round(size * under) / under):
            return f"{round(size * under)}/{under}"
        if size**2 < 100 and is_it(math.sqrt(round(size**2 * under) / under)):
            return f"√({round(size**2 * under)}/{under})"
    return ""


def _by_places(a: Tensor, b: Tensor) -> str:
    """The right numbers in other places."""
    if a.ndim > 1 and _equal(a.mT, b):
        return "the transpose"
    for axis in range(-1, -a.ndim - 1, -1):
        n = a.shape[axis]
        along = f" along axis {axis}" if a.ndim > 1 else ""
        if n > 1 and _equal(a.flip(axis), b):
            return f"backwards{along}"
        if n > 2:
            first, last = a.narrow(axis, 0, n - 1), a.narrow(axis, 1, n - 1)
            if _equal(last, b.narrow(axis, 0, n - 1)):
                return f"one place too far on{along}"
            if _equal(first, b.narrow(axis, 1, n - 1)):
                return f"one place too far back{along}"
    if not _equal(a.flatten().sort().values, b.flatten().sort().values):
        return ""
    only = _only(~_near(a, b)).replace("all ", "")
    for axis in range(-1, -a.ndim - 1, -1):
        if a.ndim > 1 and _slices(a, axis) == _slices(b, axis):
            return f"right but for the order along axis {axis}{only}"
    return f"the right numbers in other places{only}"


def _by_function(a: Tensor, b: Tensor) -> str:
    """The right numbers with something done to them."""
    few = a.numel() > 1 and b.max() == b.min()
    if few or (b == b.round()).all():  # of these much would be true
        return ""
    for words, of in _FUNCTIONS.items():
        if "softmax" in words and a.shape[-1] < 2:
            continue  # of one number it is always 1, and its logarithm 0
        if _equal(a, of(b)):
            return words
    return ""


def _by_sums(a: Tensor, b: Tensor) -> str:
    """Weights that should sum to one in each row, and do not."""
    rows, ones = b.sum(-1), (b.sum(-1) - 1).abs() < 1e-6
    if not ((b >= 0).all() and ones.any() and (ones | (rows == 0)).all()):
        return ""
    counts = (b == b.round()).all()  # of things, and no weights
    if b.shape[-1] < 2 or counts or _equal(a.sum(-1), rows):
        return ""
    if a.ndim > 1:
        columns = a.sum(-2)
        of_one = (columns - 1).abs() < 1e-6
        if of_one.any() and (of_one | (columns == 0)).all():
            return "off: its columns sum to one, its rows do not"
    low, high = (f"{x.item():.6g}" for x in a.sum(-1)[ones].aminmax())
    to = low if low == high else f"{low} up to {high}"
    return f"off: its rows sum to {to}, not to one"


def _slices(x: Tensor, axis: int) -> list[Any]:
    size = x[x.isfinite()].abs().max().item() or 1.0
    rows = (x / size).round(decimals=6).movedim(axis, 0).flatten(1)
    return sorted(rows.tolist())
