"""Several processes that train one model together, started by torchrun.

Each has a copy of the model and computes some rows of every batch. Without
torchrun there is one process, and all of this still works.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress

import torch
import torch.distributed as dist
from torch import Tensor, nn

from attnbook.training import loss_share, n_targets


def processes_here() -> tuple[int, int]:
    """The number of this process, from 0 on, and how many there are."""
    if dist.is_available() and dist.is_torchelastic_launched():
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def usable_device(name: str) -> torch.device:
    """The device of this name, on which a tensor could be made.

    Under torchrun every process of a machine gets a graphics card of its own,
    whichever number is in the name.

    Raises:
        ValueError: there is no such device on this machine.
    """
    if processes_here()[1] > 1 and name.startswith("cuda"):
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    # Torch explains at length, and by other errors on other machines, what
    # the message below says in a line.
    with suppress(RuntimeError, AssertionError):
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type in ("cpu", "cuda"):
            return device
    raise ValueError(
        "the device cannot be used; expected cpu, or cuda or cuda:N where "
        f"there is such a card; got {name}"
    )


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Connect the processes until this block ends; only the first one prints.

    Args:
        device: where this process computes, which decides how they talk.
    """
    rank, processes = processes_here()
    if processes == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        with redirect_stdout(io.StringIO()) if rank else nullcontext():
            yield
    finally:
        dist.destroy_process_group()


def shared_loss(
    model: nn.Module,
    tokens: Tensor,
    targets: Tensor,
    segments: Tensor | None = None,
    *,
    total: int | None = None,
) -> Tensor:
    """The loss share of a batch of which each process computes its own rows.

    Every process calls it with the same batch, and gets the same value. Its
    gradient, which `DistributedDataParallel` averages over the processes, is
    that of the whole batch.

    Args:
        tokens, targets, segments: (B, T), as for `loss_share`; B is a
            multiple of the number of processes.
        total: targets that count; those of this batch if not given.
    """
    rank, processes = processes_here()
    if total is None:
        total = n_targets(targets)
    own = slice(rank, None, processes)  # the rows of this process
    if segments is not None:
        segments = segments[own]
    share = processes * loss_share(
        model, tokens[own], targets[own], segments, total=total
    )
    mean = share.detach() / processes
    dist.all_reduce(mean)  # now the sum of what all processes have
    # The value of `mean`, with the gradient of `share`.
    return share + (mean - share.detach())


def of_all_processes(value: Tensor) -> list[Tensor]:
    """The values that the processes have for one variable, in their order.

    Every process has to call this, with its own value.
    """
    values = [value] * processes_here()[1]
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return values
