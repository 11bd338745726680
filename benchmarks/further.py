"""Three more ideas for speed, which the book has tried and not taken.

They are: one product for queries, keys and values in place of two; GELU
computed within the product before it; and matrices in 16 bits (bfloat16).
Each is measured in writing, over the packed model, together with how near it
comes to the speed at which memory can be read. The first is measured in
training, too, over a plain loop in nanoGPT's style. The page "How fast is it"
shows the result. It takes about eight minutes on two cores.

usage: python benchmarks/further.py [ROUNDS]     8 if not given
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
from functools import partial
from typing import Any

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from peers import PlainGPT
from results import n_rounds, quartiles, store
from rounds import THREADS, against, machine, report, rounds_of
from speed import stepper
from torch import Tensor, nn
from writers import draw_prompts, moved_bytes, ours, pair, read_bandwidth

from attnbook.attention import split_heads
from attnbook.cache import LayerCache
from attnbook.fast import pack
from attnbook.gpt import GPT
from attnbook.layers import MultiHeadAttention
from attnbook.town import TOWN_CONFIG

kernels = torch.ops.mkldnn


class Product(nn.Module):
    """A matrix laid out for oneDNN's kernel, and an activation after it.

    Shapes: x (..., in_features) → (..., out_features), in the type of x.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> None:
        super().__init__()
        # The model asks a layer for the type and shape of its weight. This
        # one has both, and no numbers.
        self.weight = torch.empty_like(weight, device="meta")
        self.packed = kernels._reorder_linear_weight(weight.to(dtype), None)
        self.bias = None if bias is None else bias.to(dtype)
        self.dtype = dtype
        # The activation's name, its numbers, and which way to compute it.
        self.activation: tuple[str, list[float], str] = ("none", [], "")

    def forward(self, x: Tensor) -> Tensor:
        """The activation of x Wᵀ + b."""
        y = kernels._linear_pointwise(
            x.to(self.dtype), self.packed, self.bias, *self.activation
        )
        return y.to(x.dtype)


class Joined(MultiHeadAttention):
    """Attention with one product for queries, keys and values.

    The one matrix is `query`, and `key_value` is gone.
    """

    def project(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x; rotation and memory are left out."""
        parts = self.query(x).chunk(3, -1)
        q, k, v = (split_heads(part, self.n_heads) for part in parts)
        return (q, k, v) if cache is None else (q, *cache.extend(k, v))


@torch.no_grad()
def join(model: GPT) -> GPT:
    """A copy of a model whose attention makes one product instead of two."""
    model = copy.deepcopy(model)
    for block in model.blocks:
        layer: Any = block.attention
        both = (layer.query, layer.key_value)
        layer.query = nn.Linear(model.config.d_model, 3 * model.config.d_model)
        layer.query.weight.copy_(torch.cat([one.weight for one in both]))
        layer.query.bias.copy_(torch.cat([one.bias for one in both]))
        layer.key_value = None
        layer.__class__ = Joined
    return model


def lay_out(
    model: GPT, *, dtype: torch.dtype = torch.float32, gelu: bool = False
) -> GPT:
    """A copy of a model for writing, each of its matrices a `Product`.

    Args:
        model: the model.
        dtype: the type of the matrices.
        gelu: whether GELU is computed within the product before it.
    """
    packed = pack(model, partial(Product, dtype=dtype))
    if gelu:
        for block in packed.blocks:
            layer: Any = block.feed_forward
            layer.up.activation = ("gelu", [], "tanh")
            block.feed_forward = nn.Sequential(layer.up, layer.down)
    return packed


def writing(rounds: int) -> dict[str, Any]:
    """The speed of writing with each idea, over that of the packed model.

    Beside it are given how near each comes to the speed at which memory can be
    read, and what 16 bits change in the logits.

    Args:
        rounds: each model writes twice as often.
    """
    model, _ = pair()
    models = {
        "packed": pack(model),
        "one product": lay_out(join(model)),
        "GELU within": lay_out(model, gelu=True),
        "16 bits": lay_out(model, dtype=torch.bfloat16),
        "all three": lay_out(join(model), dtype=torch.bfloat16, gelu=True),
    }
    result: dict[str, Any] = differences(models)
    assert model.position_embedding is not None, "GPT-2 has learned positions"
    table = model.position_embedding.weight
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    saved = 2 * (matrices - table.numel())  # bytes that 16 bits spare
    for n_prompt in (32, 512):
        prompts = draw_prompts(n_prompt)
        contenders = {name: ours(one, prompts) for name, one in models.items()}
        found = rounds_of(contenders | {"read": read_bandwidth}, 2 * rounds)
        moved = {name: moved_bytes(model, n_prompt) for name in models}
        for name in ("16 bits", "all three"):
            moved[name] -= saved
        row = {
            "ratio": {who: against(found, "packed", who) for who in models},
            "share": {
                who: quartiles(
                    [
                        moved[who] / s / b
                        for s, b in zip(found[who], found["read"])
                    ]
                )
                for who in models
            },
        }
        result[f"1 × {n_prompt}"] = row
        for what, numbers in row.items():
            report(f"{what}, 1 × {n_prompt}", numbers)
    return result


@torch.inference_mode()
def differences(models: dict[str, GPT]) -> dict[str, float]:
    """What 16 bits change in the logits.

    Returns:
        "error", the standard deviation of the differences over that of the
        logits; "same", the share of places with the same likeliest token.

    Raises:
        AssertionError: one product, or GELU within, gives other logits.
    """
    tokens = torch.tensor(draw_prompts(256, 256))
    exact = models["packed"](tokens)
    for name in ("one product", "GELU within"):
        other = models[name](tokens)
        torch.testing.assert_close(other, exact, atol=1e-3, rtol=1e-3)
    rounded = models["16 bits"](tokens)
    same = (exact.argmax(-1) == rounded.argmax(-1)).float().mean().item()
    error = ((exact - rounded).std() / exact.std()).item()
    return {"error": float(f"{error:.3g}"), "same": round(same, 3)}


def training(rounds: int) -> dict[str, list[float]]:
    """A training step with two products and with one, over a plain model's.

    The model is chapter 11's, made as like as can be to the plain one, which
    is written in nanoGPT's style.

    Returns:
        the quartiles of the ratios: how many times faster a step is.
    """
    torch.set_num_threads(1)  # for matrices this small two are slower
    config = dataclasses.replace(
        TOWN_CONFIG, positions="learned", activation="gelu"
    )
    model = GPT(config)
    sizes = (config.vocab_size, config.context, config.d_model)
    models: dict[str, nn.Module] = {
        "nanoGPT-style": PlainGPT(*sizes, config.n_heads, config.n_layers),
        "two products": model,
        "one product": join(model),
    }
    contenders = {name: stepper(one) for name, one in models.items()}
    found = rounds_of(contenders, 20 * rounds)
    torch.set_num_threads(THREADS)
    ratio = {
        who: against(found, "nanoGPT-style", who)
        for who in ("two products", "one product")
    }
    report("training", ratio)
    return ratio


def main() -> None:
    rounds = n_rounds(sys.argv[1:], 8)
    torch.set_num_threads(THREADS)
    found = {
        "machine": machine(),
        "rounds": rounds,
        "writing": writing(rounds),
        "training": training(rounds),
    }
    store("further", found)


if __name__ == "__main__":
    main()
