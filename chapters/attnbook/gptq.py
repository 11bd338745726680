"""GPTQ: round a matrix so that its outputs change little, not its weights.

A row w of a matrix is rounded to q. On an input x its output is then off by
(w − q)·x, whose mean square over many inputs is d H dᵀ, with the error
d = w − q and H = the mean of xᵀx, the inputs' *moments*.

Weights are rounded one after the other. What one is off by, later ones can
partly make up for, as far as its input can be forecast from theirs. So an
error e at input i costs e² times what is left of the mean square of input i
after its best prediction from the *later* inputs: its conditional variance.
(One of each input's second moments, more exactly, since no mean is taken
off.) The prices of all inputs add up to d H dᵀ, whatever was chosen.

Axis names: O outputs, n inputs.

Source: Frantar et al. (2022), arXiv:2210.17323.
"""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnbook.quantised import Model, by_scale, round_matrices
from attnbook.shapes import expect
from attnbook.values import number, whole


def output_error(d: Tensor, moments: Tensor) -> Tensor:
    """The mean square by which each output is off: d H dᵀ, (O, n) → (O,)."""
    return ((d @ moments) * d).sum(-1)


def damped(moments: Tensor, share: float) -> Tensor:
    """H with a share of its mean diagonal added to the diagonal.

    Without it an input that is always 0, or always the sum of others, has
    the price 0, and errors without bound would be pushed onto it.
    """
    number("damping", share, at_least=0)
    eye = torch.eye(len(moments), dtype=moments.dtype, device=moments.device)
    return moments + share * moments.diagonal().mean() * eye


def prices(moments: Tensor) -> Tensor:
    """What an error of 1 costs at each input, if all later ones make up for
    it: the conditional variance of the input, given the later ones, (n,).

    This is the plain way: for each input its prediction is solved for.
    """
    found = []
    for i in range(len(moments)):
        own = moments[i, i]
        later = moments[i + 1 :, i]  # (n − 1 − i,)
        told = torch.linalg.solve(moments[i + 1 :, i + 1 :], later)
        found.append(own - later @ told)
    return torch.stack(found)


def gptq_slowly(
    weight: Tensor, moments: Tensor, bits: int, group: int | None = None
) -> Tensor:
    """Round a matrix input by input; after each, the later weights make up.

    It is the definition: each step solves for the best change of all later
    weights. `gptq` gives the same.

    Args:
        weight: (O, n).
        moments: H of the inputs, (n, n), positive definite.
        bits, group: those of `by_scale`. A group's scale is set when its
            first weight is to be rounded, from the weights as they are then.

    Returns:
        the rounded matrix, (O, n), in float64.
    """
    n = _check(weight, moments)
    group = n if group is None else whole("group", group, at_least=1)
    w = weight.double().clone()
    H = moments.double()
    for i in range(n):
        if i % group == 0:
            scale = by_scale(w[:, i : i + group], bits).scale[:, 0]  # (O, 1)
        q = _rounded(w[:, i : i + 1], scale, bits)  # (O, 1)
        error = w[:, i : i + 1] - q
        change = torch.linalg.solve(H[i + 1 :, i + 1 :], H[i + 1 :, i])
        w[:, i : i + 1] = q
        w[:, i + 1 :] += error * change
    return w


def gptq(
    weight: Tensor,
    moments: Tensor,
    bits: int,
    group: int | None = None,
    *,
    damping: float = 0.01,
) -> Tensor:
    """Round a matrix as `gptq_slowly` does, with one factor for all steps.

    Let H = R Rᵀ with R upper triangular, and V its inverse. Then the change
    of the later weights for an error of 1 at input i is −V[i, i+1:] / V[i, i],
    and the price of that error is 1 / V[i, i]².

    Args:
        weight, moments, bits, group: as for `gptq_slowly`.
        damping: see `damped`.

    Returns:
        the rounded matrix, (O, n), in the weight's type.

    Raises:
        ValueError: shapes that do not fit, or moments that are not positive
            definite, such as those of no inputs at all.
    """
    n = _check(weight, moments)
    group = n if group is None else whole("group", group, at_least=1)
    V = inverse_factor(damped(moments.double(), damping))
    w = weight.double().clone()
    for i in range(n):
        if i % group == 0:
            scale = by_scale(w[:, i : i + group], bits).scale[:, 0]  # (O, 1)
        q = _rounded(w[:, i : i + 1], scale, bits)
        error = w[:, i : i + 1] - q
        w[:, i : i + 1] = q
        w[:, i + 1 :] -= error * (V[i, i + 1 :] / V[i, i])
    return w.to(weight.dtype)


