"""Chapter 7, layer normalisation: tasks and known mistakes."""

import torch
import torch.nn.functional as F
from torch.func import functional_call

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import Labelled, Watched, f64, randns
from attnbook.teach.check.rules import NoAutograd
from attnbook.teach.check.running import (
    Case,
    call,
    outcome_difference,
    outcome_of,
)
from attnbook.teach.check.seeded import randn

task = tasks_of(7)


@task(
    against="torch.var",
    cases={
        "one token": (f64([1, 0, 0, 0]),),
        "a constant token": (f64([0.5, 0.5, 0.5]),),
        "a batch": (randn(2, 3, 5, seed=1),),
        "far from zero": (randn(2, 6, seed=2) + 100_000,),
        "300 wide": (randn(300, seed=3),),
        "17 texts of 131 tokens": (randn(17, 131, 3, seed=4),),
    },
)
def variance(x):
    """the mean squared distance from the mean over the last axis, which stays,
    with size one"""
    return x.var(-1, correction=0, keepdim=True)


@variance.mistake(
    "apache/tvm #19643, tracel-ai/burn #5607, microsoft/onnxruntime #28463",
    symptom=(symptoms.NAN, symptoms.WRONG_IN_THE_NEXT_CASE),
)
def subtracts_two_large_squares(x):
    """Right near zero. For a token far from zero it is far off, it may be
    negative, and its root is then NaN; sooner in float32.
    cause: E[x²] − E[x]² subtracts two large numbers, nearly equal, and keeps
    their rounding errors.
    fix: Subtract the mean first, then square: E[(x − mean)²]."""
    mean = x.mean(-1, keepdim=True)
    return x.square().mean(-1, keepdim=True) - mean.square()


class ByHand(Watched):
    """A tensor for which torch's own norms may not be called."""

    BARRED = ("layer_norm", "native_layer_norm", "group_norm", "rms_norm")


def _as_layer(kind, x, weight=None, bias=None, *, eps=1e-5):
    """What a class of the page gives, with these in place of its own."""
    layer = kind(x.shape[-1], eps=eps).to(x.device, x.dtype)
    named = {"weight": weight, "bias": bias}
    given = {name: p for name, p in named.items() if p is not None}
    return functional_call(layer, given, (x,))


@task(
    against="torch's F.layer_norm",
    home="norms.layer_norm",
    layer=_as_layer,
    gradients=True,
    cases={
        "a constant token": (f64([0.5, 0.5, 0.5]),),
        "one token": (f64([1, 0, 0, 0]).as_subclass(ByHand),),
        "two tokens": (randn(2, 3, seed=3) + 0.5,),
        "small components": (randn(2, 5, seed=4) * 1e-3,),
        "a batch, weight and bias": randns((2, 3, 8), (8,), (8,), seed=5),
        "with a weight, without a bias": randns((4, 6), (6,), seed=8),
        "bias, no weight": call(randn(4, 6, seed=11), bias=randn(6, seed=12)),
        "far from zero": (randn(2, 6, seed=2) + 10_000,),
        "another eps": call(randn(3, 4, seed=10), eps=0.1),
        "another eps, weight and bias": call(
            *randns((3, 4), (4,), (4,), seed=13), eps=0.1
        ),
        "300 wide, weight and bias": randns((2, 300), (300,), (300,), seed=13),
        "17 texts of 131 tokens": (randn(17, 131, 3, seed=16),),
    },
)
def layer_norm(x, weight=None, bias=None, *, eps=1e-5):
    """each token minus its mean, over the root of its biased variance plus
    eps; then times the weight and plus the bias, where given"""
    plain = x.as_subclass(torch.Tensor)
    return F.layer_norm(plain, x.shape[-1:], weight, bias, eps)


