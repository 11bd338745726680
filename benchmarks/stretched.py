"""Rotary models read texts four times as long as their training, stretched.

The rotary models of `positions.py` are trained again, and read sequences of
384 tokens in four ways, none of which trains them any further: as they are,
with all angles divided by 4, with the larger base of the NTK-aware way, and
with YaRN's speeds. Chapter 9 shows the result. It takes about two minutes on
two idle cores.

usage: python benchmarks/stretched.py
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from positions import (
    ASKED,
    BIN,
    D_MODEL,
    LONG,
    N_HEADS,
    POOL,
    SEEDS,
    TRAINED,
    measure,
    sequences,
    trained,
)
from results import store

from attnbook.gpt import GPT

FACTOR = LONG / TRAINED
WIDTH = D_MODEL // N_HEADS
#: Rotary positions turn pairs of numbers, like the hands of clocks, at
#: different speeds. If a hand makes `low` turns or fewer within the trained
#: length, its speed is divided by the factor. With `high` turns or more it
#: keeps its speed, and in between it gets a mixture. These are pairs of
#: (low, high).
EVERY_HAND = (1e6, 2e6)
YARN = (1, 32)
WAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "interpolation": {"rotary_scaling": (FACTOR, *EVERY_HAND, TRAINED)},
    "NTK-aware": {"rotary_base": 10_000.0 * FACTOR ** (WIDTH / (WIDTH - 2))},
    "YaRN": {"rotary_scaling": (FACTOR, *YARN, TRAINED)},
}


def trained_and_stretched(seed: int) -> dict[str, list[float]]:
    """Train one rotary model, and measure it stretched in each way.

    Returns:
        for each way the cross-entropy above the entropy, bin by bin.
    """
    taught = sequences(POOL, TRAINED, seed=10**6 * seed)
    model = trained("rotary", seed, taught)
    data = sequences(ASKED, LONG, seed=10**9)
    found = {}
    for way, changed in WAYS.items():
        stretched = GPT(dataclasses.replace(model.config, **changed)).eval()
        stretched.load_state_dict(model.state_dict())
        found[way] = measure(stretched, data)["above"]
    return found


def main() -> None:
    with ProcessPoolExecutor(
        initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        trainings = list(pool.map(trained_and_stretched, SEEDS))
    for way in WAYS:
        print(f"{way:13}", [f"{one[way][-1]:.3f}" for one in trainings])
    above = {way: [one[way] for one in trainings] for way in WAYS}
    store("stretched", {"trained": TRAINED, "bin": BIN, "above": above})


if __name__ == "__main__":
    main()
