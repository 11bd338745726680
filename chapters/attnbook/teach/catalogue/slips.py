"""Slips that a check recognises and answers with a hint, and no more.

A known mistake has its page in the catalogue: what one sees, why, where it was
seen. These are the smaller ones of single exercises: a wrong function, its
name in words, and a question.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F

from attnbook.attention import (
    Attention,
    scaled_dot_product_attention,
    softmax,
)
from attnbook.layers import TransformerBlock
from attnbook.masks import causal_mask as square_mask
from attnbook.teach.catalogue import c01_averages as c01
from attnbook.teach.catalogue import c02_self_attention as c02
from attnbook.teach.catalogue import c03_queries_keys_values as c03
from attnbook.teach.catalogue import c04_scaling as c04
from attnbook.teach.catalogue import c05_masking as c05
from attnbook.teach.catalogue import c06_multi_head as c06
from attnbook.teach.catalogue import c07_norms as c07
from attnbook.teach.catalogue import c08_feed_forward as c08
from attnbook.teach.catalogue import c09_positions as c09
from attnbook.teach.catalogue import c10_block as c10
from attnbook.teach.catalogue import c11_language_model as c11
from attnbook.teach.catalogue import c12_real_text as c12
from attnbook.teach.catalogue import c13_encoder_decoder as c13
from attnbook.teach.catalogue import c14_cache as c14
from attnbook.teach.catalogue import c15_generating as c15
from attnbook.teach.catalogue import c16_real_model as c16
from attnbook.teach.catalogue import c19_server as c19
from attnbook.teach.catalogue import c20_guessing as c20

INF = torch.inf

# Chapter 1

_BOX = "Is a key at exactly the bandwidth, on either side, within reach?"


def _box(queries, keys, values, near, *, mean=True):
    kernel = near(queries[:, None] - keys).to(values.dtype)
    total = kernel.sum(-1).clamp(min=1) if mean else 1
    return kernel @ values / total


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


_ROWS = partial(torch.softmax, dim=-1)
_COLUMNS = partial(torch.softmax, dim=0)


def _unshifted(scores):
    kernel = scores.exp()
    return kernel / kernel.sum(-1, keepdim=True)


def _gaps(queries, keys):
    return -((queries[:, None] - keys) ** 2)


def _others(keys, values, bandwidth, weigh=_ROWS, *, two=2, same=False):
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
    partial(_others, weigh=_unshifted),
)


def _circle(queries, keys, period, bandwidth, weigh=_ROWS, *, power=2, turn=2):
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
    partial(_circle, weigh=_unshifted),
)


def _slope(queries, keys, values, bandwidth, weigh=_ROWS, *, sum_too=True):
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
    partial(_slope, weigh=_unshifted),
)

for exercise, wrong in (
    (c01.leave_one_out, _others),
    (c01.circular_weights, _circle),
    (c01.slope, _slope),
):
    exercise.slip(
        "the columns of the weights sum to one, not the rows",
        "Along which axis do the weights of one query lie?",
        partial(wrong, weigh=_COLUMNS),
    )

# Chapter 2


def _largest(scores, *, share=True):
    top = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
    return top / top.sum(-1, keepdim=True) if share else top


def _tempered(scores, temperature, at_zero=_largest, zero=0.0):
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
c02.softmax_by_group.slip(
    "all sentences share one sum",
    "What do the weights of one sentence sum to?",
    lambda scores, groups: torch.softmax(scores, 0),
)


def _by_group(scores, groups, hidden=-INF):
    same = groups[:, None] == groups
    table = scores.expand(same.shape).masked_fill(~same, hidden)
    return table.softmax(-1).diagonal()


def _runs(groups):
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
    lambda scores, groups: c02.softmax_by_group(scores, _runs(groups)),
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
    "it is a mean, no sum",
    "What is the result for two scores of 0?",
    lambda s: torch.logsumexp(s, -1) - math.log(s.shape[-1]),
)
c02.log_sum_exp.slip(
    "one peak is subtracted from all rows",
    "How many rows are there, and how many peaks do you subtract?",
    lambda s: (s - s.max()).exp().sum(-1).log() + s.max(),
)
c02.log_sum_exp.slip(
    "a score of −∞ becomes 0",
    "What does a score of 0 add to the sum?",
    lambda s: torch.logsumexp(s.nan_to_num(neginf=0), -1),
)
c02.log_sum_exp.slip(
    "the gradient of the peak is counted on one side only",
    "Where is the peak detached, and where is it not?",
    lambda s: torch.logsumexp(s, -1) + s.amax(-1) - s.amax(-1).detach(),
)


def _steps(x):
    places = torch.arange(x.shape[-2])
    return places[:, None] - places


def _neighbours(x, hidden=None, filled=-INF, alone=0.0):
    hidden = _steps(x) == 0 if hidden is None else hidden
    scores = (x @ x.mT).masked_fill(hidden, filled)
    weights = scores.softmax(-1).nan_to_num(alone)
    return weights @ x, weights


def _renormalised(x):
    weights = (x @ x.mT).softmax(-1) * (_steps(x) != 0)
    weights = (weights / weights.sum(-1, keepdim=True)).nan_to_num()
    return weights @ x, weights


c02.neighbours_only.slip(
    "a token that is alone gets NaN",
    "What does a softmax divide by if every score is −∞?",
    partial(_neighbours, alone=torch.nan),
)
c02.neighbours_only.slip(
    "a finite number stands for −∞",
    "What does a softmax make of a single score, however low?",
    partial(_neighbours, filled=-1e9),
)
c02.neighbours_only.slip(
    "its own weight is divided out too late",
    "What is left of a row in which its own weight is 1 to the last digit?",
    _renormalised,
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

# Chapter 3

c03.attention_scores.slip(
    "the scores are scaled",
    "Does this exercise ask for scaled scores?",
    lambda q, k: torch.einsum("...id,...jd->...ij", q, k) / q.shape[-1] ** 0.5,
)
c03.attention_scores.slip(
    "the products are averaged",
    "What is a dot product, a sum or a mean?",
    lambda q, k: torch.einsum("...id,...jd->...ij", q, k) / q.shape[-1],
)


def _head(x, w_query, w_key, w_value, below=None, weigh=_ROWS):
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scale = below(x, k, v) if below else k.shape[-1] ** 0.5
    return weigh(q @ k.mT / scale) @ v


for words, below in {
    "the scores are divided by √d_model": lambda x, k, v: x.shape[-1] ** 0.5,
    "the scores are divided by √d_v": lambda x, k, v: v.shape[-1] ** 0.5,
    "the scores are divided by √T": lambda x, k, v: x.shape[-2] ** 0.5,
    "d_k stands without its root": lambda x, k, v: k.shape[-1],
    "√d_k multiplies the scores": lambda x, k, v: k.shape[-1] ** -0.5,
}.items():
    c03.self_attention.slip(
        words,
        "The root of which width stands below the scores?",
        partial(_head, below=below),
    )
c03.self_attention.slip(
    "exp overflows at large scores",
    "What may be subtracted from the scores before exp?",
    partial(_head, weigh=_unshifted),
)
for words, axis in {
    "the softmax runs along the first axis": 0,
    "the softmax runs along axis 1, also with a batch in front": 1,
}.items():
    c03.self_attention.slip(
        words,
        "Which axis do the keys lie on, with and without a batch?",
        partial(_head, weigh=partial(torch.softmax, dim=axis)),
    )
c03.qkv_weight.slip(
    "nothing is transposed",
    "Which shape has the weight of an nn.Linear?",
    lambda q, k, v: torch.cat([q, k, v], 1),
)
c03.qkv_weight.slip(
    "key and query have changed places",
    "In which order shall they come out?",
    lambda q, k, v: torch.cat([k, q, v], 1).T,
)
c03.qkv_weight.slip(
    "it is reshaped where it should be transposed",
    "Does reshape turn rows into columns?",
    lambda q, k, v: torch.cat([q, k, v], 1).reshape(-1, len(q)),
)


def _tests_attention(fn, same, sizes=((5, 4), (4, 3), (4, 3), (4, 2))):
    given = c03.randns(*sizes, seed=900)
    try:
        return bool(same(fn(*given), c03.self_attention(*given)))
    except RuntimeError:
        return False


c03.is_self_attention.slip(
    "it looks at shapes alone",
    "Which of the wrong candidates has a wrong shape?",
    lambda fn: _tests_attention(fn, lambda a, b: a.shape == b.shape),
)
c03.is_self_attention.slip(
    "the bound is too wide",
    "How much do the defaults of allclose let through?",
    lambda fn: _tests_attention(
        fn, lambda a, b: a.shape == b.shape and torch.allclose(a, b)
    ),
)
c03.is_self_attention.slip(
    "it refuses the right ones, too",
    "Do two right ways of adding round alike?",
    lambda fn: _tests_attention(fn, torch.equal),
)

# Chapter 4

c04.score_variance.slip(
    "the mean is forgotten",
    "What is E[x²] if the mean of x is not 0?",
    lambda d_k, mean=0.0, variance=1.0: d_k * float(variance) ** 2,
)
c04.score_variance.slip(
    "it is the mean square, no variance",
    "What is subtracted from E[(qk)²] to get a variance?",
    lambda d_k, mean=0.0, variance=1.0: d_k * (variance + mean**2) ** 2,
)
c04.score_variance.slip(
    "it is the standard deviation",
    "Is the root part of a variance?",
    lambda d_k, mean=0.0, variance=1.0: math.sqrt(
        d_k * ((variance + mean**2) ** 2 - mean**4)
    ),
)
c04.score_variance.slip(
    "the mean of a component is subtracted, not that of a product",
    "What is the mean of the product, and what is its square?",
    lambda d_k, mean=0.0, variance=1.0: (
        d_k * ((variance + mean**2) ** 2 - mean**2)
    ),
)
c04.softmax_backward.slip(
    "the plain mean of the gradient is subtracted",
    "With which weights is the gradient averaged?",
    lambda w, g: w * (g - g.mean(-1, keepdim=True)),
)
c04.softmax_backward.slip(
    "the plain sum of the gradient is subtracted",
    "With which weights is the gradient averaged?",
    lambda w, g: w * (g - g.sum(-1, keepdim=True)),
)
c04.softmax_backward.slip(
    "all queries share one average",
    "Over which axis does the softmax of a query run?",
    lambda w, g: w * (g - (w * g).sum()),
)
c04.softmax_backward.slip(
    "what is subtracted has no weight in front",
    "Which of your two terms is 0 where the weight is 0?",
    lambda w, g: w * g - (w * g).sum(-1, keepdim=True),
)
c04.softmax_backward.slip(
    "it is the backward pass of the softmax's logarithm",
    "Is the gradient given for the weights, or for their logarithms?",
    lambda w, g: g - w * g.sum(-1, keepdim=True),
)
c04.softmax_backward.slip(
    "nothing is subtracted",
    "What happens to the others when one score rises?",
    lambda w, g: w * g,
)
c04.softmax_backward.slip(
    "the weight in front is missing",
    "How fast does a weight of 0 move?",
    lambda w, g: g - (w * g).sum(-1, keepdim=True),
)


def _attend(q, k, v, scale, mask, weigh=softmax):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    weights = weigh(c04.masked((q * scale) @ k.mT, mask))
    return Attention(weights @ v, weights)


def _late(q, k, v, *, mask=None, scale=None):
    late = mask is not None and mask.dtype == torch.bool
    context, weights = _attend(q, k, v, scale, None if late else mask)
    weights = weights * mask if late else weights
    return Attention(weights @ v if late else context, weights)


c04.scaled_dot_product_attention.slip(
    "the mask comes after the softmax",
    "With a key hidden, what does a row of your weights sum to?",
    _late,
)
c04.scaled_dot_product_attention.slip(
    "a scale that is given is not used",
    "What is a score if the caller asks for scale=0.3?",
    lambda q, k, v, *, mask=None, scale=None: _attend(q, k, v, None, mask),
)
c04.scaled_dot_product_attention.slip(
    "it divides by a scale that is given",
    "Are the scores multiplied by the scale, or divided by it?",
    lambda q, k, v, *, mask=None, scale=None: _attend(
        q, k, v, scale if scale is None else 1 / scale, mask
    ),
)
c04.scaled_dot_product_attention.slip(
    "the softmax runs over the queries",
    "Whose weights sum to one: a query's, or a key's?",
    lambda q, k, v, *, mask=None, scale=None: _attend(
        q, k, v, scale, mask, lambda scores: softmax(scores.mT).mT
    ),
)
c04.scaled_dot_product_attention.slip(
    "the numbers of an additive mask are lost",
    "What does a mask of log 2 do to a key's weight?",
    lambda q, k, v, *, mask=None, scale=None: _attend(
        q, k, v, scale, mask if mask is None else mask.bool()
    ),
)


def _blocks(q, k, v, block, *, old=True, total_too=True, scaled=True):
    q = q / math.sqrt(q.shape[-1]) if scaled else q
    peak = torch.full_like(q[..., :1], torch.finfo(q.dtype).min)
    total, context = torch.zeros_like(peak), 0
    for keys, values in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ keys.mT
        higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
        shrink, exp = (peak - higher).exp(), (scores - higher).exp()
        total = total * (shrink if total_too else 1)
        context = context * (shrink if old else 1) + exp @ values
        total, peak = total + exp.sum(-1, keepdim=True), higher
    return context / total


c04.attention_in_blocks.slip(
    "the old context is not carried over to the new peak",
    "When the peak rises, what must become of the context so far?",
    lambda q, k, v, block: _blocks(q, k, v, block, old=False),
)
c04.attention_in_blocks.slip(
    "the old total is not carried over to the new peak",
    "When the peak rises, what must become of the total so far?",
    lambda q, k, v, block: _blocks(q, k, v, block, total_too=False),
)
c04.attention_in_blocks.slip(
    "nothing is carried over to the new peak",
    "When the peak rises, what must become of what was added so far?",
    lambda *args: _blocks(*args, old=False, total_too=False),
)


def _by_block(q, k, v, block):
    pairs = list(zip(k.split(block, -2), v.split(block, -2)))
    return sum(_attend(q, *p, None, None).context for p in pairs) / len(pairs)


c04.attention_in_blocks.slip(
    "each block has a softmax of its own, and all blocks count alike",
    "Which block should count more: one of high scores, or one of low ones?",
    _by_block,
)
c04.attention_in_blocks.slip(
    "the scale is left out",
    "What are the scores divided by?",
    lambda q, k, v, block: _blocks(q, k, v, block, scaled=False),
)

# Chapter 5


def _causal(q, k, v, diagonal, scale=True):
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
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def _shares(scores, mask):
    exp = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    total = exp.sum(-1, keepdim=True)
    return exp / (total + (total == 0))


c05.masked_weights.slip(
    "a row without keys spreads its weight evenly",
    "What do equal scores give, however low they are?",
    lambda s, mask: torch.softmax(_lowest(s, mask), -1),
)
c05.masked_weights.slip(
    "True is taken for hidden",
    "In this book, what does True mean in a mask?",
    lambda s, mask: torch.softmax(_lowest(s, ~mask), -1) * ~mask,
)
c05.masked_weights.slip(
    "the peak is sought among the hidden scores too",
    "What is left of the allowed keys if a hidden score is far above them?",
    _shares,
)

# Chapter 6

c06.linear_weight.slip(
    "the components of the heads are dealt out in turn",
    "Whose component comes second in the output?",
    lambda heads: heads.permute(2, 0, 1).flatten(0, 1),
)
c06.linear_weight.slip(
    "it is reshaped where it should be transposed",
    "Does reshape turn rows into columns?",
    lambda heads: heads.reshape(-1, heads.shape[1]),
)


def _moved(a, n_heads):
    return a.unflatten(-1, (n_heads, -1)).transpose(-3, -2)


def _joined(a):
    return a.transpose(-3, -2).flatten(-2)


def _plain(q, k, v):
    return _attend(q, k, v, None, None).context


def _many(x, memory, *weights, cut=_moved, attend=_plain, join=_joined):
    *projections, w_out, n_heads = weights
    inputs = zip((x, memory, memory), projections)
    q, k, v = (cut(a @ w, n_heads) for a, w in inputs)
    return join(attend(q, k, v)) @ w_out


c06.multi_head_attention.slip(
    "the memory is not read",
    "Whose keys and values does x ask?",
    lambda x, memory, *weights: _many(x, x, *weights),
)
c06.multi_head_attention.slip(
    "the heads are cut, but not moved before the tokens",
    "Print the shape of your weights: what do its last two axes count?",
    lambda *args: _many(
        *args,
        cut=lambda a, n: a.unflatten(-1, (n, -1)),
        attend=lambda *qkv: scaled_dot_product_attention(*qkv).context,
        join=lambda a: a.flatten(-2),
    ),
)
c06.multi_head_attention.slip(
    "the contexts are merged without moving back",
    "Is a row of your merged contexts of one token, or of one head?",
    lambda *args: _many(
        *args, join=lambda a: a.reshape(*a.shape[:-3], a.shape[-2], -1)
    ),
)
c06.multi_head_attention.slip(
    "the components are dealt out to the heads in turn",
    "Which components of a row does head 0 get?",
    lambda *args: _many(
        *args,
        cut=lambda a, n: a.unflatten(-1, (-1, n)).movedim(-1, -3),
        join=lambda a: a.movedim(-3, -1).flatten(-2),
    ),
)
c06.multi_head_attention.slip(
    "the scale is left out",
    "What are the scores divided by?",
    lambda *args: _many(*args, attend=lambda q, k, v: softmax(q @ k.mT) @ v),
)
c06.multi_head_attention.slip(
    "the softmax runs over the queries",
    "Whose weights sum to one: a query's, or a key's?",
    lambda *args: _many(
        *args,
        attend=lambda *qkv: (
            _attend(*qkv, None, None, lambda s: softmax(s.mT).mT).context
        ),
    ),
)
c06.multi_head_attention.slip(
    "w_out is left out",
    "What mixes the contexts of the heads?",
    lambda *args: _many(
        *args[:-2], torch.eye(len(args[-2])).to(args[0]), args[-1]
    ),
)
c06.multi_head_attention.slip(
    "w_out is transposed",
    "Is w_out used as in x W, or as nn.Linear stores it?",
    lambda *args: _many(*args[:-2], args[-2].mT, args[-1]),
)


def _grouped(q, k, v, *, scale=True, first=False):
    group = q.shape[-3] // k.shape[-3]
    k, v = (a.repeat_interleave(group, -3) for a in (k, v))
    k, v = (a[..., :1, :, :] if first else a for a in (k, v))
    scores = q @ k.mT / (q.shape[-1] ** 0.5 if scale else 1)
    return scores.softmax(-1) @ v


c06.grouped_attention.slip(
    "the scale is left out",
    "What are the scores divided by?",
    lambda q, k, v: _grouped(q, k, v, scale=False),
)
c06.grouped_attention.slip(
    "all heads ask the first head of keys",
    "Which head of keys does the last head of queries ask?",
    lambda q, k, v: _grouped(q, k, v, first=True),
)


def _below(q, k, v):
    context = _plain(q.unflatten(-3, (k.shape[-3], -1)).flatten(-3, -2), k, v)
    tokens = context.unflatten(-2, (q.shape[-2], -1))
    return tokens.transpose(-3, -2).flatten(-4, -3)


c06.grouped_attention.slip(
    "the queries are put together by heads and taken apart by tokens",
    "After the first head's first token, whose row comes next?",
    _below,
)

# Chapter 7


def _layer_norm(words, hint, normal):
    def wrong(x, weight=None, bias=None, *, eps=1e-5):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return c07.affine(normal(x, centred, variance, eps), weight, bias)

    c07.layer_norm.slip(words, hint, wrong)


_layer_norm(
    "the root is left out",
    "A token grows by a factor of ten. By which factor does the result?",
    lambda x, centred, variance, eps: centred / (variance + eps),
)
_layer_norm(
    "eps is left out",
    "What is divided by what where all components are equal?",
    lambda x, centred, variance, eps: centred / variance.sqrt(),
)
_layer_norm(
    "eps is a floor under the variance, not added to it",
    "To which variances is eps added, to the small ones alone?",
    lambda x, centred, variance, eps: centred / variance.clamp(eps).sqrt(),
)
_layer_norm(
    "what is divided has lost its mean, what divides it has not",
    "The squares of what make the variance?",
    lambda x, centred, variance, eps: (
        centred / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    ),
)
_layer_norm(
    "mean and variance run over the first axis",
    "Change one token. Which rows of your result change?",
    lambda x, centred, variance, eps: c07.layer_norm(
        x.movedim(0, -1), eps=eps
    ).movedim(-1, 0),
)
c07.layer_norm.slip(
    "the bias is multiplied by the weight as well",
    "What does the layer give where the normalised token is zero?",
    lambda x, weight=None, bias=None, *, eps=1e-5: c07.affine(
        c07.layer_norm(x, None, bias, eps=eps), weight
    ),
)
c07.layer_norm.slip(
    "one is added to the weight",
    "With which weights does training begin?",
    lambda x, weight=None, bias=None, *, eps=1e-5: c07.layer_norm(
        x, None if weight is None else 1 + weight, bias, eps=eps
    ),
)


def _tests_norm(norm, same):
    x = c07.randn(2, 5, 6, seed=910)
    return bool(same(norm(x), F.layer_norm(x, (6,))))


c07.is_layer_norm.slip(
    "it compares values alone, and no constant token",
    "Whose values are right, and whose gradient is not?",
    lambda norm: _tests_norm(
        norm, lambda a, b: torch.allclose(a, b, rtol=0, atol=1e-9)
    ),
)
c07.is_layer_norm.slip(
    "a NaN passes",
    "What is nan > 1e-9?",
    lambda norm: _tests_norm(
        norm, lambda a, b: not ((a - b).abs() > 1e-9).any()
    ),
)


def _rms(x, gradient, *, eps=1e-5, outer=1, inner=2, along=1, mean=0):
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    part = x * (gradient * x).mean(-1, keepdim=True) * r**inner
    part = along * part + mean * gradient.mean(-1, keepdim=True)
    return r**outer * (gradient - part)


for _words, _hint, _changed in (
    (
        "the factor r in front is missing",
        "If x is twice as long, how fast does the result move?",
        {"outer": 0},
    ),
    (
        "the root is taken for a constant",
        "What happens to the root when x grows?",
        {"along": 0},
    ),
    (
        "the path through the mean is still in it",
        "Does RMS norm subtract a mean?",
        {"mean": 1},
    ),
    (
        "the path through the root has the wrong sign",
        "If x grows, does the root make the result larger or smaller?",
        {"along": -1},
    ),
    (
        "the path through the root counts twice",
        "What is the slope of a root?",
        {"along": 2},
    ),
    (
        "x stands twice where the normalised x should",
        "Which x has a length that does not change?",
        {"inner": 0},
    ),
    (
        "x stands once where the normalised x should",
        "Which x has a length that does not change?",
        {"inner": 1},
    ),
):
    c07.rms_norm_backward.slip(_words, _hint, partial(_rms, **_changed))
c07.rms_norm_backward.slip(
    "it is the gradient of layer norm",
    "Does RMS norm subtract a mean?",
    lambda x, g, *, eps=1e-5: _rms(
        x - x.mean(-1, keepdim=True), g, eps=eps, mean=1
    ),
)
c07.rms_norm_backward.slip(
    "a sum stands where a mean should",
    "By how much does the mean square grow with one component?",
    lambda x, g, *, eps=1e-5: _rms(x, g, eps=eps, along=x.shape[-1]),
)
c07.rms_norm_backward.slip(
    "eps is left out",
    "Which root did RMS norm divide by?",
    lambda x, g, *, eps=1e-5: _rms(x, g, eps=0),
)
c07.fold_affine.slip(
    "the bias of the norm is lost",
    "What comes out where the normalised token is zero?",
    lambda weight, bias, W, b: (W * weight, b),
)
c07.fold_affine.slip(
    "the bias is multiplied by the gain as well",
    "Which comes first in the norm, the gain or the bias?",
    lambda weight, bias, W, b: (W * weight, b + (W * weight) @ bias),
)
c07.fold_affine.slip(
    "the weight scales the rows of W",
    "Which axis of W belongs to the components that were normalised?",
    lambda weight, bias, W, b: (W * weight[:, None], b + W @ bias),
)
c07.fold_affine.slip(
    "the bias of the norm does not go through W",
    "What meets the norm's bias before b does?",
    lambda weight, bias, W, b: (W * weight, b + bias),
)

# Chapter 8


def _silent(x, w_up, b_up):
    return (x @ w_up + b_up).flatten(0, -2) <= 0


c08.dead_units.slip(
    "it counts the living",
    "Of which units does the exercise ask the number?",
    lambda x, w, b: int((~_silent(x, w, b)).any(0).sum()),
)
c08.dead_units.slip(
    "a unit that is silent once counts as dead",
    "For how many tokens must a dead unit be silent?",
    lambda x, w, b: int(_silent(x, w, b).any(0).sum()),
)
c08.dead_units.slip(
    "a unit at exactly 0 counts as alive",
    "What does ReLU add, and what slope has it, at 0?",
    lambda x, w, b: int((x @ w + b < 0).flatten(0, -2).all(0).sum()),
)
for _words, _hint, _count in (
    (
        "one axis of tokens is looked at, the first",
        "Which axes of x hold tokens?",
        lambda silent: silent.all(0).sum(),
    ),
    (
        "one axis of tokens is looked at, the last",
        "Which axes of x hold tokens?",
        lambda silent: silent.all(-2).sum(),
    ),
    (
        "it counts silent answers, a unit more than once",
        "How often may one unit be counted?",
        lambda silent: silent.sum(),
    ),
    (
        "it counts tokens",
        "Along which axis do the units stand?",
        lambda silent: silent.all(-1).sum(),
    ),
):
    c08.dead_units.slip(
        _words,
        _hint,
        lambda x, w, b, count=_count: int(count(x @ w + b <= 0)),
    )
c08.dead_units.slip(
    "a unit's answers are added up before they meet 0",
    "A unit answers −3 to one token and 1 to another. Is it dead?",
    lambda x, w, b: int(((x @ w + b).flatten(0, -2).sum(0) <= 0).sum()),
)
c08.gated_width.slip(
    "it is one multiple more even where the width fits",
    "What if 8/3 of d_model is a multiple already?",
    lambda d, multiple: multiple * (8 * d // 3 // multiple + 1),
)
c08.gated_width.slip(
    "it is rounded down",
    "May the width lie below 8/3 of d_model?",
    lambda d, multiple: multiple * (8 * d // (3 * multiple)),
)
c08.gated_width.slip(
    "it is rounded to the nearest multiple",
    "May the width lie below 8/3 of d_model?",
    lambda d, multiple: multiple * round(8 * d / 3 / multiple),
)
c08.gated_width.slip(
    "the fraction is cut off before the multiple is looked for",
    "What is 8/3 of 4, and what is the next whole number?",
    lambda d, multiple: multiple * -(-int(8 * d / 3) // multiple),
)


def _silu_slope(gate, s):
    return s * (1 + gate * (1 - s))


def _gate(gate, up, gradient, slope=_silu_slope):
    slopes = slope(gate, torch.sigmoid(gate))
    return gradient * up * slopes, gradient * F.silu(gate)


for _words, _hint, _slope in (
    (
        "the slope is that of the sigmoid",
        "What is silu, and what does the product rule say of it?",
        lambda gate, s: s * (1 - s),
    ),
    (
        "the second half of the product rule is missing",
        "silu is a product too. How many terms has its slope?",
        lambda gate, s: s,
    ),
    (
        "the second term of the slope lacks a factor",
        "What is the slope of the sigmoid?",
        lambda gate, s: s + gate * (1 - s),
    ),
    (
        "the slope of the sigmoid has a wrong sign",
        "How steep is the sigmoid where it is nearly 1?",
        lambda gate, s: s * (1 + gate * (1 + s)),
    ),
    (
        "silu stands where its slope should",
        "silu(0) is 0. Is its curve flat there?",
        lambda gate, s: gate * s,
    ),
):
    c08.gate_backward.slip(_words, _hint, partial(_gate, slope=_slope))
for _words, _bent in (
    ("up meets the gate unbent", lambda gate: gate),
    ("up meets the sigmoid alone", torch.sigmoid),
):
    c08.gate_backward.slip(
        _words,
        "By what is up multiplied on the way forwards?",
        lambda gate, up, g, bent=_bent: (
            _gate(gate, up, g)[0],
            g * bent(gate),
        ),
    )
c08.gate_backward.slip(
    "the two gradients have changed places",
    "Which of the two comes first?",
    lambda gate, up, g: _gate(gate, up, g)[::-1],
)
c08.gate_backward.slip(
    "up is bent in place of the gate",
    "Which of the two goes through silu?",
    lambda gate, up, g: _gate(up, gate, g)[::-1],
)
c08.gate_backward.slip(
    "up is missing from the gradient of the gate",
    "By what is the gate multiplied?",
    lambda gate, up, g: _gate(gate, torch.ones_like(up), g),
)


def _sliced(x, w_up, b_up, w_down, size, total, end=None, act=F.gelu):
    end = len(b_up) if end is None else end
    for start in range(0, end, size):
        part = slice(start, start + size)
        total = total + act(x @ w_up[:, part] + b_up[part]) @ w_down[part]
    return total


c08.feed_forward_in_slices.slip(
    "the units of the last, smaller slice are lost",
    "What is left over when 12 units are cut by fives?",
    lambda x, w_up, b_up, w_down, b_down, size: _sliced(
        x, w_up, b_up, w_down, size, b_down, len(b_up) // size * size
    ),
)
c08.feed_forward_in_slices.slip(
    "the second bias is missing",
    "Set all weights to zero. What should come out?",
    lambda x, w_up, b_up, w_down, b_down, size: _sliced(
        x, w_up, b_up, w_down, size, torch.zeros_like(b_down)
    ),
)
for _words, _hint, _act in (
    (
        "nothing bends",
        "What are two matrices in a row, with no bend between them?",
        lambda inner: inner,
    ),
    (
        "it bends by GELU's second formula",
        "Which of the two formulas is the exact one?",
        partial(F.gelu, approximate="tanh"),
    ),
    ("it bends by ReLU", "What does GELU make of −1?", F.relu),
):
    c08.feed_forward_in_slices.slip(
        _words,
        _hint,
        lambda x, w_up, b_up, w_down, b_down, size, act=_act: _sliced(
            x, w_up, b_up, w_down, size, b_down, act=act
        ),
    )
c08.feed_forward_in_slices.slip(
    "it bends at the end",
    "Where does the layer bend, before the second matrix or after it?",
    lambda x, w_up, b_up, w_down, b_down, size: F.gelu(
        _sliced(x, w_up, b_up, w_down, size, b_down, act=lambda inner: inner)
    ),
)

# Chapter 9

c09.rotate_some.slip(
    "the speeds are those of the whole head",
    "How many components has the head that is turned?",
    lambda x, positions, width: torch.cat(
        [
            c09.rotate(
                x[..., :width], positions, 10_000 ** (width / x.shape[-1])
            ),
            x[..., width:],
        ],
        -1,
    ),
)
c09.rotate_some.slip(
    "all components are turned",
    "Which components stay as they are?",
    lambda x, positions, width: c09.rotate(x, positions),
)
c09.rotate_some.slip(
    "the last components are turned, not the first",
    "Which components are turned?",
    lambda x, positions, width: torch.cat(
        [x[..., :-width], c09.rotate(x[..., -width:], positions)], -1
    ),
)
c09.rotate_some.slip(
    "the part is cut out of a whole head that was turned",
    "How wide is the head whose pairs you turn?",
    lambda x, positions, width: torch.cat(
        [c09.rotate(x, positions)[..., :width], x[..., width:]], -1
    ),
)


def _angles(positions, width, shrink, base=1.0):
    return shrink * c09.rotary_angles(positions, width, base=10_000.0 * base)


c09.interpolated_angles.slip(
    "the positions are stretched",
    "Shall the last angle wanted lie inside those trained, or outside?",
    lambda p, w, trained, wanted: _angles(p, w, max(1.0, wanted / trained)),
)
c09.interpolated_angles.slip(
    "a shorter text is stretched",
    "What shall become of a text that is shorter than trained?",
    lambda p, w, trained, wanted: _angles(p, w, trained / wanted),
)
c09.interpolated_angles.slip(
    "the base is stretched, not the positions",
    "By what shall every angle be multiplied, the fastest too?",
    lambda p, w, trained, wanted: _angles(
        p, w, 1.0, max(1.0, wanted / trained)
    ),
)
c09.interpolated_angles.slip(
    "the shorter text is stretched, the longer one left",
    "Which is smaller for a longer text, 1 or trained/wanted?",
    lambda p, w, trained, wanted: _angles(p, w, max(1.0, trained / wanted)),
)
c09.to_half_layout.slip(
    "it is the way back",
    "Where does row 1 of a head stand, before and after?",
    lambda weight, n_heads: (
        weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    ),
)
c09.to_half_layout.slip(
    "the columns are reordered",
    "Which axis of W_q counts the components of a query?",
    lambda weight, n_heads: torch.cat([weight[:, 0::2], weight[:, 1::2]], 1),
)
c09.to_half_layout.slip(
    "the second of each pair stands first",
    "Which row of a pair (2i, 2i + 1) goes to i?",
    lambda weight, n_heads: (
        weight.unflatten(0, (n_heads, -1, 2))
        .flip(2)
        .transpose(1, 2)
        .flatten(0, 2)
    ),
)
c09.to_half_layout.slip(
    "nothing has moved",
    "Which two axes have to trade places before the rows are put together?",
    lambda weight, n_heads: weight.clone(),
)


def _attend(q, k, v, positions, turn=c09.rotate, **options):
    q, k = (turn(x, positions[..., None, :]) for x in (q, k))
    return F.scaled_dot_product_attention(q, k, v, **options)


for _words, _hint, _turn in (
    (
        "neighbours are taken for pairs",
        "Which component makes a pair with component 0?",
        c09.takes_neighbours_for_pairs,
    ),
    (
        "it turns the other way",
        "Where does R(θ) take the arrow (1, 0)?",
        lambda x, positions: c09.rotate(x, -positions),
    ),
    (
        "the positions are counted from 0 again",
        "What changes in your result if the positions are others?",
        lambda x, positions: c09.rotate(
            x, torch.arange(x.shape[-2], device=x.device)
        ),
    ),
    (
        "the exponent is half of what it should be",
        "What is the speed of the last pair of width 8?",
        lambda x, positions: c09.rotate(x, positions, 10_000**0.5),
    ),
):
    c09.rotary_attention.slip(_words, _hint, partial(_attend, turn=_turn))
    c09.rotate_some.slip(
        _words,
        _hint,
        lambda x, positions, width, turn=_turn: torch.cat(
            [turn(x[..., :width], positions), x[..., width:]], -1
        ),
    )
c09.rotary_attention.slip(
    "later tokens are hidden",
    "Is a mask asked for?",
    partial(_attend, is_causal=True),
)
c09.rotary_attention.slip(
    "the scale is left out",
    "What are the scores divided by?",
    lambda q, k, v, positions: c09.rotary_attention(
        q * q.shape[-1] ** 0.5, k, v, positions
    ),
)
c09.rotary_attention.slip(
    "the keys are not turned",
    "On what does the score depend if only the query is turned?",
    lambda q, k, v, positions: F.scaled_dot_product_attention(
        c09.rotate(q, positions[..., None, :]), k, v
    ),
)

# Chapter 10


def _counted(d, d_ff, counts):
    """So many times d², d · d_ff, d and d_ff; right is 4, 2, 9 and 1."""
    return sum(n * x for n, x in zip(counts, (d * d, d * d_ff, d, d_ff)))


_BIAS = "What has a layer beside its matrix?"
_NORM = "How many numbers does a layer norm learn?"
_WIDE = "How wide is what a matrix makes, and so its bias?"
for _words, _hint, _counts in (
    ("the matrices alone are counted", _BIAS, (4, 2, 0, 0)),
    ("the biases are missing", _BIAS, (4, 2, 2, 0)),
    (
        "4 d_model are missing",
        "What do two norms learn, and what four biases of attention?",
        (4, 2, 5, 1),
    ),
    ("the norms have no bias", _NORM, (4, 2, 7, 1)),
    (
        "the inner width is taken for 4 d_model",
        "What is d_ff given for?",
        (12, 0, 13, 0),
    ),
    ("d_ff is forgotten in a bias", "What is d_ff given for?", (4, 2, 13, 0)),
    (
        "attention has three matrices",
        "The contexts stand side by side. What comes then?",
        (3, 2, 8, 1),
    ),
    ("the feed-forward layer has one matrix", "Up, and then?", (4, 1, 9, 1)),
    ("the feed-forward biases are both d_ff wide", _WIDE, (4, 2, 8, 2)),
    ("the feed-forward biases are both d_model wide", _WIDE, (4, 2, 10, 0)),
    (
        "a third norm is counted",
        "Whose is the norm after the last block?",
        (4, 2, 11, 1),
    ),
):
    c10.block_parameters.slip(_words, _hint, partial(_counted, counts=_counts))
c10.post_norm_block.slip(
    "the norms have changed places",
    "Which norm belongs to which layer?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_1(
        (y := norm_2(x + attention(x))) + feed_forward(y)
    ),
)
c10.post_norm_block.slip(
    "the feed-forward layer reads the input of the block",
    "What does the second layer read?",
    lambda x, attention, feed_forward, norm_1, norm_2: norm_2(
        norm_1(x + attention(x)) + feed_forward(x)
    ),
)


def _decode(x, memory, attention, cross, feed_forward, norms, order=(0, 1, 2)):
    parts = attention, lambda y: cross(y, memory), feed_forward
    for n in order:
        x = x + parts[n](norms[n](x))
    return x


c10.decoder_block.slip(
    "the memory goes through the norm as well",
    "Who has normalised the memory already?",
    lambda x, memory, *parts: _decode(x, parts[3][1](memory), *parts),
)
c10.decoder_block.slip(
    "cross-attention comes first",
    "In which order do the three layers come?",
    lambda x, memory, *parts: _decode(x, memory, *parts, order=(1, 0, 2)),
)
c10.decoder_block.slip(
    "the memory is forgotten",
    "What has the second layer to read beside the stream?",
    lambda x, memory, attention, cross, *parts: _decode(
        x, memory, attention, lambda y, m: cross(y, y), *parts
    ),
)
c10.decoder_block.slip(
    "all layers read the input of the block",
    "What does a layer read, the stream as it was or as it is?",
    lambda x, memory, attention, cross, feed_forward, norms: (
        x
        + attention(norms[0](x))
        + cross(norms[1](x), memory)
        + feed_forward(norms[2](x))
    ),
)


def _down(gradient, jacobians, *, own=1, top=0):
    found = gradient
    for jacobian in jacobians:
        found = own * found + top * gradient + found @ jacobian
    return found


for _words, _hint, _wrong in (
    (
        "it goes from the bottom up",
        "Which layer does the gradient meet first?",
        _down,
    ),
    (
        "the untouched path is missing",
        "What of the gradient passes by the branch?",
        lambda gradient, jacobians: _down(gradient, jacobians.flip(0), own=0),
    ),
    (
        "the Jacobians are not transposed",
        "On which side of the Jacobian does a gradient stand?",
        lambda gradient, jacobians: _down(gradient, jacobians.flip(0).mT),
    ),
    (
        "it goes from the bottom up, and nothing is transposed",
        "Whose way is this, the gradient's or the token's?",
        lambda gradient, jacobians: _down(gradient, jacobians.mT),
    ),
    (
        "every branch reads the gradient of the top",
        "What reaches the second layer from the top?",
        lambda gradient, jacobians: gradient + (gradient @ jacobians).sum(0),
    ),
    (
        "every layer passes on the gradient of the top, not its own",
        "What passes by the second layer from the top?",
        lambda gradient, jacobians: _down(
            gradient, jacobians.flip(0), own=0, top=1
        ),
    ),
    (
        "paths through some of the branches are missing",
        "How many paths lead down past two layers?",
        lambda gradient, jacobians: (
            gradient + _down(gradient, jacobians.flip(0), own=0)
        ),
    ),
):
    c10.stream_gradient.slip(_words, _hint, _wrong)

# Chapters 11 and 12


def _bigram(texts, vocab_size, extra):
    return c11.bigram(texts, vocab_size, extra).exp()


c11.bigram.slip(
    "the logarithm is missing",
    "Is a probability asked for, or its logarithm?",
    _bigram,
)
c11.bigram.slip(
    "rows and columns are exchanged",
    "Which of the two tokens does a row belong to?",
    lambda texts, size, extra: c11.bigram(
        [text[::-1] for text in texts], size, extra
    ),
)


def _rows(texts, size, extra, *, share):
    counts = torch.zeros(size, size, dtype=torch.float64)
    for text in texts:
        for pair in zip(text, text[1:]):
            counts[pair] += 1
    return share(counts, extra).log()


for _words, _hint, _share in (
    (
        "extra is not added",
        "Which probability has a pair that was never seen?",
        lambda n, extra: n / n.sum(-1, True),
    ),
    (
        "the sums leave extra out",
        "Does each of your rows sum to one?",
        lambda n, extra: (n + extra) / n.sum(-1, True),
    ),
    (
        "the sums have extra once",
        "To how many entries of a row is extra added?",
        lambda n, extra: (n + extra) / (n.sum(-1, True) + extra),
    ),
    (
        "the sums repeat along the wrong axis",
        "By the sum of which row is the entry (0, 1) divided?",
        lambda n, extra: (n + extra) / (n + extra).sum(-1),
    ),
    (
        "all pairs have one sum",
        "Does each of your rows sum to one?",
        lambda n, extra: (n + extra) / (n + extra).sum(),
    ),
    (
        "it is a softmax of the counts",
        "What makes shares of counts: a power of e, or a division?",
        lambda n, extra: (n + extra).softmax(-1),
    ),
    (
        "a pair that comes again is not counted again",
        "How often does 0 1 stand in the text 0 1 0 1?",
        lambda n, extra: (m := n.sign() + extra) / m.sum(-1, True),
    ),
):
    c11.bigram.slip(_words, _hint, partial(_rows, share=_share))


def _logits(tokens, table, positions, blocks, norm):
    x = table[tokens] + positions[: tokens.shape[1]]
    for block in blocks:
        x = block(x)
    return norm(x) @ table.T


def _same(x):
    return x


c11.language_model.slip(
    "it ends in a softmax",
    "Are logits asked for, or probabilities?",
    lambda *parts: _logits(*parts).softmax(-1),
)
c11.language_model.slip(
    "the positions begin at 1",
    "Which row of the table belongs to the first token?",
    lambda tokens, table, positions, *parts: _logits(
        tokens, table, positions[1:], *parts
    ),
)
c11.language_model.slip(
    "the norm stands before the blocks",
    "What was done last to the stream that your head reads?",
    lambda *parts: _logits(*parts[:3], [parts[4], *parts[3]], _same),
)
c11.language_model.slip(
    "the norm stands after each block",
    "How often is the norm that was given used?",
    lambda *parts: _logits(
        *parts[:3], [f for b in parts[3] for f in (b, parts[4])], _same
    ),
)
c11.language_model.slip(
    "the stream is added to what a block returns",
    "What is in a block's result already?",
    lambda *parts: _logits(
        *parts[:3], [lambda x, b=b: x + b(x) for b in parts[3]], parts[4]
    ),
)
c11.language_model.slip(
    "each block reads the embeddings",
    "What does the second block read?",
    lambda *parts: _logits(*parts[:3], parts[3][-1:], parts[4]),
)


def _accumulate(
    model,
    batches,
    n,
    rate,
    *,
    clear=True,
    longest=INF,
    by=lambda y, all_: all_,
):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for start in range(0, len(batches), n):
        some = batches[start : start + n]
        total = sum((targets != -100).sum() for _, targets in some)
        if clear:
            optimizer.zero_grad()
        for tokens, targets in some:
            logits = model(tokens).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
            (loss / by(targets, total)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), longest)
        optimizer.step()
    return list(model.parameters())


c11.accumulate.slip(
    "the old gradients are never cleared",
    "What is in the gradients when the second step begins?",
    partial(_accumulate, clear=False),
)
c11.accumulate.slip(
    "the gradient is clipped",
    "What does plain gradient descent do with a long gradient?",
    partial(_accumulate, longest=1.0),
)
c11.accumulate.slip(
    "the losses are summed",
    "Over how many targets does one step average?",
    partial(_accumulate, by=lambda targets, total: 1),
)
c11.accumulate.slip(
    "the means are summed",
    "Which average is this, and what are its weights?",
    partial(_accumulate, by=lambda targets, total: (targets != -100).sum()),
)
c11.accumulate.slip(
    "the step goes uphill",
    "Does the loss fall along the gradient, or against it?",
    partial(_accumulate, by=lambda targets, total: -total),
)
c11.accumulate.slip(
    "all batches make one step",
    "After how many small batches comes a step?",
    lambda model, batches, n, rate: c11.accumulate(
        model, batches, len(batches), rate
    ),
)
c11.accumulate.slip(
    "it ends after the first step",
    "Which batches have you not gone through?",
    lambda model, batches, n, rate: c11.accumulate(
        model, batches[:n], n, rate
    ),
)
c11.accumulate.slip(
    "n is taken for the number of steps",
    "After how many small batches comes a step?",
    lambda model, batches, n, rate: c11.accumulate(
        model, batches, len(batches) // n, rate
    ),
)
c11.accumulate.slip(
    "the targets are shifted once more",
    "At which place of the targets stands the word after token 0?",
    lambda model, batches, n, rate: c11.accumulate(
        model, [(x[:, :-1], y[:, 1:]) for x, y in batches], n, rate
    ),
)
c12.bits_per_byte.slip(
    "it counts characters",
    "How many bytes has an é?",
    lambda loss, n, text: loss * n / math.log(2) / len(text),
)
c12.bits_per_byte.slip(
    "it multiplies by ln 2",
    "Are there more bits than nats, or fewer?",
    lambda loss, n, text: loss * n * math.log(2) / len(text.encode()),
)
for _words, _hint, _formula in (
    (
        "it is bits a token",
        "How many tokens does the text have, and how many bytes?",
        lambda loss, n, text: loss / math.log(2),
    ),
    (
        "tokens and bytes have changed places",
        "Do more tokens for the same text cost more, or less?",
        lambda loss, n, text: loss * len(text.encode()) / n / math.log(2),
    ),
    (
        "it is a perplexity",
        "Is the loss asked for, or its exponential?",
        lambda loss, n, text: (
            math.exp(loss) * n / len(text.encode()) / math.log(2)
        ),
    ),
):
    c12.bits_per_byte.slip(_words, _hint, _formula)


def _merge(data, merges, *, right, first=256):
    number = {pair: n for n, pair in enumerate(merges, first)}
    ids = list(data)
    while here := [p for p in zip(ids, ids[1:]) if p in number]:
        pair = min(here, key=number.get)
        at = [n for n in range(len(ids)) if (*ids[n : n + 2],) == pair][-right]
        ids[at : at + 2] = [number[pair]]
    return ids


c12.encode_bytes.slip(
    "it goes from right to left",
    "Which two of three equal bytes are joined?",
    lambda data, merges: _merge(data, merges, right=1),
)


def _first_found(data, merges):
    one = [pair for pair in merges if pair in zip(data, data[1:])][:1]
    return _merge(data, [p if p in one else None for p in merges], right=0)


c12.encode_bytes.slip(
    "it stops after one merge",
    "When is there no pair left to be joined?",
    _first_found,
)
c12.encode_bytes.slip(
    "the first merge is not 256",
    "Which id is the first that no byte has?",
    partial(_merge, right=0, first=257),
)
c12.encode_bytes.slip(
    "the merges are counted from 0",
    "Which id is the first that no byte has?",
    partial(_merge, right=0, first=0),
)
c12.encode_bytes.slip(
    "a pair that a merge has made is passed by",
    "Which new pairs does a merge make?",
    lambda data, merges: _merge(
        data,
        [pair if pair in zip(data, data[1:]) else None for pair in merges],
        right=0,
    ),
)


def _until_one_is_missing(data, merges):
    ids = list(data)
    for n in range(len(merges)):
        before, ids = ids, c12.encode_bytes(data, merges[: n + 1])
        if ids == before:
            break
    return ids


c12.encode_bytes.slip(
    "it ends at a merge that the text does not have",
    "Which merges come after one that is not in the text?",
    _until_one_is_missing,
)
c12.text_as_it_comes.slip(
    "everything is shown again with each part",
    "What was shown already?",
    lambda parts: [
        b"".join(parts[: n + 1]).decode(errors="ignore")
        for n in range(len(parts))
    ],
)
c12.text_as_it_comes.slip(
    "a character that is cut is lost",
    "What becomes of the first byte of an é?",
    lambda parts: [part.decode(errors="ignore") for part in parts],
)


def _or_nothing(parts, *, keep=1, clear=1):
    held, out = b"", []
    for part in parts:
        held = keep * held + part
        try:
            out.append(held.decode())
            held = (1 - clear) * held
        except UnicodeDecodeError:
            out.append("")
    return out


c12.text_as_it_comes.slip(
    "whole characters wait for one that is cut",
    "What can be shown of caf and the first byte of an é?",
    _or_nothing,
)
c12.text_as_it_comes.slip(
    "a part that ends within a character is lost",
    "What becomes of the first byte of an é?",
    partial(_or_nothing, keep=0),
)
c12.text_as_it_comes.slip(
    "what was shown is not taken away",
    "What was shown already?",
    partial(_or_nothing, clear=0),
)
c12.text_as_it_comes.slip(
    "each byte is taken for a character",
    "How many characters are the two bytes of an é?",
    lambda parts: [part.decode("latin-1") for part in parts],
)


def _without_sign(parts):
    texts = [
        b"".join(parts[:n]).decode(errors="replace").rstrip("\ufffd")
        for n in range(len(parts) + 1)
    ]
    return [b[len(a) :] for a, b in zip(texts, texts[1:])]


c12.text_as_it_comes.slip(
    "a � of the text itself is held back",
    "May a text hold a � of its own?",
    _without_sign,
)

# Chapter 13

c13.prefix_mask.slip(
    "what follows does not read the prefix",
    "May what follows read the whole prefix too?",
    lambda n_prefix, n: (
        (square_mask(n) | (torch.arange(n) < n_prefix))
        & (
            (torch.arange(n) >= n_prefix)
            | (torch.arange(n) < n_prefix)[:, None]
        )
    ),
)
c13.prefix_mask.slip(
    "the prefix reads everything, and is read as by a decoder",
    "Which axis of the mask counts the readers?",
    lambda n_prefix, n: square_mask(n) | (torch.arange(n) < n_prefix)[:, None],
)
c13.prefix_mask.slip(
    "nothing but the prefix is read",
    "What else may the last token read?",
    lambda n_prefix, n: (torch.arange(n) < n_prefix).expand(n, n),
)
c13.prefix_mask.slip(
    "what follows does not read itself",
    "May a token behind the prefix read itself?",
    lambda n_prefix, n: square_mask(n).tril(-1) | (torch.arange(n) < n_prefix),
)


def _covers(first=0.8, last=0.9, *, everywhere=False):
    """A slip of `cover_words` with other edges."""

    def wrong(tokens, chosen, kind, words, mask_token):
        where = chosen | everywhere
        inputs = torch.where(where & (kind < last), words, tokens)
        inputs = torch.where(where & (kind < first), mask_token, inputs)
        return inputs, torch.where(chosen, tokens, -100)

    return wrong


def _asks(target):
    """A slip of `cover_words`: right inputs, and `target(tokens, chosen, kind,
    inputs)`."""

    def wrong(tokens, chosen, kind, words, mask_token):
        inputs, _ = _covers()(tokens, chosen, kind, words, mask_token)
        return inputs, target(tokens, chosen, kind, inputs)

    return wrong


def _spoils_the_tokens(tokens, chosen, kind, words, mask_token):
    inputs, _ = _covers()(tokens, chosen, kind, words, mask_token)
    tokens.copy_(inputs)
    return tokens, torch.where(chosen, tokens, -100)


_AFTER = 1e-12  # the edge itself and no more
_CHANGED = "Which words are targets: the chosen, or the changed?"
for words, hint, wrong in (
    (
        "only words that were changed are asked for",
        _CHANGED,
        _asks(lambda x, on, kind, _: torch.where(on & (kind < 0.9), x, -100)),
    ),
    (
        "only words that look changed are asked for",
        _CHANGED,
        _asks(lambda x, on, kind, new: torch.where(new != x, x, -100)),
    ),
    (
        "only covered words are asked for",
        _CHANGED,
        _asks(lambda x, on, kind, _: torch.where(on & (kind < 0.8), x, -100)),
    ),
    (
        "the targets are what stands in the inputs",
        "Shall the model guess the word that was there, or what replaced it?",
        _asks(lambda x, on, kind, new: torch.where(on, new, -100)),
    ),
    (
        "the tokens are overwritten before the targets are taken from them",
        "When you make the targets, does `tokens` still hold the text?",
        _spoils_the_tokens,
    ),
    (
        "the words that were not chosen are asked for",
        "For which words does the loss need the answer?",
        _asks(lambda x, on, kind, _: torch.where(on, -100, x)),
    ),
    (
        "words that were not chosen have the target 0",
        "Which target does F.cross_entropy leave out?",
        _asks(lambda x, on, kind, _: x * on),
    ),
    (
        "the edge belongs to the other side",
        "What becomes of a word with kind 0.8 exactly?",
        _covers(0.8 + _AFTER),
    ),
    (
        "both edges belong to the other side",
        "What becomes of a word with kind 0.8 exactly?",
        _covers(0.8 + _AFTER, 0.9 + _AFTER),
    ),
    (
        "no chosen word is left as it is",
        "What becomes of a chosen word with kind 0.95?",
        _covers(last=1.0),
    ),
    (
        "words that were not chosen are covered too",
        "Does a word that was not chosen keep its place?",
        _covers(everywhere=True),
    ),
    (
        "the random words stand in place of the mask token",
        "After your last line, what stands where kind is 0.5?",
        _covers(first=0.0),
    ),
    (
        "targets and inputs are exchanged",
        "Which of the two is returned first?",
        lambda *given: _covers()(*given)[::-1],
    ),
):
    c13.cover_words.slip(words, hint, wrong)


def _source_read(scale=lambda S, d: 1, mask=None, after=None, dim=-1):
    """A slip of `read_source`, each part of which may be another."""

    def wrong(target, source, real):
        scores = c13.scores_of(target, source) * scale(*source.shape[-2:])
        hidden = mask(real) if mask else ~real[..., None, :]
        weights = softmax(scores.masked_fill(hidden, -INF), dim)
        return (after(weights, real) if after else weights) @ source

    return wrong


_SCALE = "Which number do you divide by, and what does it count?"
for words, hint, wrong in (
    (
        "the scores are not divided by √d",
        _SCALE,
        _source_read(lambda S, d: d**0.5),
    ),
    (
        "the scores are divided by d",
        _SCALE,
        _source_read(lambda S, d: d**-0.5),
    ),
    (
        "the scores are divided by √S",
        _SCALE,
        _source_read(lambda S, d: (d / S) ** 0.5),
    ),
    (
        "the words are hidden and the padding is read",
        "Where `real` is True, may the token be read?",
        _source_read(mask=lambda real: real[..., None, :]),
    ),
    (
        "the mask lies along the target",
        "Which axis of the scores, (..., T, S), counts the source's tokens?",
        _source_read(mask=lambda real: ~real[..., :, None]),
    ),
    (
        "padding gets the weight 0 after the softmax",
        "What do the weights of one target token sum to?",
        _source_read(
            mask=lambda real: torch.zeros_like(real)[..., None, :],
            after=lambda weights, real: weights * real[..., None, :],
        ),
    ),
    (
        "the weights of one source token sum to one",
        "Along which axis do the weights of one target token stand?",
        _source_read(dim=-2),
    ),
):
    c13.read_source.slip(words, hint, wrong)


def _greedy(change=0, *, from_start=False, late=0, seen=0, alone=False):
    """A slip of `greedy_until`: `change(n)` of `longest` more, ..."""

    def wrong(next_scores, start, stop, longest):
        tokens, n = start, start.shape[1]
        done = (start == stop).any(-1, keepdim=True) & from_start
        steps_after = 0
        for _ in range(longest + (change(n) if callable(change) else change)):
            best = next_scores(tokens[:, -seen:]).argmax(-1, keepdim=True)
            best = best.masked_fill(done, stop)
            tokens = torch.cat([tokens, best], -1)
            done = done | (best == stop)
            steps_after += int(done.all())
            if steps_after > late:
                break
        return tokens[:, n:] if alone else tokens

    return wrong


def _without_stop(next_scores, start, stop, longest):
    tokens = c13.greedy_until(next_scores, start, stop, longest)
    over = (tokens[:, start.shape[1] :] == stop).any(-1).all()
    return tokens[:, :-1] if over else tokens


_WHEN = "How often is the model asked after the last text has ended?"
for words, hint, wrong in (
    (
        "a stop token of the start counts",
        "Who has written the stop token in the start?",
        _greedy(from_start=True),
    ),
    (
        "the tokens of the start are counted",
        "How many tokens may be appended?",
        _greedy(lambda n: -n),
    ),
    (
        "a token too few is appended",
        "What does your function append when longest is 1?",
        _greedy(-1),
    ),
    (
        "the start is missing",
        "What stands before the new tokens?",
        _greedy(alone=True),
    ),
    (
        "the model is shown the last token alone",
        "How much of the text does next_scores need to see?",
        _greedy(seen=1),
    ),
    (
        "the stop token is missing",
        "Does a text that has ended show its stop token?",
        _without_stop,
    ),
    ("one step too many after the end", _WHEN, _greedy(late=1)),
    ("the end of all texts does not end the loop", _WHEN, _greedy(late=INF)),
):
    c13.greedy_until.slip(words, hint, wrong)

# Chapter 14


def _fits(count):
    """A slip of `rows_that_fit`: `count(memory, weights, row, sizes)`, with
    the bytes of the weights and of a row."""

    def wrong(
        memory, n, *, n_layers, n_heads, n_kv_heads, d_k, capacity, size
    ):
        row = 2 * n_layers * n_kv_heads * d_k * capacity * size
        return count(memory, n * size, row, size)

    return wrong


_BYTES = "How many bytes has a number?"
for words, hint, wrong in (
    (
        "keys and values are counted once",
        "What is kept of each token, beside its key?",
        _fits(lambda memory, own, row, _: max(0, 2 * (memory - own) // row)),
    ),
    (
        "the number may be negative",
        "How many texts fit if not even the parameters do?",
        _fits(lambda memory, own, row, _: (memory - own) // row),
    ),
    (
        "a parameter is counted as one byte",
        _BYTES,
        _fits(lambda memory, own, row, b: max(0, (memory - own // b) // row)),
    ),
    (
        "a number of the cache is counted as one byte",
        _BYTES,
        _fits(lambda memory, own, row, b: max(0, (memory - own) * b // row)),
    ),
    (
        "each text has a model of its own",
        "For two texts, how often do the parameters lie in memory?",
        _fits(lambda memory, own, row, _: memory // (own + row)),
    ),
):
    c14.rows_that_fit.slip(words, hint, wrong)


def _slots(*, place=None, S=None, ahead=0, padding=False):
    """A slip of `batch_mask` with other places, or another width."""

    def wrong(before, real):
        count = real.long().cumsum(-1)
        width = (S or (lambda n, c: (n + c[:, -1]).max()))(before, count)
        last = place(before, count) if place else before[:, None] + count
        mask = torch.arange(int(width)) < (last + ahead)[..., None]
        return mask if padding else mask & real[..., None]

    return wrong


_ITSELF = "In which slot does the token itself stand?"
for words, hint, wrong in (
    ("a token does not read itself", _ITSELF, _slots(ahead=-1)),
    ("a token reads one slot beyond its own", _ITSELF, _slots(ahead=1)),
    (
        "padding reads too",
        "What does the row of a padding token hold?",
        _slots(padding=True),
    ),
    (
        "padding is counted as a token",
        "In which slot does the first real token of a row stand?",
        _slots(place=lambda n, c: n[:, None] + torch.arange(c.shape[1]) + 1),
    ),
    (
        "the tokens of a chunk read those that come later",
        "May the first of three new tokens read the second?",
        _slots(place=lambda n, c: (n + c[:, -1])[:, None].expand(c.shape)),
    ),
    (
        "every row is as long as the longest",
        "In your batch, does the shorter row's new token see fewer slots?",
        _slots(place=lambda n, c: n.max() + c),
    ),
    (
        "there are slots for padding",
        "How many slots does a padding token take?",
        _slots(S=lambda n, c: n.max() + c.shape[1]),
    ),
    (
        "the longest cache and the longest chunk are taken from two rows",
        "Has the row with the most in the cache the most new tokens too?",
        _slots(S=lambda n, c: n.max() + c[:, -1].max()),
    ),
):
    c14.batch_mask.slip(words, hint, wrong)


def _rolls(slots):
    """A slip of `roll_in` with other slots for the keys that are kept."""

    def wrong(store, n_seen, new):
        C, T = len(store), len(new)
        kept = torch.arange(max(0, T - C), T)
        store = store.clone()
        store[slots(n_seen, kept, C, T) % C] = new[kept]
        return store

    return wrong


_PLACE = "In which slot does the key of position p stand?"
for words, hint, wrong in (
    (
        "all move up and the new one comes last",
        _PLACE,
        lambda store, n_seen, new: torch.cat([store, new])[-len(store) :],
    ),
    (
        "the slots are counted from the first key that is kept",
        "Which position has the first of the keys that are kept?",
        _rolls(lambda n, kept, C, T: n + kept - kept[0]),
    ),
    (
        "a long chunk lies in its own order",
        _PLACE,
        _rolls(lambda n, kept, C, T: n * (T < C) + kept - kept[0]),
    ),
    (
        "what does not fit behind the last slot is lost",
        "Where does the key after the last slot go?",
        lambda store, n, new: torch.cat(
            [
                store[: n % len(store)],
                new[: len(store) - n % len(store)],
                store[n % len(store) + len(new) :],
            ]
        ),
    ),
):
    c14.roll_in.slip(words, hint, wrong)


def _flops(without=None, cached=None):
    """A slip of `writing_flops`: the calls, (T, S) each, of either way."""

    def total(calls, per_token, per_pair):
        return int(sum(T * per_token + T * S * per_pair for T, S in calls))

    def wrong(p, n, per_token, per_pair):
        again = [(S, S) for S in range(p, p + n)]
        kept = [(p, p)] + [(1, S) for S in range(p + 1, p + n)]
        return (
            total(without(p, n) if without else again, per_token, per_pair),
            total(cached(p, n) if cached else kept, per_token, per_pair),
        )

    return wrong


_QUERIES = "How many queries has a step with the cache, and how many keys?"
for words, hint, wrong in (
    (
        "the prompt is never read",
        "What has to be read before the first new token?",
        _flops(cached=lambda p, n: [(1, S) for S in range(p + 1, p + n)]),
    ),
    (
        "the last token that is written is read",
        "After which token does the writing end?",
        _flops(
            lambda p, n: [(S, S) for S in range(p, p + n + 1)],
            lambda p, n: [(p, p)] + [(1, p + i) for i in range(1, n + 1)],
        ),
    ),
    (
        "with the cache there is a step too many",
        "What do you know once the prompt has been read?",
        _flops(
            cached=lambda p, n: [(p, p)] + [(1, p + i + 1) for i in range(n)]
        ),
    ),
    (
        "without a cache the first reading has a token too many",
        "How many tokens are there when the first new one is asked for?",
        _flops(lambda p, n: [(S, S) for S in range(p + 1, p + n + 1)]),
    ),
    (
        "a new token does not read itself",
        _QUERIES,
        _flops(
            cached=lambda p, n: [(p, p)] + [(1, p + i) for i in range(n - 1)]
        ),
    ),
    (
        "a step has as many queries as keys",
        _QUERIES,
        _flops(
            cached=lambda p, n: (
                [(p, p)] + [(1, S * S) for S in range(p + 1, p + n)]
            )
        ),
    ),
    (
        "the prompt is read as one token",
        "How many tokens does the first call with the cache read?",
        _flops(cached=lambda p, n: [(1, S) for S in range(p, p + n)]),
    ),
    (
        "the prompt is read token by token",
        "How many calls read the prompt, and how many tokens each?",
        _flops(cached=lambda p, n: [(1, S) for S in range(1, p + n)]),
    ),
    (
        "the text does not grow",
        "How many tokens are there at the last step?",
        _flops(
            lambda p, n: [(p, p)] * n,
            lambda p, n: [(p, p)] + [(1, p)] * (n - 1),
        ),
    ),
    (
        "the last reading counts for all",
        "How often is the text read, without a cache?",
        _flops(lambda p, n: [(p + n - 1, p + n - 1)]),
    ),
    (
        "each token makes one pair with itself alone",
        "How many pairs do T tokens make with S keys?",
        _flops(
            lambda p, n: [(S, 1) for S in range(p, p + n)],
            lambda p, n: [(p, 1)] + [(1, S) for S in range(p + 1, p + n)],
        ),
    ),
    (
        "masked pairs are left out",
        "Does T · S leave out what the mask hides?",
        _flops(
            lambda p, n: [(S, (S + 1) / 2) for S in range(p, p + n)],
            lambda p, n: (
                [(p, (p + 1) / 2)] + [(1, S) for S in range(p + 1, p + n)]
            ),
        ),
    ),
):
    c14.writing_flops.slip(words, hint, wrong)

# Chapter 15


def _nucleus(probabilities, p, *, order=True, meets=False):
    if order:
        probabilities = probabilities.sort(descending=True).values
    before = probabilities.cumsum(-1) - probabilities
    return int(((before <= p) if meets else (before < p)).sum())


c15.nucleus_size.slip(
    "one more is kept where p is met exactly",
    "Is a set that has just p large enough?",
    lambda q, p: _nucleus(q, p, meets=True),
)
c15.nucleus_size.slip(
    "the likeliest are not taken first",
    "In which order do you add the probabilities?",
    lambda q, p: _nucleus(q, p, order=False),
)
c15.nucleus_size.slip(
    "the unlikeliest are taken first",
    "Which tokens does top-p keep?",
    lambda q, p: _nucleus(q.sort().values, p, order=False),
)
c15.nucleus_size.slip(
    "the token that reaches p is not counted",
    "Do the tokens that you counted have p together?",
    lambda q, p: _nucleus(q, p) - 1,
)
c15.nucleus_size.slip(
    "each token alone is compared with p",
    "What together has to reach p?",
    lambda q, p: int((q >= p).sum()),
)
c15.nucleus_size.slip(
    "it is the rule of min-p",
    "Of the three rules, which adds probabilities up?",
    lambda q, p: int((q >= p * q.max()).sum()),
)
c15.nucleus_size.slip(
    "the softmax is taken a second time",
    "What do the numbers sum to, before your softmax?",
    lambda q, p: _nucleus(q.softmax(-1), p),
)


def _each(logits, columns):
    return logits[torch.arange(len(logits)), columns]


c15.last_logits.slip(
    "it is one place too far",
    "At which index does a row of three tokens end?",
    _each,
)
c15.last_logits.slip(
    "it counts from the right end",
    "On which side is the padding?",
    lambda logits, lengths: _each(logits, -lengths),
)
c15.last_logits.slip(
    "the axis of the tokens is still there",
    "Which shape is wanted?",
    lambda logits, lengths: _each(logits, lengths - 1)[:, None],
)


def _chance(logits, tokens, temperature, k, *, late=False):
    logits = logits if late else logits / temperature
    kept = logits.masked_fill(logits < logits.topk(k)[0][:, -1:], -INF)
    logs = logits.log_softmax(-1).where(kept > -INF, -INF) if late else kept
    logs = logs if late else logs.log_softmax(-1)
    return logs.gather(-1, tokens[:, None]).sum()


# z the logits, x the tokens, t the temperature
c15.chance_of_text.slip(
    "the temperature is forgotten",
    "What is divided by the temperature?",
    lambda z, x, t, k: _chance(z, x, 1.0, k),
)
c15.chance_of_text.slip(
    "what top-k cuts is still in the sum",
    "Over which tokens does the softmax of the sampler go?",
    lambda z, x, t, k: _chance(z / t, x, 1.0, k, late=True),
)
c15.chance_of_text.slip(
    "k is forgotten",
    "What is the chance of a token that was cut?",
    lambda z, x, t, k: _chance(z, x, t, z.shape[-1]),
)
c15.chance_of_text.slip(
    "it multiplies by the temperature",
    "Does a high temperature make the likeliest token likelier?",
    lambda z, x, t, k: _chance(z, x, 1 / t, k),
)
c15.chance_of_text.slip(
    "the temperature divides the logs of probabilities",
    "What do your probabilities sum to after the division?",
    lambda z, x, t, k: _chance(z, x, 1.0, k) / t,
)
c15.chance_of_text.slip(
    "what top-k cuts gets the logit 0",
    "What is the exponential of 0?",
    lambda z, x, t, k: _chance(
        z.where(z >= z.topk(k)[0][:, -1:], 0.0), x, t, z.shape[-1]
    ),
)
c15.chance_of_text.slip(
    "it is a mean over the steps",
    "How likely is a text of two tokens, each of probability 1/2?",
    lambda z, x, t, k: _chance(z, x, t, k) / len(x),
)
c15.chance_of_text.slip(
    "it is the probability, not its log",
    "What is the log of a probability of 1?",
    lambda z, x, t, k: _chance(z, x, t, k).exp(),
)
c15.chance_of_text.slip(
    "a row of logits is asked about the next step's token",
    "From which row of the logits was the first token drawn?",
    lambda z, x, t, k: _chance(z[:-1], x[1:], t, k),
)
c15.race.slip(
    "one logarithm is missing",
    "What is added to a logit, a time or the log of one?",
    lambda logits, noise: (logits - noise.log()).argmax(-1),
)
c15.race.slip(
    "a waiting time is subtracted, not its log",
    "What is added to a logit, a time or the log of one?",
    lambda logits, noise: (logits + noise.log()).argmax(-1),
)
c15.race.slip(
    "the noise is added to the probabilities",
    "What is z in the formula?",
    lambda logits, noise: c15.race(logits.softmax(-1), noise),
)
c15.race.slip(
    "1 − u is taken for u",
    "With another noise it is fair, too; which one is given?",
    lambda logits, noise: c15.race(logits, 1 - noise),
)
c15.race.slip(
    "the longest waiting time wins",
    "Who wins a race?",
    lambda logits, noise: (logits - (-noise.log()).log()).argmin(-1),
)

# Chapter 16


def _miscounted(words, hint, off):
    """A slip by off(V, d, L, keys), keys the width of a token's keys."""

    def wrong(V, d, d_ff, L, H, H_kv):
        right = c16.llama_parameters(V, d, d_ff, L, H, H_kv)
        return right + off(V, d, L, d // H * H_kv)

    c16.llama_parameters.slip(words, hint, wrong)


_NORMS = "How many norms has a block, and what does one of them learn?"
_miscounted(
    "the head is counted as tied",
    "How many tables of the vocabulary's size are there?",
    lambda V, d, L, keys: -V * d,
)
_miscounted(
    "the last norm is missing",
    "What does the stream go through before the head?",
    lambda V, d, L, keys: -d,
)
_miscounted(
    "the norms are missing", _NORMS, lambda V, d, L, keys: -d * (2 * L + 1)
)
_miscounted("a block has one norm only", _NORMS, lambda V, d, L, keys: -d * L)
_miscounted(
    "the norms are counted with biases",
    _NORMS,
    lambda V, d, L, keys: d * (2 * L + 1),
)
_miscounted(
    "the matrix of attention's output is missing",
    "What do the heads' contexts go through, side by side?",
    lambda V, d, L, keys: -L * d * d,
)
_miscounted(
    "of keys and values only one is counted",
    "Which matrices has attention?",
    lambda V, d, L, keys: -L * d * keys,
)
c16.to_c_attn.slip(
    "keys and values come before the queries",
    "What comes first in GPT-2's joint matrix?",
    lambda query, key_value: torch.cat([key_value, query]).T,
)
c16.to_c_attn.slip(
    "values come before keys",
    "What comes second in GPT-2's joint matrix?",
    lambda query, key_value: torch.cat([query, *key_value.chunk(2)[::-1]]).T,
)
c16.stack_key_value.slip(
    "values come before keys",
    "What comes first in our key_value?",
    lambda k, v, n: c16.stack_key_value(k, v, n).roll(len(k), 0),
)
c16.stack_key_value.slip(
    "the values are reordered, not the keys",
    "What is rotated, and what is not?",
    lambda k, v, n: c16.stack_key_value(v, k, n).roll(len(k), 0),
)
c16.stack_key_value.slip(
    "keys and values lie head by head",
    "In which rows do all values stand?",
    lambda k, v, n: (
        c16.stack_key_value(k, v, n)
        .unflatten(0, (2, n, -1))
        .transpose(0, 1)
        .flatten(0, 2)
    ),
)
c16.stack_key_value.slip(
    "in each head the odd rows come first",
    "Which of the halves has row 0?",
    lambda k, v, n: c16.stack_key_value(
        k.unflatten(0, (-1, 2)).flip(1).flatten(0, 1), v, n
    ),
)
c16.stack_key_value.slip(
    "the rows are reordered the other way round",
    "Where does row 1 of a head stand, before and after?",
    lambda k, v, n: torch.cat(
        [k.unflatten(0, (n, 2, -1)).transpose(1, 2).flatten(0, 2), v]
    ),
)
c16.stack_key_value.slip(
    "rows move from head to head",
    "In which rows does the second head stand, before and after?",
    lambda k, v, n: torch.cat([k[0::2], k[1::2], v]),
)
c16.find_first.slip(
    "the names are sorted",
    "In which order did the parts run?",
    lambda ours, theirs, bound: c16.find_first(
        dict(sorted(ours.items())), theirs, bound
    ),
)
c16.find_first.slip(
    "what lies just at the bound is named",
    "Is a number that is just the bound away further than it?",
    lambda ours, theirs, bound: c16.find_first(
        ours, theirs, math.nextafter(bound, 0)
    ),
)

c16.find_first.slip(
    "the last is named",
    "When does the search end?",
    lambda ours, theirs, bound: c16.find_first(
        dict(reversed(ours.items())), theirs, bound
    ),
)


def _first_of(words, hint, near):
    """A slip that names the first tensor that is not near."""

    def wrong(ours, theirs, bound):
        names = (n for n in ours if not near(ours[n], theirs[n], bound))
        return next(names, None)

    c16.find_first.slip(words, hint, wrong)


_first_of(
    "the mean difference is compared",
    "Can one wrong number hide among many right ones?",
    lambda a, b, bound: (a - b).abs().mean() <= bound,
)
_first_of(
    "a difference below 0 passes",
    "How far from each other are 1 and 3?",
    lambda a, b, bound: (a - b <= bound).all(),
)
_first_of(
    "large numbers may differ by more",
    "Which rtol has torch.allclose if none is given?",
    lambda a, b, bound: torch.allclose(a, b, atol=bound),
)
_first_of(
    "a NaN on both sides passes",
    "Is a NaN near to another one?",
    lambda a, b, bound: torch.allclose(a, b, 0, bound, equal_nan=True),
)
_first_of(
    "one number that is near is enough",
    "Should all numbers be far, or any?",
    lambda a, b, bound: ~((a - b).abs() > bound).all(),
)


def _compared(words, hint, judge, of=lambda part: True):
    """A slip that judges only what parts of a kind give."""

    def wrong(ours, theirs, tokens):
        found, reference = (c16._outputs(m, tokens) for m in (ours, theirs))
        kept = {n for n, part in ours.named_modules() if of(part)}
        found = {n: x for n, x in found.items() if n in kept}
        return judge(found, reference, 1e-9)

    c16.first_wrong.slip(words, hint, wrong)


_compared(
    "only the parts without parts of their own are compared",
    "Where is the result of an addition to be seen?",
    c16.find_first,
    lambda part: not [*part.children()],
)
_compared(
    "blocks alone are compared",
    "Which part of a block is it?",
    c16.find_first,
    lambda part: isinstance(part, TransformerBlock),
)
_compared(
    "small differences pass",
    "Which rtol has torch.allclose if none is given?",
    lambda ours, theirs, bound: next(
        (n for n in ours if not torch.allclose(ours[n], theirs[n])), None
    ),
)
c16.first_wrong.slip(
    "the whole model comes before its parts",
    "When has the whole model its result?",
    lambda ours, theirs, tokens: c16.find_first(
        {"": ours(tokens)}, {"": theirs(tokens)}, 1e-9
    ),
)


c19.held.slip(
    "the slots that are used count as empty",
    "Two tokens stand on a page of four. How many of its slots are empty?",
    lambda lengths, size: (
        c19.held(lengths, size)[0],
        sum(n % size for n in lengths),
    ),
)
c19.shares.slip(
    "what is kept afterwards is returned",
    "Are the tokens that were kept before read in this step?",
    lambda lengths, kept, budget: [
        n + read for n, read in zip(kept, c19.shares(lengths, kept, budget))
    ],
)


def _shortest_first(lengths, kept, budget):
    order = sorted(range(len(kept)), key=lambda i: lengths[i] - kept[i])
    a, n = ([numbers[i] for i in order] for numbers in (lengths, kept))
    read = dict(zip(order, c19.shares(a, n, budget)))
    return [read[i] for i in range(len(kept))]


c19.shares.slip(
    "who has least to read reads first",
    "Who came first, and is there anything left for the others?",
    _shortest_first,
)


def _freed(merge):
    def wrong(holders, free, table):
        holders, given = c19.give_back(holders, [], table)
        return holders, merge(free, given)

    return wrong


c19.give_back.slip(
    "the free pages are sorted",
    "In which order did the free pages stand before?",
    _freed(lambda free, given: sorted(free + given)),
)
c19.give_back.slip(
    "the pages stand before those that were free",
    "Which page is taken next, and which one was free longest?",
    _freed(lambda free, given: given + free),
)
for words, wrong in (
    ("how much is refused", lambda p, q: 1 - c20.acceptance(p, q)),
    (
        "the coins are summed, whatever is guessed",
        lambda p, q: (p / q).clamp(max=1).sum(-1),
    ),
):
    c20.acceptance.slip(
        words, "What is your number if the draft is the model itself?", wrong
    )
c20.look_up.slip(
    "a place is returned",
    "Is a place asked for, or the token that stands there?",
    lambda text, n: next(
        (
            i
            for i in range(len(text) - 1, n - 1, -1)
            if text[i - n : i] == text[-n:]
        ),
        None,
    ),
)
c20.tree_mask.slip(
    "all first words are seen",
    "Two first words stand for one place. Which one does a guess follow?",
    lambda parents: c20.tree_mask(parents) | (parents < 0),
)
