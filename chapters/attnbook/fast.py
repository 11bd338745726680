"""Matrices laid out, or made smaller, so that a CPU writes tokens faster.

To write a token, a model reads each of its matrices once and computes little
with it, so the time is that of reading. oneDNN, the library of CPU kernels
that torch comes with, reads a matrix that is cut into blocks for the
processor about twice as fast as one in rows, which is how `nn.Linear` keeps
it. The results are the same up to rounding.

Matrices in 8 bits are a quarter of those in float32 to read. That changes
the weights, so the results are those of a model that is a little different.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.gpt import GPT
from attnbook.quantised import by_scale

#: Makes a layer of a matrix (outputs, inputs) and a bias (outputs,), or None.
Kind = Callable[[Tensor, Tensor | None], nn.Module]


def _kernels():
    """Torch's two functions for this: one cuts a matrix, one multiplies.

    They are private, so a version of torch may be without them; then the
    result is None.
    """
    ops = torch.ops.mkldnn
    try:
        kernels = ops._reorder_linear_weight, ops._linear_pointwise
    except AttributeError:
        return None
    return kernels if torch.backends.mkldnn.is_available() else None


class PackedLinear(nn.Module):
    """An `nn.Linear` whose matrix oneDNN has cut into blocks; for inference.

    Where this torch has no such kernels, the matrix stays in rows, and the
    layer computes what `nn.Linear` does. The matrix is no parameter: it
    cannot be trained, saved or moved.

    Shapes: weight (out_features, in_features), bias (out_features,);
    x (..., in_features) → (..., out_features).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self._kernels = _kernels()
        if self._kernels is None:
            self.weight = weight.clone()
        else:
            cut, _ = self._kernels
            self.weight = cut(weight, None)

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b: (..., in_features) → (..., out_features)."""
        if self._kernels is None:
            return F.linear(x, self.weight, self.bias)
        _, multiply = self._kernels
        return multiply(x, self.weight, self.bias, "none", [], "")


class EightBitLinear(nn.Module):
    """An `nn.Linear` whose matrix is kept in 8 bits; for inference.

    Each row of the matrix has a scale of its own, and its weights are whole
    numbers from −127 to 127. Tokens stay floats.

    It is made for models whose steps are compiled, see `compile_steps`. The
    program then reads the whole numbers, makes floats of them and adds their
    products, all in one loop, which pays for a single token. Without a
    program the layer saves memory and costs time: torch's own kernel for one
    token is slower than that of `nn.Linear`, and for several, as in a prompt,
    the matrix is made anew in floats at each call.

    Shapes: weight (out_features, in_features), bias (out_features,);
    x (..., in_features) → (..., out_features).
    """

    codes: Tensor  # (out, in), int8
    scale: Tensor  # (out,)
    bias: Tensor | None  # (out,)

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        # A model asks its layers for the type and the width of their weight.
        # This one has both, and no numbers.
        self.weight = torch.empty_like(weight, device="meta")
        rounded = by_scale(weight, 8)
        codes = rounded.codes.flatten(-2).to(torch.int8)  # (out, in)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", rounded.scale.flatten())
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b, with W as it was rounded: (..., in_features) →
        (..., out_features)."""
        rows = x.reshape(-1, self.in_features)
        if len(rows) > 1:
            product = F.linear(rows, self.codes.to(x.dtype)) * self.scale
        elif torch.compiler.is_compiling():
            # Written like this it becomes one loop. A call of `F.linear`
            # would have the whole matrix in floats first.
            product = (rows * self.codes).sum(-1) * self.scale
        else:
            product = torch._weight_int8pack_mm(rows, self.codes, self.scale)
        product = product.view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


def pack(model: GPT, kind: Kind = PackedLinear) -> GPT:
    """A copy of the model for inference on a CPU, its matrices laid out anew.

    `kind` makes each new layer. The model itself stays as it is; the copy
    shares its embeddings and norms, which take no second time in memory. A
    tied head is packed, too, as a matrix of its own.

    Raises:
        ValueError: the model is packed already, is not on the CPU, or is not
            in float32.
    """
    weight = model.token_embedding.weight
    if not any(isinstance(m, nn.Linear) for m in model.modules()):
        raise ValueError(
            "this model cannot be packed, because it is packed already; "
            "expected a GPT with nn.Linear layers; got one without any"
        )
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise ValueError(
            "this model cannot be packed, because oneDNN's kernels are for "
            "float32 on a CPU; expected model.to('cpu', torch.float32); got "
            f"one on {weight.device} in {weight.dtype}"
        )
    packed: Any = replace_linear(model, kind)
    if packed.head is None:
        packed.head = kind(weight.detach(), None)
    return packed.eval()


@torch.no_grad()
def replace_linear(module: nn.Module, kind: Kind) -> nn.Module:
    """A copy of a module in which each `nn.Linear` is made anew by `kind`.

    Everything else shares its memory with the original. Its parameters are
    new objects all the same, so that `requires_grad_` on one of the two
    leaves the other alone.
    """
    memo = {id(p): nn.Parameter(p, False) for p in module.parameters()}
    # In a list, so that a module which is itself a Linear has a parent, too.
    new = nn.ModuleList([copy.deepcopy(module, memo)])
    for parent in list(new.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                bias = None if child.bias is None else child.bias.detach()
                setattr(parent, name, kind(child.weight.detach(), bias))
    return new[0]
