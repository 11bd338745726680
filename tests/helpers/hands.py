"""Ranks that are processes: one group of four, and all cases in it."""

import pickle
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from attnbook.collectives import all_reduce
from attnbook.run.hands import compare
from attnbook.teach.check.seeded import randn
from attnbook.wire import ProcessWire


def all_cases(folder):
    """Every way of sharing for groups of 1 to 4 of these four processes, and
    what this rank says of ranks that do not answer, written to a file."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    found = {}
    for size in (1, 2, 3, 4):
        # Of the last ones, so that a rank is not its process's number.
        members = list(range(4 - size, 4))
        group = dist.new_group(members)
        if rank in members:
            wire = ProcessWire(group)
            assert (wire.rank, wire.size) == (members.index(rank), size)
            found[size] = compare(wire)
            wire.finish()
    wire = ProcessWire()
    x = randn(7, 3, seed=rank)
    found["ours"] = all_reduce(wire, x)
    dist.all_reduce(x)
    found["theirs"] = x
    wire.finish()
    dist.barrier()
    waiting = ProcessWire(patience=0.2)
    if rank == 2:  # an `if` that one rank passes
        try:
            waiting.receive(torch.ones(1), 1)
        except TimeoutError as error:
            found["vain"] = str(error)
    if rank == 0:  # rank 3 has ended by now, or will soon
        try:
            ProcessWire(patience=50).receive(torch.ones(1), 3)
        except ConnectionError as error:
            found["gone"] = str(error)
    with open(folder / f"{rank}.pickle", "wb") as file:
        pickle.dump(found, file)
    while rank < 3 and not all(
        (folder / f"{other}.pickle").exists() for other in (0, 2)
    ):  # they would be told of our end
        time.sleep(0.01)
