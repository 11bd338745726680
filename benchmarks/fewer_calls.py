"""What each way to make fewer or smaller calls buys, and what it costs.

SmolLM2 writes with its published weights on a CPU. Each way has a process of
its own, which begins with an empty folder for compiled programs and is asked
for a first step; then it begins once more, with the programs that it finds
there. What is kept: the seconds of both first steps, the most memory of the
process, the milliseconds of a step over one text by turns with the other
ways, and how far the texts and logits are from the plain model's. The page
"How fast is it?" shows it.

usage: python benchmarks/fewer_calls.py [--rounds N] [--threads 1 2]
           [--python PYTHON] [WAY ...]

WAY: some of the ways only, beside "plain"; --python is an interpreter that
has torchao besides what the book has. A way that cannot be had is left out,
and a line says why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from other_process import OtherProcess
from peaks import highest
from real_texts import TEXT
from results import ROOT, quartiles, store
from rounds import against, machine, rounds_of
from small_calls import WAYS
from writers import ours

from attnbook.generate import complete
from attnbook.gpt import GPT
from attnbook.pretrained import load, load_tokenizer

MODEL = "SmolLM2-135M-Instruct"
#: Tokens that are read before the first one is written.
READ = 32
#: Texts that are compared with the plain model's, and their new tokens.
TEXTS = 8
NEW = 16
#: Where compiled programs are kept.
FOLDER = ROOT / "_build" / "fewer_calls"


def prompts_of() -> list[list[int]]:
    """Eight pieces of a story, 32 tokens each."""
    tokens = load_tokenizer(MODEL).encode(TEXT)
    assert isinstance(tokens, list)
    return [tokens[at : at + READ] for at in range(0, 16 * TEXTS, 16)]


@torch.inference_mode()
def logits_of(model: GPT, prompts: list[list[int]]) -> torch.Tensor:
    """The logits of a step after each prompt: (TEXTS, vocab_size).

    A prompt's last token is read by a step of its own.
    """
    rows = []
    for prompt in prompts:
        cache = model.new_cache(1)
        model(torch.tensor([prompt[:-1]]), cache=cache)
        rows.append(model(torch.tensor([prompt[-1:]]), cache=cache)[0, 0])
    return torch.stack(rows)


def used() -> float:
    """Seconds that processors have worked for this process and for the
    compilers that it has called."""
    own = time.process_time()
    called = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own + called.ru_utime + called.ru_stime


def first_step(writer: GPT, prompt: list[int]) -> dict[str, float]:
    """The seconds of the first step after a prompt, by the clock and of
    processors."""
    cache = writer.new_cache(1)
    with torch.inference_mode():
        writer(torch.tensor([prompt]), cache=cache)
        clock = time.perf_counter()
        before = used()
        writer(torch.tensor([prompt[:1]]), cache=cache)
    return {
        "clock": time.perf_counter() - clock,
        "processors": used() - before,
    }


def compare(plain: GPT, writer: GPT, prompts: list[list[int]]) -> dict:
    """How far a writer's texts and logits are from the plain model's."""
    right = logits_of(plain, prompts)
    found = logits_of(writer, prompts)
    same = 0
    for prompt in prompts:
        texts = [complete(one, [prompt], NEW) for one in (plain, writer)]
        same += texts[0] == texts[1]
    error = (found - right).pow(2).mean().sqrt() / right.std()
    return {
        "logits": float(f"{error:.2g}"),
        "texts": same,
    }


def answers(way: str) -> None:
    """Be the process of one way: answer each request, line by line."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what compilers print is no answer
    plain = load(MODEL).eval()
    assert isinstance(plain, GPT)
    prompts = prompts_of()
    writer: GPT = plain
    for line in sys.stdin:
        asked = json.loads(line)
        torch.set_num_threads(asked.get("threads", 2))
        answer: dict[str, Any]
        try:
            if asked["do"] == "make":
                clock = time.perf_counter()
                before = used()
                writer = WAYS[way](plain)
                made = {
                    "clock": time.perf_counter() - clock,
                    "processors": used() - before,
                }
                step = first_step(writer, prompts[0])
                if not getattr(writer, "is_compiled", True):
                    raise RuntimeError("the step could not be compiled")
                answer = {key: made[key] + step[key] for key in made}
            elif asked["do"] == "compare":
                answer = compare(plain, writer, prompts)
            elif asked["do"] == "memory":
                answer = {"MiB": highest() // 1024}
            else:
                answer = {"seconds": ours(writer, prompts[:1])()}
        except Exception as error:  # said to the one who asked
            said = " ".join(str(error).split())[:200]
            answer = {"error": f"{type(error).__name__}: {said}"}
        print(json.dumps(answer), file=lines)


def begin(way: str, python: str, folder: Path) -> OtherProcess:
    """The process of a way; compiled programs are kept in the folder."""
    command = [python, __file__, "--be", way]
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(folder / place(way))}
    return OtherProcess(command, kept)


