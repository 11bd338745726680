"""Runs in processes of their own, some of which die.

The processes are forked from a server that has imported what they need (an
optimiser wants torch._dynamo) and computed nothing, so each starts at once.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import socket
from pathlib import Path

import torch
import torch.distributed as dist

from attnbook.gpt import GPT, GPTConfig
from attnbook.run.checkpoints import Run
from attnbook.run.loop import go_on
from attnbook.run.processes import joined
from attnbook.training import Recipe
from attnbook.vocabulary import Vocabulary

SMALL = GPTConfig(vocab_size=11, context=8, d_model=8, n_heads=2, n_layers=1)
RECIPE = Recipe(steps=7, batch_size=4, peak=0.01, warmup=2, clip=1.0, seed=3)
LETTERS = Vocabulary("abcdefghijk")

PROCESSES = multiprocessing
if "forkserver" in multiprocessing.get_all_start_methods():  # on POSIX
    PROCESSES = multiprocessing.get_context("forkserver")
    PROCESSES.set_forkserver_preload(["killed", "torch._dynamo"])


def small(*, dtype=torch.float32, **changes):
    torch.manual_seed(0)
    return GPT(dataclasses.replace(SMALL, **changes)).to(dtype)


def padded(size, generator):
    """Sequences of uneven lengths, padded on the right."""
    tokens = torch.randint(11, (size, 8), generator=generator)
    targets = torch.randint(11, (size, 8), generator=generator)
    lengths = torch.randint(1, 9, (size, 1), generator=generator)
    return tokens, targets.where(torch.arange(8) < lengths, -100)


def small_run(model=None, recipe=RECIPE, data="numbers", **changes):
    model = model or small(dropout=0.2, **changes)
    return Run(model, recipe, LETTERS, data)


def finish(run, path, *, resume=False, batches=padded, report=lambda _: None):
    go_on(run, batches, path, resume=resume, every=2, report=report)
    return run


def in_processes(target, *arguments, n=1):
    """Run `target(*arguments)` n times at once, as torchrun would: the exit
    codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [
        PROCESSES.Process(target=_one_of, args=(r, n, port, target, arguments))
        for r in range(n)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
        process.kill()  # one that hangs would keep the tests from ending
    return [process.exitcode for process in started]


def _one_of(rank, n, port, target, arguments):
    torch.set_num_threads(1)
    if n > 1:
        os.environ |= {
            "TORCHELASTIC_RUN_ID": "a test",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(n),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
    target(*arguments)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def killed_run(path, place="", at=0, resume=False):
    """A run that dies at its `at`-th passage through a place."""
    passages = iter(range(1, 100))
    fsync, replace = os.fsync, os.replace

    def passing(here):
        if here == place and next(passages) == at:
            die()

    def batches(size, generator):
        passing("before a step")
        return padded(size, generator)

    def syncing(handle):
        passing("while writing")
        fsync(handle)

    def replacing(*paths):
        passing("before the renaming")
        replace(*paths)
        passing("after the renaming")

    os.fsync, os.replace = syncing, replacing
    finish(small_run(), path, resume=resume, batches=batches)


def shared_run(folder, dropout=0.0, stop_after=0, resume=False, pieces=1):
    """One of several processes of a run."""
    path = Path(folder) / "run.safetensors"
    with joined(torch.device("cpu")):
        recipe = dataclasses.replace(RECIPE, accumulation=pieces)
        model = small(dropout=dropout, dtype=torch.float64)
        run = small_run(model, recipe)

        def report(run):
            if len(run.losses) == stop_after:
                dist.barrier()  # none is left waiting for one that is gone
                os._exit(5)

        try:
            finish(run, path, resume=resume, report=report)
        except ValueError as error:
            (Path(folder) / "error").write_text(str(error))


def held_lock(path):
    """Dies while it holds the lock."""
    from attnbook.run.places import reserved

    with reserved(path):
        die()