def affine(x, weight, bias=None):
    """x times the weight, plus the bias; either may be left out."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@layer_norm.mistake(
    "LBANN/lbann #2024", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def takes_the_unbiased_variance(x, weight=None, bias=None, *, eps=1e-5):
    """All numbers are too small by √((d − 1)/d): 1.500 where 1.732 is right
    for [1, 0, 0, 0], and hardly to be seen at width 768.
    cause: torch.var divides by d − 1 unless it is told otherwise. That is for
    a sample of something larger; a token is all there is.
    fix: x.var(-1, correction=0, keepdim=True).
    hint: What is the mean of the squares of your output, to all digits?"""
    variance = x.var(-1, keepdim=True)
    centred = x - x.mean(-1, keepdim=True)
    return affine(centred * torch.rsqrt(variance + eps), weight, bias)


@layer_norm.mistake(
    "pyg-team/pytorch_geometric #2917, microsoft/CNTK #3816",
    symptom=(symptoms.NAN, symptoms.LOADED_WEIGHTS),
)
def adds_eps_outside_the_root(x, weight=None, bias=None, *, eps=1e-5):
    """Nearly right for most tokens. But (0.500, 0.501, 0.502) gives
    (−1.21, 0, 1.21) instead of (−0.31, 0, 0.31), and a token of equal numbers
    gives 0 and the gradient NaN.
    cause: eps is added to the standard deviation. The root below it still
    meets 0, where its slope is infinite.
    fix: Add eps to the variance, under the root.
    hint: What is the gradient for a token whose components are all equal?"""
    centred = x - x.mean(-1, keepdim=True)
    std = centred.square().mean(-1, keepdim=True).sqrt()
    return affine(centred / (std + eps), weight, bias)


@layer_norm.mistake(
    "harvardnlp/annotated-transformer #119, codertimo/BERT-pytorch #30, "
    "hyunwoongko/transformer #7",
    symptom=(symptoms.NAN, symptoms.WRONG_GRADIENTS),
)
def divides_by_torchs_std(x, weight=None, bias=None, *, eps=1e-5):
    """[1, 0, 0, 0] gives 1.500 where torch gives 1.732, and the gradient
    of a token without variance is 316 times too large.
    cause: Both at once: torch.std divides by d − 1, and eps is added to it
    instead of to the variance.
    fix: Take the biased variance, add eps to it, then the root.
    hint: There are two things in the denominator to be looked at."""
    std, mean = torch.std_mean(x, -1, keepdim=True)
    return affine((x - mean) / (std + eps), weight, bias)


@layer_norm.mistake(
    "jadore801120/attention-is-all-you-need-pytorch #17",
    symptom=(symptoms.SEES_WRONG_TOKENS, symptoms.WRONG_IN_A_BATCH),
)
def normalises_over_tokens(x, weight=None, bias=None, *, eps=1e-5):
    """A sequence of one token becomes zero, and each token's result depends on
    the others of its sequence, the later ones too.
    cause: Mean and variance run over the tokens instead of the components.
    fix: Take both over the last axis.
    hint: Change one token. Which rows of your result change?"""
    centred = x - x.mean(-2, keepdim=True)
    variance = centred.square().mean(-2, keepdim=True)
    return affine(centred * torch.rsqrt(variance + eps), weight, bias)


@layer_norm.mistake(
    "Qualcomm-AI-research/geometric-algebra-transformer #8, "
    "karpathy/minGPT #113",
    symptom=symptoms.SEES_WRONG_TOKENS,
)
def normalises_tokens_and_width(x, weight=None, bias=None, *, eps=1e-5):
    """Right for a single token. In a sequence a token's result depends on all
    others, the later ones and the padding too.
    cause: Mean and variance run over tokens and width, as if over an image.
    fix: Take both over the last axis alone.
    hint: Change the last token. May the first row of your result change?"""
    centred = x - x.mean((-2, -1), keepdim=True)
    variance = centred.square().mean((-2, -1), keepdim=True)
    return affine(centred * torch.rsqrt(variance + eps), weight, bias)


@layer_norm.mistake(
    "tinygrad/tinygrad #4904", symptom=symptoms.WRONG_GRADIENTS
)
def detaches_the_statistics(x, weight=None, bias=None, *, eps=1e-5):
    """Every value is right, and the gradient is wrong: it pushes in directions
    in which the result cannot move.
    cause: Mean and variance are cut off from the gradient.
    fix: Let the gradient flow through both.
    hint: Your values are right. Look at the gradient of x."""
    fixed = x.detach()
    variance, mean = torch.var_mean(fixed, -1, correction=0, keepdim=True)
    return affine((x - mean) * torch.rsqrt(variance + eps), weight, bias)


_BACKWARD = {
    "one token": (f64([1, 0, 0, 0]), f64([0, 1, 0, 0])),
    "a gradient of ones": (f64([1, 2, 4]), f64([1, 1, 1])),
    "a batch": randns((2, 3, 5), (2, 3, 5), seed=20),
    "another eps": call(*randns((4, 6), (4, 6), seed=22), eps=0.1),
    "a token of zeros": (f64([0, 0, 0]), f64([1, 0, -2])),
    "300 wide": randns((2, 300), (2, 300), seed=26),
    "17 texts of 131 tokens": randns((17, 131, 3), (17, 131, 3), seed=28),
}


@task(
    against="torch's autograd",
    cases=_BACKWARD
    | {
        "far from zero": (
            randn(2, 6, seed=24) + 10_000,
            randn(2, 6, seed=25),
        ),
    },
)
def layer_norm_backward(x, gradient, *, eps=1e-5):
    """the gradient with respect to x, given the gradient with respect to the
    normalised x (without weight and bias)"""
    x = x.detach().requires_grad_()
    out = F.layer_norm(x, x.shape[-1:], eps=eps)
    return torch.autograd.grad(out, x, gradient)[0]


@layer_norm_backward.mistake(
    "tinygrad/tinygrad #4904", symptom=symptoms.WRONG_GRADIENTS
)
def takes_the_statistics_for_constants(x, gradient, *, eps=1e-5):
    """The gradient is not zero for a gradient of ones, although a shift of the
    token changes nothing.
    cause: The mean and the root are taken for constants.
    fix: Differentiate them too: subtract the mean of g, and x̂ times the mean
    of g x̂."""
    variance = x.var(-1, correction=0, keepdim=True)
    return gradient * torch.rsqrt(variance + eps)


@layer_norm_backward.mistake(
    "abhiskk/ladder #2", symptom=symptoms.WRONG_GRADIENTS
)
def forgets_the_path_through_the_variance(x, gradient, *, eps=1e-5):
    """The gradient sums to zero, as it should, but pushes along the token
    itself, although a longer token has the same result.
    cause: The path through the variance is forgotten.
    fix: Subtract x̂ times the mean of g x̂ as well."""
    centred = gradient - gradient.mean(-1, keepdim=True)
    return takes_the_statistics_for_constants(x, centred, eps=eps)


@task(
    against="torch's F.rms_norm",
    home="norms.rms_norm",
    gradients=True,
    cases={
        "one token": (f64([1, 0, 0, 0]),),
        "two tokens": (randn(2, 3, seed=30) + 0.5,),
        "a token of zeros": (f64([0, 0, 0]),),
        "small components": (randn(2, 5, seed=31) * 1e-3,),
        "a batch, with a weight": randns((2, 3, 8), (8,), seed=32),
        "another eps": call(randn(3, 4, seed=34), eps=0.1),
        "another eps, with a weight": call(
            *randns((3, 4), (4,), seed=36), eps=0.1
        ),
        "300 wide, with a weight": randns((2, 300), (300,), seed=35),
        "17 texts of 131 tokens": (
            randn(17, 131, 3, seed=37).sign()
            * 2.0 ** (torch.arange(131) % 5)[:, None],
        ),
    },
)
def rms_norm(x, weight=None, *, eps=1e-5):
    """each token over the root of its mean square plus eps, times the weight
    where given"""
    return F.rms_norm(x, x.shape[-1:], weight, eps)


@rms_norm.mistake(
    "huggingface/pytorch-image-models #2380, keras-team/keras #22393",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def takes_the_variance(x, weight=None, *, eps=1e-5):
    """Right for tokens of mean 0. Others come out too large, the more so the
    further their mean is from 0.
    cause: The variance has the mean subtracted, while the token has not.
    fix: x.square().mean(-1, keepdim=True)."""
    variance = x.var(-1, correction=0, keepdim=True)
    return affine(x * torch.rsqrt(variance + eps), weight)


@rms_norm.mistake("allenai/OLMo #281", symptom=symptoms.NAN)
def adds_eps_to_the_root_mean_square(x, weight=None, *, eps=1e-5):
    """Nearly right for tokens of usual size; a token of zeros has the gradient
    NaN.
    cause: eps is added to the root instead of under it.
    fix: Add eps to the mean square, then take the root."""
    root = x.square().mean(-1, keepdim=True).sqrt()
    return affine(x / (root + eps), weight)


@rms_norm.mistake("mosaicml/llm-foundry #371", symptom=symptoms.TRAINS_BADLY)
def divides_by_the_reciprocal(x, weight=None, *, eps=1e-5):
    """Large tokens grow larger and small ones smaller; a model trained with it
    diverges.
    cause: rsqrt is one over the root already.
    fix: Multiply by rsqrt, or divide by sqrt."""
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return affine(x / r, weight)


@task(against="torch's autograd", cases=_BACKWARD, rules=(NoAutograd,))
def rms_norm_backward(x, gradient, *, eps=1e-5):
    """the gradient with respect to x of RMS norm without a weight, given the
    gradient with respect to its result"""
    x = x.detach().requires_grad_()
    out = F.rms_norm(x, x.shape[-1:], eps=eps)
    return torch.autograd.grad(out, x, gradient)[0]


def _by_var_mean(x):
    """Layer norm without weight and bias, by torch's variance and mean."""
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt()


