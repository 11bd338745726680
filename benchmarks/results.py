"""What the benchmarks share: the clock, quartiles, and where results go."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = ROOT / "chapters"
sys.path[:0] = [str(CHAPTERS), str(ROOT / "tools")]

from notebooks import write_text  # noqa: E402


def n_rounds(arguments: list[str], default: int) -> int:
    """How many rounds to measure: the command's first argument, or `default`.

    Raises:
        SystemExit: the argument is no whole number, or is less than 2.
    """
    told = arguments[0] if arguments else str(default)
    if not told.isdecimal() or int(told) < 2:
        print(
            "how many rounds are measured is a whole number, and a median "
            f"needs at least 2 of them; got {told!r}",
            file=sys.stderr,
        )
        raise SystemExit(2)
    return int(told)


def now() -> float:
    """The time in seconds, for differences.

    On a CPU it is the processor's time for this process, which the work of
    others does not lengthen. Where tensors are made on a graphics card it is
    the clock's, after the card has done what it was asked for.
    """
    if torch.get_default_device().type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def here(x: Tensor) -> Tensor:
    """A tensor on the device where tensors are made by default."""
    return x.to(torch.get_default_device())


def quartiles(numbers: list[float]) -> list[float]:
    """The three quartiles, to four digits, from the least to the largest.

    The numbers count as the whole population: the cuts are within them.
    """
    cuts = statistics.quantiles(numbers, n=4, method="inclusive")
    return [float(f"{q:.4g}") for q in cuts]


def store(name: str, results: dict) -> None:
    """Write results to `data/NAME.json`, which a page shows.

    The file is written whole or not at all.
    """
    path = CHAPTERS / "attnbook" / "data" / f"{name}.json"
    text = json.dumps(results, indent=1, ensure_ascii=False)
    write_text(path, text + "\n")
    print(f"stored {path.relative_to(ROOT)}")
