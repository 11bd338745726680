"""Run the notebooks and benchmarks on the graphics card that is here.

What came of it is one page, `_build/gpu.md`: the card, its driver, torch's
version; for each notebook whether its cells and its checks run there, and how
many of its outputs differ from the stored ones; how the ways to compute
attention compare; and what those of benchmarks/ find that a card can change:
what trains, or counts bytes, finds there what it finds on a CPU. Where all of
it ran, `data/card.json` keeps the numbers for the page "How fast is it?".
Without a card it says so.

usage: .venv/bin/python tools/gpu.py [CHAPTER ...]     or: make gpu
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

import torch
from comparison import agree
from nbclient.exceptions import CellExecutionError
from notebooks import ROOT, notebooks, read, write_text
from outputs import execute
from torch import Tensor

CARD = torch.device("cuda")
PAGE = ROOT / "_build" / "gpu.md"
LENGTHS, WIDTH, HEADS, ROUNDS = (512, 2048, 4096), 64, 8, 9
SIDE_BY_SIDE = 4  # notebooks that run at a time
PROMPTS = ((32,), (512,), (512,) * 8)  # lengths, in batches


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


def texts(notebook) -> list[str]:
    return [
        "".join(str(output.get("text", "")) for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def run_notebook(path: Path) -> tuple[str, str]:
    """What came of a notebook, and the outputs that differ."""
    try:
        done = execute(path)
    except CellExecutionError as error:
        return f"fails: {error.ename}: {error.evalue:.100}", ""
    pairs = list(zip(texts(done), texts(read(path)), strict=True))
    differ = sum(not agree(new, stored) for new, stored in pairs)
    return "passes", f"{differ} of {len(pairs)}"


def contenders(length: int, device: torch.device) -> dict[str, Callable]:
    """Ways to compute causal attention in float32, by name."""
    from attnbook import kernel
    from attnbook.attention import weigh
    from attnbook.masks import causal_mask
    from attnbook.merging import tiled_attention
    from attnbook.teach.check.seeded import randn

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


def seconds(run: Callable[[], Tensor], device: torch.device) -> float:
    """The median time of a call, after one to warm up."""
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def attention(length: int) -> dict[str, float]:
    """Each way's time as a multiple of torch's, if they agree."""
    device = torch.get_default_device()
    ways = contenders(length, device)
    fused = ways["torch's fused"]
    unit, right = seconds(fused, device), fused()
    found = {}
    for name, run in ways.items():
        torch.testing.assert_close(run(), right, rtol=0, atol=1e-5)
        found[name] = float(f"{seconds(run, device) / unit:.4g}")
    return found


def benchmarks() -> dict[str, tuple[str, Callable[[], dict]]]:
    """What each measures, in words, and a run of it where tensors are made;
    a number that it finds is a ratio, or its three quartiles."""
    import card
    import decoding
    import fewer_keys
    import guess
    import ladder
    import server
    import speed
    import tiles

    from attnbook.gpt import GPT, GPTConfig

    drawn = [speed.draw_prompts(*lengths) for lengths in PROMPTS]

    def beside_transformers() -> dict:
        model, peer = speed.pair()
        found = {}
        for prompts in drawn:
            runs = {
                "ours": speed.ours(model, prompts),
                "theirs": speed.theirs(peer, prompts),
            }
            taken = speed.rounds_of(runs, ROUNDS)
            size = f"{len(prompts)} × {len(prompts[0])}"
            found[size] = speed.against(taken, "theirs", "ours")
        return found

    @torch.inference_mode()
    def next_token() -> dict:
        steps = decoding.steps(GPT(GPTConfig()).eval())
        return {
            f"{kind} the cache": dict(zip(decoding.CONTEXTS, rows))
            for kind, rows in decoding.measure(steps, ROUNDS).items()
        }

    def longer_calls() -> dict:
        model = GPT(GPTConfig()).eval()
        steps = guess.calls(model, guess.CONTEXT["GPT-2 small"])
        return guess.measure(steps, "0", ROUNDS)

    return {
        "attention": (
            "Causal attention in float32, forwards: time over torch's fused",
            lambda: {str(length): attention(length) for length in LENGTHS},
        ),
        "writing": (
            "Writing after 512 tokens, by the number of texts at once",
            lambda: card.measure(ROUNDS),
        ),
        "transformers": (
            "Decoding: tokens a second, times those of transformers",
            beside_transformers,
        ),
        "ladder": (
            "Chapter 6: time over SDPA's",
            lambda: {
                size: ladder.ratios(size, ROUNDS) for size in ladder.SIZES
            },
        ),
        "decoding": ("Chapter 14: time of the next token", next_token),
        "kernel": (
            "Chapter 17: the kernel beside the loop",
            lambda: (
                tiles.held_against_the_loop()
                or {"without Triton, runs of it": 0}
            ),
        ),
        "fewer_keys": (
            "Chapter 18: time of a step over that with 16 heads of keys",
            lambda: {
                span: fewer_keys.clock(span, ROUNDS)
                for span in fewer_keys.SPANS
            },
        ),
        "server": (
            "Chapter 19: tokens a second, times one request after another",
            # As many rounds as the script takes by itself: these are long.
            lambda: server.measure(5, server.CONFIG, server.SIZES),
        ),
        "guess": (
            "Chapter 20: time of a call that reads so many guesses more",
            longer_calls,
        ),
    }


def rows(found: dict, name: str = "") -> Iterator[str]:
    """Lines of a table: the median, or the number, of what was found."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield from rows(value, f"{name}{key}, ")
        elif key != "sizes":
            number = value[1] if isinstance(value, list) else value
            yield f"| {name}{key} | {number:.3g} |"


def benchmarked(device: torch.device, found: dict) -> Iterator[str]:
    """A table for each; or why there is none, which costs that one alone.
    What they found is put into `found`."""
    for name, (what, run) in benchmarks().items():
        yield from ("", f"{what}:", "", "| | |", "|---|---|")
        try:
            with device:
                found[name] = run()
        except Exception as error:  # a card's own, too
            said = " ".join(str(error).split())[:100]
            yield f"| fails | {type(error).__name__}: {said} |"
        else:
            yield from rows(found[name])


def main(arguments: list[str]) -> int:
    if not torch.cuda.is_available():
        print("there is no graphics card that torch can use: nothing to run")
        return 0
    os.environ |= {"ATTNBOOK_OFFLINE": "1", "ATTNBOOK_QUIET": "1"}
    sys.path.append(str(ROOT / "benchmarks"))
    from results import store

    found = {
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
    chosen = [
        path
        for path in notebooks()
        if not arguments or path.name[:2] in arguments
    ]
    failed, same = 0, 0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for path, ran in zip(chosen, pool.map(run_notebook, chosen)):
            failed += ran[0] != "passes"
            same += ran[1].startswith("0 of")
            lines.append(f"| {path.stem} | {ran[0]} | {ran[1]} |")
            print(lines[-1], flush=True)
    found["notebooks"] = {"run": len(chosen), "same": same}
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
