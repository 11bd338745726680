"""Several processes that share each batch, started by torchrun."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress

import torch
import torch.distributed as dist
from torch import Tensor, nn

from attnbook.training import loss_share


def processes_here() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if dist.is_available() and dist.is_torchelastic_launched():
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def usable_device(name: str) -> torch.device:
    """The device of this name; under torchrun each process has its own card.

    Raises:
        ValueError: no such device on this machine.
    """
    if processes_here()[1] > 1 and name.startswith("cuda"):
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    with suppress(RuntimeError, AssertionError):  # torch's many words
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
    """The processes find each other, and only the first one prints."""
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


def shared_loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of a batch of which each process computes its rows.

    Its gradient, averaged over the processes by `DistributedDataParallel`,
    is that of the whole batch.
    """
    rank, processes = processes_here()
    total = int((targets >= 0).sum())
    tokens, targets = tokens[rank::processes], targets[rank::processes]
    share = processes * loss_share(model, tokens, targets, total)
    mean = share.detach() / processes
    dist.all_reduce(mean)  # now the sum of all shares
    return share + (mean - share.detach())  # the mean's value


def of_all_processes(value: Tensor) -> list[Tensor]:
    """What each of the processes has here, in their order."""
    values = [value] * processes_here()[1]
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return values