_WRONG = {
    "the unbiased variance": takes_the_unbiased_variance,
    "eps outside the root": adds_eps_outside_the_root,
    "over tokens": normalises_over_tokens,
    "tokens and width": normalises_tokens_and_width,
    "the wrong sign": lambda x: -layer_norm(x),
    "no eps": lambda x: layer_norm(x, eps=0),
    "too large by a millionth": lambda x: layer_norm(x) * (1 + 1e-6),
    "everywhere less by 1e-6": lambda x: layer_norm(x) - 1e-6,
    "leaves the mean in": rms_norm.right,
    "a detached variance": lambda x: affine(
        x - x.mean(-1, keepdim=True), torch.rsqrt(variance(x.detach()) + 1e-5)
    ),
    "three tokens at most": lambda x: torch.cat(
        [layer_norm(x[..., :3, :]), x[..., 3:, :]], -2
    ),
    "NaN for a constant token": lambda x: (
        layer_norm(x) + 0 / x.var(-1, keepdim=True)
    ),
    "nothing but NaN": lambda x: x * torch.nan,
}


@task(
    against="torch's F.layer_norm",
    cases={
        "a right one: layer norm": (layer_norm.right,),
        "a right one: torch.var_mean, rounded differently": (_by_var_mean,),
        **{f"a wrong one: {w}": (Labelled(w, f),) for w, f in _WRONG.items()},
    },
)
def is_layer_norm(norm):
    """True for a function that computes layer norm without weight and bias,
    with eps = 1e-5, and whose gradient is right; False for the others"""
    tokens = randn(2, 5, 6, seed=40)
    tokens[0, 4] = 0.5  # without variance
    case = Case("", (tokens,))
    both = [
        outcome_of(f, case, gradients=True) for f in (norm, layer_norm.right)
    ]
    return outcome_difference(*both, within=1e-9) is None