def place(way: str) -> str:
    """The name of a way's folder. A compiler takes no spaces in it."""
    return re.sub(r"\W+", "_", way)


def made(
    way: str, python: str, folder: Path
) -> tuple[dict[str, Any], OtherProcess]:
    """What it costs to make a way's writer, and how far its texts are from
    the plain ones; and a process that has made it.

    Raises:
        RuntimeError: the way cannot be had here.
    """
    shutil.rmtree(folder / place(way), ignore_errors=True)
    process = begin(way, python, folder)
    try:
        cold = process.ask({"do": "make"})
        compared = process.ask({"do": "compare"})
    finally:
        process.end()
    process = begin(way, python, folder)
    try:
        warm = process.ask({"do": "make"})
        memory = process.ask({"do": "memory"})["MiB"]
    except RuntimeError:
        process.end()
        raise
    found = {"made": cold, "found": warm, "MiB": memory} | compared
    return found, process


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What each way buys and costs, by its name.

    A way that fails is left out, and a line says why.
    """
    ways = {}
    processes = {}
    for way in asked.ways:
        try:
            ways[way], processes[way] = made(way, asked.python, folder)
        except RuntimeError as error:
            print(f"{way} is left out: {error}", flush=True)
            continue
        print(way, ways[way], flush=True)
    for threads in asked.threads:
        request = {"do": "step", "threads": threads}
        turns = {
            way: partial(process.seconds, request)
            for way, process in processes.items()
        }
        seconds = rounds_of(turns, asked.rounds)
        for way, taken in seconds.items():
            ways[way][f"cores: {threads}"] = {
                "milliseconds": quartiles([1000 * s for s in taken]),
                "times as fast as plain": against(seconds, "plain", way),
            }
            print(threads, way, ways[way][f"cores: {threads}"], flush=True)
    for process in processes.values():
        process.end()
    return ways


def told() -> argparse.Namespace:
    """What the command line says; a wrong one ends the script."""
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--be", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("ways", nargs="*", metavar="WAY")
    asked = parser.parse_args()
    unknown = set(asked.ways) - set(WAYS)
    if unknown or asked.rounds < 2:
        parser.error(
            f"expected ways among {', '.join(WAYS)} and at least 2 rounds; "
            f"got {sorted(unknown) or asked.rounds}"
        )
    asked.ways = ["plain", *(w for w in asked.ways or WAYS if w != "plain")]
    return asked


def main() -> int:
    asked = told()
    if asked.be:
        answers(asked.be)
        return 0
    about = machine()
    del about["threads"]
    ways = measure(asked, FOLDER)
    store(
        "fewer_calls",
        {
            "machine": about,
            "rounds": asked.rounds,
            "note": asked.note,
            "read": READ,
            "texts": TEXTS,
            "new tokens": NEW,
            "ways": ways,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
