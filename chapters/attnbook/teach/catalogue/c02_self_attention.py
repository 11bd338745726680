"""Chapter 2, self-attention without parameters: tasks, known mistakes."""

import numpy as np
import scipy.special
import torch

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, ints
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(2)

INF = torch.inf
LEAST = torch.finfo(torch.float64).min


@task(
    against="torch.randn from the same seed",
    cases={
        "one word, one number": (1, 1, 0),
        "two words": (2, 2, 0),
        "five words in four dimensions": (5, 4, 3),
        "more dimensions than words": (3, 20, 7),
        "twelve words": (12, 3, 1234),
        "five words again, another seed": (5, 4, 9),
        "131 words, 130 wide": (131, 130, 5),
    },
)
def random_embeddings(n_words, d, seed):
    """one standard normal float64 vector of width d a word, all of them drawn
    in one call of torch.randn from one seeded generator"""
    return randn(n_words, d, seed=seed)


@random_embeddings.mistake(
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_NUMBERS)
)
def multiples_of_one_vector(n_words, d, seed):
    """The table has rank 1. Any two words point the same way or opposite ways,
    and every context vector lies on one line.
    cause: One vector is drawn and the others are made from it by
    multiplication. They look like different rows of numbers.
    fix: Draw the whole table in one call: torch.randn((n_words, d),
    generator=generator)."""
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randn(d, generator=generator, dtype=torch.float64)
    rows = [vector * (word + 1) for word in range(n_words)]
    return torch.stack(rows)  # (n_words, d)


@task(
    against="torch.softmax",
    home="attention.softmax",
    gradients=True,
    cases={
        "one score": (f64(2.0),),
        "three scores": (f64(1.0, 2.0, 3.0),),
        "scores that sum to zero": (f64(1.0, 2.0, -3.0),),
        "scores past the overflow of exp": (f64(1000.0, 999.0),),
        "scores far below zero": (f64(-1000.0, -999.0),),
        "a score of −∞": (f64(0.0, -INF, 1.0),),
        "two rows far apart": (f64([1000.0, 999.0], [0.0, 1.0]),),
        "along the first axis": call(randn(3, 5, 2, seed=1), dim=0),
        "along the middle axis": call(randn(2, 3, 4, seed=11), dim=1),
        "along the last axis but one": call(randn(2, 3, 4, seed=12), dim=-2),
        "a batch": (randn(2, 3, 4, seed=2),),
        "all scores below −100,000": (
            f64([-200001.0, -200000.0], [-(2.0**32), -(2.0**31)]),
        ),
        "300 scores": (randn(300, seed=3),),
        "17 texts of 131 rows": (randn(17, 131, 3, seed=4),),
    },
)
def softmax(scores, dim=-1):
    """exp(s) / Σ exp(s) along dim (by default the last), finite for any finite
    scores"""
    return torch.softmax(scores, dim)


@softmax.mistake("pyg-team/pytorch_geometric #53", symptom=symptoms.NAN)
def exp_overflows(scores, dim=-1):
    """NaN as soon as one score is large: above 88.72 in float32, above 11.09
    in float16.
    cause: exp overflows to infinity, and infinity divided by infinity is not a
    number.
    fix: Subtract the largest score along the same axis before exp; the weights
    stay the same."""
    exp = scores.exp()
    return exp / exp.sum(dim, keepdim=True)


@softmax.mistake(symptom=(symptoms.NAN, symptoms.WRONG_SUMS))
def divides_by_the_sum(scores, dim=-1):
    """Some weights are negative or above one, and the average leaves the range
    of its values; scores that sum to zero give infinities.
    cause: Scores are divided by their sum as if they were counts, but a dot
    product may be negative.
    fix: Make the scores positive first, by exp; then divide by the sum."""
    return scores / scores.sum(dim, keepdim=True)


@softmax.mistake("FluxML/NNlib.jl #43", symptom=symptoms.NAN)
def maximum_starts_at_zero(scores, dim=-1):
    """Right for all scores around zero and above; NaN for a row in which every
    score is far below zero.
    cause: The search for the largest score starts at 0, so the largest of a
    row of negative scores comes out as 0; far below zero every exp is then 0.
    fix: Start the search at −∞ or at the first score; amax does."""
    peak = scores.amax(dim, keepdim=True).clamp(min=0)
    exp = (scores - peak).exp()
    return exp / exp.sum(dim, keepdim=True)


