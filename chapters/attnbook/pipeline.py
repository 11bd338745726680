"""Pipeline parallel: each rank has some layers; the batch comes in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from attnbook.collectives import all_reduce
from attnbook.wire import Wire


def pipeline(
    stage: Callable[[Tensor], Tensor],
    pieces: Sequence[Tensor],
    loss_of: Callable[[Tensor, int], Tensor],
    wire: Wire,
) -> float:
    """A step of a model of which each rank has some layers.

    The batch comes in pieces. Each rank computes its layers for a piece and
    sends the result on; after the last piece the gradients come back. The
    gradients of all pieces add up, as in accumulation.

    Args:
        stage: this rank's layers, which keep the shape of their input.
        pieces: the pieces of the batch. Only the first rank reads their
            numbers, the others their shapes and type.
        loss_of: what a piece adds to the loss, from the result of the last
            layer and the number of the piece. Only the last rank calls it.

    Returns:
        The loss, the same in every rank.

    Source: Huang et al. (2019), arXiv:1811.06965.
    """
    first = wire.rank == 0
    last = wire.rank == wire.size - 1
    kept = []
    for number, piece in enumerate(pieces):
        x = piece
        if not first:
            x = wire.receive(piece, wire.rank - 1).requires_grad_()
        y = stage(x)
        if last:
            y = loss_of(y, number)
        else:
            wire.send(y, wire.rank + 1)
        kept.append((x, y))
    loss = pieces[0].new_zeros(())
    for x, y in kept:
        if last:
            loss = loss + y.detach()
            y.backward()
        else:
            y.backward(wire.receive(y, wire.rank + 1))
        if not first:
            assert x.grad is not None
            wire.send(x.grad, wire.rank - 1)
    return all_reduce(wire, loss).item()