def inverse_factor(moments: Tensor) -> Tensor:
    """V, upper triangular, with H⁻¹ = Vᵀ V; (n, n).

    Raises:
        ValueError: moments that are not positive definite.
    """
    # Cholesky's factor of H with its inputs in the opposite order, turned
    # back, is upper triangular: H = R Rᵀ.
    lower, failed = torch.linalg.cholesky_ex(moments.flip(0, 1))
    if failed:
        raise ValueError(
            "the moments of the inputs are not positive definite; expected "
            "those of real inputs, with a damping above 0 if some inputs "
            "are 0 or depend on each other"
        )
    eye = torch.eye(len(moments), dtype=moments.dtype, device=moments.device)
    return torch.linalg.solve_triangular(lower.flip(0, 1), eye, upper=True)


def _rounded(w, scale, bits):
    """Round to multiples of a scale that is given: (O, 1) → (O, 1)."""
    most = 2 ** (bits - 1) - 1
    steps = w / scale.masked_fill(scale == 0, 1)
    return steps.round().clamp(-most, most) * scale


def _check(weight, moments):
    """The number of inputs, n, if matrix and moments fit."""
    expect("float", weight=(weight, "O n"))
    expect("float", moments=(moments, "n n"), n=weight.shape[1])
    return weight.shape[1]


class Best(NamedTuple):
    """The best codes of a row, (n,), and the error of its output."""

    codes: Tensor
    error: Tensor


def best_rounding(
    row: Tensor, moments: Tensor, scale: Tensor, bits: int
) -> Best:
    """The codes with the least error of a row's output, of all that there are.

    All (2^bits − 1)^n ways are tried, so the row must be short. (To find the
    best is hard in general: it is the closest point of a lattice.)

    Args:
        row: (n,).
        moments: H of the inputs, (n, n).
        scale: of the row, a tensor of one number.
        bits: of a code.

    Raises:
        ValueError: more than a million ways.
    """
    most = 2 ** (bits - 1) - 1
    ways = (2 * most + 1) ** len(row)
    if ways > 1_000_000:
        raise ValueError(
            f"a row of {len(row)} weights in {bits} bits can be rounded in "
            f"{ways:,} ways; expected at most a million, to try them all"
        )
    one = range(-most, most + 1)
    codes = torch.tensor(list(itertools.product(one, repeat=len(row))))
    errors = output_error(row - codes * scale, moments)
    best = errors.argmin()
    return Best(codes[best], errors[best])


@torch.no_grad()
def input_moments(model: nn.Module, *inputs: Tensor) -> dict[str, Tensor]:
    """H of each linear layer's inputs, while a model reads a text.

    Args:
        model: is called with `inputs` once.

    Returns:
        for the name of each `nn.Linear`'s weight the mean of xᵀx over all
        tokens, (n, n), in float64.
    """
    found: dict[str, Tensor] = {}
    hooks = []
    for name, layer in model.named_modules():
        if not isinstance(layer, nn.Linear):
            continue

        def record(_, given, name=f"{name}.weight"):
            x = given[0].flatten(0, -2).double()
            found[name] = x.mT @ x / len(x)

        hooks.append(layer.register_forward_pre_hook(record))
    try:
        model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def gptq_model(
    model: Model,
    moments: dict[str, Tensor],
    bits: int,
    group: int | None = None,
) -> Model:
    """A copy of a model whose linear layers were rounded by `gptq`.

    Args:
        model: stays as it is.
        moments: those of `input_moments`; matrices without any stay, too.
        bits, group: as for `gptq`.
    """

    def rule(name, weight):
        if name not in moments:
            return weight
        return gptq(weight, moments[name], bits, group)

    return round_matrices(model, rule)
