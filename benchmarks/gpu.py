"""Run the notebooks and the benchmarks on the graphics card that is here.

What comes of it is one page, `_build/gpu.md`: the card, its driver and torch's
version; for each notebook whether its cells and its checks run there, and how
many of its outputs differ from the stored ones; how the ways to compute
attention compare; and what those benchmarks find that a card can change. What
trains, or counts bytes, would find there what it finds on a CPU, and is left
out. Where all of it ran, `data/card.json` keeps the numbers for the page "How
fast is it?". Without a card the command says so, and that is no failure.

usage: .venv/bin/python benchmarks/gpu.py [CHAPTER ...]     or: make gpu
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import card
import decoding
import fewer_keys
import guess
import ladder
import server
import tiles
import torch
import writers
from nbclient.exceptions import CellExecutionError
from results import ROOT, store
from rounds import against, rounds_of
from torch import Tensor

# isort: split
# `results`, which is imported above, has put tools/ on the path.
from comparison import agree
from nbformat import NotebookNode
from notebooks import notebooks, read, write_text
from outputs import execute

from attnbook import kernel
from attnbook.attention import weigh
from attnbook.gpt import GPT, GPTConfig
from attnbook.masks import causal_mask
from attnbook.merging import tiled_attention
from attnbook.teach.check.seeded import randn

CARD = torch.device("cuda")
PAGE = ROOT / "_build" / "gpu.md"

#: Sizes of the attention that is timed, and how often.
LENGTHS = (512, 2048, 4096)
WIDTH = 64
HEADS = 8
ROUNDS = 9

#: Notebooks that run at a time.
SIDE_BY_SIDE = 4

#: The lengths of the prompts in each batch that is written on.
PROMPTS = ((32,), (512,), (512,) * 8)


def driver() -> str:
    """The version of the card's driver, as its own program says it."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(
            ask, capture_output=True, encoding="utf-8", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return said.stdout.split("\n")[0].strip() or "unknown"


