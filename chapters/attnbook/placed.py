"""Tensors that several ranks have together, and what each rank has of them.

A `Placed` is what one rank has of such a tensor, with its *type*, which says
how the tensor of a single process, the *whole*, is made of what the ranks
have:

* `REPLICATED`: every rank has the whole, and all do the same with it. So
  every rank has the whole gradient, too.
* `COPIED`: every rank has the whole, but each uses it for work of its own.
  So each finds only its share of the gradient, and the shares must be added.
* `PARTIAL`: the whole is the sum of what the ranks have. The gradient of
  each summand is the gradient of the sum, the same for every rank.
* `sharded(axis)`: the whole is what the ranks have, one after the other along
  an axis. Each has its part of the gradient.

Six moves turn one type into another. Each is a pair: what it does on the way
there, and what it does to gradients on the way back, which is again a move.
What may be computed with such tensors is in `typed`. Elsewhere the types are
called I, R, P and S(i) (`spmd_types`), or Replicate, Partial and Shard
(DTensor, which has one word for the first two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbook.collectives import (
    all_gather,
    all_reduce,
    reduce_scatter,
    share_sizes,
)
from attnbook.wire import Wire


@dataclass(frozen=True)
class Type:
    """How the ranks have a tensor; see the text at the top of this room.

    Attributes:
        name: "replicated", "copied", "partial" or "sharded".
        axis: of a sharded one the axis, counted from the back: −1 or less.
    """

    name: str
    axis: int | None = None

    def __str__(self) -> str:
        if self.axis is None:
            return self.name
        return f"sharded({self.axis})"

    @property
    def of_gradient(self) -> Type:
        """The type that the gradient of such a tensor has."""
        if self == COPIED:
            return PARTIAL
        if self == PARTIAL:
            return REPLICATED
        return self


REPLICATED = Type("replicated")
COPIED = Type("copied")
PARTIAL = Type("partial")


def sharded(axis: int) -> Type:
    """The type of a tensor that is cut along an axis.

    Args:
        axis: counted from the back, −1 or less, so that it stays the same
            axis when others are put before it.

    Raises:
        ValueError: an axis that is counted from the front.
    """
    if not isinstance(axis, int) or axis >= 0:
        raise ValueError(
            "the axis of a sharded tensor is counted from the back here; "
            f"expected -1 or less; got {axis}"
        )
    return Type("sharded", axis)


@dataclass(frozen=True, eq=False)
class Placed:
    """What this rank has of a tensor, and how the ranks have it together.

    Attributes:
        local: what this rank has.
        type: how the whole is made of what the ranks have.
        wire: joins this rank with the others.
        sizes: of a sharded tensor, how much of the axis each rank has.
    """

    local: Tensor
    type: Type
    wire: Wire
    sizes: tuple[int, ...] = ()

    def gradient(self) -> Placed:
        """The gradient of a weight, with the type that it has.

        Raises:
            ValueError: there is none; `backward` was not called, or the
                tensor has no part in the loss.
        """
        if self.local.grad is None:
            raise ValueError(
                "this tensor has no gradient; expected one after `backward` "
                "of a loss to which the tensor contributes"
            )
        type_ = self.type.of_gradient
        return Placed(self.local.grad, type_, self.wire, self.sizes)

    def like(self, local: Tensor) -> Placed:
        """Another tensor that the ranks have in the same way."""
        return Placed(local, self.type, self.wire, self.sizes)


def place(
    whole: Tensor,
    type: Type,
    wire: Wire,
    *,
    sizes: Sequence[int] | None = None,
    learned: bool = False,
) -> Placed:
    """What this rank has of a tensor that every rank knows as a whole.

    Nothing is sent. Of a partial tensor the first rank has the whole and the
    others zeros.

    Args:
        whole: the tensor of a single process.
        type: how the ranks shall have it.
        sizes: of a sharded one how much of the axis each rank gets; shares
            as even as can be if not given.
        learned: whether it is a weight, which asks for its gradient.

    Raises:
        ValueError: sizes that are not those of the axis.
    """
    if type.axis is None:
        local = whole.detach().clone()
        if type == PARTIAL and wire.rank > 0:
            local.zero_()
        return Placed(local.requires_grad_(learned), type, wire)
    length = whole.shape[type.axis]
    if sizes is None:
        sizes = share_sizes(length, wire.size)
    if len(sizes) != wire.size or sum(sizes) != length:
        raise ValueError(
            f"the sizes do not fit the axis; expected {wire.size} of them, "
            f"one for each rank, which sum to {length}; got {list(sizes)}"
        )
    local = whole.detach().split(list(sizes), type.axis)[wire.rank].clone()
    return Placed(local.requires_grad_(learned), type, wire, tuple(sizes))


def together(x: Placed) -> Tensor:
    """The whole tensor, without a gradient: for looking and for tests.

    Every rank has to call it. It sends bytes like any other move.
    """
    if x.type == PARTIAL:
        return all_reduce(x.wire, x.local.detach())
    if x.type.axis is not None:
        return _joined(x.local.detach(), x)
    return x.local.detach()


class _Move(torch.autograd.Function):
    """One function on the way there, and another one for the gradient."""

    @staticmethod
    def forward(ctx, x, there, back):
        ctx.back = back
        return there(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return ctx.back(gradient), None, None


def _joined(local: Tensor, x: Placed) -> Tensor:
    """All parts of a sharded tensor, one after the other on its axis."""
    axis = x.type.axis
    assert axis is not None
    shapes = []
    for size in x.sizes:
        shape = list(local.shape)
        shape[axis] = size
        shapes.append(shape)
    return torch.cat(all_gather(x.wire, local.contiguous(), shapes), axis)


def _cut(whole: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    """A whole tensor, cut into the parts of the ranks."""
    return [part.contiguous() for part in whole.split(list(sizes), axis)]


def copy(x: Placed) -> Placed:
    """Replicated → copied: from here on each rank does work of its own.

    There nothing happens. Back, the shares of the gradient are added up, by
    an all-reduce. (Megatron calls it f, or copy_to_tensor_parallel_region.)
    """
    _need(x, "copy", REPLICATED)
    local = _Move.apply(x.local, torch.clone, lambda g: all_reduce(x.wire, g))
    return Placed(local, COPIED, x.wire)


def total(x: Placed) -> Placed:
    """Partial → replicated: add up what the ranks have, by an all-reduce.

    Back, nothing happens: all ranks do the same from here on, so each has
    the whole gradient already. (Megatron calls it g.)
    """
    _need(x, "total", PARTIAL)
    local = _Move.apply(x.local, lambda a: all_reduce(x.wire, a), torch.clone)
    return Placed(local, REPLICATED, x.wire)


def scatter(x: Placed, axis: int) -> Placed:
    """Partial → sharded: add up, but keep only this rank's part of the sum.

    There it is a reduce-scatter; back, an all-gather.
    """
    _need(x, "scatter", PARTIAL)
    sizes = share_sizes(x.local.shape[axis], x.wire.size)
    found = Placed(x.local, sharded(axis), x.wire, tuple(sizes))
    local = _Move.apply(
        x.local,
        lambda a: reduce_scatter(x.wire, _cut(a, axis, sizes)),
        lambda g: _joined(g, found),
    )
    return found.like(local)


def gather(x: Placed) -> Placed:
    """Sharded → replicated: every rank gets the whole, by an all-gather.

    Back, each rank takes its own part of the gradient, and nothing is sent.
    """
    axis = _need_axis(x, "gather")
    local = _Move.apply(
        x.local,
        lambda a: _joined(a, x),
        lambda g: _cut(g, axis, x.sizes)[x.wire.rank],
    )
    return Placed(local, REPLICATED, x.wire)


def collect(x: Placed) -> Placed:
    """Sharded → copied: every rank gets the whole, for work of its own.

    There it is an all-gather; back, a reduce-scatter, because each rank finds
    a share of the whole gradient and needs the sum for its own part. This is
    how FSDP reads its weights.
    """
    axis = _need_axis(x, "collect")
    local = _Move.apply(
        x.local,
        lambda a: _joined(a, x),
        lambda g: reduce_scatter(x.wire, _cut(g, axis, x.sizes)),
    )
    return Placed(local, COPIED, x.wire)


def split(x: Placed, axis: int, sizes: Sequence[int] | None = None) -> Placed:
    """Replicated → sharded: each rank goes on with its own part only.

    There nothing is sent; back, an all-gather joins the parts of the
    gradient.
    """
    _need(x, "split", REPLICATED)
    if sizes is None:
        sizes = share_sizes(x.local.shape[axis], x.wire.size)
    found = Placed(x.local, sharded(axis), x.wire, tuple(sizes))
    local = _Move.apply(
        x.local,
        lambda a: _cut(a, axis, found.sizes)[x.wire.rank],
        lambda g: _joined(g, found),
    )
    return found.like(local)


def _need(x: Placed, move: str, type_: Type) -> None:
    """Raise a ValueError unless a tensor has the type that a move takes."""
    if x.type != type_:
        raise ValueError(
            f"{move} takes a tensor of another type; expected {type_}; got "
            f"one that is {x.type}"
        )


def _need_axis(x: Placed, move: str) -> int:
    """The axis of a sharded tensor; a ValueError for any other."""
    if x.type.axis is None:
        raise ValueError(
            f"{move} takes a tensor of another type; expected a sharded one; "
            f"got one that is {x.type}"
        )
    return x.type.axis