@is_layer_norm.mistake(symptom=symptoms.TEST_ALWAYS_PASSES)
def rounds_until_it_looks_right(norm):
    """The test passes for a norm with the unbiased variance, and for one with
    eps in the wrong place.
    cause: At width 768 mean and deviation of the wrong ones round to 0 and 1
    too.
    fix: Compare the values with an independent result, to all digits.
    hint: How far from 1 is the deviation if the variance is unbiased?"""
    x = randn(4, 5, 768, seed=41)
    std, mean = (a.round(decimals=2) for a in torch.std_mean(norm(x), -1))
    return bool((mean == 0).all() and (std == 1).all())


@task(
    against="torch's F.linear",
    cases={
        "two to two": (f64(2, 3), f64(1, -1), f64([1, 2], [3, 4]), f64(1, 0)),
        "five components to three": randns((5,), (5,), (3, 5), (3,), seed=50),
        "two components to seven": randns((2,), (2,), (7, 2), (7,), seed=54),
        "131 components to 130": randns(
            (131,), (131,), (130, 131), (130,), seed=58
        ),
    },
)
def fold_affine(weight, bias, W, b):
    """(W', b') with which F.linear(x, W', b') equals F.linear(x * weight +
    bias, W, b) for every x"""
    return F.linear(weight.diag(), W).T, F.linear(bias, W, b)


@fold_affine.mistake(
    "TransformerLensOrg/TransformerLens #1580", symptom=symptoms.SIZES
)
def scales_the_rows(weight, bias, W, b):
    """An error about sizes where the layer is not square; where it is,
    silently wrong numbers.
    cause: The formulas are those for a matrix of shape (d, d_out). nn.Linear
    keeps (d_out, d), so its columns belong to the components.
    fix: W * weight, which scales the columns, and b + W @ bias.
    hint: Which axis of W belongs to the components that were normalised?"""
    return W * weight[:, None], b + bias @ W
