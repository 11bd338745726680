"""What a batch and a second thread bring: tokens a second, over one alone.

The models are those of speed.py, GPT-2 small with random weights, after
prompts of 64 tokens. The page "How fast is it" shows the result. It takes
about five minutes on two cores.

usage: python benchmarks/batches.py [ROUNDS]     4 if not given
"""

from __future__ import annotations

import os
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from results import quartiles, store
from speed import (
    THREADS,
    against,
    draw_prompts,
    machine,
    ours,
    pack,
    pair,
    report,
    rounds_of,
    theirs,
)

SIZES = (1, 2, 4, 8, 16, 32)


def batches(rounds: int) -> dict:
    """Tokens a second of a whole batch, over those of one text."""
    model, peer = pair()
    packed = pack(model)
    prompts = {B: draw_prompts(*[64] * B) for B in SIZES}
    found = rounds_of(
        {
            (who, B): run(one, prompts[B])
            for B in SIZES
            for who, run, one in (
                ("transformers", theirs, peer),
                ("plain", ours, model),
                ("packed", ours, packed),
            )
        },
        rounds,
    )
    result = {}
    for B in SIZES:
        result[B] = {
            who: quartiles(
                [B * a / b for a, b in zip(found[who, 1], found[who, B])]
            )
            for who in ("transformers", "plain", "packed")
        }
        report(f"batch of {B}", result[B])
    return result


def threads(rounds: int) -> dict:
    """Tokens a second on all threads, over those on one."""
    model, _ = pair()
    result = {}
    for who, one in (("plain", model), ("packed", pack(model))):
        for B in (1, 8):
            run = ours(one, draw_prompts(*[64] * B))

            def on(count, run=run):
                torch.set_num_threads(count)
                return run()

            found = rounds_of(
                {"one": lambda on=on: on(1), "all": lambda on=on: on(THREADS)},
                rounds,
            )
            result[f"{who}, {B}"] = against(found, "one", "all")
    torch.set_num_threads(THREADS)
    report("threads", result)
    return result


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    torch.set_num_threads(THREADS)
    found = {"machine": machine(), "rounds": rounds}
    found["batches"] = batches(rounds)
    found["threads"] = threads(2 * rounds)
    store("batches", found)


if __name__ == "__main__":
    main()
