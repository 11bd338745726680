"""Slips of chapter 7."""

from functools import partial

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import c07_norms as c07


def _layer_norm(normal):
    """A layer norm in which `normal(x, centred, variance, eps)` makes the
    normalised numbers."""

    def wrong(x, weight=None, bias=None, *, eps=1e-5):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return c07.affine(normal(x, centred, variance, eps), weight, bias)

    return wrong


c07.layer_norm.slip(
    "the root is left out",
    "A token grows by a factor of ten. By which factor does the result?",
    _layer_norm(lambda x, centred, variance, eps: centred / (variance + eps)),
)
c07.layer_norm.slip(
    "eps is left out",
    "What is divided by what where all components are equal?",
    _layer_norm(lambda x, centred, variance, eps: centred / variance.sqrt()),
)
c07.layer_norm.slip(
    "eps is a floor under the variance, not added to it",
    "To which variances is eps added, to the small ones alone?",
    _layer_norm(
        lambda x, centred, variance, eps: centred / variance.clamp(eps).sqrt()
    ),
)
c07.layer_norm.slip(
    "what is divided has lost its mean, what divides it has not",
    "The squares of what make the variance?",
    _layer_norm(
        lambda x, centred, variance, eps: (
            centred / (x.square().mean(-1, keepdim=True) + eps).sqrt()
        )
    ),
)
c07.layer_norm.slip(
    "the variance is E[x²] − E[x]²",
    "How large are the two far from zero, and how large is their difference?",
    _layer_norm(
        lambda x, centred, variance, eps: (
            centred * (c07.subtracts_two_large_squares(x) + eps).rsqrt()
        )
    ),
)
c07.layer_norm.slip(
    "mean and variance run over the first axis",
    "Change one token. Which rows of your result change?",
    _layer_norm(
        lambda x, centred, variance, eps: c07.layer_norm(
            x.movedim(0, -1), eps=eps
        ).movedim(-1, 0)
    ),
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
    """Whether a candidate gives the `same` as layer norm on one example."""
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
    """The gradient of RMS norm with respect to x, with other constants.

    Args:
        x, gradient: both (..., d).
        outer, inner: powers of 1/rms, outside and within the bracket.
        along: how much of the part along x is subtracted; 1 is right.
        mean: how much of the gradient's mean is; 0 is right.
    """
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    part = x * (gradient * x).mean(-1, keepdim=True) * r**inner
    part = along * part + mean * gradient.mean(-1, keepdim=True)
    return r**outer * (gradient - part)


c07.rms_norm_backward.slip(
    "the factor r in front is missing",
    "If x is twice as long, how fast does the result move?",
    partial(_rms, outer=0),
)
c07.rms_norm_backward.slip(
    "the root is taken for a constant",
    "What happens to the root when x grows?",
    partial(_rms, along=0),
)
c07.rms_norm_backward.slip(
    "the path through the mean is still in it",
    "Does RMS norm subtract a mean?",
    partial(_rms, mean=1),
)
c07.rms_norm_backward.slip(
    "the path through the root has the wrong sign",
    "If x grows, does the root make the result larger or smaller?",
    partial(_rms, along=-1),
)
c07.rms_norm_backward.slip(
    "the path through the root counts twice",
    "What is the slope of a root?",
    partial(_rms, along=2),
)
c07.rms_norm_backward.slip(
    "x stands twice where the normalised x should",
    "Which x has a length that does not change?",
    partial(_rms, inner=0),
)
c07.rms_norm_backward.slip(
    "x stands once where the normalised x should",
    "Which x has a length that does not change?",
    partial(_rms, inner=1),
)
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
