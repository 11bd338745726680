"""Several ranks that compute together, and every byte that goes between them.

A *rank* is one of N workers that run the same program on different numbers. A
`Wire` is what a rank has of its group: its own number, how many there are,
and a way to send a tensor to another rank. It counts the bytes that it sends.

There are two kinds. `ThreadWire` joins threads of one process, so that a page
or a test can have four ranks anywhere; `on_threads` starts them. A
`ProcessWire` joins processes, on one machine or on many, by
`torch.distributed`. What is built on top of them, in `collectives`, is the
same for both and gives the same bits, because all of it is made of two
things, `send` and `receive`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from attnbook.values import number, whole

Result = TypeVar("Result")

#: Seconds for which a rank waits for another one before it gives up.
PATIENCE = 60.0


class Wire:
    """What one rank has of its group. Use one of the two subclasses.

    Attributes:
        rank: the number of this rank, from 0 on.
        size: how many ranks there are, N.
        sent: the bytes that this rank has sent so far. They are those of the
            numbers in the tensors; what a network adds to them is not known
            here.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.size = whole("size", size, at_least=1)
        self.rank = whole("rank", rank, at_least=0, below=size)
        self.sent = 0

    def send(self, x: Tensor, to: int) -> None:
        """Send a tensor to another rank, without waiting until it is there.

        Nothing is sent, and nothing counted, if the tensor is empty.

        Raises:
            ValueError: there is no such rank, or it is this one.
        """
        self._check_other("to", to)
        self.sent += x.numel() * x.element_size()
        if x.numel():
            self._send(x.detach().contiguous(), to)

    def receive(self, like: Tensor, source: int) -> Tensor:
        """Wait for the next tensor from another rank.

        Args:
            like: a tensor of the shape and type that will come. Both sides
                have to know them beforehand.
            source: the rank that sends it.

        Raises:
            ValueError: there is no such rank, or it is this one; or what
                came has another shape or type.
            TimeoutError: nothing has come.
            ConnectionError: the other rank has failed.
        """
        self._check_other("source", source)
        if not like.numel():
            return torch.empty_like(like)
        return self._receive(like, source)

    def exchange(
        self, x: Tensor, like: Tensor, *, to: int, source: int
    ) -> Tensor:
        """Send a tensor to one rank while another one's is received.

        Arguments and errors are those of `send` and `receive`.
        """
        self.send(x, to)
        return self.receive(like, source)

    def _check_other(self, name: str, rank: int) -> None:
        """Raise a ValueError unless this is the number of another rank."""
        if whole(name, rank, at_least=0, below=self.size) == self.rank:
            raise ValueError(
                f"rank {rank} would talk to itself; expected the number of "
                f"another one of the {self.size} ranks as `{name}`"
            )

    def _send(self, x: Tensor, to: int) -> None:
        raise NotImplementedError

    def _receive(self, like: Tensor, source: int) -> Tensor:
        raise NotImplementedError


class _Failed:
    """What a rank that has failed sends to all others."""


