"""Chapter 11's model and its controls, and when a model learns to look back.

By `TOWN_RECIPE`: the model; the same with a uniform average in the place of
attention, or nothing there; and the model on 200 stories, again and again.
Then the model from five more seeds, which give other first weights and other
stories. Chapter 11 shows the results. It takes about six minutes.

usage: python benchmarks/seeds.py
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ProcessPoolExecutor

import torch
from attention_alone import Nothing
from results import store
from torch import Tensor, nn

from attnbook.gpt import GPT
from attnbook.town import (
    KINDS,
    TOWN_CONFIG,
    TOWN_RECIPE,
    Town,
    accuracy,
    encode,
)
from attnbook.training import mean_loss, train

SEEDS = range(6)
EVERY = 100  # steps
FEW = 200  # stories, for the model that sees no others


class CausalAverage(nn.Module):
    """An attention's values and W_O, around equal weights."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, **options: object) -> Tensor:
        v = self.attention.key_value(x).chunk(2, -1)[1]  # (B, T, d_model)
        seen = torch.arange(1, x.shape[1] + 1)[:, None]
        return self.attention.out(v.cumsum(-2) / seen)  # (B, T, d_model)


CONTROLS = {
    "uniform average": CausalAverage,
    "nothing": lambda attention: Nothing(),
    "few stories": lambda attention: attention,
}


def run(kind: str, seed: int) -> dict:
    """Train from one seed; what it knows on the way, and at the end."""
    torch.set_num_threads(1)
    town, crowded = Town(), Town(people=(4, 4))
    asked = {
        name: (crowded if name == "returning" else town).questions(
            name, 300, seed=2_000_000
        )
        for name in KINDS
    }
    held_out = encode(town.stories(300, seed=1_000_000))
    tokens, targets = encode(town.stories(FEW, seed=7))

    def again(size, generator):
        some = torch.randint(FEW, (size,), generator=generator)
        return tokens[some], targets[some]

    torch.manual_seed(seed)
    model = GPT(TOWN_CONFIG)
    for block in model.blocks:
        if kind in CONTROLS:
            block.attention = CONTROLS[kind](block.attention)
    curves = {"trained": [], "held_out": [], "returning": []}

    def ask(step, losses):
        if step % EVERY == 0:
            found = {
                "trained": sum(losses[-EVERY:]) / EVERY,
                "held_out": mean_loss(model, *held_out),
                "returning": accuracy(model, asked["returning"]),
            }
            for name, value in found.items():
                curves[name].append(round(value, 4))

    recipe = dataclasses.replace(TOWN_RECIPE, seed=seed)
    batches = again if kind == "few stories" else town.batches
    losses = train(model, batches, recipe, on_step=ask)
    truth = town.entropy(town.stories(300, seed=1_000_000))
    found = {
        "kind": kind,
        "seed": seed,
        "returning": curves["returning"],
        "loss_over_entropy": round(curves["held_out"][-1] / truth, 4),
    }
    if seed:
        return found
    right = {k: round(accuracy(model, q), 4) for k, q in asked.items()}
    first = [round(loss, 4) for loss in losses[:200]]
    return found | curves | {"right": right, "first_losses": first}


def main() -> None:
    todo = [(kind, 0) for kind in ("attention", *CONTROLS)]
    todo += [("attention", seed) for seed in SEEDS[1:]]
    with ProcessPoolExecutor() as pool:
        runs = list(pool.map(run, *zip(*todo)))
    for one in runs:
        print(one)
    store("seeds", {"every": EVERY, "runs": runs})


if __name__ == "__main__":
    main()
