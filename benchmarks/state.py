"""A state beside attention: quality on the town, and bytes and time.

For the quality, models of the town's width with four layers are trained by
chapter 11's recipe from five seeds: with attention in all layers, with a
state in all layers, with attention in the last of the four, and with plain
linear attention in all layers. The loss is that of 200 other stories over
their entropy; the accuracy is that of 300 questions of each kind, and for
returning also by how far the answer is.

For the time, one layer's core alone is measured, in float32 on one thread:
one new token after S tokens, and the reading of S tokens. What is kept is the
fastest of all rounds, because others who use the machine can only add time.
In each round attention comes first, and what it has read may have pushed the
state out of the processor's cache, as the weights of a model would.
The bytes are those of the caches that the book's models hold.

Chapter 21 shows all of it. What is stored already is not computed again, so
the script can be stopped at any time. Training takes an hour of one core.

usage: python benchmarks/state.py [--steps 1000] [--seeds 5] [--clock]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable

import torch
import torch.nn.functional as F
from results import CHAPTERS, here, now, store
from torch import Tensor, nn

from attnbook.gpt import GPT
from attnbook.hybrid import StateGPT
from attnbook.questions import Question
from attnbook.state import in_chunks, step_by_step
from attnbook.town import (
    TOWN_CONFIG,
    TOWN_RECIPE,
    Town,
    accuracy,
    encode,
)
from attnbook.training import mean_loss, train

#: What a model is called, and how often one of its layers attends; 1 means
#: that all do, 0 that none does.
KINDS = {"attention": 1, "state": 0, "hybrid": 4, "sum": 0}
LAYERS = 4
#: The steps after which a model is asked a few questions on returning.
EVERY = 100
#: Distances of an answer about returning, from and up to, in words.
FAR = ((1, 16), (16, 32), (32, 100))

SPANS = (256, 1024, 4096, 16_384)
HEADS, WIDTH = 16, 64  # of the layer whose core is timed
READING_HEADS = 4  # when a whole text is read
ROUNDS = 100


def new_model(kind: str, seed: int) -> GPT:
    """A new model of one of the `KINDS`, its weights drawn by a seed."""
    torch.manual_seed(seed)
    config = dataclasses.replace(TOWN_CONFIG, n_layers=LAYERS)
    if kind == "attention":
        return GPT(config)
    return StateGPT(config, every=KINDS[kind], delta=kind != "sum")


def quality_of(model: nn.Module, n: int = 300) -> dict:
    """A model's loss over the language's entropy, and its right answers.

    Args:
        model: a trained model.
        n: how many questions of each kind.
    """
    town = Town()
    stories = town.stories(200, seed=1_000_000)
    loss = mean_loss(model, *encode(stories)) / town.entropy(stories)
    found: dict = {"loss": round(loss, 4)}
    for kind in ("bank", "agreement"):
        asked = town.questions(kind, n, seed=2_000_000)
        found[kind] = round(accuracy(model, asked), 4)
    asked = crowded(n)
    found["returning"] = round(accuracy(model, asked), 4)
    found["far"] = [right_at(model, asked, *between) for between in FAR]
    return found


def crowded(n: int, seed: int = 2_000_000) -> list[Question]:
    """Questions on returning in a town where four people are on their way."""
    return Town(people=(4, 4)).questions("returning", n, seed=seed)


def right_at(
    model: nn.Module, asked: list[Question], least: int, below: int
) -> list[float]:
    """How many questions have their answer so far back, and what share of
    these is answered rightly."""
    some = [q for q in asked if least <= len(q.prompt) - q.antecedent < below]
    return [len(some), round(accuracy(model, some), 4) if some else 0.0]


def quality(kind: str, seed: int, steps: int) -> dict:
    """Train one kind of model from one seed, and judge it.

    Returns:
        what `quality_of` has found, and under "learning" the share of right
        answers on returning after every `EVERY` steps.
    """
    model = new_model(kind, seed)
    recipe = dataclasses.replace(
        TOWN_RECIPE, steps=steps, warmup=steps // 10, seed=seed
    )
    asked = crowded(100, seed=3_000_000)
    learning: list[float] = []

    def watch(step: int, *_: object) -> None:
        if step % EVERY == 0:
            learning.append(accuracy(model, asked))

    train(model, Town().batches, recipe, on_step=watch)
    return quality_of(model) | {"learning": learning}


def caches(span: int) -> dict[str, int]:
    """The bytes that a model of 24 layers keeps of a text, by its kind.

    The layers are as wide as the one that is timed. Nothing is allocated: the
    sizes are those of `KVCache` and `StateCache`, in numbers of 4 bytes.
    """
    layers = 24
    d_model = HEADS * WIDTH
    keys = 2 * span * d_model * 4
    state = (HEADS * WIDTH * WIDTH + 3 * 3 * d_model) * 4  # with 3 tails
    return {
        "attention": layers * keys,
        "hybrid": layers // 4 * keys + (layers - layers // 4) * state,
        "state": layers * state,
    }


def one_token(span: int) -> dict[str, Callable[[], object]]:
    """For each kind, the core of a layer for one token after `span`.

    Attention's tensors have four axes, as torch's fused kernel wants them:
    with three it takes a path that scales a copy of all keys at each call.
    """
    generator = torch.Generator().manual_seed(0)

    def randn(*size: int) -> Tensor:
        return here(torch.randn(size, generator=generator, device="cpu"))

    q = randn(1, HEADS, 1, WIDTH)
    k = randn(1, HEADS, span, WIDTH)
    v = randn(1, HEADS, span, WIDTH)
    new = F.normalize(randn(HEADS, 1, WIDTH), dim=-1)
    value = randn(HEADS, 1, WIDTH)
    beta = torch.sigmoid(randn(HEADS, 1))
    log_alpha = F.logsigmoid(2 + randn(HEADS, 1))
    state = randn(HEADS, WIDTH, WIDTH)
    return {
        "attention": lambda: F.scaled_dot_product_attention(q, k, v),
        "state": lambda: step_by_step(
            q[0], new, value, beta, log_alpha, state
        ),
    }


def whole_text(span: int) -> dict[str, Callable[[], object]]:
    """For each kind, the core of a layer that reads `span` tokens."""
    generator = torch.Generator().manual_seed(0)

    def randn(*size: int) -> Tensor:
        return here(torch.randn(size, generator=generator, device="cpu"))

    q, k, v = (randn(1, READING_HEADS, span, WIDTH) for _ in range(3))
    key = F.normalize(k, dim=-1)
    beta = torch.sigmoid(randn(1, READING_HEADS, span))
    log_alpha = F.logsigmoid(4 + randn(1, READING_HEADS, span))
    found: dict[str, Callable[[], object]] = {
        "attention": lambda: F.scaled_dot_product_attention(
            q, k, v, is_causal=True
        ),
        "state, in chunks of 64": lambda: in_chunks(
            q, key, v, beta, log_alpha
        ),
    }
    if span <= 4096:
        found["state, token by token"] = lambda: step_by_step(
            q, key, v, beta, log_alpha
        )
    return found


def clock(ways: dict[str, Callable[[], object]], rounds: int) -> dict:
    """The least time of each way, in milliseconds, to three digits."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            start = now()
            way()
            best[name] = min(best[name], now() - start)
    return {name: float(f"{1e3 * t:.3g}") for name, t in best.items()}