@softmax.mistake(
    "JuliaGraphs/GraphNeuralNetworks.jl #244",
    symptom=(symptoms.NAN, symptoms.WRONG_IN_A_BATCH),
)
def maximum_of_the_whole_tensor(scores, dim=-1):
    """Right as long as the rows are of one size; a row far below the largest
    score of another row becomes NaN.
    cause: The largest score of the whole tensor is subtracted, not that of
    each row; in a low row every exp is then 0, and so is their sum.
    fix: Take the maximum along the axis that is summed: scores.amax(dim,
    keepdim=True)."""
    exp = (scores - scores.max()).exp()
    return exp / exp.sum(dim, keepdim=True)


@task(
    against="torch.softmax, group by group",
    gradients=True,
    cases={
        "one sentence": (f64(1.0, 2.0), ints(0, 0)),
        "two sentences": (f64(1.0, 2.0, 3.0), ints(0, 0, 1)),
        "any numbers in any order": (
            f64(1.0, 2.0, 3.0, 1.0),
            ints(7, -1, 7, -1),
        ),
        "two sentences far apart": (
            f64(1000.0, 999.0, 0.0, 1.0),
            ints(0, 0, 1, 1),
        ),
        "the least finite scores": (f64(LEAST, LEAST, 0.0), ints(0, 0, 1)),
        "a score of −∞": (f64(0.0, -INF), ints(3, 3)),
        "a sentence of nothing but −∞": (
            f64(-INF, -INF, 0.0, 1.0),
            ints(0, 0, 1, 1),
        ),
        "three sentences of nine words": (
            randn(9, seed=10),
            ints(0, 0, 0, 0, 1, 2, 2, 2, 2),
        ),
        "300 words of 37 sentences": (
            3 * randn(300, seed=11),
            torch.arange(300) * 7 % 37,
        ),
    },
)
def softmax_by_group(scores, groups):
    """weights that sum to one within each group of equal numbers in `groups`:
    the softmax of its scores; 0 where all its scores are −∞"""
    weights = torch.zeros_like(scores)
    for group in groups.unique():
        (members,) = torch.where((groups == group) & (scores > -INF))
        inside = torch.softmax(scores[members], 0)
        weights = weights.index_add(0, members, inside)
    return weights


@softmax_by_group.mistake(
    "JuliaGraphs/GraphNeuralNetworks.jl #244",
    symptom=(symptoms.NAN, symptoms.WRONG_IN_A_BATCH),
)
def one_maximum_for_all_groups(scores, groups):
    """Right as long as the sentences have scores of one size; a sentence far
    below the largest score of another becomes NaN.
    cause: The largest score of all sentences is subtracted. In a low sentence
    every exp is then 0, and so is their sum.
    fix: Subtract from each score the largest score of its own sentence.
    hint: How many maxima does your function subtract, and how many sentences
    are there?"""
    exp = (scores - scores.max()).exp()  # (N,)
    same = (groups[:, None] == groups).to(scores.dtype)  # (N, N)
    return exp / (same @ exp)


@task(
    against="scipy's softmax",
    cases={
        "temperature 1": (f64(1.0, 2.0), 1.0),
        "temperature 2": (f64(1.0, 2.0), 2.0),
        "temperature 0: the largest wins": (f64(1.0, 2.0), 0.0),
        "temperature 0, a tie": (f64(2.0, 0.0, 2.0), 0.0),
        "temperature 0, a tie of three": (f64(2.0, 2.0, 2.0), 0.0),
        "temperature 0, 1e-12 from a tie": (f64(0.0, 1e-12), 0.0),
        "nearly 0: scores of ±1000": (f64(1.0, 2.0, -1.0), 0.001),
        "as small as the scores": (f64(0.0, 1e-20), 1e-20),
        "float32, temperature 0": (f64(1.0, 2.0).float(), 0.0),
        "a batch": (randn(2, 3, 5, seed=3), 2.5),
        "a batch at temperature 0": (randn(2, 3, 5, seed=4), 0.0),
        "float32, nearly 0": (f64(8.0, 0.0, 4.0).float(), 2e-38),
        "float32, very nearly 0": (f64(1.0, 2.0, 2.0).float(), 1e-50),
        "a score of −∞": (f64(0.0, -INF, 1.0), 0.5),
        "temperature 0, a tie in the second row": (
            f64([3.0, 1.0, -INF], [2.0, 0.0, 2.0]),
            0.0,
        ),
        "300 scores": (randn(300, seed=5), 0.7),
        "17 texts of 131 rows": (randn(17, 131, 3, seed=6), 0.7),
    },
)
def tempered_softmax(scores, temperature):
    """softmax of scores / temperature along the last axis; at temperature 0
    the largest score has weight 1, shared by equals"""
    below = scores.double().numpy()
    below = below - below.max(-1, keepdims=True)
    if temperature > 0:
        weights = scipy.special.softmax(below / temperature, axis=-1)
    else:
        weights = (below == 0) / (below == 0).sum(-1, keepdims=True)
    return torch.from_numpy(weights).to(scores.dtype)


