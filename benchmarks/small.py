"""A small model of the town's language, for comparisons of trainings."""

from __future__ import annotations

import torch
from torch import nn

from attnbook.gpt import GPT, GPTConfig
from attnbook.town import WORDS, Town, encode
from attnbook.training import Recipe, mean_loss, train

WIDTH, HEADS = 32, 4
ASKED = 200  # stories that the loss is measured on


def small_model(depth: int, *, seed: int) -> GPT:
    """A new model whose matrices keep the size of what they multiply.

    For this their entries have the variance 1 / (number of inputs).

    Args:
        depth: how many blocks it has.
        seed: of its weights.
    """
    torch.manual_seed(seed)
    config = GPTConfig(
        vocab_size=len(WORDS),
        context=Town().longest,
        d_model=WIDTH,
        n_heads=HEADS,
        n_layers=depth,
        positions="alibi",
        initial_std=WIDTH**-0.5,
    )
    made = GPT(config)
    for parameter in made.blocks.parameters():
        if parameter.ndim == 2:  # (to, from)
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    return made


def loss_after(model: GPT, recipe: Recipe) -> float | None:
    """The loss on new stories after training, in nats a token.

    None says that the training broke off, because the loss or a gradient was
    no longer finite.
    """
    try:
        train(model, Town().batches, recipe)
    except ValueError:  # the loss or a gradient is no longer finite
        return None
    asked = encode(Town().stories(ASKED, seed=10**9))
    return round(mean_loss(model, *asked), 4)
