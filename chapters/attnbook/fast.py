"""Matrices laid out for decoding: the one place for speed that needs a trick.

To write a token, a model reads each of its matrices once and computes little
with it; so what counts is how fast they are read. A matrix in rows, as
`nn.Linear` keeps it, is read at a third to a half of what memory can give.
oneDNN, the library of CPU kernels that torch comes with, reads one that is
cut into blocks for the processor about twice as fast, and in 8 bits there is
a quarter to read. `pack` gives a model of either kind; the numbers of the
first are those of the plain one up to rounding, and a test says so.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from attnbook.gpt import GPT


class PackedLinear(nn.Module):
    """An `nn.Linear` whose matrix oneDNN has cut into blocks; for inference.

    Shapes: x (..., in_features) → (..., out_features).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        # Not a parameter: blocks cannot be saved, moved or trained.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b."""
        return torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, "none", [], ""
        )


class Int8Linear(nn.Module):
    """An `nn.Linear` in 8 bits, for inference in float32.

    Each row of the matrix is rounded with a scale of its own, once, and each
    token as it comes, so that a token's result does not depend on others.
    The tokens get 7 bits: a processor that adds two products in 16 bits
    would overflow with 8.

    Shapes: x (..., in_features) → (..., out_features).

    Source: Jacob et al. (2018), arXiv:1712.05877; Dettmers et al. (2022),
    arXiv:2208.07339, for a scale to each row and each token.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        rounded, scale = _round(weight, 127)  # (out, in), (out, 1)
        self.scale = scale[:, 0]
        self.zero = torch.zeros(len(scale), dtype=torch.int64)
        self.packed = torch.ops.onednn.qlinear_prepack(
            rounded.to(torch.int8), None
        )
        # What the input has to be, for whoever checks it.
        self.weight = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b, up to the rounding of both."""
        rows = x.reshape(-1, self.in_features)
        rounded, scale = _round(rows, 63)
        # The kernel wants numbers from 0 on, and what stands for 0.
        product = torch.ops.onednn.qlinear_pointwise(
            (rounded + 64).to(torch.uint8),
            1.0,
            64,
            self.packed,
            self.scale,
            self.zero,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )  # (rows, out)
        product = (product * scale).view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


def _round(x, most):
    """Whole numbers from −most to most (..., d), and a scale a row."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-30) / most  # (..., 1)
    return (x / scale).round(), scale


def pack(model: GPT, *, int8: bool = False) -> GPT:
    """The same model for inference on a CPU, its matrices laid out anew.

    The original is left as it is; embeddings and norms are shared with it,
    matrices are not. Drop the original to have their memory back.

    Args:
        int8: round the matrices to 8 bits.

    Raises:
        ValueError: a model that is not on the CPU, not in float32, or packed
            already.
        RuntimeError: a torch without these kernels.
    """
    weight = model.token_embedding.weight
    if weight.device.type != "cpu":
        raise ValueError(
            "packed matrices are for the CPU; expected a model there; "
            f"got one on {weight.device}"
        )
    if any(isinstance(m, (PackedLinear, Int8Linear)) for m in model.modules()):
        raise ValueError(
            "this model is packed already; expected the plain one; "
            "got a packed one"
        )
    if weight.dtype != torch.float32:
        raise ValueError(
            "there are no packed matrices of this type; expected a model in "
            f"torch.float32; got {weight.dtype}"
        )
    if not torch.backends.mkldnn.is_available():
        raise RuntimeError(
            "this torch comes without oneDNN; expected a build for x86 or "
            "Arm; got none of its kernels"
        )
    kind = Int8Linear if int8 else PackedLinear
    with torch.no_grad():
        packed = replace_linear(model, kind)
        if packed.head is None:
            packed.head = kind(weight.detach(), None)
    return packed.eval()


def replace_linear(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A copy with each `nn.Linear` made anew as `kind`; it shares the rest."""
    if isinstance(module, nn.Linear):
        bias = None if module.bias is None else module.bias.detach()
        return kind(module.weight.detach(), bias)
    new = copy.copy(module)
    # Tables of its own: what is done to the copy leaves the original alone.
    for name, table in vars(module).items():
        if isinstance(table, dict):
            new.__dict__[name] = table.copy()
    for name, parameter in module._parameters.items():
        if parameter is not None:
            new._parameters[name] = nn.Parameter(parameter.detach(), False)
    for name, child in module._modules.items():
        if child is not None:
            new._modules[name] = replace_linear(child, kind)
    return new
