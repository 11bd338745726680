"""The command beside nanoGPT, each with its defaults for a CPU, on one text.

Three trainings: nanoGPT's train.py with the flags that its README gives for
a CPU, the book's command with the same sizes, and the command's defaults.
They run at once, on one thread each, so that all meet the same machine; times
are CPU seconds over nanoGPT's. All are measured on the whole last tenth of the
text, in pieces as long as the model's context.

usage: python benchmarks/shakespeare.py --nanogpt FOLDER --text FILE
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
from results import CHAPTERS, store

from attnbook.pretrained import load_model

#: nanoGPT's options for a CPU, as its README has them under "I only have a
#: macbook", except that it prints less often.
NANOGPT = (
    "config/train_shakespeare_char.py --device=cpu --compile=False "
    "--eval_iters=20 --log_interval=100 --block_size=64 --batch_size=12 "
    "--n_layer=4 --n_head=4 --n_embd=128 --max_iters=2000 "
    "--lr_decay_iters=2000 --dropout=0.0"
).split()
#: The options of the book's command for the same sizes.
SAME = (
    "--context 64 --batch-size 12 --n-layers 4 --n-heads 4 --d-model 128 "
    "--steps 2000 --peak 4e-3 --final 0.1 --initial-std 0.05"
).split()


def trained(arguments: list[str], folder: Path) -> float:
    """Run Python in a folder to its end, and return its CPU seconds.

    Raises:
        SystemExit: it failed; the message is what it has printed.
    """
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHAPTERS)}
    with open(folder / "log.txt", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=os.environ | settings | {"ATTNBOOK_QUIET": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit((folder / "log.txt").read_text("utf-8"))
    return usage.ru_utime + usage.ru_stime


@torch.no_grad()
def held_out_loss(
    model: Callable[[torch.Tensor], torch.Tensor],
    numbers: torch.Tensor,
    context: int,
) -> float:
    """The mean loss on the last tenth of a text, in nats a character.

    Args:
        model: from tokens (n, context) to logits (n, context, V).
        numbers: the text's characters as numbers, (length,).
        context: how many characters the model reads at once.
    """
    tenth = numbers[len(numbers) * 9 // 10 :]
    n = (len(tenth) - 1) // context
    tokens = tenth[: n * context].view(n, context)
    targets = tenth[1 : n * context + 1].view(n, context)
    summed = sum(
        F.cross_entropy(
            model(x).flatten(0, 1), y.flatten(), reduction="sum"
        ).item()
        for x, y in zip(tokens.split(32), targets.split(32))
    )
    return summed / targets.numel()


def nanogpt(source: Path, text: Path, folder: Path) -> dict[str, float]:
    """Train nanoGPT in a copy of its folder, and measure it.

    Returns:
        "loss", on the held-out tenth in nats a character, and "seconds", of
        the CPU.
    """
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".git"))
    shutil.copy(text, folder / "data/shakespeare_char/input.txt")
    trained(["data/shakespeare_char/prepare.py"], folder)
    seconds = trained(["train.py", *NANOGPT], folder)
    sys.path.insert(0, str(folder))
    from model import GPT, GPTConfig  # nanoGPT's

    checkpoint = torch.load(folder / "out-shakespeare-char/ckpt.pt")
    config = GPTConfig(**checkpoint["model_args"])
    model = GPT(config).eval()
    model.load_state_dict(checkpoint["model"])
    characters = sorted(set(text.read_text("utf-8")))
    number = {c: n for n, c in enumerate(characters)}
    numbers = torch.tensor([number[c] for c in text.read_text("utf-8")])
    return {
        "loss": held_out_loss(
            lambda x: model(x, x)[0], numbers, config.block_size
        ),
        "seconds": seconds,
    }


def ours(text: Path, folder: Path, options: list[str]) -> dict[str, float]:
    """Train by the book's command, and measure the model.

    Returns:
        "loss", on the held-out tenth in nats a character, and "seconds", of
        the CPU.
    """
    folder.mkdir()
    seconds = trained(["-m", "attnbook", str(text), *options], folder)
    found = load_model(folder / "model.safetensors")
    assert found.vocabulary is not None, "the command stores its characters"
    numbers = torch.tensor(found.vocabulary.encode(text.read_text("utf-8")))
    config = found.model.config
    return {
        "loss": held_out_loss(found.model, numbers, config.context),
        "seconds": seconds,
    }


def main() -> None:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--nanogpt", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    given = parser.parse_args()
    text = given.text.resolve()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(3) as pool:
        place = Path(name)
        contenders = {
            "nanoGPT": pool.submit(
                nanogpt, given.nanogpt, text, place / "nanogpt"
            ),
            "the command": pool.submit(ours, text, place / "defaults", []),
            "the command, nanoGPT's sizes": pool.submit(
                ours, text, place / "same", SAME
            ),
        }
        found = {
            who: contender.result() for who, contender in contenders.items()
        }
    whole = found["nanoGPT"]["seconds"]
    for one in found.values():
        one["time"] = round(one.pop("seconds") / whole, 2)
        one["loss"] = round(one["loss"], 3)
    store("shakespeare", found)
    print(table(found))


def table(found: dict) -> str:
    """The table of the results in Markdown, for the README."""
    lines = ["| | loss, nats a character | time |", "|---|---|---|"]
    lines += [
        f"| {who} | {one['loss']:.3f} | {one['time']:.2f} |"
        for who, one in found.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
