"""What the scripts here share: where the package is, where results go."""

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
    """How many rounds to measure, of the command's arguments.

    Raises:
        SystemExit: fewer than a median needs.
    """
    rounds = int(arguments[0]) if arguments else default
    if rounds < 2:
        print("a median needs at least 2 rounds", file=sys.stderr)
        raise SystemExit(2)
    return rounds


def now() -> float:
    """The processor's seconds, which others' work does not lengthen; the
    clock's where tensors are made on a card, once the card is done."""
    if torch.get_default_device().type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def here(x: Tensor) -> Tensor:
    """What was drawn on the CPU, where tensors are made."""
    return x.to(torch.get_default_device())


def quartiles(numbers: list[float]) -> list[float]:
    """The three quartiles, to four digits; none lies outside the numbers."""
    cuts = statistics.quantiles(numbers, n=4, method="inclusive")
    return [float(f"{q:.4g}") for q in cuts]


def store(name: str, results: dict) -> None:
    """Write `data/NAME.json`, for the page to show, whole or not at all."""
    path = CHAPTERS / "attnbook" / "data" / f"{name}.json"
    text = json.dumps(results, indent=1, ensure_ascii=False)
    write_text(path, text + "\n")
    print(f"stored {path.relative_to(ROOT)}")
