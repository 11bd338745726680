"""Time the rungs of chapter 6's ladder, and store the ratios to SDPA.

The rungs are those of the notebook: its code cells are run up to the one that
defines `ladder`. They take turns, so that a machine that gets slower for a
while slows all of them; what is kept is the ratio within a round. Counted is
the processor's time on one thread, which other programs disturb least.

usage: python benchmarks/ladder.py [ROUNDS]     30 if not given
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable

from results import CHAPTERS, store

CHAPTER = CHAPTERS / "06_multi_head_attention.ipynb"
REFERENCE = "SDPA"

#: (B, T, d_model, n_heads) of the two inputs. The large one is a sequence
#: of full length in GPT-2 small.
SIZES = {"small": (2, 32, 64, 4), "large": (1, 1024, 768, 12)}
#: Would take hours at the large size.
TOO_SLOW = {"large": ["Python loops"]}
#: Each rung is repeated in a round until it has taken about this long.
LEAST_SECONDS = 0.02


def page() -> dict:
    """The names that the notebook's cells define, up to `ladder`."""
    namespace = {"__name__": "__page__"}
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(tree, CHAPTER.name, "exec"), namespace)
        if "ladder" in namespace:
            return namespace
    raise ValueError(
        f"{CHAPTER.name} defines no ladder; expected a function of that "
        f"name; got {len(cells)} cells without it"
    )


def measure(rungs: dict[str, Callable], x, rounds: int) -> dict:
    """For each rung the quartiles of its time over the reference's."""
    repeats = {name: _repeats(rung, x) for name, rung in rungs.items()}
    ratios = {name: [] for name in rungs}
    for number in range(rounds):
        # Another order each round: nobody always follows the same rung.
        order = list(rungs)[number % len(rungs) :]
        order += list(rungs)[: number % len(rungs)]
        seconds = {n: _time(rungs[n], x, repeats[n]) for n in order}
        for name, taken in seconds.items():
            ratios[name].append(taken / seconds[REFERENCE])
    return {
        name: [float(f"{q:.4g}") for q in statistics.quantiles(found, n=4)]
        for name, found in ratios.items()
    }


def _repeats(rung, x):
    _time(rung, x, 3 if x.numel() < 10_000 else 1)  # warm
    return max(1, round(LEAST_SECONDS / _time(rung, x, 1)))


def _time(rung, x, repeats):
    start = time.process_time()
    for _ in range(repeats):
        rung(x)
    return (time.process_time() - start) / repeats


def main(arguments: list[str]) -> int:
    rounds = int(arguments[0]) if arguments else 30
    if rounds < 2:
        print("a median needs at least 2 rounds", file=sys.stderr)
        return 2
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the ladder is timed on a CPU
    os.environ["MPLBACKEND"] = "agg"  # the page's figures open no window
    names = page()
    import torch

    torch.set_num_threads(1)
    results = {
        "what": "time of each rung over SDPA's: the three quartiles of the "
        "ratios within one round",
        "machine": "one core of a CPU",
        "kind": platform.machine(),
        "torch": torch.__version__.split("+")[0],
        "dtype": "float32",
        "rounds": rounds,
    }
    for size, (B, T, d_model, n_heads) in SIZES.items():
        weights = names["draw_heads"](
            n_heads, d_model, d_model, d_model, seed=58
        )
        rungs = names["ladder"]([w.float() for w in weights])
        for name in TOO_SLOW.get(size, []):
            del rungs[name]
        x = names["randn"](B, T, d_model, seed=57).float()
        with torch.no_grad():
            ratio = measure(rungs, x, rounds)
        results[size] = {
            "shape": {"B": B, "T": T, "d_model": d_model, "heads": n_heads},
            "ratio": ratio,
        }
        for name, quartiles in ratio.items():
            print(f"{size:6} {name:22}", *(f"{q:10.4g}" for q in quartiles))
    store("ladder", results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
