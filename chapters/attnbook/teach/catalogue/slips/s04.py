"""Slips of chapter 4."""

import math

import torch
import torch.nn.functional as F

from attnbook.attention import (
    Attention,
    softmax,
)
from attnbook.teach.catalogue import c04_scaling as c04

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


def attend(q, k, v, scale, mask, weigh=softmax):
    """Attention (context, weights), with `weigh` in place of softmax."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    weights = weigh(c04.masked((q * scale) @ k.mT, mask))
    return Attention(weights @ v, weights)


def _late(q, k, v, *, mask=None, scale=None):
    """Attention whose boolean mask is multiplied with the weights after the
    softmax. A mask of numbers is added to the scores, as it should be."""
    late = mask is not None and mask.dtype == torch.bool
    context, weights = attend(q, k, v, scale, None if late else mask)
    weights = weights * mask if late else weights
    return Attention(weights @ v if late else context, weights)


c04.scaled_dot_product_attention.slip(
    "the mask comes after the softmax",
    "With a key hidden, what does a row of your weights sum to?",
    _late,
)
c04.scaled_dot_product_attention.slip(
    "hidden scores are very low instead of −∞",
    "If all keys of a query are hidden, are their scores equal, and what does "
    "the softmax make of equal ones?",
    lambda q, k, v, *, mask=None, scale=None: attend(
        q,
        k,
        v,
        scale,
        mask,
        lambda scores: scores.clamp(min=torch.finfo(scores.dtype).min).softmax(
            -1
        ),
    ),
)
c04.scaled_dot_product_attention.slip(
    "a scale that is given is not used",
    "What is a score if the caller asks for scale=0.3?",
    lambda q, k, v, *, mask=None, scale=None: attend(q, k, v, None, mask),
)
c04.scaled_dot_product_attention.slip(
    "it divides by a scale that is given",
    "Are the scores multiplied by the scale, or divided by it?",
    lambda q, k, v, *, mask=None, scale=None: attend(
        q, k, v, scale if scale is None else 1 / scale, mask
    ),
)
c04.scaled_dot_product_attention.slip(
    "the softmax runs over the queries",
    "Whose weights sum to one: a query's, or a key's?",
    lambda q, k, v, *, mask=None, scale=None: attend(
        q, k, v, scale, mask, lambda scores: softmax(scores.mT).mT
    ),
)
c04.scaled_dot_product_attention.slip(
    "the numbers of an additive mask are lost",
    "What does a mask of log 2 do to a key's weight?",
    lambda q, k, v, *, mask=None, scale=None: attend(
        q, k, v, scale, mask if mask is None else mask.bool()
    ),
)


def _blocks(q, k, v, block, *, old=True, total_too=True, scaled=True):
    """Attention (T, d_v) in blocks of keys, with some of its steps left out.

    Args:
        old: whether the context so far is brought to the new peak.
        total_too: whether the sum of weights so far is.
        scaled: whether scores are divided by √d_k.
    """
    q = q / math.sqrt(q.shape[-1]) if scaled else q
    peak = torch.full_like(q[..., :1], torch.finfo(q.dtype).min)
    total = torch.zeros_like(peak)
    context = 0
    for keys, values in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ keys.mT
        higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
        shrink, exp = (peak - higher).exp(), (scores - higher).exp()
        total = total * (shrink if total_too else 1)
        context = context * (shrink if old else 1) + exp @ values
        total = total + exp.sum(-1, keepdim=True)
        peak = higher
    return context / total


def _whole_blocks(k, v, *, block):
    """Keys and values without those of a last block that is shorter."""
    whole = k.shape[-2] // block * block or k.shape[-2]
    return k[..., :whole, :], v[..., :whole, :]


def _filled_up(x, block):
    """Keys or values, with zeros behind them until the blocks are full."""
    missing = -x.shape[-2] % block
    return F.pad(x, (0, 0, 0, missing))


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
    """The mean of the contexts (T, d_v) of attention to each block alone."""
    pairs = list(zip(k.split(block, -2), v.split(block, -2)))
    return sum(attend(q, *p, None, None).context for p in pairs) / len(pairs)


c04.attention_in_blocks.slip(
    "each block has a softmax of its own, and all blocks count alike",
    "Which block should count more: one of high scores, or one of low ones?",
    _by_block,
)


def _leaves_the_rest(q, k, v, block):
    """Attention (T, d_v) to whole blocks alone."""
    k, v = _whole_blocks(k, v, block=block)
    return _blocks(q, k, v, block)


def _counts_the_filling(q, k, v, block):
    """Attention (T, d_v) to blocks that zeros have filled up."""
    k = _filled_up(k, block)
    v = _filled_up(v, block)
    return _blocks(q, k, v, block)


c04.attention_in_blocks.slip(
    "the last block is left out where it is shorter",
    "How many keys has the last block, and are they in your sums?",
    _leaves_the_rest,
)
c04.attention_in_blocks.slip(
    "the last block is filled up with zeros, which count as keys",
    "What is the exponential of a score of 0, and whose is it?",
    _counts_the_filling,
)
