"""Slips of chapter 1."""

import math
from functools import partial

import torch

from attnbook.teach.catalogue import c01_averages as c01

INF = torch.inf

_BOX = "Is a key at exactly the bandwidth, on either side, within reach?"


def _box(queries, keys, values, near, *, mean=True, over=-1):
    """Averages (N, d) of values over the keys that a condition calls near.

    Args:
        near: of the differences (N, M) of queries and keys, to booleans.
        mean: whether the values are divided by how many there are.
        over: the axis along which these are counted.
    """
    kernel = near(queries[:, None] - keys).to(values.dtype)
    total = kernel.sum(over, keepdim=True).clamp(min=1) if mean else 1
    return kernel / total @ values


c01.box_regression.slip(
    "a key at the edge does not count",
    _BOX,
    lambda q, k, v, b: _box(q, k, v, lambda gap: gap.abs() < b),
)
c01.box_regression.slip(
    "it looks to one side",
    _BOX,
    lambda q, k, v, b: _box(q, k, v, lambda gap: gap <= b),
)
c01.box_regression.slip(
    "the box is half as wide as it should be",
    "How far from the query may a key be, on each side?",
    lambda q, k, v, b: _box(q, k, v, lambda gap: gap.abs() <= b / 2),
)
c01.box_regression.slip(
    "it is a sum, no mean",
    "What do the weights of a query sum to?",
    lambda q, k, v, b: _box(q, k, v, lambda g: g.abs() <= b, mean=False),
)
c01.box_regression.slip(
    "it divides by the number of all keys",
    "How many values does the mean of one query take in?",
    lambda q, k, v, b: (
        _box(q, k, v, lambda gap: gap.abs() <= b, mean=False) / len(k)
    ),
)
c01.box_regression.slip(
    "the distance is squared, the bandwidth is not",
    "How far from the query may a key be, on each side?",
    lambda q, k, v, b: _box(q, k, v, lambda gap: gap**2 <= b),
)
c01.box_regression.slip(
    "the columns of the weights sum to one, not the rows",
    "Along which axis do the weights of one query lie?",
    lambda q, k, v, b: _box(q, k, v, lambda g: g.abs() <= b, over=0),
)

ROWS = partial(torch.softmax, dim=-1)
_COLUMNS = partial(torch.softmax, dim=0)


def unshifted(scores):
    """Softmax over the last axis, with no number subtracted before exp."""
    kernel = scores.exp()
    return kernel / kernel.sum(-1, keepdim=True)


def _gaps(queries, keys):
    """Minus the squared distance of each query from each key, (N, M)."""
    return -((queries[:, None] - keys) ** 2)


def _others(keys, values, bandwidth, weigh=ROWS, *, two=2, same=False):
    """Averages of values over all keys but the own one.

    Args:
        weigh: makes weights of the scores (N, N).
        two: by what bandwidth² is multiplied in the denominator; 2 is right.
        same: whether every key at distance 0 is left out, not just the own.
    """
    gaps = _gaps(keys, keys)
    own = gaps == 0 if same else torch.eye(len(keys), dtype=torch.bool)
    scores = (gaps / (two * bandwidth**2)).masked_fill(own, -INF)
    return weigh(scores) @ values


c01.leave_one_out.slip(
    "equal keys are left out as well",
    "Two visits at the same moment: is the other one yours?",
    partial(_others, same=True),
)
c01.leave_one_out.slip(
    "the 2 below the fraction line is missing",
    "What stands in the exponent of the Gaussian kernel?",
    partial(_others, two=1),
)
c01.leave_one_out.slip(
    "a key far from all others gets 0/0",
    "Once its own key is left out, which score should become 0?",
    partial(_others, weigh=unshifted),
)


def _circle(queries, keys, period, bandwidth, weigh=ROWS, *, power=2, turn=2):
    """Weights (N, M) of keys on a circle.

    Args:
        weigh: makes weights of the scores.
        power: of the bandwidth in the denominator; 2 is right.
        turn: how many π a whole turn has; 2 is right.
    """
    angles = turn * math.pi / period * (queries[:, None] - keys)
    return weigh(angles.cos() / bandwidth**power)


c01.circular_weights.slip(
    "the bandwidth is not squared",
    "What are the dot products divided by?",
    partial(_circle, power=1),
)
c01.circular_weights.slip(
    "there is a 2 too many below the fraction line",
    "What are the dot products divided by?",
    lambda q, k, period, b: _circle(q, k, period, 2**0.5 * b),
)
c01.circular_weights.slip(
    "a period is half a turn",
    "At which angle does a whole period end?",
    partial(_circle, turn=1),
)
c01.circular_weights.slip(
    "exp overflows at a narrow bandwidth",
    "How large is the largest score that exp is given?",
    partial(_circle, weigh=unshifted),
)


def _slope(queries, keys, values, bandwidth, weigh=ROWS, *, sum_too=True):
    """Slopes (N, d) of the smoothed curve at the queries.

    Args:
        weigh: makes weights of the scores (N, M).
        sum_too: whether the derivative of the weights' sum is subtracted.
    """
    weights = weigh(_gaps(queries, keys) / (2 * bandwidth**2))
    change = weights * (keys - queries[:, None]) / bandwidth**2
    sums = change.sum(-1) * (weights @ values)
    return change @ values - sums * sum_too


c01.slope.slip(
    "the sign is turned round",
    "If the values rise with the keys, does the curve rise or fall?",
    lambda q, k, v, b: -_slope(q, k, v, b),
)
c01.slope.slip(
    "the sum below the fraction line is taken for a constant",
    "When the query moves, what moves in a weight beside its own score?",
    partial(_slope, sum_too=False),
)
c01.slope.slip(
    "a query far from every key gets 0/0",
    "What should be subtracted from the scores before exp?",
    partial(_slope, weigh=unshifted),
)
c01.leave_one_out.slip(
    "the columns of the weights sum to one, not the rows",
    "Along which axis do the weights of one query lie?",
    partial(_others, weigh=_COLUMNS),
)
c01.circular_weights.slip(
    "the columns of the weights sum to one, not the rows",
    "Along which axis do the weights of one query lie?",
    partial(_circle, weigh=_COLUMNS),
)
c01.slope.slip(
    "the columns of the weights sum to one, not the rows",
    "Along which axis do the weights of one query lie?",
    partial(_slope, weigh=_COLUMNS),
)
