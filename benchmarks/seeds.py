"""Chapter 11's model and its controls, and when a model learns to look back.

Four models are trained by `TOWN_RECIPE`: the model itself; one with a uniform
average in the place of attention; one with nothing there; and one that sees
the same 200 stories again and again. Then the model is trained from five more
seeds, which give other first weights and other stories. Chapter 11 shows the
results. It takes about six minutes.

usage: python benchmarks/seeds.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from attention_alone import Nothing
from results import store
from torch import Tensor, nn

from attnbook.gpt import GPT
from attnbook.layers import MultiHeadAttention
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
#: How many steps lie between two looks at a model.
EVERY = 100

#: Stories of the model that sees no others.
FEW = 200

#: Questions by their kind, as `Town.questions` draws them.
Questions = dict[str, Any]
BatchSource = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


class CausalAverage(nn.Module):
    """Attention with equal weights for all tokens that a token may see.

    The values and the output matrix are those of an attention layer.

    Shapes: x (B, T, d_model) → (B, T, d_model).
    """

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, **options: object) -> Tensor:
        v = self.attention.key_value(x).chunk(2, -1)[1]  # (B, T, d_model)
        seen = torch.arange(1, x.shape[1] + 1)[:, None]
        return self.attention.out(v.cumsum(-2) / seen)  # (B, T, d_model)


#: What is put in the place of a model's attention.
CONTROLS: dict[str, Callable[[MultiHeadAttention], nn.Module]] = {
    "uniform average": CausalAverage,
    "nothing": lambda attention: Nothing(),
    "few stories": lambda attention: attention,
}


class Watched:
    """Keeps what a model knows after every `EVERY` steps of its training.

    It is called after each step. `curves` has the mean loss of the last steps,
    the loss on other stories, and the share of right answers about returning.
    """

    def __init__(self, model: GPT, town: Town, asked: Questions) -> None:
        self.model = model
        self.asked = asked
        self.held_out = encode(town.stories(300, seed=1_000_000))
        self.curves: dict[str, list[float]] = {
            "trained": [],
            "held_out": [],
            "returning": [],
        }

    def __call__(self, step: int, losses: list[float]) -> None:
        """Measure the model, every `EVERY` steps; called after each step.

        Args:
            step: how many steps have been made.
            losses: the loss of each of them.
        """
        if step % EVERY:
            return
        found = {
            "trained": sum(losses[-EVERY:]) / EVERY,
            "held_out": mean_loss(self.model, *self.held_out),
            "returning": accuracy(self.model, self.asked["returning"]),
        }
        for name, value in found.items():
            self.curves[name].append(round(value, 4))


def questions(town: Town) -> Questions:
    """300 questions of each kind.

    Those about returning are of a town in which four people are on their way.
    """
    crowded = Town(people=(4, 4))
    return {
        name: (crowded if name == "returning" else town).questions(
            name, 300, seed=2_000_000
        )
        for name in KINDS
    }


def few_stories(town: Town) -> BatchSource:
    """Batches that are drawn from the same few stories again and again."""
    tokens, targets = encode(town.stories(FEW, seed=7))

    def again(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        some = torch.randint(FEW, (size,), generator=generator)
        return tokens[some], targets[some]

    return again


def watched_training(kind: str, seed: int) -> dict:
    """Train one model, and say what it knows on the way and at the end.

    From seed 0 all is kept, from the others only what is compared.

    Args:
        kind: "attention", or a key of `CONTROLS`.
        seed: of the first weights and of the batches.
    """
    torch.set_num_threads(1)
    town = Town()
    asked = questions(town)
    torch.manual_seed(seed)
    model = GPT(TOWN_CONFIG)
    for block in model.blocks:
        if kind in CONTROLS:
            layer: Any = block
            layer.attention = CONTROLS[kind](layer.attention)
    watched = Watched(model, town, asked)
    recipe = dataclasses.replace(TOWN_RECIPE, seed=seed)
    batches = few_stories(town) if kind == "few stories" else town.batches
    losses = train(model, batches, recipe, on_step=watched)
    curves = watched.curves
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
        trainings = list(pool.map(watched_training, *zip(*todo)))
    for one in trainings:
        print(one)
    store("seeds", {"every": EVERY, "runs": trainings})


if __name__ == "__main__":
    main()
