"""The book's language model with and without its feed-forward layers.

Four GPTs of the town model's width are trained by its recipe, on the same
stories: two blocks of attention and feed-forward, the attention of the two
blocks alone, six layers of attention, which have as many weights as the two
blocks, and three feed-forward layers, which have as many too. Chapter 8 shows
the result. Twelve trainings take some ten minutes or more.

usage: python benchmarks/attention_alone.py
"""

from __future__ import annotations

import dataclasses
import itertools
from concurrent.futures import ProcessPoolExecutor

import torch
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

SEEDS = range(3)
#: How many stories, and questions of each kind, a model is measured on.
STORIES, QUESTIONS = 500, 300
#: For each kind how many layers of attention and of feed-forward it has.
LAYERS = {
    "both": (2, 2),
    "attention of both": (2, 0),
    "attention alone": (6, 0),
    "feed-forward alone": (0, 3),
}


class Nothing(nn.Module):
    """A layer that adds nothing to the stream."""

    def forward(self, x: Tensor, **options: object) -> Tensor:
        return torch.zeros_like(x)


def build(kind: str, seed: int) -> GPT:
    """A new model of one kind; layers that the kind lacks add nothing.

    Args:
        kind: a key of `LAYERS`.
        seed: of its first weights.
    """
    attention, feed_forward = LAYERS[kind]
    n_layers = max(attention, feed_forward)
    torch.manual_seed(seed)
    model = GPT(dataclasses.replace(TOWN_CONFIG, n_layers=n_layers))
    for n, block in enumerate(model.blocks):
        if n >= attention:
            block.attention = Nothing()
            block.attention_norm = nn.Identity()
        if n >= feed_forward:
            block.feed_forward = Nothing()
            block.feed_forward_norm = nn.Identity()
    return model


def trained_and_measured(kind: str, seed: int) -> dict[str, float]:
    """Train one model and measure it.

    Returns:
        "above", its loss over the language's entropy, in nats a word; and for
        each kind of questions the share of right answers.
    """
    model = build(kind, seed)
    town = Town()
    train(model, town.batches, dataclasses.replace(TOWN_RECIPE, seed=seed))
    unseen = town.stories(STORIES, seed=10**9)
    loss = mean_loss(model, *encode(unseen))
    found = {"above": loss - town.entropy(unseen)}
    for name in KINDS:
        asked = town.questions(name, QUESTIONS, seed=10**9)
        found[name] = accuracy(model, asked)
    return found


def main() -> None:
    trainings = list(itertools.product(SEEDS, LAYERS))
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in LAYERS}
    with ProcessPoolExecutor(
        initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        seeds, kinds = zip(*trainings)
        for kind, measured in zip(
            kinds, pool.map(trained_and_measured, kinds, seeds)
        ):
            found[kind].append(measured)
            print(kind, measured, flush=True)
    matrices = {
        kind: sum(
            p.numel()
            for p in build(kind, 0).blocks.parameters()
            if p.ndim == 2
        )
        for kind in LAYERS
    }
    store(
        "attention_alone",
        {
            "steps": TOWN_RECIPE.steps,
            "layers": LAYERS,
            "weights": matrices,
            "found": found,
        },
    )


if __name__ == "__main__":
    main()
