"""Chapter 1, weighted averages: tasks and known mistakes."""

import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import norm, vonmises

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, randns
from attnbook.teach.check.rules import NoAutograd
from attnbook.teach.check.seeded import randn

task = tasks_of(1)

DAYS = f64(1, 2, 3), f64(90, 120, 100)  # the running example


def _normalised(log_kernel):
    """Weights: exp(log_kernel), with each row divided by its sum, by SciPy."""
    total = logsumexp(log_kernel, axis=-1, keepdims=True)
    return torch.tensor(np.exp(log_kernel - total))


@task(
    against="numpy.average",
    cases={
        "one value": (f64(3), f64(1)),
        "the running example": (f64(90, 120, 100), f64(0.1, 0.3, 0.6)),
        "seven values, some negative": (
            randn(7, seed=1),
            randn(7, seed=2).softmax(0),
        ),
        "300 values": (randn(300, seed=3), randn(300, seed=4).softmax(0)),
    },
)
def weighted_average(values, weights):
    """the sum of weight times value, the weights summing to one"""
    return torch.tensor(np.average(values, weights=weights))


@weighted_average.mistake(symptom=symptoms.WRONG_NUMBERS)
def divides_by_n_again(values, weights):
    """The average is too small by a factor S: 35.00 where 105.00 is right,
    below every value that went in.
    cause: The weights already sum to one; dividing by S is done twice.
    fix: Sum weight times value, and stop there."""
    return (weights * values).sum() / len(values)


@task(
    against="scipy.stats.norm",
    cases={
        "one query, three keys": (f64(4), f64(1, 2, 3), 1.5),
        "as many queries as keys": (f64(0, 2.5, 4), f64(1, 2, 3), 0.8),
        "more queries than keys": (*randns((5,), (2,), seed=1), 0.2),
        "a query far from every key": (f64(2, 1000), f64(1, 2, 3), 1.2),
        "two keys in one place": (f64(2, 0.5), f64(1, 1, 3), 1.1),
        "131 queries, 137 keys": (*randns((131,), (137,), seed=3), 0.3),
    },
)
def gaussian_weights(queries, keys, bandwidth):
    """the (T, S) weights exp(−(q − k)² / (2σ²)), each query's divided by their
    sum"""
    log_kernel = norm.logpdf(queries[:, None], loc=keys, scale=bandwidth)
    return _normalised(log_kernel)


@gaussian_weights.mistake(
    "nerminnuraydogan/vision-transformer #1", symptom=symptoms.WRONG_SUMS
)
def normalises_over_queries(queries, keys, bandwidth):
    """The columns sum to one instead of the rows; the averages may leave the
    range of the values.
    cause: The sum runs over the queries. Every key hands out one unit of
    weight, where every query should.
    fix: Sum over the last axis, the keys: dim=-1."""
    scores = -((queries[:, None] - keys) ** 2) / (2 * bandwidth**2)
    kernel = torch.exp(scores - scores.amax(0, keepdim=True))
    return kernel / kernel.sum(0, keepdim=True)


@gaussian_weights.mistake("numpy/numpy #21850", symptom=symptoms.SIZES)
def divides_without_keepdim(queries, keys, bandwidth):
    """An error about sizes for most inputs; silently wrong weights where there
    are as many queries as keys, and a wrong shape for one key.
    cause: The sums have lost their axis. Broadcasting lines them up with the
    columns: column j is divided by the sum of row j, so that only the diagonal
    is sure to be right.
    fix: Keep the axis: sum(-1, keepdim=True)."""
    scores = -((queries[:, None] - keys) ** 2) / (2 * bandwidth**2)
    kernel = torch.exp(scores - scores.amax(-1, keepdim=True))
    return kernel / kernel.sum(-1)


