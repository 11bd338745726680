"""What smaller caches cost: quality on the town, and the time of a step.

For the quality, models of the town's size with rotary positions are trained
from three seeds: with four, two and one heads of keys and values, with
latents, and through a window. They get two fifths of chapter 11's steps, which
are too few to learn who went where. Those with four heads are then pooled to
two and to one, and trained on for a twentieth and a fifth of the steps. The
loss is that of 200 other stories over their entropy; the accuracy is that of
200 questions of each of two kinds.

For the time, attention alone is measured: one new token over many keys, in
float32 on one thread. Each round times every kind once. What is kept is the
fastest of all rounds, over the fastest with sixteen heads of keys, because
others who use the machine can only add time.

Chapter 18 shows both. What is stored already is not computed again, so the
script can be stopped at any time. All of it takes ten minutes of one core.

usage: python benchmarks/fewer_keys.py [--steps 400] [--clock]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable

import torch
from results import CHAPTERS, here, now, store
from torch import Tensor, nn

from attnbook.gpt import GPT
from attnbook.latent import use_latent
from attnbook.pooling import pool_heads
from attnbook.town import (
    TOWN_CONFIG,
    TOWN_RECIPE,
    Town,
    accuracy,
    encode,
)
from attnbook.training import mean_loss, train
from attnbook.window import read_window

SEEDS = range(3)
HEADS = {"4 heads": 4, "2 heads": 2, "1 head": 1}
#: The width of the latents, and that of the part with rotary positions.
LATENTS = {"latent 16 + 8": (16, 8)}
#: How many of the last words, and of the first ones, a word sees.
WINDOWS = {"window 8": (8, 0)}
KINDS = ("4 heads", "1 head", "latent 16 + 8", "window 8", "2 heads")
#: How many heads of keys are left of four.
POOLED = {"4 to 2": 2, "4 to 1": 1}
#: The share of the steps for which a pooled model is trained on.
PARTS = {"not at all": 0.0, "a twentieth": 0.05, "a fifth": 0.2}

SPANS = (256, 1024, 4096)  # how many keys a step reads
QUERIES, WIDTH, LATENT, ROTARY, WINDOW = 16, 64, 128, 32, 1024
ROUNDS = 60


class Windowed(nn.Module):
    """A GPT that looks through a window, also while it is trained."""

    def __init__(self, model: GPT, window: int, sinks: int) -> None:
        super().__init__()
        self.model = model
        self.window = window
        self.sinks = sinks

    def forward(self, tokens: Tensor) -> Tensor:
        return read_window(
            self.model, tokens, window=self.window, sinks=self.sinks
        )


def new_model(kind: str, seed: int) -> nn.Module:
    """A new model of one of the `KINDS`, its weights drawn by a seed."""
    torch.manual_seed(seed)
    heads = HEADS.get(kind, 4)
    config = dataclasses.replace(
        TOWN_CONFIG, positions="rotary", n_kv_heads=heads
    )
    model = GPT(config)
    if kind in LATENTS:
        d_latent, d_rotary = LATENTS[kind]
        use_latent(model, d_latent=d_latent, d_rotary=d_rotary)
    return Windowed(model, *WINDOWS[kind]) if kind in WINDOWS else model


def quality_of(model: nn.Module, n: int = 200) -> dict[str, float]:
    """A model's loss over the language's entropy, and its right answers.

    Args:
        model: a trained model.
        n: how many stories, and how many questions of each of two kinds.
    """
    town = Town()
    stories = town.stories(n, seed=1_000_000)
    loss = mean_loss(model, *encode(stories)) / town.entropy(stories)
    found = {"loss": round(loss, 4)}
    for kind in ("bank", "agreement"):
        asked = town.questions(kind, n, seed=2_000_000)
        found[kind] = round(accuracy(model, asked), 4)
    return found


def learn(model: nn.Module, steps: int, seed: int, peak: float = 3e-3) -> None:
    """Train a model by the town's recipe, with other steps, seed and peak."""
    recipe = dataclasses.replace(
        TOWN_RECIPE, steps=steps, warmup=steps // 10, seed=seed, peak=peak
    )
    train(model, Town().batches, recipe)


