"""Chapter 11's model from six seeds: when does it learn to look up a place?

Each seed gives other first weights and other stories; all else is
`TOWN_RECIPE`. Chapter 11 shows the result. It takes about three minutes.

usage: python benchmarks/seeds.py
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ProcessPoolExecutor

import torch
from results import store

from attnbook.gpt import GPT
from attnbook.town import TOWN_CONFIG, TOWN_RECIPE, Town, accuracy, encode
from attnbook.training import mean_loss, train

SEEDS = range(6)
EVERY = 100  # steps


def run(seed: int) -> dict:
    """Train from one seed; what it knows on the way, and at the end."""
    torch.set_num_threads(1)
    town, crowded = Town(), Town(people=(4, 4))
    questions = crowded.questions("returning", 300, seed=2_000_000)
    held_out = town.stories(300, seed=1_000_000)
    torch.manual_seed(seed)
    model = GPT(TOWN_CONFIG)
    returning = []

    def ask(step, losses):
        if step % EVERY == 0:
            returning.append(round(accuracy(model, questions), 4))

    recipe = dataclasses.replace(TOWN_RECIPE, seed=seed)
    train(model, town.batches, recipe, on_step=ask)
    loss = mean_loss(model, *encode(held_out))
    return {
        "seed": seed,
        "returning": returning,
        "loss_over_entropy": round(loss / town.entropy(held_out), 4),
    }


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(run, SEEDS))
    for one in runs:
        print(one)
    store("seeds", {"every": EVERY, "runs": runs})


if __name__ == "__main__":
    main()
