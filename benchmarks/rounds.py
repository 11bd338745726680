"""Let contenders take turns, and report their ratios.

A machine that gets slower for a while slows all contenders then, and a ratio
within one round is not changed by it.
"""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Callable, Hashable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import torch
from results import quartiles

#: Threads that the contenders compute with.
THREADS = 2

Name = TypeVar("Name", bound=Hashable)


def rounds_of(
    contenders: Mapping[Name, Callable[[], float]], rounds: int
) -> dict[Name, list[float]]:
    """Let contenders take turns, and keep what each gives in each round.

    Each runs once before the first round, to warm up. In each round the
    order is another one, so that nobody always follows the same contender.

    Args:
        contenders: by name what runs once, and returns what is measured.
        rounds: how many values each contender gives.
    """
    for contender in contenders.values():
        contender()
    found: dict[Name, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    mixed = random.Random(0)
    for _ in range(rounds):
        mixed.shuffle(names)
        for name in names:
            found[name].append(contenders[name]())
    return found


def against(
    found: Mapping[Name, list[float]], peer: Name, name: Name
) -> list[float]:
    """How many times faster than its peer a contender is: the quartiles.

    A ratio is taken within each round, where both met the same machine.
    """
    return quartiles([a / b for a, b in zip(found[peer], found[name])])


def seconds(contender: Callable[[], object]) -> float:
    """The seconds that one call takes, by the clock."""
    start = time.perf_counter()
    contender()
    return time.perf_counter() - start


def machine() -> dict:
    """What is measured on: processor, cores, threads, and versions."""
    cpu = Path("/proc/cpuinfo")
    told = cpu.read_text("utf-8") if cpu.exists() else ""
    names = [
        line.partition(":")[2].strip()
        for line in told.splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": THREADS,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__.split("+")[0],
        "transformers": version("transformers"),
        "dtype": "float32",
    }


def report(name: str, ratios: Mapping[str, list[float]]) -> None:
    """Print one line about a comparison.

    Args:
        name: what was compared.
        ratios: for each contender the three quartiles of its ratio.
    """
    print(
        f"{name}:",
        "; ".join(
            f"{who} ×{m:.2f} ({a:.2f} to {b:.2f})"
            for who, (a, m, b) in ratios.items()
        ),
        flush=True,
    )
