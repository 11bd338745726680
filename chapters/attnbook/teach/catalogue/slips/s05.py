"""Slips of chapter 5."""

import torch

from attnbook.attention import (
    softmax,
)
from attnbook.teach.catalogue import c05_masking as c05

INF = torch.inf


def _causal(q, k, v, diagonal, scale=True):
    """Context and weights of causal attention that hides keys from this
    diagonal on; 1 is right."""
    scores = q @ k.mT / (q.shape[-1] ** 0.5 if scale else 1)
    hidden = torch.ones_like(scores).bool().triu(diagonal)
    weights = scores.masked_fill(hidden, -INF).softmax(-1)
    return weights @ v, weights


c05.causal_attention.slip(
    "each query sees the next key",
    "How many keys may the first query see?",
    lambda q, k, v: _causal(q, k, v, 2),
)
c05.causal_attention.slip(
    "no query sees its own key",
    "What is left for the first query?",
    lambda q, k, v: _causal(q, k, v, 0),
)
c05.causal_attention.slip(
    "the scale is left out",
    "What are the scores divided by?",
    lambda q, k, v: _causal(q, k, v, 1, scale=False),
)
c05.causal_attention.slip(
    "the mask is missing",
    "May the first query see the last key?",
    lambda q, k, v: _causal(q, k, v, 99),
)


def _lower(q, k, v, fill, diagonal=0):
    """Context and weights of attention in which `fill(scores, kept)` makes
    the weights, where `kept` has the keys up to this diagonal."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    kept = torch.ones_like(scores).bool().tril(diagonal)
    weights = fill(scores, kept)
    return weights @ v, weights


c05.causal_attention.slip(
    "no query sees its own key, and the first one gets zeros",
    "What is left for the first query?",
    lambda q, k, v: _lower(
        q, k, v, lambda s, kept: softmax(s.masked_fill(~kept, -INF)), -1
    ),
)
c05.causal_attention.slip(
    "the keys that should stay are hidden",
    "Does masked_fill fill where its mask is True, or where it is False?",
    lambda q, k, v: _lower(
        q, k, v, lambda s, kept: softmax(s.masked_fill(kept, -INF))
    ),
)
c05.causal_attention.slip(
    "the mask comes after the softmax",
    "What does each row of your weights sum to?",
    lambda q, k, v: _lower(q, k, v, lambda s, kept: softmax(s) * kept),
)
c05.causal_attention.slip(
    "a hidden key has the score 0",
    "What weight does a score of 0 get?",
    lambda q, k, v: _lower(q, k, v, lambda s, kept: softmax(s * kept)),
)


def _window(n_queries, n_keys, window, *, offset=None, after=INF):
    """A mask (n_queries, n_keys) of the keys fewer than `window` before the
    query and fewer than `after` later than it. The first query is at the
    place `offset`; by default the last query is at the last key."""
    offset = n_keys - n_queries if offset is None else offset
    gap = offset + torch.arange(n_queries)[:, None] - torch.arange(n_keys)
    return (gap < window) & (-gap < after)


c05.window_mask.slip(
    "later keys are hidden by the window too",
    "Who hides the later keys: the window, or the mask it is joined with?",
    lambda q, k, *, window: _window(q, k, window, after=1),
)
c05.window_mask.slip(
    "the window looks ahead as far as back",
    "What does the exercise say of later keys?",
    lambda q, k, *, window: _window(q, k, window, after=window),
)
c05.window_mask.slip(
    "the window looks ahead, not back",
    "Is a key before the query at a smaller position, or at a larger one?",
    lambda q, k, *, window: _window(q, k, INF, after=window),
)
c05.window_mask.slip(
    "the queries are taken for the first of the keys",
    "At which position does the first query stand?",
    lambda q, k, *, window: _window(q, k, window, offset=0),
)
c05.looks_right.slip(
    "a result that is far too small passes",
    "Is −1 ≤ 1e-9?",
    lambda a, b: a.shape == b.shape and bool((a - b <= 1e-9).all()),
)
c05.looks_right.slip(
    "one number that is right is enough",
    "Should all numbers be near, or any?",
    lambda a, b: a.shape == b.shape and bool(((a - b).abs() <= 1e-9).any()),
)
c05.looks_right.slip(
    "a small mean of the differences is enough",
    "Can one wrong number hide among many right ones?",
    lambda a, b: a.shape == b.shape and bool((a - b).abs().mean() <= 1e-9),
)
c05.looks_right.slip(
    "shapes that broadcast pass",
    "What is the shape of the difference of (1, 2) and (2, 2)?",
    lambda a, b: bool(((a - b).abs() <= 1e-9).all()),
)
c05.looks_right.slip(
    "a NaN passes",
    "What is nan > 1e-9?",
    lambda a, b: a.shape == b.shape and not ((a - b).abs() > 1e-9).any(),
)
c05.looks_right.slip(
    "large numbers may be further off",
    "What are the defaults rtol and atol of allclose?",
    lambda a, b: a.shape == b.shape and torch.allclose(a, b, atol=1e-9),
)


def _lowest(scores, mask):
    """Scores (..., T, S) with the least finite number where mask is False."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def _shares(scores, mask):
    """Weights (..., T, S) whose mask is multiplied with exp; a row without
    any key gets zeros."""
    exp = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    total = exp.sum(-1, keepdim=True)
    return exp / (total + (total == 0))


c05.masked_weights.slip(
    "a row without keys spreads its weight evenly",
    "What do equal scores give, however low they are?",
    lambda s, mask: torch.softmax(_lowest(s, mask), -1),
)
c05.masked_weights.slip(
    "a row with one hidden key is taken for a row without keys",
    "Which row is without keys: one that hides a key, or one that hides all?",
    lambda s, mask: c05.masked_weights(s, mask) * mask.all(-1, True),
)
c05.masked_weights.slip(
    "the peak is sought among the hidden scores too",
    "What is left of the allowed keys if a hidden score is far above them?",
    _shares,
)
