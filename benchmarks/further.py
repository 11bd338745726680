"""Three more ideas for speed, which the book has tried and not taken.

One product for queries, keys and values in place of two; GELU within the
product before it; matrices in 16 bits, bfloat16. Each is measured in writing,
over the packed model, with the share of memory's speed that it reaches by its
own bytes; the first in training, too, over the plain loop. The page "How fast
is it" shows the result. It takes about eight minutes on two cores.

usage: python benchmarks/further.py [ROUNDS]     8 if not given
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
from functools import partial

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from peers import PlainGPT
from results import n_rounds, quartiles, store
from speed import (
    THREADS,
    against,
    draw_prompts,
    machine,
    moved_bytes,
    ours,
    pack,
    pair,
    read_bandwidth,
    report,
    rounds_of,
    stepper,
)
from torch import Tensor, nn

from attnbook.attention import split_heads
from attnbook.gpt import GPT
from attnbook.layers import MultiHeadAttention
from attnbook.town import TOWN_CONFIG

kernels = torch.ops.mkldnn


class Product(nn.Module):
    """A packed matrix of any type, and what bends its product, if anything.

    Shapes: x (..., in_features) → (..., out_features), in the type of x.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype) -> None:
        super().__init__()
        # What the model asks for its type and shape; it holds nothing.
        self.weight = torch.empty_like(weight, device="meta")
        self.packed = kernels._reorder_linear_weight(weight.to(dtype), None)
        self.bias = None if bias is None else bias.to(dtype)
        self.dtype = dtype
        self.bend = ("none", [], "")

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b, bent."""
        y = kernels._linear_pointwise(
            x.to(self.dtype), self.packed, self.bias, *self.bend
        )
        return y.to(x.dtype)


class Joined(MultiHeadAttention):
    """Queries, keys and values by one product, whose matrix is `query`."""

    def project(self, x, memory=None, positions=None, cache=None):
        """As the layer it is made of, without rotation and memory."""
        parts = self.query(x).chunk(3, -1)
        q, k, v = (split_heads(part, self.n_heads) for part in parts)
        return (q, k, v) if cache is None else (q, *cache.extend(k, v))


@torch.no_grad()
def join(model: GPT) -> GPT:
    """The same model, with one matrix where attention had two."""
    model = copy.deepcopy(model)
    for block in model.blocks:
        layer = block.attention
        both = layer.query, layer.key_value
        layer.query = nn.Linear(model.config.d_model, 3 * model.config.d_model)
        layer.query.weight.copy_(torch.cat([one.weight for one in both]))
        layer.query.bias.copy_(torch.cat([one.bias for one in both]))
        layer.key_value = None
        layer.__class__ = Joined
    return model


def lay_out(model: GPT, *, dtype=torch.float32, gelu: bool = False) -> GPT:
    """The same model for writing, its matrices packed as a `Product`."""
    packed = pack(model, partial(Product, dtype=dtype))
    for block in packed.blocks if gelu else ():
        up, down = block.feed_forward.up, block.feed_forward.down
        up.bend = ("gelu", [], "tanh")
        block.feed_forward = nn.Sequential(up, down)
    return packed


def writing(rounds: int) -> dict:
    """Over the packed model; the share of the limit; what 16 bits change."""
    model, _ = pair()
    models = {
        "packed": pack(model),
        "one product": lay_out(join(model)),
        "GELU within": lay_out(model, gelu=True),
        "16 bits": lay_out(model, dtype=torch.bfloat16),
        "all three": lay_out(join(model), dtype=torch.bfloat16, gelu=True),
    }
    tokens = torch.tensor(draw_prompts(256, 256))
    with torch.inference_mode():
        exact = models["packed"](tokens)
        for name in ("one product", "GELU within"):
            other = models[name](tokens)
            torch.testing.assert_close(other, exact, atol=1e-3, rtol=1e-3)
        rounded = models["16 bits"](tokens)
    same = (exact.argmax(-1) == rounded.argmax(-1)).float().mean().item()
    error = ((exact - rounded).std() / exact.std()).item()
    result: dict = {"error": float(f"{error:.3g}"), "same": round(same, 3)}
    table = model.position_embedding.weight
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    saved = 2 * (matrices - table.numel())  # bytes that 16 bits spare
    for n_prompt in (32, 512):
        prompts = draw_prompts(n_prompt)
        runs = {name: ours(one, prompts) for name, one in models.items()}
        found = rounds_of(runs | {"read": read_bandwidth}, 2 * rounds)
        moved = {name: moved_bytes(model, n_prompt) for name in models}
        for name in ("16 bits", "all three"):
            moved[name] -= saved
        result[f"1 × {n_prompt}"] = {
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
        for what, numbers in result[f"1 × {n_prompt}"].items():
            report(f"{what}, 1 × {n_prompt}", numbers)
    return result


def training(rounds: int) -> dict:
    """A step of chapter 11's model, as alike as can be, over the plain loop:
    with two products, and with one.
    """
    torch.set_num_threads(1)  # for matrices this small two are slower
    config = dataclasses.replace(
        TOWN_CONFIG, positions="learned", activation="gelu"
    )
    model = GPT(config)
    sizes = config.vocab_size, config.context, config.d_model
    models = {
        "nanoGPT-style": PlainGPT(*sizes, config.n_heads, config.n_layers),
        "two products": model,
        "one product": join(model),
    }
    runs = {name: stepper(one) for name, one in models.items()}
    found = rounds_of(runs, 20 * rounds)
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
    found = {"machine": machine(), "rounds": rounds}
    found["writing"] = writing(rounds)
    found["training"] = training(rounds)
    store("further", found)


if __name__ == "__main__":
    main()