def texts(notebook: NotebookNode) -> list[str]:
    """What each code cell of a notebook has printed, in order."""
    return [
        "".join(str(output.get("text", "")) for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def run_notebook(path: Path) -> tuple[str, str]:
    """Run a notebook on the card; what comes out is not stored.

    Returns:
        "passes", or how it fails; and how many outputs differ of how many.
    """
    try:
        done = execute(path)
    except CellExecutionError as error:
        return f"fails: {error.ename}: {error.evalue:.100}", ""
    pairs = list(zip(texts(done), texts(read(path)), strict=True))
    differ = sum(not agree(new, stored) for new, stored in pairs)
    return "passes", f"{differ} of {len(pairs)}"


def contenders(length: int, device: torch.device) -> dict[str, Callable]:
    """The ways to compute causal attention in float32, by name.

    Args:
        length: how many tokens attend to each other.
        device: where the tensors are.
    """
    q, k, v = (
        randn(1, HEADS, length, WIDTH, seed=n, dtype=torch.float32).to(device)
        for n in range(3)
    )
    mask = causal_mask(length).to(device)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    found: dict[str, Callable[[], Tensor]] = {
        "torch's fused": lambda: sdpa(q, k, v, is_causal=True),
        "the whole matrix": lambda: weigh(q, k, mask=mask) @ v,
        "tiles, in Python": lambda: (
            tiled_attention(q, k, v, causal=True).context
        ),
    }
    if not kernel.MISSING:
        found["tiles, in Triton"] = lambda: (
            kernel.kernel_attention(q, k, v, causal=True, tile=64).context
        )
    return found


def seconds(call: Callable[[], Tensor], device: torch.device) -> float:
    """The median seconds of a call, after one call to warm up."""
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def attention(length: int) -> dict[str, float]:
    """The time of each way to compute attention, as a multiple of torch's.

    Raises:
        AssertionError: a way gives another result than torch's.
    """
    device = torch.get_default_device()
    ways = contenders(length, device)
    fused = ways["torch's fused"]
    unit = seconds(fused, device)
    right = fused()
    found = {}
    for name, way in ways.items():
        torch.testing.assert_close(way(), right, rtol=0, atol=1e-5)
        found[name] = float(f"{seconds(way, device) / unit:.4g}")
    return found


class Benchmark(NamedTuple):
    """What is measured, in words for the page, and a function that does it.

    The function makes its tensors on the default device. Each number that it
    finds is a ratio, or a list of the three quartiles of a ratio.
    """

    what: str
    measure: Callable[[], dict[Any, Any]]


def attention_by_length() -> dict[str, dict[str, float]]:
    """The times of `attention` for each of the lengths."""
    return {str(length): attention(length) for length in LENGTHS}


def beside_transformers() -> dict[str, list[float]]:
    """How many times faster than transformers the book's model writes: as it
    is, and with its steps recorded."""
    model, peer = writers.pair()
    recorded = card.Recorded(model)
    found = {}
    for lengths in PROMPTS:
        prompts = writers.draw_prompts(*lengths)
        sides = {
            "ours": writers.ours(model, prompts),
            "recorded": writers.ours(recorded, prompts),
            "theirs": writers.theirs(peer, prompts),
        }
        taken = rounds_of(sides, ROUNDS)
        size = f"{len(prompts)} × {len(prompts[0])}"
        found[size] = against(taken, "theirs", "ours")
        found[f"{size}, recorded"] = against(taken, "theirs", "recorded")
    return found


def rungs() -> dict[str, dict[str, list[float]]]:
    """The times of chapter 6's ways to write attention, over SDPA's."""
    return {size: ladder.ratios(size, ROUNDS) for size in ladder.SIZES}


@torch.inference_mode()
def next_token() -> dict[str, dict[int, list[float]]]:
    """The times of the next token, with a KV cache and without."""
    steps = decoding.steps(GPT(GPTConfig()).eval())
    return {
        f"{kind} the cache": dict(zip(decoding.CONTEXTS, quartiles))
        for kind, quartiles in decoding.measure(steps, ROUNDS).items()
    }


def kernel_beside_loop() -> dict[str, Any]:
    """The error of chapter 17's kernel, where there is Triton."""
    return tiles.held_against_the_loop() or {"without Triton, runs of it": 0}


def fewer_keys_by_span() -> dict[int, dict[str, float]]:
    """The times of chapter 18's steps over so many keys."""
    return {span: fewer_keys.clock(span, ROUNDS) for span in fewer_keys.SPANS}


def longer_calls() -> dict[str, list[float]]:
    """The times of calls that read some guesses, over one without."""
    model = GPT(GPTConfig()).eval()
    steps = guess.calls(model, guess.CONTEXT["GPT-2 small"])
    return guess.measure(steps, "0", ROUNDS)


def benchmarks() -> dict[str, Benchmark]:
    """The benchmarks that run on a card, by the name of their results."""
    return {
        "attention": Benchmark(
            "Causal attention in float32, forwards: time over torch's fused",
            attention_by_length,
        ),
        "writing": Benchmark(
            "Writing after 512 tokens, by the number of texts at once",
            lambda: card.measure(ROUNDS),
        ),
        "transformers": Benchmark(
            "Decoding: tokens a second, times those of transformers",
            beside_transformers,
        ),
        "ladder": Benchmark("Chapter 6: time over SDPA's", rungs),
        "decoding": Benchmark(
            "Chapter 14: time of the next token", next_token
        ),
        "kernel": Benchmark(
            "Chapter 17: the kernel beside the loop", kernel_beside_loop
        ),
        "fewer_keys": Benchmark(
            "Chapter 18: time of a step over that with 16 heads of keys",
            fewer_keys_by_span,
        ),
        "server": Benchmark(
            "Chapter 19: tokens a second, times one request after another",
            # As many rounds as the script takes by itself: these are long.
            lambda: server.measure(5, server.CONFIG, server.SIZES),
        ),
        "guess": Benchmark(
            "Chapter 20: time of a call that reads so many guesses more",
            longer_calls,
        ),
    }


def rows(found: dict[Any, Any], name: str = "") -> Iterator[str]:
    """The lines of a table of results; of three quartiles the middle one.

    Args:
        found: the results, which may be nested.
        name: what comes before the name of each result.
    """
    for key, value in found.items():
        if isinstance(value, dict):
            yield from rows(value, f"{name}{key}, ")
        elif key != "sizes":
            number = value[1] if isinstance(value, list) else value
            yield f"| {name}{key} | {number:.3g} |"


def benchmarked(device: torch.device, found: dict[str, Any]) -> Iterator[str]:
    """Run each benchmark on a device, and give the lines of its table.

    One that fails has a table that says why, and the others go on.

    Args:
        device: the card.
        found: gets the results of each benchmark.
    """
    for name, (what, measure) in benchmarks().items():
        yield from ("", f"{what}:", "", "| | |", "|---|---|")
        try:
            with device:
                found[name] = measure()
        except Exception as error:  # a card has errors of its own, too
            said = " ".join(str(error).split())[:100]
            yield f"| fails | {type(error).__name__}: {said} |"
        else:
            yield from rows(found[name])


class Notebooks(NamedTuple):
    """The lines of the table of notebooks, and how many notebooks were tried,
    printed the same as stored, and failed."""

    lines: list[str]
    tried: int
    same: int
    failed: int


def run_notebooks(chosen: list[Path]) -> Notebooks:
    """Run notebooks, some at a time, and print each line as it is there."""
    lines = []
    failed = 0
    same = 0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for path, ran in zip(chosen, pool.map(run_notebook, chosen)):
            came, differ = ran
            failed += came != "passes"
            same += differ.startswith("0 of")
            lines.append(f"| {path.stem} | {came} | {differ} |")
            print(lines[-1], flush=True)
    return Notebooks(lines, len(chosen), same, failed)


def main(arguments: list[str]) -> int:
    if not torch.cuda.is_available():
        print("there is no graphics card that torch can use: nothing to run")
        return 0
    os.environ |= {"ATTNBOOK_OFFLINE": "1", "ATTNBOOK_QUIET": "1"}
    found: dict[str, Any] = {
        "card": torch.cuda.get_device_name(CARD),
        "torch": torch.__version__.split("+")[0],
    }
    lines = [
        "# The book on a graphics card",
        "",
        f"{found['card']}, driver {driver()}, torch {torch.__version__}.",
        "",
        "| notebook | | outputs that differ |",
        "|---|---|---|",
    ]
    ran = run_notebooks(
        [
            path
            for path in notebooks()
            if not arguments or path.name[:2] in arguments
        ]
    )
    lines += ran.lines
    failed = ran.failed
    found["notebooks"] = {"run": ran.tried, "same": ran.same}
    for line in benchmarked(CARD, found):
        failed += line.startswith("| fails |")
        lines.append(line)
        print(line, flush=True)
    PAGE.parent.mkdir(exist_ok=True)
    write_text(PAGE, "\n".join(lines) + "\n")
    print(f"wrote {PAGE}")
    if not arguments and not failed:
        store("card", found)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