@tempered_softmax.mistake(
    "bowang-lab/BLEEP #5",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.WRONG_SHARPNESS),
)
def multiplies_by_temperature(scores, temperature):
    """A low temperature makes the weights even, a high one sharp: the knob
    turns the wrong way. At temperature 1 nothing is amiss.
    cause: The scores are multiplied by the temperature.
    fix: Divide by it: softmax(scores / temperature).
    hint: Which way do your weights move when the temperature falls?"""
    return torch.softmax(scores * temperature, -1)


@tempered_softmax.mistake(
    "MoonshotAI/Kimi-Audio #161",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.WRONG_SUMS),
)
def temperature_after_softmax(scores, temperature):
    """The ratios of the weights are right, but they no longer sum to one. At
    temperature 1 nothing is amiss.
    cause: The temperature is applied to the logarithms of finished weights;
    the sum that they were divided by belongs to temperature 1.
    fix: Divide the scores by the temperature, then take the softmax.
    hint: What do your weights sum to at temperature 2?"""
    log_weights = torch.log_softmax(scores, -1)
    return (log_weights / temperature).exp()


_TOKENS = {
    "one token": (f64([1, 2]),),
    "two tokens": (f64([1, 0], [1, 1]),),
    "more tokens than dimensions": (randn(5, 3, seed=5),),
    "more dimensions than tokens": (randn(3, 7, seed=6),),
    "long vectors, scores past 1e10": (1e6 * randn(3, 2, seed=7),),
    "a batch": (randn(2, 4, 3, seed=8),),
    "17 texts": (randn(17, 3, 2, seed=9),),
    "131 tokens, 130 wide": (randn(131, 130, seed=10) / 5,),
}


@task(against="numpy.einsum and scipy's softmax", cases=_TOKENS)
def simple_attention(x):
    """(context, weights): weights = softmax of x xᵀ along the last axis,
    context = weights x"""
    x = x.numpy()
    scores = np.einsum("...id,...jd->...ij", x, x)
    weights = scipy.special.softmax(scores, axis=-1)
    context = np.einsum("...ij,...jd->...id", weights, x)
    return torch.from_numpy(context), torch.from_numpy(weights)


@simple_attention.mistake(
    "labmlai/annotated_deep_learning_paper_implementations #146",
    symptom=symptoms.WRONG_SUMS,
)
def softmax_over_queries(x):
    """The columns of the weights sum to one, not the rows. Every shape is
    right, and a context vector is no average any more.
    cause: The softmax runs over the queries. It is often written as dim=1:
    for scores (T, T) that is the axis of the keys, but with a batch in front
    it is the axis of the queries, the same as dim=-2.
    fix: softmax(scores, dim=-1): counted from the end, the axis of the keys
    stays the same with any axes in front."""
    scores = x @ x.transpose(-2, -1)  # (..., T, T)
    weights = torch.softmax(scores, dim=-2)  # (..., T, T)
    return weights @ x, weights  # (..., T, d)


@simple_attention.mistake(
    "Lightning-Universe/lightning-bolts #654",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_SHARPNESS),
)
def softmax_twice(x):
    """The weights are nearly even whatever the scores, no weight more than e =
    2.718 times another, and each row sums to one.
    cause: A function that returns weights already gets another softmax.
    Weights lie between 0 and 1, so to the second softmax they all look alike.
    fix: Softmax once, on the raw scores."""
    scores = x @ x.transpose(-2, -1)  # (..., T, T)
    weights = torch.softmax(scores, dim=-1)  # (..., T, T)
    weights = torch.softmax(weights, dim=-1)
    return weights @ x, weights  # (..., T, d)