def qualities(kind: str, seed: int, steps: int) -> dict:
    """Train one kind of model from one seed, and judge it.

    The kind with four heads is pooled to fewer heads afterwards. These models
    are trained on and judged, too.

    Returns:
        for each model what `quality_of` has found.
    """
    model = new_model(kind, seed)
    learn(model, steps, seed)
    found = {kind: quality_of(model)}
    if kind != "4 heads":
        return found
    assert isinstance(model, GPT)
    for name, heads in POOLED.items():
        for part, share in PARTS.items():
            pooled = pool_heads(model, heads)
            if share:
                # Other stories than those it has seen; a lower peak.
                learn(pooled, round(share * steps), seed + 100, peak=1e-3)
            found[f"{name}, {part}"] = quality_of(pooled)
    return found


def steps_of(span: int) -> dict[str, Callable[[], Tensor]]:
    """A function for each kind: the context of one token over `span` keys."""
    generator = torch.Generator().manual_seed(0)

    def randn(*size: int) -> Tensor:
        return here(torch.randn(size, generator=generator, device="cpu"))

    return {
        "16 heads": _grouped(16, span, randn),
        "4 heads": _grouped(4, span, randn),
        "1 head": _grouped(1, span, randn),
        "latent 128 + 32": _latent(span, randn),
        "window 1024": _grouped(16, min(span, WINDOW), randn),
    }


def _grouped(
    heads: int, span: int, randn: Callable[..., Tensor]
) -> Callable[[], Tensor]:
    """A step of attention with so many heads of keys, queries in groups.

    Args:
        heads: of keys and values.
        span: how many keys there are.
        randn: draws a tensor of a size.
    """
    q = randn(heads, QUERIES // heads, WIDTH)  # a group's queries are its rows
    k = randn(heads, span, WIDTH)
    v = randn(heads, span, WIDTH)
    return lambda: (q @ k.mT / WIDTH**0.5).softmax(-1) @ v


def _latent(span: int, randn: Callable[..., Tensor]) -> Callable[[], Tensor]:
    """A step of attention over latents, without making keys and values.

    Args:
        span: how many latents there are.
        randn: draws a tensor of a size.
    """
    kept = randn(span, LATENT + ROTARY)
    q = randn(QUERIES, 1, WIDTH)
    turned = randn(QUERIES, 1, ROTARY)
    U = randn(QUERIES, WIDTH, LATENT)
    V = randn(QUERIES, WIDTH, LATENT)
    scale = (WIDTH + ROTARY) ** -0.5

    def step() -> Tensor:
        asked = torch.cat([q @ U, turned], -1)[:, 0]  # (H, d_c + d_r)
        weights = (asked @ kept.T * scale).softmax(-1)  # (H, S)
        context = weights @ kept[:, :LATENT]  # (H, d_c)
        return context[:, None] @ V.mT

    return step


def clock(span: int, rounds: int) -> dict[str, float]:
    """Each kind's least time, over that of sixteen heads of keys.

    Args:
        span: how many keys there are.
        rounds: how often each kind is timed.
    """
    steps = steps_of(span)
    best = dict.fromkeys(steps, float("inf"))
    repeats = max(1, 1024 // span)
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            start = now()
            for _ in range(repeats):
                step()
            took = (now() - start) / repeats
            best[name] = min(best[name], took)
    return {n: round(took / best["16 heads"], 3) for n, took in best.items()}


def main(
    steps: int = 400,
    seeds: range = SEEDS,
    rounds: int = 0,
    name: str = "fewer_keys",
) -> None:
    """Measure what is not stored yet, and store it at once.

    Args:
        steps: of training; what was stored with others is dropped.
        seeds: of the trainings.
        rounds: of the clock; without any, times are not taken anew.
        name: of the file in `data/`.
    """
    torch.set_num_threads(1)
    file = CHAPTERS / "attnbook" / "data" / f"{name}.json"
    found: dict = {"steps": steps, "quality": {}, "time": {}}
    if file.exists():
        stored = json.loads(file.read_text("utf-8"))
        found = stored if stored["steps"] == steps else found
    if rounds:
        for span in SPANS:
            found["time"][str(span)] = clock(span, rounds)
        store(name, found)
    for kind in KINDS:
        for seed in seeds:
            if str(seed) not in found["quality"].get(kind, {}):
                for one, judgement in qualities(kind, seed, steps).items():
                    of_kind = found["quality"].setdefault(one, {})
                    of_kind[str(seed)] = judgement
                print(
                    seed, kind, found["quality"][kind][str(seed)], flush=True
                )
                store(name, found)


if __name__ == "__main__":
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--clock", action="store_true", help="time them anew")
    given = parser.parse_args()
    main(given.steps, rounds=ROUNDS if given.clock else 0)
