"""Collectives: what several ranks do together with their tensors.

They are made of sending and receiving alone, so every byte is counted; see
`wire`. Most of them send in a ring, in which a rank sends to the next one
only. `torch.distributed.all_reduce` and its kin do the same in C++ (or in
another order that needs as many bytes) and overlap it with other work; these
can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.values import whole
from attnbook.wire import Wire


def share_sizes(n: int, ranks: int) -> list[int]:
    """How many of n things each rank gets: as even as can be.

    The first ones get one more where n cannot be divided, as
    `torch.tensor_split` does it; with fewer things than ranks, some get none.

    >>> share_sizes(10, 4)
    [3, 3, 2, 2]

    Raises:
        TypeError, ValueError: n that is no whole number from 0 on, or ranks
            that are none from 1 on.
    """
    whole("n", n, at_least=0)
    whole("ranks", ranks, at_least=1)
    each, more = divmod(n, ranks)
    return [each + (rank < more) for rank in range(ranks)]


def reduce_scatter(wire: Wire, parts: Sequence[Tensor]) -> Tensor:
    """Add up the ranks' tensors; each rank gets the part that is its own.

    In each of N − 1 rounds a rank sends a running sum to the next one, which
    adds what it has itself. So a rank sends all parts but its own: S minus
    that part, and all ranks together (N − 1) · S bytes, where S is what one
    rank has at first.

    Args:
        parts: what this rank has of the sum, one part for the place of each
            rank. Part r has the same shape in all ranks.

    Returns:
        The sum of all ranks' parts for this rank.

    Raises:
        ValueError: not one part for each rank.
    """
    _check_one_each(wire, parts)
    step_on, step_back = _neighbours(wire)
    running = parts[step_back]
    for distance in range(2, wire.size + 1):
        own = parts[(wire.rank - distance) % wire.size]
        found = wire.exchange(running, own, to=step_on, source=step_back)
        running = found + own
    return running


def all_gather(
    wire: Wire, part: Tensor, shapes: Sequence[Sequence[int]]
) -> list[Tensor]:
    """Give every rank the tensors of all ranks, in their order.

    In each of N − 1 rounds a rank sends on what it got in the round before.
    All ranks together send (N − 1) · S bytes, where S is what all tensors
    have together.

    Args:
        part: this rank's tensor.
        shapes: the shapes of all ranks' tensors, which may differ.

    Raises:
        ValueError: not one shape for each rank, or another one than the
            tensor has.
    """
    _check_one_each(wire, shapes)
    if tuple(part.shape) != tuple(shapes[wire.rank]):
        raise ValueError(
            f"the part of rank {wire.rank} has another shape than was said; "
            f"expected {tuple(shapes[wire.rank])}; got {tuple(part.shape)}"
        )
    step_on, step_back = _neighbours(wire)
    found = {wire.rank: part}
    travelling = part
    for distance in range(1, wire.size):
        owner = (wire.rank - distance) % wire.size
        like = part.new_empty(tuple(shapes[owner]))
        travelling = wire.exchange(
            travelling, like, to=step_on, source=step_back
        )
        found[owner] = travelling
    return [found[rank] for rank in range(wire.size)]


def all_reduce(wire: Wire, x: Tensor) -> Tensor:
    """The sum of all ranks' tensors, the same bits in every rank.

    It is a `reduce_scatter` and then an `all_gather`. All ranks together send
    2 (N − 1) · S bytes, where S is what one tensor has, so each sends
    2 (N − 1)/N · S if N divides its numbers.
    """
    parts = x.flatten().tensor_split(wire.size)
    summed = reduce_scatter(wire, parts)
    shapes = [part.shape for part in parts]
    return torch.cat(all_gather(wire, summed, shapes)).view(x.shape)


def all_to_all(
    wire: Wire, parts: Sequence[Tensor], likes: Sequence[Tensor]
) -> list[Tensor]:
    """Give each rank the part that is meant for it.

    A rank sends all parts but its own, each straight to the rank that it is
    for: what is sent is what is moved.

    Args:
        parts: what this rank has for each rank.
        likes: tensors of the shapes that come from each rank.

    Returns:
        What the ranks had for this one, in their order.

    Raises:
        ValueError: not one part, or not one shape, for each rank.
    """
    _check_one_each(wire, parts)
    _check_one_each(wire, likes)
    found = {wire.rank: parts[wire.rank]}
    for distance in range(1, wire.size):
        to = (wire.rank + distance) % wire.size
        source = (wire.rank - distance) % wire.size
        found[source] = wire.exchange(
            parts[to], likes[source], to=to, source=source
        )
    return [found[rank] for rank in range(wire.size)]


def _neighbours(wire: Wire) -> tuple[int, int]:
    """The next rank of the ring, and the one before."""
    return (wire.rank + 1) % wire.size, (wire.rank - 1) % wire.size


def _check_one_each(wire: Wire, things: Sequence[Any]) -> None:
    """Raise a ValueError unless there is one thing for each rank."""
    if len(things) != wire.size:
        raise ValueError(
            f"the ranks and their parts do not fit; expected {wire.size} "
            f"parts, one for each rank; got {len(things)}"
        )
