"""Matrices laid out for decoding: the one place for speed that needs a trick.

To write a token, a model reads each of its matrices once and computes little
with it. oneDNN, the library of CPU kernels that torch comes with, reads one
that is cut into blocks for the processor about twice as fast as one in rows,
as `nn.Linear` keeps it. The numbers are the same up to rounding.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.gpt import GPT

#: What makes a layer of a matrix and a bias.
Kind = Callable[[Tensor, Tensor | None], nn.Module]


def _kernels():
    """Torch's own for this, which are private: two, or none if gone."""
    ops = torch.ops.mkldnn
    try:
        kernels = ops._reorder_linear_weight, ops._linear_pointwise
    except AttributeError:
        return None
    return kernels if torch.backends.mkldnn.is_available() else None


class PackedLinear(nn.Module):
    """An `nn.Linear` whose matrix oneDNN has cut into blocks; for inference.

    Where torch has no kernels for it, the matrix stays in rows.

    Shapes: x (..., in_features) → (..., out_features).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        # Not a parameter: blocks cannot be saved, moved or trained.
        kernels = self._kernels = _kernels()
        self.weight = kernels[0](weight, None) if kernels else weight.clone()

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b."""
        if self._kernels is None:
            return F.linear(x, self.weight, self.bias)
        return self._kernels[1](x, self.weight, self.bias, "none", [], "")


def pack(model: GPT, kind: Kind = PackedLinear) -> GPT:
    """The same model for inference on a CPU, its matrices laid out anew.

    The original is left as it is; embeddings and norms are shared with it. A
    ValueError if it is not on the CPU, not in float32, or packed already.
    """
    weight = model.token_embedding.weight
    plain = any(isinstance(m, nn.Linear) for m in model.modules())
    kept = weight.device.type == "cpu" and weight.dtype == torch.float32
    if not (plain and kept):
        raise ValueError(
            "this model cannot be packed; expected a plain one on cpu in "
            f"torch.float32; got {'one' if plain else 'one packed already,'} "
            f"on {weight.device} in {weight.dtype}"
        )
    packed: Any = replace_linear(model, kind)
    if packed.head is None:
        packed.head = kind(weight.detach(), None)
    return packed.eval()


@torch.no_grad()
def replace_linear(module: nn.Module, kind: Kind) -> nn.Module:
    """A copy with each `nn.Linear` made anew as `kind`.

    The rest is shared, by parameters that `requires_grad_` sets apart.
    """
    memo = {id(p): nn.Parameter(p, False) for p in module.parameters()}
    # In a list, so that a single layer too is somebody's child.
    new = nn.ModuleList([copy.deepcopy(module, memo)])
    for parent in list(new.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                bias = None if child.bias is None else child.bias.detach()
                setattr(parent, name, kind(child.weight.detach(), bias))
    return new[0]
