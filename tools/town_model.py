"""Train the book's language model, that of the town, and store it.

Its weights are rounded to multiples of `STEP`. So they fit into the script of
the page *The town*, and the page computes with the same numbers as the
notebooks.

usage: python tools/town_model.py FILE
"""

from __future__ import annotations

import sys
from dataclasses import asdict

import torch

from attnbook.gpt import GPT
from attnbook.pretrained import save_model
from attnbook.town import TOWN_CONFIG, TOWN_RECIPE, Town, vocabulary
from attnbook.training import train
from press.town_page import STEP


@torch.no_grad()
def round_weights(model: GPT) -> None:
    """Round all weights of a model, in place, to multiples of `STEP`."""
    for weight in model.parameters():
        weight.copy_((weight / STEP).round() * STEP)


def main(path: str) -> None:
    """Train the model by its recipe, and write it to a path."""
    torch.manual_seed(TOWN_RECIPE.seed)
    model = GPT(TOWN_CONFIG)
    train(model, Town().batches, TOWN_RECIPE)
    round_weights(model)
    about = {"recipe": asdict(TOWN_RECIPE), "data": "the town's stories"}
    save_model(path, model, vocabulary(), about=about)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1])
