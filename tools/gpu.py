"""Run the notebooks and some measurements on the graphics card that is here.

What came of it is one page, `_build/gpu.md`: the card, its driver, torch's
version; for each notebook whether its cells and its checks run there, and how
many of its outputs differ from the stored ones; how the ways to compute
attention compare; and how fast GPT-2's sizes decode beside transformers, by
benchmarks/speed.py. Nothing of the book changes. Without a card it says so.

usage: .venv/bin/python tools/gpu.py [CHAPTER ...]     or: make gpu
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
    from attnbook.partial import tiled_attention
    from attnbook.teach.seeded import randn

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


def measured(lengths: Sequence[int], device: torch.device) -> list[str]:
    """Lines of a table: each way's time as a multiple of torch's."""
    lines = ["| tokens | way | times torch's | largest difference |"]
    lines.append("|---|---|---|---|")
    for length in lengths:
        ways = contenders(length, device)
        fused = ways["torch's fused"]
        unit, right = seconds(fused, device), fused()
        for name, run in ways.items():
            apart = (run() - right).abs().max().item()
            ratio = seconds(run, device) / unit
            lines.append(f"| {length} | {name} | {ratio:.2f} | {apart:.1e} |")
    return lines


def decoded(device: torch.device) -> list[str]:
    """Lines of a table: `generate` beside that of transformers."""
    sys.path.append(str(ROOT / "benchmarks"))
    import speed

    lines = ["| prompts | tokens a second, times theirs |", "|---|---|"]
    drawn = [speed.draw_prompts(*lengths) for lengths in PROMPTS]
    with device:
        model, peer = speed.pair()
        for prompts in drawn:
            runs = {
                "ours": speed.ours(model, prompts),
                "theirs": speed.theirs(peer, prompts),
            }
            found = speed.rounds_of(runs, ROUNDS)
            ratio = speed.against(found, "theirs", "ours")[1]
            size = f"{len(prompts)} × {len(prompts[0])}"
            lines.append(f"| {size} | {ratio:.2f} |")
    return lines


def main(arguments: list[str]) -> int:
    if not torch.cuda.is_available():
        print("there is no graphics card that torch can use: nothing to run")
        return 0
    os.environ |= {"ATTNBOOK_OFFLINE": "1", "ATTNBOOK_QUIET": "1"}
    lines = [
        "# The book on a graphics card",
        "",
        f"{torch.cuda.get_device_name(CARD)}, driver {driver()}, "
        f"torch {torch.__version__}.",
        "",
        "| notebook | | outputs that differ |",
        "|---|---|---|",
    ]
    failed = 0
    for path in notebooks():
        if not arguments or path.name[:2] in arguments:
            result, differ = run_notebook(path)
            failed += result != "passes"
            lines.append(f"| {path.stem} | {result} | {differ} |")
            print(lines[-1], flush=True)
    lines += ["", "Causal attention in float32, forwards:", ""]
    lines += measured(LENGTHS, CARD)
    lines += ["", "Decoding, beside transformers:", ""]
    lines += decoded(CARD)
    PAGE.parent.mkdir(exist_ok=True)
    write_text(PAGE, "\n".join(lines) + "\n")
    print(f"wrote {PAGE}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
