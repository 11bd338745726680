"""Norms before the branches, or after the sums: what each place does.

Models of eight blocks learn the book's own language for 100 steps. The norm
is in the one place or the other, and the learning rate starts at its peak or
climbs to it. And stacks of up to 192 random blocks show how alike they make
the tokens. Chapter 10 shows the result. It takes about four minutes on one
idle core.

usage: python benchmarks/norm_places.py
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from results import store
from small import HEADS, WIDTH, loss_after, small_model
from torch import Tensor, nn

from attnbook.gpt import GPT
from attnbook.layers import TransformerBlock
from attnbook.teach.check.seeded import randn
from attnbook.training import Recipe

PLACES = ("pre", "post")
SEEDS = range(3)
DEPTH, STEPS = 8, 100  # of the trained models
#: Peak of the learning rate, and steps of warm-up.
RATES = ((1e-3, 0), (1e-3, 50), (4e-3, 0), (4e-3, 20), (4e-3, 50))
HEIGHTS = (0, 6, 12, 24, 48, 96, 192)  # blocks
TOKENS = 16


def model(place: str, seed: int) -> GPT:
    """A new model with its norms before the branches or after the sums."""
    made = small_model(DEPTH, seed=seed)
    if place == "post":
        for block in made.blocks:
            assert isinstance(block, TransformerBlock)
            block.norm_first = False
        made.norm = nn.Identity()  # the last block has normalised already
    return made


def loss(place: str, peak: float, warmup: int, seed: int) -> float | None:
    """The loss of a model after its training; None if that broke off.

    Args:
        place: of the norms, "pre" or "post".
        peak: of the learning rate.
        warmup: steps in which the learning rate climbs to its peak.
        seed: of the first weights and of the batches.
    """
    recipe = Recipe(
        STEPS, 8, peak=peak, warmup=warmup, final=0.0, clip=1e9, seed=seed
    )
    return loss_after(model(place, seed), recipe)


def similarity(x: Tensor) -> float:
    """Mean cosine between two different tokens of x, (T, d)."""
    unit = F.normalize(x, dim=-1)
    off = (unit @ unit.T).sum() - len(x)
    return round((off / (len(x) * (len(x) - 1))).item(), 4)


@torch.no_grad()
def alike(place: str, seed: int) -> list[float]:
    """How similar random tokens are after each number of blocks.

    Returns:
        the mean cosine between two tokens, for each number in `HEIGHTS`.
    """
    x = randn(TOKENS, WIDTH, seed=seed)
    found = []
    for n in range(HEIGHTS[-1] + 1):
        if n in HEIGHTS:
            found.append(similarity(x))
        block = TransformerBlock(
            WIDTH, HEADS, norm_first=place == "pre", activation="relu"
        ).double()
        for m, (name, parameter) in enumerate(block.named_parameters()):
            if parameter.ndim == 2:
                number = 100 * (1000 * seed + n) + m  # as on the page
                drawn = randn(*parameter.shape, seed=number)
                parameter.copy_(drawn / parameter.shape[1] ** 0.5)
            elif name.endswith("bias"):
                parameter.zero_()
        x = block(x)
    return found


def main() -> None:
    torch.set_num_threads(1)
    tokens = {p: [alike(p, seed) for seed in SEEDS] for p in PLACES}
    print(tokens, flush=True)
    trained = []
    for place, rate in itertools.product(PLACES, RATES):
        losses = [loss(place, *rate, seed) for seed in SEEDS]
        trained.append([place, *rate, losses])
        print(*trained[-1], flush=True)
    sizes = {"depth": DEPTH, "steps": STEPS, "heights": HEIGHTS}
    store("norm_places", sizes | {"trained": trained, "alike": tokens})


if __name__ == "__main__":
    main()
