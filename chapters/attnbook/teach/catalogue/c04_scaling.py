"""Chapter 4, scaled dot-product attention: tasks and known mistakes."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch.func import jacrev, vmap

from attnbook.attention import Attention, softmax
from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.difference import difference
from attnbook.teach.check.inputs import (
    Labelled,
    Watched,
    f64,
    marks,
    randns,
    watched,
)
from attnbook.teach.check.rules import AtMost
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(4)


@task(
    against="the moments of a product",
    within=1e-6,
    cases={
        "one component, mean 0, variance 1": (1, 0.0, 1.0),
        "three components, mean 0, variance 1": (3,),
        "two components, uniform on [0, 1)": (2, 1 / 2, 1 / 12),
        "four components, mean -1, variance 0.5": (4, -1.0, 0.5),
        "64 components, mean 0.5, variance 2": (64, 0.5, 2.0),
        "300 components": (300, 0.5, 0.25),
    },
)
def score_variance(d_k, mean=0.0, variance=1.0):
    """the variance of q·k for d_k independent components, each with this mean
    and variance"""
    return f64(d_k * ((variance + mean**2) ** 2 - mean**4))[0]


@score_variance.mistake(symptom=symptoms.WRONG_IN_THE_NEXT_CASE)
def takes_d_k_for_any_inputs(d_k, mean=0.0, variance=1.0):
    """It predicts variances of 5 and 20 for components drawn uniformly from
    [0, 1) at widths 5 and 20; measured are 0.24 and 0.97.
    cause: Var(q·k) = d_k holds for components with mean 0 and variance 1.
    torch.rand has mean 1/2 and variance 1/12.
    fix: Draw from torch.randn where the rule is to be shown, or work out
    E[q²]E[k²] − E[q]²E[k]² for the inputs at hand.
    hint: For one product: what is the mean of its square, and what the square
    of its mean?"""
    return float(d_k)


_sdpa = F.scaled_dot_product_attention
_ROWS = randn(3, 5, seed=2).softmax(-1)
_BATCH = randn(2, 1, 3, 4, seed=3).softmax(-1)
_WEIGHTS = {
    "two equal weights": (f64(0.5, 0.5),),
    "all weight on one of three keys": (f64(0, 1, 0),),
    "a weight far from the others": ((4 * randn(5, seed=1)).softmax(-1),),
    "three queries, five keys": (_ROWS,),
    "131 keys": ((2 * randn(131, seed=5)).softmax(-1),),
    "131 queries, five keys": (randn(131, 5, seed=6).softmax(-1),),
    "17 texts of 17 heads": (randn(17, 17, 2, 3, seed=7).softmax(-1),),
}
_THOUSAND = randn(1000, seed=4).softmax(-1)


@task(
    against="torch.special.entr",
    cases=_WEIGHTS
    | {
        "a batch": (_BATCH,),
        "weights of 1e-6 and 1e-7": (f64(1 - 11e-7, 1e-6, 1e-7),),
    },
)
def entropy(weights):
    """−Σ a log a over the last axis, in nats; a weight of 0 adds 0"""
    return torch.special.entr(weights).sum(-1)


@entropy.mistake("huggingface/trl #7221", symptom=symptoms.NAN)
def takes_the_log_of_zero(weights):
    """The entropy of any row with a weight of exactly 0, and so of every
    masked row, is NaN.
    cause: 0 · log 0 is computed as 0 · (−∞), which is NaN; its limit is 0.
    fix: Put a 1 in the place of a zero weight before the logarithm is taken.
    torch.special.entr and torch.xlogy have the right value too, but through a
    softmax their gradient at a weight of 0 is NaN."""
    return -(weights * weights.log()).sum(-1)


@task(
    against="torch's jacobian of softmax",
    cases=_WEIGHTS | {"a batch": (_BATCH,)},
)
def softmax_jacobian(weights):
    """the matrix of ∂aᵢ/∂sⱼ for weights a = softmax(s): (..., S, S)"""
    rows = weights.reshape(-1, weights.shape[-1])
    of_each = vmap(jacrev(torch.nn.Softmax(-1)))
    return of_each(rows.log()).reshape(*weights.shape, weights.shape[-1])


@task(
    against="torch's autograd",
    cases={
        "two equal weights": (f64(0.5, 0.5), randn(2, seed=10)),
        "all weight on one of three keys": (f64(0, 1, 0), f64(0.3, -1.2, 0)),
        "three queries, five keys": (_ROWS, randn(3, 5, seed=13)),
        "a batch": (_BATCH, randn(2, 1, 3, 4, seed=14)),
        "a thousand keys": watched(_THOUSAND, randn(1000, seed=15)),
        "17 texts of 17 heads, 131 queries": (
            randn(17, 17, 131, 3, seed=16).softmax(-1),
            randn(17, 17, 131, 3, seed=17),
        ),
    },
)
def softmax_backward(weights, gradient):
    """the gradient with respect to the scores, given the weights and the
    gradient with respect to the weights"""
    scores = weights.log().requires_grad_()
    again = torch.softmax(scores, -1)
    return torch.autograd.grad(again, scores, gradient)[0]


@softmax_backward.mistake(
    "deeplearning4j/libnd4j #440", symptom=symptoms.WRONG_GRADIENTS
)
def keeps_only_the_diagonal(weights, gradient):
    """Gradients have the right shape and the wrong values: raising one score
    seems to change that score's weight alone.
    cause: The derivative of the sigmoid, a(1 − a), is used for the softmax.
    There every weight depends on every score.
    fix: Multiply by diag(a) − a aᵀ: the off-diagonal entries are −aᵢaⱼ.
    hint: If one score rises, what happens to the weights of the others?"""
    return weights * (1 - weights) * gradient


def masked(scores, mask):
    """The scores with the mask in them, as the right function does it."""
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -torch.inf)
    return scores + mask


_SOME = marks("101", "000")
_WIDE = torch.full((2, 64), 32.0, dtype=torch.float16) / f64([1], [2]).half()
_TOO_LARGE = (_WIDE[:1], _WIDE, f64([1, 2], [3, 4]).half())
# The second text has two tokens and is padded to four, and later tokens are
# hidden: (B, 1, T, S).
_PADDED = marks("1111", "1100")[:, None, None].repeat(1, 1, 4, 1).tril()
_LOST = randn(2, 3, seed=30).masked_fill(~_SOME, -torch.inf)
_MIXED = torch.stack([_LOST[0], randn(3, seed=31)])

# One query whose highest score is −2³¹: a peak that starts at any number above
# it hides all keys, and so does such a number in place of a missing key.
_FAR_DOWN = f64([2**16]), -(2**15) * f64([1], [1.5], [2]), f64([1], [2], [4])


def _qkv(leading, n_queries, n_keys, d_k, d_v, *, seed, by=1):
    """Queries, keys and values; the queries are multiplied by `by`.

    Large queries make large scores, and so a softmax that is nearly 0 and 1.
    """
    sizes = (n_queries, d_k), (n_keys, d_k), (n_keys, d_v)
    q, k, v = randns(*((*leading, *size) for size in sizes), seed=seed)
    return q * by, k, v


_SMALL = _qkv((2,), 2, 3, 4, 2, seed=17)


@task(
    against="torch's scaled_dot_product_attention",
    home="attention.scaled_dot_product_attention",
    gradients=True,
    cases={
        "one query, three keys": _qkv((), 1, 3, 2, 1, seed=1),
        "a boolean mask": call(*_qkv((), 1, 3, 2, 1, seed=1), mask=_SOME[:1]),
        "a bias": call(*_qkv((), 1, 3, 2, 1, seed=1), mask=f64([0.5, -1, 0])),
        "two queries, five keys": _qkv((), 2, 5, 3, 4, seed=4),
        "two sequences of three heads": _qkv((2, 3), 4, 6, 8, 5, seed=20),
        "shared keys and values": randns((3, 4, 5), (6, 5), (6, 2), seed=7),
        "scores in the thousands, the highest hidden": call(
            *_qkv((), 3, 4, 2, 2, seed=11, by=1000),
            mask=marks("1011", "0111", "1110"),
        ),
        "boolean, the second query fully masked": call(*_SMALL, mask=_SOME),
        "an additive mask, −inf and a bias": call(*_SMALL, mask=_MIXED),
        "additive, the second query fully masked": call(*_SMALL, mask=_LOST),
        "two texts of three heads, a mask each": call(
            *_qkv((2, 3), 4, 4, 2, 5, seed=26), mask=_PADDED
        ),
        "a bias for each head": call(
            *_qkv((2, 3), 4, 4, 2, 5, seed=26), mask=randn(2, 3, 4, 4, seed=32)
        ),
        "all scores below −100,000": call(
            f64([2**16]),
            -(2**15) * f64([1], [1.5], [1.25]),
            f64([1], [2], [9]),
            mask=marks("110"),
        ),
        "a scale given": call(*_qkv((), 2, 3, 4, 2, seed=23), scale=0.3),
        "a scale and a mask": call(
            *_qkv((), 2, 3, 4, 2, seed=23),
            mask=randn(2, 3, seed=26),
            scale=0.3,
        ),
        "a scale of 0": call(*_qkv((), 2, 3, 4, 2, seed=23), scale=0.0),
        # The raw score of the first key, 65536, is too large for float16. The
        # scaled ones, 8192 and 4096, are exact, so are the weights 1 and 0.
        "float16, too large before the scale": _TOO_LARGE,
        "17 texts of 17 heads, a mask each": call(
            *_qkv((17, 17), 2, 3, 4, 2, seed=40),
            mask=randn(17, 17, 2, 3, seed=43) > f64(0, -9, 0),
        ),
        "131 queries, 137 keys, 130 wide": call(
            *_qkv((), 131, 137, 130, 131, seed=44),
            mask=randn(131, 137, seed=47) > 0,
        ),
    },
)
def scaled_dot_product_attention(q, k, v, *, mask=None, scale=None):
    """the context softmax(q kᵀ/√d_k + mask) v and the weights; a fully masked
    query gets zeros, in the gradient too"""
    # Averaging the rows of the identity gives the weights themselves.
    identity = torch.diag_embed(torch.ones_like(k[..., 0]))  # (..., S, S)
    lost = torch.zeros(1, 1, dtype=torch.bool, device=q.device)
    if mask is not None:
        # What torch gives for a fully masked query depends on its version.
        boolean = mask.dtype == torch.bool
        lost = ~(mask if boolean else mask > -torch.inf).any(-1, keepdim=True)
        mask = mask | lost if boolean else mask.masked_fill(lost, 0)
    context, weights = (
        F.scaled_dot_product_attention(
            q, k, values, attn_mask=mask, scale=scale
        ).masked_fill(lost, 0)
        for values in (v, identity)
    )
    return context, weights


@scaled_dot_product_attention.mistake(
    "mlc-ai/mlc-llm #3426, PAIR-code/tiny-transformers #71",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_SHARPNESS),
)
def forgets_the_scale(q, k, v, *, mask=None, scale=None):
    """The weights are far too sharp, the more so the wider the head; most
    queries listen to one key, and many get hardly any gradient.
    cause: The scores go into the softmax with a standard deviation of √d_k
    instead of 1.
    fix: Divide the scores (or q) by √d_k before the softmax.
    hint: How large are your scores when d_k is large?"""
    scale = 1.0 if scale is None else scale
    weights = softmax(masked((q * scale) @ k.transpose(-2, -1), mask))
    return Attention(weights @ v, weights)


@scaled_dot_product_attention.mistake(
    "delzac/cntkx #10", symptom=symptoms.WRONG_SHARPNESS
)
def divides_by_d_k(q, k, v, *, mask=None, scale=None):
    """The weights are nearly uniform, the more so the wider the head: each
    context is close to the plain mean of the values.
    cause: The variance of a score is d_k, so its standard deviation, which is
    what a division acts on, is √d_k.
    fix: Divide by the square root of d_k.
    hint: Dividing by c divides the variance by which power of c?"""
    scale = 1 / q.shape[-1] if scale is None else scale
    weights = softmax(masked((q * scale) @ k.transpose(-2, -1), mask))
    return Attention(weights @ v, weights)


@scaled_dot_product_attention.mistake(
    "karpathy/ng-video-lecture #6, lucidrains/vit-pytorch #65",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.WRONG_SHARPNESS),
)
def scales_by_the_full_width(q, k, v, *, mask=None, scale=None):
    """With one head all is well; with H heads the scores are √H times too
    small, and the weights too even.
    cause: The root is taken of the model's full width. A head's dot product
    has only d_model / H terms.
    fix: Divide by the root of the width that the sum runs over, q.shape[-1]
    after the heads are split.
    hint: Over how many terms does the dot product of one head sum?"""
    n_heads = q.shape[-3] if q.ndim == 4 else 1  # (B, H, T, d_k)
    d_model = n_heads * q.shape[-1]
    scale = 1 / math.sqrt(d_model) if scale is None else scale
    weights = softmax(masked((q * scale) @ k.transpose(-2, -1), mask))
    return Attention(weights @ v, weights)


@scaled_dot_product_attention.mistake(
    "vllm-project/speculators #691, huggingface/diffusers #14342",
    symptom=symptoms.SEES_WRONG_TOKENS,
    not_looked_up="huggingface/diffusers #14342",
)
def adds_a_boolean_mask(q, k, v, *, mask=None, scale=None):
    """Nothing is masked: forbidden keys lose a factor of e against the others
    and nothing more, and no error is raised.
    cause: A boolean mask is added to the scores. True counts as 1 and False as
    0, so allowed scores grow by 1 and forbidden ones stay.
    fix: Fill with −∞ where the mask is False; add only a mask that holds 0 and
    −∞.
    hint: What does a masked key's weight come out as? It should be 0."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q * scale) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask
    weights = softmax(scores)
    return Attention(weights @ v, weights)


