"""LoRA: train a small change of a layer, and leave the layer as it was.

A linear layer computes y = x Wᵀ + b, and fine-tuning changes W by some ΔW.
Low-rank adaptation (LoRA) asks ΔW to be a product of two thin matrices::

    ΔW = (α / r) · up · down,    down (r, d_in),  up (d_out, r)

so that only r · (d_in + d_out) numbers are trained instead of d_in · d_out.
`up` begins with zeros, so a new adapter changes nothing. When training is
over, ΔW can be added to W (`merge_lora`), and the model is as fast as before.

Source: Hu et al. (2021), arXiv:2106.09685, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.files import shown
from attnbook.values import number, whole

#: The linear layers of an attention layer, by their names in this library.
ATTENTION = ("query", "key_value", "out")


class LoRALinear(nn.Linear):
    """A linear layer whose weight is frozen, with an adapter beside it.

    Args:
        layer: the layer. Its weight and its bias are taken over, not copied,
            and get no gradients any more.
        rank: r, at most the layer's smaller width.
        alpha: α. The adapter's result is multiplied by α / r, so that the
            size of a change does not depend on the rank that was chosen.
        generator: draws `down`, uniformly within ±1/√d_in.

    Shapes: as the layer, x (..., d_in) → (..., d_out).

    Raises:
        TypeError, ValueError: a rank or an alpha out of its range.
    """

    def __init__(
        self,
        layer: nn.Linear,
        rank: int,
        alpha: float,
        generator: torch.Generator | None = None,
    ) -> None:
        d_out, d_in = layer.weight.shape
        whole("rank", rank, at_least=1, at_most=min(d_in, d_out))
        number("alpha", alpha, above=0)
        # On the device "meta" no memory is taken for weights that go at once.
        super().__init__(d_in, d_out, layer.bias is not None, device="meta")
        layer.requires_grad_(False)
        self.weight = layer.weight
        self.bias = layer.bias
        self.scale = alpha / rank
        self.active = True
        drawn = torch.rand(rank, d_in, generator=generator) * 2 - 1
        self.down = nn.Parameter((drawn / math.sqrt(d_in)).to(layer.weight))
        self.up = nn.Parameter(self.weight.new_zeros(d_out, rank))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d_in) → the layer's result and the adapter's, added up."""
        y = F.linear(x, self.weight, self.bias)
        if not self.active:
            return y
        thin = F.linear(x, self.down)  # (..., r)
        return y + self.scale * F.linear(thin, self.up)

    @torch.no_grad()
    def change(self) -> Tensor:
        """ΔW, the matrix that the adapter adds to the weight: (d_out, d_in).

        Its rank is at most r.
        """
        return self.scale * self.up @ self.down

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain linear layer that computes the same, without an adapter.

        The sum is taken in float64 and rounded once. This layer keeps its
        weight as it is.
        """
        d_out, d_in = self.weight.shape
        plain = nn.Linear(d_in, d_out, self.bias is not None, device="meta")
        change = self.scale * self.up.double() @ self.down.double()
        weight = self.weight.double() + change
        plain.weight = nn.Parameter(weight.to(self.weight.dtype))
        if self.bias is not None:
            plain.bias = nn.Parameter(self.bias.detach().clone())
        return plain


def add_lora(
    model: nn.Module,
    rank: int,
    alpha: float,
    *,
    layers: Sequence[str] = ATTENTION,
    seed: int = 0,
) -> list[LoRALinear]:
    """Freeze a model, and give some of its linear layers an adapter each.

    The model computes the same as before, because every `up` is zero.

    Args:
        model: is changed in place.
        rank, alpha: see `LoRALinear`.
        layers: the last part of the names of the layers, such as "query".
        seed: of the numbers in each `down`.

    Returns:
        The adapters, in the order of the model. Only their `down` and `up`
        have gradients afterwards.

    Raises:
        TypeError, ValueError: no linear layer has such a name, one has an
            adapter already, or a rank or an alpha out of its range. The model
            stays as it was.
    """
    found = _linear_layers(model, layers)
    # All is checked before anything is frozen.
    least = min(min(layer.weight.shape) for layer in found.values())
    whole("rank", rank, at_least=1, at_most=least)
    number("alpha", alpha, above=0)
    generator = torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    adapters = []
    for name, layer in found.items():
        adapter = LoRALinear(layer, rank, alpha, generator)
        _put(model, name, adapter)
        adapters.append(adapter)
    return adapters


def _linear_layers(
    model: nn.Module, wanted: Sequence[str]
) -> dict[str, nn.Linear]:
    """A model's linear layers whose last name is wanted, by their whole names.

    Raises:
        ValueError: there is none, or one of them has an adapter already.
    """
    linear = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    }
    last = {name: name.rpartition(".")[2] for name in linear}
    found = {n: layer for n, layer in linear.items() if last[n] in wanted}
    if not found:
        raise ValueError(
            "no linear layer of the model has one of the names in `layers`, "
            "so nothing would be trained; expected some of "
            f"{shown(sorted(set(last.values())))}; got {shown(list(wanted))}"
        )
    for name, layer in found.items():
        if isinstance(layer, LoRALinear):
            raise ValueError(
                f"the layer {name!r} has an adapter already, and a second one "
                "would hide it; expected a model without adapters: call "
                "merge_lora first"
            )
    return found


def merge_lora(model: nn.Module) -> int:
    """Add every adapter's change to its weight, and take the adapter away.

    Returns:
        How many layers were merged.
    """
    found = list(_adapters(model))
    for name, adapter in found:
        _put(model, name, adapter.merged())
    return len(found)


@contextmanager
def without_lora(model: nn.Module) -> Iterator[nn.Module]:
    """Switch a model's adapters off for a while.

    What is computed meanwhile is what the model said before it was trained,
    so a reference for comparison takes no second model.
    """
    before = [(adapter, adapter.active) for _, adapter in _adapters(model)]
    try:
        for adapter, _ in before:
            adapter.active = False
        yield model
    finally:
        for adapter, active in before:
            adapter.active = active


def _adapters(model: nn.Module) -> Iterator[tuple[str, LoRALinear]]:
    """All layers with an adapter, with their names in the model."""
    for name, layer in model.named_modules():
        if isinstance(layer, LoRALinear):
            yield name, layer


def _put(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Put a layer in the place of the one that has this name in the model."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)