@gaussian_weights.mistake(
    "mdbartos/graph-signals #1", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def multiplies_by_the_variance(queries, keys, bandwidth):
    """Right at bandwidth 1. Elsewhere it works backwards: a larger bandwidth
    makes the weights sharper.
    cause: Python reads a / 2 * b from left to right, as (a / 2) * b, so the
    variance multiplies where it should divide.
    fix: Put the denominator in brackets: / (2 * bandwidth**2)."""
    scores = -((queries[:, None] - keys) ** 2) / 2 * bandwidth**2
    kernel = torch.exp(scores - scores.amax(-1, keepdim=True))
    return kernel / kernel.sum(-1, keepdim=True)


@gaussian_weights.mistake("kornia/kornia #4589", symptom=symptoms.NAN)
def underflows_to_nan(queries, keys, bandwidth):
    """NaN for a query that is far from every key, measured in bandwidths.
    cause: Every exp is too small for the number format and becomes 0; then 0
    is divided by 0.
    fix: Subtract the largest score of each query before exp; it cancels."""
    kernel = torch.exp(-((queries[:, None] - keys) ** 2) / (2 * bandwidth**2))
    return kernel / kernel.sum(-1, keepdim=True)


@task(
    against="scipy's cdist",
    cases={
        "two keys, one with three times the norm": (
            f64([1, 0]),
            f64([1, 0], [3, 0]),
            1.0,
        ),
        "keys of norm one": (
            randn(4, 3, seed=3),
            F.normalize(randn(5, 3, seed=4)),
            0.5,
        ),
        "keys of many norms": (*randns((2, 16), (7, 16), seed=5), 2.0),
        "a query far from every key": (
            f64([0, 0], [600, 800]),
            f64([1, 0], [0, 2], [3, 4]),
            1.5,
        ),
        "131 queries, 137 keys, 130 wide": (
            *randns((131, 130), (137, 130), seed=7),
            5.0,
        ),
    },
)
def distance_weights(queries, keys, bandwidth):
    """the (T, S) weights exp(−|q − k|² / (2σ²)), each query's divided by their
    sum"""
    squares = cdist(queries, keys, "sqeuclidean")
    return _normalised(-squares / (2 * bandwidth**2))


@distance_weights.mistake("mem0ai/mem0 #5959", symptom=symptoms.WRONG_NUMBERS)
def forgets_the_norm_of_keys(queries, keys, bandwidth):
    """A key of large norm gets more weight than a nearer, smaller one. With
    keys of norm one nothing is wrong, so such a test passes.
    cause: The dot product stands for the distance, but |k|² differs from key
    to key and does not cancel.
    fix: Subtract |k|² / 2 from the dot products, or make all norms equal."""
    scores = queries @ keys.T / bandwidth**2
    kernel = torch.exp(scores - scores.amax(-1, keepdim=True))
    return kernel / kernel.sum(-1, keepdim=True)


@task(
    against="numpy's mean, query by query",
    cases={
        "a key far below, one far above": (
            f64(5),
            f64(1, 5, 9),
            f64(90, 120, 100),
            1.0,
        ),
        "every key in reach": (f64(2), DAYS[0], f64(90, 0, 120), 1.0),
        "no key in reach": (f64(2.5, 9), *DAYS, 1.0),
        "six queries, eight keys": (*randns((6,), (8,), (8,), seed=1), 0.4),
        "131 queries, 137 keys": (
            *randns((131,), (137,), (137,), seed=4),
            0.1,
        ),
    },
)
def box_regression(queries, keys, values, bandwidth):
    """for each query the plain mean of the values whose keys lie within the
    bandwidth, 0 where there are none"""
    means = []
    for query in queries:
        near = np.abs(keys.numpy() - query.item()) <= bandwidth
        means.append(values.numpy()[near].mean() if near.any() else 0.0)
    return torch.tensor(means)


@box_regression.mistake(symptom=symptoms.NAN)
def nan_where_no_key_is_near(queries, keys, values, bandwidth):
    """NaN for every query that has no key in reach.
    cause: No key counts, so the weights sum to zero, and 0 is divided by 0.
    fix: Divide by 1 where the sum is 0: the weights and the result are 0.
    hint: What do you divide by for a query that no key is near?"""
    near = ((queries[:, None] - keys).abs() <= bandwidth).to(values.dtype)
    return (near / near.sum(-1, keepdim=True)) @ values


@task(
    against="numpy.average without the key",
    cases={
        "two keys": (f64(0, 1), f64(-1, 1), 0.5),
        "the running example": (*DAYS, 1.5),
        "two equal keys": (f64(1, 1, 3), f64(90, 120, 100), 1.5),
        "a key far from the others": (f64(1, 2, 1e5), f64(90, 120, 100), 1.0),
        "nine keys in no order": (*randns((9,), (9,), seed=1), 0.3),
        "131 keys": (*randns((131,), (131,), seed=3), 0.2),
    },
)
def leave_one_out(keys, values, bandwidth):
    """each value predicted by kernel regression from all the others"""
    keys, values = keys.numpy(), values.numpy()
    predicted = []
    for i, key in enumerate(keys):
        log_kernel = norm.logpdf(np.delete(keys, i), loc=key, scale=bandwidth)
        predicted.append(
            np.average(
                np.delete(values, i),
                weights=np.exp(log_kernel - log_kernel.max()),
            )
        )
    return torch.tensor(np.array(predicted))


@leave_one_out.mistake(
    "NicolasHug/Surprise #134",
    symptom=(symptoms.LOSS_TOO_LOW, symptoms.SEES_WRONG_TOKENS),
)
def keeps_its_own_value(keys, values, bandwidth):
    """The error shrinks to zero as the bandwidth does, so that the smallest
    always looks best.
    cause: Each key is its own nearest neighbour: the prediction copies the
    very value that it is compared with.
    fix: Give every key weight 0 for itself, then divide by the sum of the
    rest.
    hint: Which key lies nearest to each query here?"""
    scores = -((keys[:, None] - keys) ** 2) / (2 * bandwidth**2)
    kernel = torch.exp(scores)
    return (kernel / kernel.sum(-1, keepdim=True)) @ values


@leave_one_out.mistake(symptom=symptoms.WRONG_SUMS)
def zeroes_its_weight_too_late(keys, values, bandwidth):
    """The weights of a query sum to less than one: of two keys each should get
    the other's value, and only a part of it arrives.
    cause: The key's own weight is set to 0 after the division. It has taken
    part in the sum, so the others no longer sum to one.
    fix: Give every key weight 0 for itself first, then divide by the sum.
    hint: What do the weights of one query sum to?"""
    scores = -((keys[:, None] - keys) ** 2) / (2 * bandwidth**2)
    kernel = torch.exp(scores)
    weights = kernel / kernel.sum(-1, keepdim=True)
    return weights.fill_diagonal_(0) @ values


@task(
    against="scipy.stats.vonmises",
    cases={
        "a quarter and half a turn": (f64(0), f64(0, 2, 4), 8, 1.0),
        "two keys of one cosine": (f64(1), f64(2, 6), 8, 0.7),
        "three days, two keys": (f64(0, 3, 6), f64(0, 6), 7, 0.8),
        "all days from three": (f64(*range(7)), f64(0, 3, 6), 7, 0.6),
        "a narrow bandwidth": (f64(1, 2.5), f64(0, 3, 6), 7, 0.02),
        "hours, some beyond the day": (
            f64(30, 2.5, -7),
            f64(1, 25, 12),
            24,
            0.9,
        ),
        "131 queries, 137 keys, days of a year": (
            *(100 * x for x in randns((131,), (137,), seed=1)),
            365,
            0.4,
        ),
    },
)
def circular_weights(queries, keys, period, bandwidth):
    """the dot-product weights of (cos, sin) of the angle 2πn / period"""
    turn = 2 * np.pi / period
    return _normalised(
        vonmises.logpdf(
            turn * queries.numpy()[:, None],
            kappa=1 / bandwidth**2,
            loc=turn * keys.numpy(),
        )
    )


@circular_weights.mistake(
    "PriorLabs/tabpfn-time-series #145", symptom=symptoms.WRONG_NUMBERS
)
def closes_the_circle_early(queries, keys, period, bandwidth):
    """The last day of the week and the first get the same place on the circle,
    and so the same weight.
    cause: Seven days, numbered 0 to 6, are spread over period − 1 steps; the
    circle closes one day early.
    fix: Divide by the period itself.
    hint: How many steps lead from Monday round to the next Monday?"""
    q, k = (2 * torch.pi * t / (period - 1) for t in (queries, keys))
    q = torch.stack([torch.cos(q), torch.sin(q)], -1)  # (T, 2)
    k = torch.stack([torch.cos(k), torch.sin(k)], -1)  # (S, 2)
    return torch.softmax(q @ k.T / bandwidth**2, -1)


@circular_weights.mistake(
    "EmilHvitfeldt/feature-engineering-az #62", symptom=symptoms.WRONG_NUMBERS
)
def turns_by_one_radian(queries, keys, period, bandwidth):
    """A whole period covers less than a sixth of the circle, so its two ends
    stay far apart.
    cause: cos and sin take radians: a full turn is 2π, not 1.
    fix: Multiply by 2π before dividing by the period.
    hint: How large is the angle after one whole period?"""
    q, k = queries / period, keys / period
    q = torch.stack([torch.cos(q), torch.sin(q)], -1)  # (T, 2)
    k = torch.stack([torch.cos(k), torch.sin(k)], -1)  # (S, 2)
    return torch.softmax(q @ k.T / bandwidth**2, -1)


@task(
    against="torch's autograd",
    cases={
        "equal values": (f64(0, 5), f64(1, 2, 3), f64(7, 7, 7), 1.0),
        "the running example": (f64(4), *DAYS, 1.5),
        "far from every key": (f64(4e3, 2e4), f64(0, 8e3, 9e3), DAYS[1], 1e2),
        "six queries, four keys": (*randns((6,), (4,), (4,), seed=1), 0.7),
        "131 queries, 137 keys": (
            *randns((131,), (137,), (137,), seed=4),
            0.3,
        ),
    },
    rules=(NoAutograd,),
)
def slope(queries, keys, values, bandwidth):
    """the derivative of kernel regression with respect to each query"""
    queries = queries.clone().requires_grad_()
    scores = -((queries[:, None] - keys) ** 2) / (2 * bandwidth**2)
    fit = torch.softmax(scores, -1) @ values
    (gradient,) = torch.autograd.grad(fit.sum(), queries)
    return gradient


@slope.mistake("deeplearning4j/libnd4j #440", symptom=symptoms.WRONG_GRADIENTS)
def follows_its_own_score_only(queries, keys, values, bandwidth):
    """A slope even where all values are equal and the curve is flat.
    cause: A weight also depends on the scores of the other keys, through the
    sum that it is divided by; only its own score was followed.
    fix: Differentiate the sum too: the slope becomes a covariance.
    hint: When one weight grows, what must the others do?"""
    scores = -((queries[:, None] - keys) ** 2) / (2 * bandwidth**2)
    weights = torch.softmax(scores, -1)
    change = (keys - queries[:, None]) / bandwidth**2
    return (weights * (1 - weights) * change) @ values


@slope.mistake("sarmueller/gibo #3", symptom=symptoms.WRONG_IN_THE_NEXT_CASE)
def divides_by_the_bandwidth_unsquared(queries, keys, values, bandwidth):
    """Right at bandwidth 1. Wider kernels give slopes that are too steep,
    narrower ones slopes that are too flat.
    cause: The score has σ² in its denominator, its derivative here only σ.
    fix: Divide by the square of the bandwidth: / bandwidth**2.
    hint: What is the derivative of −(q − k)² / (2σ²) with respect to q?"""
    scores = -((queries[:, None] - keys) ** 2) / (2 * bandwidth**2)
    weights = torch.softmax(scores, -1)
    product = weights @ (keys * values)
    return (product - (weights @ keys) * (weights @ values)) / bandwidth
