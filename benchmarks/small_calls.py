"""Ways to write with fewer calls, or with smaller matrices, to be measured.

Each is a function that is given the book's model and returns one that is used
like it. Those that the library has are the library's; the others stand here,
because they did not carry, or cannot be had everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.compiled import compile_steps
from attnbook.fast import EightBitLinear, Kind, pack, replace_linear
from attnbook.gpt import GPT
from attnbook.quantised import by_scale
from attnbook.quantised import pack as pack_codes


def with_head(model: GPT) -> GPT:
    """The model with a head of its own, which has the embedding's numbers."""
    new = deepcopy(model)
    if new.head is None:
        new.head = _linear(model.token_embedding.weight.detach())
    return new


def _linear(weight: Tensor) -> nn.Linear:
    """A linear layer with this weight, (out, in), which is not copied."""
    out, width = weight.shape
    layer = nn.Linear(width, out, bias=False)
    layer.weight = nn.Parameter(weight)
    return layer


def remade(model: GPT, kind: Kind) -> GPT:
    """The model with each `nn.Linear` made anew."""
    new = replace_linear(model, kind)
    assert isinstance(new, GPT)
    return new


def in_8_bits(model: GPT) -> GPT:
    """The matrices in 8 bits, each row with a scale of its own."""
    return pack(model, EightBitLinear)


def in_4_bits(model: GPT) -> GPT:
    """The matrices in 4 bits, and the blocks compiled. The head keeps 8."""
    new: Any = remade(model, FourBitLinear)
    weight = model.token_embedding.weight
    if model.head is not None:
        weight = model.head.weight
    new.head = EightBitLinear(weight.detach(), None)
    return compile_steps(new)


class FourBitLinear(nn.Module):
    """An `nn.Linear` in 4 bits with a scale for 32 weights, which a program
    multiplies in one loop, as `EightBitLinear` does it.

    Shapes: x (..., in_features) → (..., out_features).
    """

    GROUP = 32

    packed: Tensor  # (out, groups / 2, 32), uint8
    low: Tensor  # the scales of the first half: (out, groups / 2, 1)
    high: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self.weight = torch.empty_like(weight, device="meta")
        rounded = by_scale(weight, 4, self.GROUP)
        # The first half of a row is in the low halves of its bytes.
        packed = pack_codes(rounded.codes.flatten(-2) + 8, 4)
        self.register_buffer("packed", packed.unflatten(1, (-1, self.GROUP)))
        low, high = rounded.scale.chunk(2, 1)  # (out, groups / 2, 1) each
        self.register_buffer("low", low.contiguous())
        self.register_buffer("high", high.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b by the rounded weights."""
        rows = x.reshape(-1, self.in_features)
        first = ((self.packed & 15).to(x.dtype) - 8) * self.low
        second = ((self.packed >> 4).to(x.dtype) - 8) * self.high
        if len(rows) > 1:
            weight = torch.cat([first, second], 1).flatten(1)
            product = nn.functional.linear(rows, weight)
        else:
            a, b = rows.view(2, 1, -1, self.GROUP)
            product = (first * a + second * b).sum((-2, -1))
        product = product.view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


def by_torchs_4_bits(model: GPT) -> GPT:
    """The matrices in 4 bits by torch's kernel, and the blocks compiled."""
    return compile_steps(remade(with_head(model), Int4Linear))


class Int4Linear(nn.Module):
    """An `nn.Linear` in 4 bits with a scale for 32 weights, by torch's kernel
    `_weight_int4pack_mm_for_cpu`.

    Shapes: x (..., in_features) → (..., out_features).
    """

    GROUP = 32

    codes: Tensor  # (out, in / 2), uint8
    scales: Tensor  # (groups, out, 2)

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self.weight = torch.empty_like(weight, device="meta")
        groups = weight.unflatten(1, (-1, self.GROUP))
        low, high = groups.aminmax(dim=-1, keepdim=True)
        scale = ((high - low) / 15).clamp(min=1e-9)
        codes = ((groups - low) / scale).round().clamp(0, 15).flatten(1)
        self.register_buffer(
            "codes",
            torch._convert_weight_to_int4pack_for_cpu(codes.int(), 1),
        )
        # The kernel computes (code − 8) · scale + zero.
        zero = low + 8 * scale
        both = torch.cat([scale, zero], -1).transpose(0, 1).contiguous()
        self.register_buffer("scales", both)  # (groups, out, 2)

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b by the rounded weights."""
        rows = x.reshape(-1, self.in_features)
        product = torch._weight_int4pack_mm_for_cpu(
            rows, self.codes, self.GROUP, self.scales
        )
        product = product.view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


def by_torchao(model: GPT) -> GPT:
    """The matrices in 8 bits by torchao, and the blocks compiled."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    new = with_head(model)
    quantize_(new, Int8WeightOnlyConfig())
    return compile_steps(new)


def in_16_bits(model: GPT) -> GPT:
    """All numbers in bfloat16, and the blocks compiled."""
    return compile_steps(deepcopy(model).bfloat16())


#: The ways by name. Each makes a writer of the model.
WAYS: dict[str, Callable[[GPT], GPT]] = {
    "plain": lambda model: model,
    "packed": pack,
    "fewer calls": compile_steps,
    "8 bits": in_8_bits,
    "8 bits, fewer calls": lambda model: compile_steps(in_8_bits(model)),
    "bfloat16, fewer calls": in_16_bits,
    "torchao 8 bits, fewer calls": by_torchao,
    "4 bits, fewer calls": in_4_bits,
    "torch's 4 bits, fewer calls": by_torchs_4_bits,
}