@torch.no_grad()
def times(rounds: int) -> dict:
    """The least times of one token and of a whole text, for each length."""
    return {
        "one token": {
            str(span): clock(one_token(span), 20 * rounds) for span in SPANS
        },
        "a text": {
            str(span): clock(whole_text(span), max(2, rounds // 5))
            for span in SPANS
        },
    }


def stored(name: str, steps: int) -> dict:
    """What has been stored for this many steps of training; else nothing."""
    file = CHAPTERS / "attnbook" / "data" / f"{name}.json"
    empty: dict = {"steps": steps, "quality": {}, "bytes": {}, "ms": {}}
    if not file.exists():
        return empty
    found = json.loads(file.read_text("utf-8"))
    return found if found["steps"] == steps else empty


def main(
    steps: int = 1000,
    seeds: range = range(5),
    rounds: int = 0,
    name: str = "state",
    kinds: tuple[str, ...] = tuple(KINDS),
) -> None:
    """Measure what is not stored yet, and store it at once.

    Args:
        steps: of training; what was stored with others is dropped.
        seeds: of the trainings.
        rounds: of the clock; without any, times are not taken anew.
        name: of the file in `data/`.
        kinds: of models, of `KINDS`.
    """
    torch.set_num_threads(1)
    if rounds:
        found = stored(name, steps)
        found["bytes"] = {str(span): caches(span) for span in SPANS}
        found["ms"] = times(rounds)
        store(name, found)
    for seed in seeds:
        for kind in kinds:
            if str(seed) in stored(name, steps)["quality"].get(kind, {}):
                continue
            judgement = quality(kind, seed, steps)
            # Read again: another process may have stored its own meanwhile.
            found = stored(name, steps)
            found["quality"].setdefault(kind, {})[str(seed)] = judgement
            store(name, found)
            print(seed, kind, judgement, flush=True)


if __name__ == "__main__":
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kinds", nargs="*", default=[*KINDS])
    parser.add_argument("--clock", action="store_true", help="time them anew")
    given = parser.parse_args()
    main(
        given.steps,
        range(given.seeds),
        ROUNDS if given.clock else 0,
        kinds=tuple(given.kinds),
    )