@simple_attention.mistake(
    "zhouhaoyi/Informer2020 #59",
    symptom=symptoms.WRONG_NUMBERS,
    not_looked_up="zhouhaoyi/Informer2020 #59",
)
def reshape_for_transpose(x):
    """All shapes are right, but scores that should be symmetric are not: a
    token is compared with pieces of several others.
    cause: reshape keeps the numbers in their order in memory and cuts them
    elsewhere; only transpose exchanges axes.
    fix: x.transpose(-2, -1), or x.mT."""
    n_tokens, d = x.shape[-2:]
    keys = x.reshape(*x.shape[:-2], d, n_tokens)  # (..., d, T)
    weights = torch.softmax(x @ keys, dim=-1)  # (..., T, T)
    return weights @ x, weights  # (..., T, d)


@task(
    against="torch.logsumexp",
    gradients=True,
    cases={
        "one score": (f64(2.0),),
        "two equal scores": (f64(0.0, 0.0),),
        "scores past the overflow of exp": (f64(1000.0, 1000.0),),
        "scores far below zero": (f64(-1000.0, -1001.0),),
        "two rows far apart": (f64([1000.0, 999.0], [0.0, 1.0]),),
        "a score of −∞": (f64(0.0, -INF),),
        "a batch of one row each": (randn(2, 1, 4, seed=9),),
        "all scores below −100,000": (
            f64([-200001.0, -200000.0], [-(2.0**32), -(2.0**31)]),
        ),
        "300 scores": (randn(300, seed=10),),
        "17 texts of 131 rows": (randn(17, 131, 3, seed=11),),
    },
)
def log_sum_exp(scores):
    """log Σ exp(s) along the last axis, finite for any finite scores"""
    return torch.logsumexp(scores, -1)


@task(
    against="numpy.einsum and scipy's softmax",
    cases=_TOKENS
    | {
        "a repeated token": (f64([1], [1], [0]),),
        "two texts of one token": (randn(2, 1, 3, seed=13),),
    },
)
def neighbours_only(x):
    """(context, weights) as simple_attention, but no token has any weight on
    itself; a token that is alone has weight 0 and context 0"""
    x = x.numpy()
    scores = np.einsum("...id,...jd->...ij", x, x)
    others = ~np.eye(x.shape[-2], dtype=bool)
    if x.shape[-2] == 1:
        weights = np.zeros_like(scores)
    else:
        weights = scipy.special.softmax(
            np.where(others, scores, -np.inf), axis=-1
        )
    context = np.einsum("...ij,...jd->...id", weights, x)
    return torch.from_numpy(context), torch.from_numpy(weights)


@neighbours_only.mistake(
    "HKUST-KnowComp/MnemonicReader #7", symptom=symptoms.SEES_WRONG_TOKENS
)
def scores_itself_zero(x):
    """Each token still has a weight on itself, and a large one where the
    scores of its neighbours are negative. All rows sum to one.
    cause: The diagonal of the scores is set to 0, and 0 is a score like any
    other: exp(0) = 1.
    fix: Set it to −∞: exp(−∞) = 0.
    hint: Look at the diagonal of your weights. What does a score of 0 become
    in the softmax?"""
    scores = x @ x.transpose(-2, -1)  # (..., T, T)
    itself = torch.eye(x.shape[-2], dtype=torch.bool)
    weights = torch.softmax(scores.masked_fill(itself, 0), dim=-1)
    return weights @ x, weights  # (..., T, d)


@neighbours_only.mistake(symptom=symptoms.WRONG_SUMS)
def removes_itself_after_softmax(x):
    """The rows no longer sum to one; the louder a token is to itself, the less
    its neighbours get.
    cause: The weight on itself is removed after the softmax, which has shared
    the whole weight out before.
    fix: Forbid it in the scores, before the softmax.
    hint: What does each row of your weights sum to?"""
    scores = x @ x.transpose(-2, -1)  # (..., T, T)
    itself = torch.eye(x.shape[-2], dtype=torch.bool)
    weights = torch.softmax(scores, dim=-1).masked_fill(itself, 0)
    return weights @ x, weights  # (..., T, d)
