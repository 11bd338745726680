"""Slips of chapter 2."""

from functools import partial

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import c02_self_attention as c02

INF = torch.inf


def _largest(scores, *, share=True):
    """1 at the largest score of each row and 0 elsewhere; if `share`, several
    that are equally large share it."""
    top = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
    return top / top.sum(-1, keepdim=True) if share else top


def _tempered(scores, temperature, at_zero=_largest, zero=0.0):
    """Softmax at a temperature. At `zero` and below it, `at_zero` makes the
    weights of the scores."""
    if temperature <= zero:
        return at_zero(scores)
    below = scores - scores.amax(-1, keepdim=True)
    return torch.softmax(below / temperature, -1)


c02.tempered_softmax.slip(
    "of equal largest scores one gets all the weight",
    "At temperature 0, what do two equal largest scores get?",
    lambda s, t: _tempered(
        s, t, lambda s: F.one_hot(s.argmax(-1), s.shape[-1]).to(s.dtype)
    ),
)
c02.tempered_softmax.slip(
    "at temperature 0 it divides by 0",
    "What is the limit, computed without a division?",
    lambda s, t: torch.softmax((s - s.amax(-1, keepdim=True)) / t, -1),
)
c02.tempered_softmax.slip(
    "in float32 the smallest temperature is rounded to 0",
    "What does torch.tensor(1e-50) hold?",
    _tempered,
)
c02.tempered_softmax.slip(
    "at temperature 0 each of equal largest scores gets the whole weight",
    "What do the weights of two equal largest scores sum to?",
    partial(_tempered, at_zero=partial(_largest, share=False)),
)
c02.tempered_softmax.slip(
    "a small temperature is taken for 0",
    "Which weights have the scores 0 and 1e-20 at temperature 1e-20?",
    partial(_tempered, zero=1e-6),
)
c02.tempered_softmax.slip(
    "the temperature cancels",
    "What is left of a number that divides each weight and their sum?",
    lambda s, t: F.normalize(torch.softmax(s, -1) / t, 1, -1),
)


def _by_group(scores, groups, hidden=-INF):
    """Each score's weight (N,) in the softmax over its own group. In the table
    (N, N) of all scores those of other groups are `hidden` by a number."""
    same = groups[:, None] == groups
    table = scores.expand(same.shape).masked_fill(~same, hidden)
    return table.softmax(-1).diagonal()


def _stretches(groups):
    """Numbers (N,) of groups that end wherever the next one differs, so that
    one group in two places counts as two."""
    return (groups.diff(prepend=groups[:1]) != 0).cumsum(0)


c02.softmax_by_group.slip(
    "a sentence of nothing but −∞ gives NaN",
    "What is divided by what where all scores are −∞?",
    _by_group,
)
c02.softmax_by_group.slip(
    "the NaN is covered up, and stays in the gradient",
    "Can the scores be kept from ever becoming NaN?",
    lambda scores, groups: _by_group(scores, groups).nan_to_num(),
)
c02.softmax_by_group.slip(
    "only numbers side by side make a sentence",
    "Where may the tokens of one sentence stand?",
    lambda scores, groups: c02.softmax_by_group(scores, _stretches(groups)),
)
c02.softmax_by_group.slip(
    "the sentences are counted from 0",
    "Which integers may stand for a sentence?",
    lambda scores, groups: (
        c02.softmax_by_group(scores, groups) * (groups >= 0)
    ),
)
c02.softmax_by_group.slip(
    "the other sentences are hidden by a finite number",
    "Can the scores of a sentence be as low as what you fill in?",
    lambda scores, groups: _by_group(scores, groups, -1e9),
)
c02.softmax_by_group.slip(
    "the scores of other sentences are 0, not −∞",
    "What does a score of 0 become in the softmax?",
    lambda scores, groups: _by_group(scores, groups, 0.0),
)
c02.log_sum_exp.slip(
    "the peak is not added back",
    "The shift cancels in a softmax. Does it cancel here?",
    lambda s: (s - s.amax(-1, keepdim=True)).exp().sum(-1).log(),
)
c02.log_sum_exp.slip(
    "exp overflows, or nothing is left of it",
    "What is exp(1000), and what is the log of exp(−1000)?",
    lambda s: s.exp().sum(-1).log(),
)
c02.log_sum_exp.slip(
    "the gradient of the peak is counted on one side only",
    "Where is the peak detached, and where is it not?",
    lambda s: torch.logsumexp(s, -1) + s.amax(-1) - s.amax(-1).detach(),
)


def _steps(x):
    """How many places each token is after each other one, (T, T)."""
    places = torch.arange(x.shape[-2])
    return places[:, None] - places


def _neighbours(x, hidden=None, filled=-INF):
    """Contexts and weights of attention without some keys.

    Args:
        x: tokens (T, d).
        hidden: which keys are left out, (T, T); each token's own by default.
        filled: the score that such a key gets.
    """
    hidden = _steps(x) == 0 if hidden is None else hidden
    scores = (x @ x.mT).masked_fill(hidden, filled)
    weights = scores.softmax(-1).nan_to_num()
    return weights @ x, weights


c02.neighbours_only.slip(
    "a finite number stands for −∞",
    "What does a softmax make of a single score, however low?",
    partial(_neighbours, filled=-1e9),
)
c02.neighbours_only.slip(
    "equal tokens are left out as well",
    "The same word stands in two places: is the other one itself?",
    lambda x: _neighbours(
        x, (x[..., :, None, :] == x[..., None, :, :]).all(-1)
    ),
)
c02.neighbours_only.slip(
    "only the tokens right beside it count",
    "May a token listen to one that stands far away?",
    lambda x: _neighbours(x, _steps(x).abs() != 1),
)
c02.neighbours_only.slip(
    "the columns of the weights sum to one, not the rows",
    "Along which axis do the weights of one query lie?",
    lambda x: (_neighbours(x)[1].mT @ x, _neighbours(x)[1].mT),
)
