"""Chapter 1, weighted averages: tasks and known mistakes."""

import numpy as np
import torch
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import norm, vonmises

from attnbook.teach.mistakes import mistake
from attnbook.teach.proof import Case
from attnbook.teach.seeded import randn
from attnbook.teach.tasks import task


def _row(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def _normalised(log_kernel):
    """exp(log_kernel), each row divided by its sum."""
    total = logsumexp(log_kernel, axis=-1, keepdims=True)
    return torch.tensor(np.exp(log_kernel - total))


def _average_cases():
    return [
        Case("one value", (_row(3), _row(1))),
        Case("the running example", (_row(90, 120, 100), _row(0.1, 0.3, 0.6))),
        Case(
            "seven values, some negative",
            (randn(7, seed=1), torch.softmax(randn(7, seed=2), 0)),
        ),
    ]


@task(
    chapter=1,
    wanted="the sum of weight times value, the weights summing to one",
    cases=_average_cases,
)
def weighted_average(values, weights):
    return torch.tensor(np.average(values, weights=weights))


@mistake(
    task=weighted_average,
    symptom="The average is too small by a factor n: 35.00 where 105.00 is "
    "right, below every value that went in.",
    cause="The weights already sum to one; dividing by n is done twice.",
    fix="Sum weight times value, and stop there.",
    hint="What do your weights sum to before you divide?",
    seen="S2.4",
)
def divides_by_n_again(values, weights):
    return (weights * values).sum() / len(values)


def _kernel_cases():
    return [
        Case("one query, three keys", (_row(4), _row(1, 2, 3), 1.5)),
        Case(
            "as many queries as keys",
            (_row(0, 2.5, 4), _row(1, 2, 3), 0.8),
        ),
        Case(
            "more queries than keys",
            (3 * randn(5, seed=1), 3 * randn(2, seed=2), 0.7),
        ),
        Case("a query far from every key", (_row(2, 100), _row(1, 2, 3), 1.2)),
    ]


@task(
    chapter=1,
    wanted="the (T, S) weights exp(−(q − k)² / (2σ²)), each query's divided "
    "by their sum",
    cases=_kernel_cases,
)
def gaussian_weights(queries, keys, width):
    return _normalised(norm.logpdf(queries[:, None], loc=keys, scale=width))


@mistake(
    task=gaussian_weights,
    symptom="The columns sum to one instead of the rows; the averages may "
    "leave the range of the values.",
    cause="The sum runs over the queries. Every key hands out one unit of "
    "weight, where every query should.",
    fix="Sum over the last axis, the keys: dim=-1.",
    hint="What do the weights of a single query sum to?",
    seen="nerminnuraydogan/vision-transformer #1",
)
def normalises_over_queries(queries, keys, width):
    scores = -((queries[:, None] - keys) ** 2) / (2 * width**2)
    kernel = torch.exp(scores - scores.amax(0, keepdim=True))
    return kernel / kernel.sum(0, keepdim=True)


@mistake(
    task=gaussian_weights,
    symptom="An error about sizes for most inputs; silently wrong weights "
    "where there are as many queries as keys, and a wrong shape for one key.",
    cause="The sums have lost their axis. Broadcasting lines them up with the "
    "columns: column j is divided by the sum of row j, so that only the "
    "diagonal is sure to be right.",
    fix="Keep the axis: sum(-1, keepdim=True).",
    hint="What shape have your sums, and which axis does broadcasting give "
    "them?",
    seen="numpy/numpy #21850",
)
def divides_without_keepdim(queries, keys, width):
    scores = -((queries[:, None] - keys) ** 2) / (2 * width**2)
    kernel = torch.exp(scores - scores.amax(-1, keepdim=True))
    return kernel / kernel.sum(-1)


@mistake(
    task=gaussian_weights,
    symptom="Right at width 1. Elsewhere the width works backwards: a larger "
    "one makes the weights sharper.",
    cause="Python reads a / 2 * b from left to right, as (a / 2) * b, so the "
    "variance multiplies where it should divide.",
    fix="Put the denominator in brackets: / (2 * width**2).",
    hint="Make the width larger. Do the weights become more equal?",
    seen="mdbartos/graph-signals #1",
)
def multiplies_by_the_variance(queries, keys, width):
    scores = -((queries[:, None] - keys) ** 2) / 2 * width**2
    kernel = torch.exp(scores - scores.amax(-1, keepdim=True))
    return kernel / kernel.sum(-1, keepdim=True)


@mistake(
    task=gaussian_weights,
    symptom="NaN for a query that is far from every key, measured in widths.",
    cause="Every exp is too small for the number format and becomes 0; then "
    "0 is divided by 0.",
    fix="Subtract the largest score of each query before exp; it cancels.",
    hint="What is exp of −800 on a computer, and what do you divide by?",
    seen="kornia/kornia #4589",
)
def underflows_to_nan(queries, keys, width):
    kernel = torch.exp(-((queries[:, None] - keys) ** 2) / (2 * width**2))
    return kernel / kernel.sum(-1, keepdim=True)


def _distance_cases():
    unit = torch.nn.functional.normalize(randn(5, 3, seed=4), dim=-1)
    return [
        Case(
            "two keys, one three times as long",
            (_row(1, 0)[None], torch.stack([_row(1, 0), _row(3, 0)]), 1.0),
        ),
        Case("keys of length one", (randn(4, 3, seed=3), unit, 0.5)),
        Case(
            "keys of many lengths",
            (randn(2, 16, seed=5), randn(7, 16, seed=6), 2.0),
        ),
    ]


@task(
    chapter=1,
    wanted="the (T, S) weights exp(−|q − k|² / (2σ²)), each query's divided "
    "by their sum",
    cases=_distance_cases,
)
def distance_weights(queries, keys, width):
    squares = cdist(queries, keys, "sqeuclidean")
    return _normalised(-squares / (2 * width**2))


@mistake(
    task=distance_weights,
    symptom="A long key gets more weight than a nearer, shorter one. With "
    "keys of length one nothing is wrong, so such a test passes.",
    cause="The dot product stands for the distance, but |k|² differs from key "
    "to key and does not cancel.",
    fix="Subtract |k|² / 2 from the dot products, or give all keys one "
    "length.",
    hint="Which of the three terms of |q − k|² are the same for every key?",
    seen="mem0ai/mem0 #5959 (there for the cosine)",
)
def forgets_the_length_of_keys(queries, keys, width):
    scores = queries @ keys.T / width**2
    kernel = torch.exp(scores - scores.amax(-1, keepdim=True))
    return kernel / kernel.sum(-1, keepdim=True)


def _box_cases():
    days, visitors = _row(1, 2, 3), _row(90, 120, 100)
    return [
        Case(
            "a key far below the query, and one far above",
            (_row(5), _row(1, 5, 9), visitors, 1.0),
        ),
        Case("every key in reach", (_row(2), days, visitors, 1.0)),
        Case("no key in reach", (_row(2.5, 9), days, visitors, 1.0)),
        Case(
            "six queries, eight keys",
            (
                torch.linspace(-6, 6, 6, dtype=torch.float64),
                3 * randn(8, seed=1),
                randn(8, seed=2),
                1.5,
            ),
        ),
    ]


@task(
    chapter=1,
    wanted="for each query the plain mean of the values whose keys lie "
    "within the width, 0 where there are none",
    cases=_box_cases,
)
def box_regression(queries, keys, values, width):
    means = []
    for query in queries:
        near = np.abs(keys.numpy() - query.item()) <= width
        means.append(values.numpy()[near].mean() if near.any() else 0.0)
    return torch.tensor(means)


@mistake(
    task=box_regression,
    symptom="NaN for every query that has no key in reach.",
    cause="No key counts, so the weights sum to zero, and 0 is divided by 0.",
    fix="Divide by 1 where the sum is 0: the weights and the result are 0.",
    hint="What do you divide by for a query that no key is near?",
    seen="scikit-learn/scikit-learn #9654 (there NaN is what is asked for)",
)
def nan_where_no_key_is_near(queries, keys, values, width):
    near = ((queries[:, None] - keys).abs() <= width).to(values.dtype)
    return (near / near.sum(-1, keepdim=True)) @ values


def _leave_one_out_cases():
    return [
        Case("two keys", (_row(0, 1), _row(-1, 1), 0.5)),
        Case("the running example", (_row(1, 2, 3), _row(90, 120, 100), 1.5)),
        Case("two equal keys", (_row(1, 1, 3), _row(90, 120, 100), 1.5)),
        Case(
            "a key far from the others",
            (_row(1, 2, 60), _row(90, 120, 100), 1.0),
        ),
        Case(
            "nine keys in no order",
            (3 * randn(9, seed=1), randn(9, seed=2), 0.8),
        ),
    ]


@task(
    chapter=1,
    wanted="each value predicted by kernel regression from all the others",
    cases=_leave_one_out_cases,
)
def leave_one_out(keys, values, width):
    keys, values = keys.numpy(), values.numpy()
    predicted = []
    for i, key in enumerate(keys):
        log_kernel = norm.logpdf(np.delete(keys, i), loc=key, scale=width)
        predicted.append(
            np.average(
                np.delete(values, i),
                weights=np.exp(log_kernel - log_kernel.max()),
            )
        )
    return torch.tensor(np.array(predicted))


@mistake(
    task=leave_one_out,
    symptom="The error shrinks to zero as the width does, so that the "
    "narrowest width always looks best.",
    cause="Each key is its own nearest neighbour: the prediction copies the "
    "very value that it is compared with.",
    fix="Give every key weight 0 for itself, then divide by the sum of the "
    "rest.",
    hint="Which key lies nearest to each query here?",
    seen="NicolasHug/Surprise #134 (there called expected)",
)
def keeps_its_own_value(keys, values, width):
    scores = -((keys[:, None] - keys) ** 2) / (2 * width**2)
    kernel = torch.exp(scores)
    return (kernel / kernel.sum(-1, keepdim=True)) @ values


@mistake(
    task=leave_one_out,
    symptom="The weights of a query sum to less than one: of two keys each "
    "should get the other's value, and only a part of it arrives.",
    cause="The key's own weight is set to 0 after the division. It has taken "
    "part in the sum, so the others no longer sum to one.",
    fix="Give every key weight 0 for itself first, then divide by the sum.",
    hint="What do the weights of one query sum to?",
    seen="lucidrains/memory-compressed-attention #2 (there with a mask)",
)
def zeroes_its_weight_too_late(keys, values, width):
    scores = -((keys[:, None] - keys) ** 2) / (2 * width**2)
    kernel = torch.exp(scores)
    weights = kernel / kernel.sum(-1, keepdim=True)
    return weights.fill_diagonal_(0) @ values


def _circle_cases():
    week = torch.arange(7, dtype=torch.float64)
    return [
        Case("three days, two keys", (_row(0, 3, 6), _row(0, 6), 7, 0.8)),
        Case("all days from three", (week, _row(0, 3, 6), 7, 0.6)),
        Case("a narrow width", (_row(1, 2.5), _row(0, 3, 6), 7, 0.02)),
        Case(
            "hours, some beyond the day",
            (24 * randn(4, seed=1), 24 * randn(5, seed=2), 24, 0.3),
        ),
    ]


@task(
    chapter=1,
    wanted="the dot-product weights of (cos, sin) of the angle 2πn / period",
    cases=_circle_cases,
)
def circular_weights(queries, keys, period, width):
    turn = 2 * np.pi / period
    return _normalised(
        vonmises.logpdf(
            turn * queries.numpy()[:, None],
            kappa=1 / width**2,
            loc=turn * keys.numpy(),
        )
    )


@mistake(
    task=circular_weights,
    symptom="The last day of the week and the first get the same place on "
    "the circle, and so the same weight.",
    cause="Seven days, numbered 0 to 6, are spread over period − 1 steps; the "
    "circle closes one day early.",
    fix="Divide by the period itself.",
    hint="How many steps lead from Monday round to the next Monday?",
    seen="PriorLabs/tabpfn-time-series #145",
)
def closes_the_circle_early(queries, keys, period, width):
    q, k = (2 * torch.pi * t / (period - 1) for t in (queries, keys))
    q = torch.stack([torch.cos(q), torch.sin(q)], -1)  # (T, 2)
    k = torch.stack([torch.cos(k), torch.sin(k)], -1)  # (S, 2)
    return torch.softmax(q @ k.T / width**2, -1)


@mistake(
    task=circular_weights,
    symptom="A whole period covers less than a sixth of the circle, so its "
    "two ends stay far apart.",
    cause="cos and sin take radians: a full turn is 2π, not 1.",
    fix="Multiply by 2π before dividing by the period.",
    hint="How large is the angle after one whole period?",
    seen="EmilHvitfeldt/feature-engineering-az #62 (there in a book's "
    "formula)",
)
def turns_by_one_radian(queries, keys, period, width):
    q, k = queries / period, keys / period
    q = torch.stack([torch.cos(q), torch.sin(q)], -1)  # (T, 2)
    k = torch.stack([torch.cos(k), torch.sin(k)], -1)  # (S, 2)
    return torch.softmax(q @ k.T / width**2, -1)


def _slope_cases():
    return [
        Case(
            "the running example",
            (_row(4), _row(1, 2, 3), _row(90, 120, 100), 1.5),
        ),
        Case("equal values", (_row(0, 5), _row(1, 2, 3), _row(7, 7, 7), 1.0)),
        Case(
            "a query far from every key",
            (_row(2, 100), _row(1, 2, 3), _row(90, 120, 100), 1.2),
        ),
        Case(
            "six queries, four keys",
            (2 * randn(6, seed=1), randn(4, seed=2), randn(4, seed=3), 0.7),
        ),
    ]


@task(
    chapter=1,
    wanted="the derivative of kernel regression with respect to each query",
    cases=_slope_cases,
)
def slope(queries, keys, values, width):
    queries = queries.clone().requires_grad_()
    scores = -((queries[:, None] - keys) ** 2) / (2 * width**2)
    fit = torch.softmax(scores, -1) @ values
    (gradient,) = torch.autograd.grad(fit.sum(), queries)
    return gradient


@mistake(
    task=slope,
    symptom="A slope even where all values are equal and the curve is flat.",
    cause="A weight also depends on the scores of the other keys, through "
    "the sum that it is divided by; only its own score was followed.",
    fix="Differentiate the sum too: the slope becomes a covariance.",
    hint="When one weight grows, what must the others do?",
    seen="deeplearning4j/libnd4j #440",
)
def follows_its_own_score_only(queries, keys, values, width):
    scores = -((queries[:, None] - keys) ** 2) / (2 * width**2)
    weights = torch.softmax(scores, -1)
    change = (keys - queries[:, None]) / width**2
    return (weights * (1 - weights) * change) @ values


@mistake(
    task=slope,
    symptom="Right at width 1. Wider kernels give slopes that are too steep, "
    "narrower ones slopes that are too flat.",
    cause="The score has σ² in its denominator, its derivative here only σ.",
    fix="Divide by the square of the width: / width**2.",
    hint="What is the derivative of −(q − k)² / (2σ²) with respect to q?",
    seen="sarmueller/gibo #3",
)
def divides_by_the_width_unsquared(queries, keys, values, width):
    scores = -((queries[:, None] - keys) ** 2) / (2 * width**2)
    weights = torch.softmax(scores, -1)
    product = weights @ (keys * values)
    return (product - (weights @ keys) * (weights @ values)) / width