@scaled_dot_product_attention.mistake(
    "tenstorrent/tt-metal #56406, NVIDIA/OpenSeq2Seq #76",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def scales_the_mask_too(q, k, v, *, mask=None, scale=None):
    """A mask of 0 and −∞ works; a bias comes out √d_k times too weak.
    cause: The mask is added before the scores are divided, and so is divided
    with them. −∞ divided by anything is still −∞.
    fix: Scale first, then add: q kᵀ/√d_k + M.
    hint: Try a mask with finite numbers in it. What reaches the softmax?"""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    weights = softmax(masked(q @ k.transpose(-2, -1), mask) * scale)
    return Attention(weights @ v, weights)


@task(
    against="torch's masked_fill",
    cases={
        "one of two keys allowed": (marks("10")[0],),
        "every key allowed": (marks("111")[0],),
        "three queries, five keys": (randn(3, 5, seed=40) > 0,),
        "a batch": (randn(2, 1, 4, seed=41) > 0,),
        "a query that may see no key": (marks("101", "000"),),
        "17 texts of 17 heads, 131 keys": (randn(17, 17, 131, seed=42) > 0,),
    },
)
def additive_mask(allowed):
    """a floating-point mask, 0 where allowed is True and −inf where it is
    False"""
    return (allowed * 0.0).double().masked_fill(~allowed, -torch.inf)


@additive_mask.mistake("cerebroai/reformers #3", symptom=symptoms.NAN)
def multiplies_by_infinity(allowed):
    """Every output is NaN, also where nothing is masked.
    cause: At an allowed place the product is 0 · (−∞), which is NaN, not 0.
    fix: Choose instead of multiplying: torch.where or masked_fill."""
    return (1 - allowed.double()) * -torch.inf


@task(
    against="torch.chunk",
    home="attention.split_heads",
    gradients=True,
    cases={
        "two tokens, two heads": (f64([0, 1, 2, 3], [4, 5, 6, 7]), 2),
        "one head": (randn(3, 4, seed=50), 1),
        "(2, 10, 64), eight heads": (randn(2, 10, 64, seed=51), 8),
        "two leading axes": (randn(2, 3, 5, 6, seed=52), 3),
        "twelve heads of width two": (randn(2, 3, 24, seed=53), 12),
        "as many heads as tokens": (randn(2, 3, 6, seed=54), 3),
        "heads of width one": (randn(2, 3, seed=55), 3),
        "131 tokens, 17 heads of width eight": (randn(131, 136, seed=54), 17),
        "17 texts of 17 parts, 17 heads": (randn(17, 17, 2, 34, seed=55), 17),
    },
)
def split_heads(x, n_heads):
    """(..., T, H·d) → (..., H, T, d): head h of a token holds its components
    h·d to (h+1)·d"""
    return torch.stack(x.chunk(n_heads, -1), -3)


@split_heads.mistake(
    "zhouhaoyi/Informer2020 #59, hyunwoongko/transformer #15, "
    "bentrevett/pytorch-seq2seq #148",
    symptom=symptoms.WRONG_NUMBERS,
    not_looked_up="zhouhaoyi/Informer2020 #59",
)
def cuts_across_tokens(x, n_heads):
    """The shape (..., H, T, d) is right, but a row of a head holds pieces of
    several tokens, or several pieces of one.
    cause: The tensor is reshaped straight to (H, T, d). Reshaping never moves
    a number: it only cuts the same row of numbers at other places.
    fix: Cut the last axis in two, (T, H, d), then transpose T and H."""
    *leading, length, width = x.shape
    return x.reshape(*leading, n_heads, length, width // n_heads)


@task(
    against="torch.softmax",
    gradients=True,
    cases={
        "one score": (f64(1),),
        "two rising scores": (f64(1, 2),),
        "falling scores": (f64(3, 2, 1),),
        "scores in the thousands": (randn(3, 6, seed=60) * 1000,),
        "all scores near -3000": (f64(-3001, -3000),),
        "the first two scores −∞": (f64(-math.inf, -math.inf, 1, 2),),
        "a batch": (randn(2, 3, 5, seed=61),),
        "all scores below −100,000": (
            f64([-200001, -200000], [-(2**32), -(2**31)]),
        ),
        "300 scores": (3 * randn(300, seed=62),),
        "300 scores, each pair 40 below the last": (
            -40.0 * (torch.arange(300) // 2).double(),
        ),
        "17 texts of 131 rows": (randn(17, 131, 3, seed=63),),
        "16 rows of 128 scores": (randn(16, 128, seed=64),),
    },
)
def online_softmax(scores):
    """softmax over the last axis"""
    return torch.softmax(scores, -1)


@online_softmax.mistake(
    "deepseek-ai/FlashMLA #177",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.WRONG_SUMS),
)
def rescales_the_wrong_way(scores):
    """Right as long as the first score is the largest; where a later one
    exceeds it, the weights no longer sum to one.
    cause: The factor that carries the old total over to the new peak is turned
    round: exp(new − old) instead of exp(old − new).
    fix: Multiply the old total by exp(old − new), which is at most 1."""
    peak = scores[..., :1]
    total = torch.ones_like(scores[..., :1])
    for score in scores.split(1, dim=-1)[1:]:  # (..., 1) each
        higher = torch.maximum(peak, score)
        total = total * (higher - peak).exp() + (score - higher).exp()
        peak = higher
    return (scores - peak).exp() / total


class InBlocks(Watched):
    """500 keys of four components, 500 values of three, and no scores."""

    BARRED = ("scaled_dot_product_attention",)
    LARGEST = 2000

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        made = super().__torch_function__(function, types, args, kwargs)
        for x in (made, *args) if isinstance(made, torch.Tensor) else ():
            n = getattr(x, "numel", int)()
            shape = getattr(x, "shape", ())
            if 500 in shape and n not in (1500, 2000):
                raise ValueError(f"too many scores at once: {tuple(shape)}")
        return made


_LONG = [x.as_subclass(InBlocks) for x in _qkv((), 50, 500, 4, 3, seed=82)]
_FAR_BELOW = f64([60]), f64([-50], [-50.02]), f64([1], [2])


@task(
    against="torch's scaled_dot_product_attention",
    cases={
        "two keys, one a block": (*_qkv((), 1, 2, 2, 1, seed=70), 1),
        "five keys, two a block": (*_qkv((), 3, 5, 4, 2, seed=73), 2),
        "one block for all": (*_qkv((2,), 3, 4, 4, 2, seed=76), 9),
        "large scores": (*_qkv((4, 4), 2, 7, 4, 5, seed=79, by=1000), 3),
        "all scores near -3000": (*_FAR_BELOW, 1),
        "all scores below −100,000": (*_FAR_DOWN, 2),
        "50 queries, 500 keys, 10 a block": (*_LONG, 10),
        "131 queries": (*_qkv((), 131, 7, 4, 2, seed=85), 3),
        "17 texts of 17 heads": (*_qkv((17, 17), 1, 3, 2, 2, seed=88), 2),
        "130 wide": (*_qkv((), 2, 5, 130, 131, seed=91), 2),
        "300 keys, 130 a block": (*_qkv((), 2, 300, 3, 2, seed=94), 130),
        "16 queries, 128 keys, 64 a block": (
            *_qkv((), 16, 128, 3, 2, seed=97),
            64,
        ),
    },
    rules=(partial(AtMost, 12_000),),  # of 25,000 scores
)
def attention_in_blocks(q, k, v, block):
    """the context of attention, the keys and values read in blocks"""
    plain = (x.as_subclass(torch.Tensor) for x in (q, k, v))
    return F.scaled_dot_product_attention(*plain)


@attention_in_blocks.mistake(
    "Dao-AILab/flash-attention #2082", symptom=symptoms.NAN
)
def starts_the_peak_at_zero(q, k, v, block):
    """Right, until all scores of a query lie far below zero: then its context
    is zero or NaN.
    cause: The peak starts at 0, which no score ever exceeds. Every exponential
    is 0, and so is their sum.
    fix: Start at −∞, or at the smallest finite number.
    hint: What is your peak when all scores of a query are near −3000?"""
    peak = torch.zeros_like(q[..., :1])
    total = 0
    context = 0
    for keys, values in zip(k.split(block, -2), v.split(block, -2)):
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
        exp, shrink = (scores - higher).exp(), (peak - higher).exp()
        total = total * shrink + exp.sum(-1, keepdim=True)
        context = context * shrink + exp @ values
        peak = higher
    return context / total


def _as_the_first(*qkv):
    """Wrong: each query gets the context of the first one."""
    right = _sdpa(*qkv)
    return right[..., :1, :].expand_as(right)


def _of_another(*qkv):
    """Wrong: each query gets the context of the one before it."""
    return _sdpa(*qkv).roll(1, dims=-2)


def _by_hand(q, k, v):
    """Attention whose numbers are rounded in other places than torch's."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    share = (scores - scores.amax(-1, keepdim=True)).exp()
    return share @ v / share.sum(-1, keepdim=True)


_CANDIDATES = {
    "attention as it should be": _sdpa,
    "attention, rounded differently": _by_hand,
    "wrong: nothing but NaN": lambda *qkv: _sdpa(*qkv) * torch.nan,
    "wrong: zeros": lambda *qkv: _sdpa(*qkv) * 0,
    "wrong: no scale": lambda q, k, v: _sdpa(q, k, v, scale=1.0),
    "wrong: softmax over queries": lambda q, k, v: (q @ k.mT).softmax(-2) @ v,
    "wrong: too small by 0.0001": lambda *qkv: _sdpa(*qkv) - 1e-4,
    "wrong: right for the first query alone": _as_the_first,
    "wrong: each query has another's context": _of_another,
}


@task(
    against="torch's scaled_dot_product_attention",
    cases={name: (Labelled(name, fn),) for name, fn in _CANDIDATES.items()},
)
def is_attention(attention):
    """True for a function that computes scaled dot-product attention, False
    for any other"""
    q, k, v = _qkv((2,), 3, 5, 4, 6, seed=90)
    right = F.scaled_dot_product_attention(q, k, v)
    return difference(attention(q, k, v), right, within=1e-9) is None


@is_attention.mistake(symptom=symptoms.TEST_ALWAYS_PASSES)
def passes_on_uninitialised_memory(attention):
    """The test passes for any function that keeps the shape, also one that
    returns nothing but NaN.
    cause: The input is uninitialised memory, so no value could be expected of
    the output, and only its shape is looked at.
    fix: Draw the input, and compare values with an independent result."""
    x = torch.empty(30, 50, 64)  # whatever lay in this memory before
    return attention(x, x, x).shape == (30, 50, 64)