class ThreadWire(Wire):
    """The wire of a rank that is a thread; `on_threads` makes them.

    Args:
        boxes: one queue for each pair (from, to), the same in all ranks.
        patience: seconds for which `receive` waits.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        boxes: dict[tuple[int, int], queue.Queue],
        patience: float,
    ) -> None:
        super().__init__(rank, size)
        self._boxes = boxes
        self._patience = patience

    def _send(self, x: Tensor, to: int) -> None:
        # A copy: the sender may go on writing into its own tensor.
        self._boxes[self.rank, to].put(x.clone())

    def _receive(self, like: Tensor, source: int) -> Tensor:
        try:
            found = self._boxes[source, self.rank].get(timeout=self._patience)
        except queue.Empty:
            raise TimeoutError(_nothing_came(self.rank, source)) from None
        if isinstance(found, _Failed):
            raise ConnectionError(
                f"rank {source} has failed, so rank {self.rank} waits for it "
                "in vain; see the error of that rank"
            )
        if found.shape != like.shape or found.dtype != like.dtype:
            raise ValueError(
                f"rank {self.rank} got another tensor from rank {source} than "
                f"it waited for; expected one of shape {tuple(like.shape)} "
                f"and {like.dtype}; got {tuple(found.shape)} and "
                f"{found.dtype}. All ranks have to make the same calls in the "
                "same order"
            )
        return found

    def fail(self) -> None:
        """Tell all other ranks that this one sends nothing any more."""
        for other in range(self.size):
            if other != self.rank:
                self._boxes[self.rank, other].put(_Failed())


class ProcessWire(Wire):
    """The wire of a rank that is a process, by `torch.distributed`.

    `torch.distributed.init_process_group` has to be called before.

    Args:
        group: the processes that belong together; all if not given.
        patience: seconds for which `receive` waits.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(dist.get_rank(group), dist.get_world_size(group))
        number("patience", patience, above=0)
        self._group = group
        self._patience = timedelta(seconds=patience)
        self._under_way: list[tuple[Any, Tensor]] = []

    def _send(self, x: Tensor, to: int) -> None:
        # The tensor must stay as it is until it has left.
        kept = x.clone()
        sending = dist.isend(kept, self._address(to), group=self._group)
        self._under_way.append((sending, kept))

    def _receive(self, like: Tensor, source: int) -> Tensor:
        found = torch.empty_like(like, memory_format=torch.contiguous_format)
        coming = dist.irecv(found, self._address(source), group=self._group)
        assert coming is not None  # this process is one of the group
        try:
            coming.wait(self._patience)
        except RuntimeError as error:
            if "imed out" not in str(error):
                raise ConnectionError(
                    f"rank {self.rank} got nothing from rank {source}, which "
                    f"has failed or sent something else; got {error}"
                ) from None
            why = _nothing_came(self.rank, source)
            raise TimeoutError(why) from None
        self._under_way = [u for u in self._under_way if not self._left(u[0])]
        return found

    def _address(self, rank: int) -> int:
        """The number that a rank of this group has among all processes."""
        if self._group is None:
            return rank
        return dist.get_global_rank(self._group, rank)

    @staticmethod
    def _left(sending: Any) -> bool:
        """Whether a tensor has been sent, so that it may be forgotten."""
        return sending.is_completed()

    def finish(self) -> None:
        """Wait until all that was sent has left; call it before the end."""
        for sending, _ in self._under_way:
            sending.wait(self._patience)
        self._under_way = []


def _nothing_came(rank: int, source: int) -> str:
    """The message of a rank that has waited too long."""
    return (
        f"rank {rank} has waited too long for a tensor from rank {source}, "
        "which has not sent one; expected all ranks to make the same calls in "
        "the same order. Is there an `if` that only some of them pass?"
    )


def on_threads(
    ranks: int,
    work: Callable[[Wire], Result],
    *,
    patience: float = PATIENCE,
) -> list[Result]:
    """Run a function once for each rank, each in a thread of its own.

    If one of them raises, the others are told, and its error is raised here.

    Args:
        ranks: how many there are.
        work: is called with the wire of each rank.
        patience: seconds for which a rank waits for another one.

    Returns:
        What the function has returned, in the order of the ranks.

    Raises:
        TypeError, ValueError: ranks that are no whole number from 1 on, or a
            patience that is not above 0.

    >>> on_threads(3, lambda wire: wire.rank)
    [0, 1, 2]
    """
    whole("ranks", ranks, at_least=1)
    number("patience", patience, above=0)
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    boxes: dict[tuple[int, int], queue.Queue] = {
        pair: queue.Queue() for pair in pairs
    }
    first_error: list[BaseException] = []
    lock = threading.Lock()

    def on_rank(rank: int) -> Result:
        wire = ThreadWire(rank, ranks, boxes, patience)
        try:
            return work(wire)
        except BaseException as error:
            with lock:
                first_error.append(error)
            wire.fail()
            raise

    with ThreadPoolExecutor(ranks) as threads:
        running = [threads.submit(on_rank, rank) for rank in range(ranks)]
    if first_error:
        raise first_error[0]
    return [each.result() for each in running]
