"""Models of several depths, each trained with its norms and without.

They learn the book's own language for 100 steps and are asked about stories
that they have not seen. Every matrix of a block keeps the size of what it
multiplies: its entries have the variance 1 / width. Chapter 7 shows the
result. It takes about four minutes on one idle core.

usage: python benchmarks/norms.py
"""

from __future__ import annotations

import torch
from results import store
from small import loss_after, small_model
from torch import nn

from attnbook.gpt import GPT
from attnbook.norms import LayerNorm
from attnbook.training import Recipe

DEPTHS = (2, 4, 8, 12, 16)
PEAK = 4e-3  # learning rate
SEEDS = range(3)
STEPS = 100


def model(depth: int, *, norms: bool, seed: int) -> GPT:
    """A new model; without norms, each norm is replaced by the identity."""
    made = small_model(depth, seed=seed)
    if norms:
        return made
    for part in list(made.modules()):
        for name, child in part.named_children():
            if isinstance(child, LayerNorm):
                setattr(part, name, nn.Identity())
    return made


def loss(depth: int, *, norms: bool, seed: int) -> float | None:
    """The loss of a model after its training; None if that broke off."""
    recipe = Recipe(STEPS, 8, peak=PEAK, warmup=20, final=0.0, seed=seed)
    return loss_after(model(depth, norms=norms, seed=seed), recipe)


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, list[list[float | None]]] = {}
    for name, norms in (("with", True), ("without", False)):
        found[name] = []
        for depth in DEPTHS:
            row = [loss(depth, norms=norms, seed=seed) for seed in SEEDS]
            found[name].append(row)
            print(f"{name} norms, {depth} blocks: {row}", flush=True)
    store("norms", {"steps": STEPS, "depths": DEPTHS} | found)


if __name__ == "__main__":
    main()
