"""What a batch and a second thread bring, in tokens a second.

The models are those of speed.py, GPT-2 small with random weights, after
prompts of 64 tokens. The page "How fast is it" shows the result. It takes
about five minutes on two cores.

usage: python benchmarks/batches.py [ROUNDS]     4 if not given
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from results import quartiles, store
from rounds import THREADS, against, machine, report, rounds_of
from writers import draw_prompts, ours, pair, theirs

from attnbook.fast import pack

SIZES = (1, 2, 4, 8, 16, 32)


def batches(rounds: int) -> dict[int, dict[str, list[float]]]:
    """How many times more tokens a second a batch writes than one text alone.

    Returns:
        for each size of a batch and each writer the quartiles of the ratio.
    """
    model, peer = pair()
    packed = pack(model)
    writers = ("transformers", "plain", "packed")
    contenders: dict[tuple[str, int], Callable[[], float]] = {}
    for B in SIZES:
        prompts = draw_prompts(*[64] * B)
        contenders["transformers", B] = theirs(peer, prompts)
        contenders["plain", B] = ours(model, prompts)
        contenders["packed", B] = ours(packed, prompts)
    found = rounds_of(contenders, rounds)
    result = {}
    for B in SIZES:
        result[B] = {
            who: quartiles(
                [B * a / b for a, b in zip(found[who, 1], found[who, B])]
            )
            for who in writers
        }
        report(f"batch of {B}", result[B])
    return result


def threads(rounds: int) -> dict[str, list[float]]:
    """How many times more tokens a second all threads write than one thread.

    Returns:
        for each writer and size of a batch the quartiles of the ratio.
    """
    model, _ = pair()
    result = {}
    for who, one in (("plain", model), ("packed", pack(model))):
        for B in (1, 8):
            timed_steps = ours(one, draw_prompts(*[64] * B))
            contenders = {
                "one": partial(_on, 1, timed_steps),
                "all": partial(_on, THREADS, timed_steps),
            }
            result[f"{who}, {B}"] = against(
                rounds_of(contenders, rounds), "one", "all"
            )
    torch.set_num_threads(THREADS)
    report("threads", result)
    return result


def _on(count: int, timed_steps: Callable[[], float]) -> float:
    """What a contender measures on so many threads."""
    torch.set_num_threads(count)
    return timed_steps()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    torch.set_num_threads(THREADS)
    found = {
        "machine": machine(),
        "rounds": rounds,
        "batches": batches(rounds),
        "threads": threads(2 * rounds),
    }
    store("batches", found)


if __name__ == "__main__":
    main()
