"""What may be computed with tensors that several ranks have together.

Each function takes only types with which its result, and every gradient, is
that of a single process, and refuses all others with the reason. So a sum
that was forgotten is an error in the first step, and not a gradient that is
silently wrong. The types are told of in `placed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from torch import Tensor

from attnbook.placed import COPIED, PARTIAL, REPLICATED, Placed, Type, sharded


def matmul(x: Placed, w: Placed) -> Placed:
    """x @ w, for x (..., T, d) and w (d, e), if their types allow it.

    ======================  ==============  ===========
    x                       w               the result
    ======================  ==============  ===========
    replicated              replicated      replicated
    copied                  copied          copied
    copied                  sharded(-1)     sharded(-1)
    sharded(-1)             sharded(-2)     partial
    sharded(-2) or earlier  copied          as x
    ======================  ==============  ===========

    The third row is called column-parallel, the fourth row-parallel, and the
    last one data-parallel.

    Raises:
        ValueError: other types, or parts of different sizes.
    """
    types = x.type, w.type
    of_tokens = x.type.axis is not None and x.type.axis < -1
    if types in ((REPLICATED, REPLICATED), (COPIED, COPIED)):
        like = x
    elif types == (COPIED, sharded(-1)):
        like = w
    elif types == (sharded(-1), sharded(-2)) and x.sizes == w.sizes:
        like = Placed(x.local, PARTIAL, x.wire)
    elif of_tokens and w.type == COPIED:
        like = x
    else:
        _refuse("matmul", x, w)
    return like.like(x.local @ w.local)


def add(x: Placed, y: Placed) -> Placed:
    """x + y, if both are had in the same way, or y is copied to all tokens.

    A bias (d,) may be added to tokens that are sharded on an earlier axis
    than its own; then it has to be copied. A replicated bias and a partial
    sum are refused: summed over N ranks, the bias would count N times.

    Raises:
        ValueError: other types, or parts of different sizes.
    """
    same = x.type == y.type and x.sizes == y.sizes
    axis = x.type.axis or 0
    to_all_tokens = y.type == COPIED and y.local.ndim < -axis
    if not same and not to_all_tokens:
        _refuse("add", x, y)
    return x.like(x.local + y.local)


def apply(f: Callable[..., Tensor], x: Placed, *others: Placed) -> Placed:
    """f of what each rank has: for a function of each part by itself.

    All of them are had in the same way, or the others are copied where x is
    sharded, as weights are. f must not mix what is on different places of a
    sharded axis: an activation fits any axis, attention an axis of heads. A
    partial tensor is refused, since f of a sum is not the sum of f.

    Raises:
        ValueError: a partial tensor, or types or sizes that do not fit.
    """
    for other in others:
        same = other.type == x.type and other.sizes == x.sizes
        if not same and (x.type.axis is None or other.type != COPIED):
            _refuse("apply", x, other)
    if x.type == PARTIAL:
        _refuse("apply", x)
    return x.like(f(x.local, *(other.local for other in others)))


def add_up(x: Placed, axis: int | None = None) -> Placed:
    """The sum over all numbers of a tensor, or over one axis of it.

    Where the sum runs over the axis on which a tensor is sharded, each rank
    has a summand, so the sum is partial.

    Args:
        axis: counted from the back; all if not given.

    Raises:
        ValueError: an axis after the one on which the tensor is sharded,
            which would then be counted differently.
    """
    if axis is None:
        type_ = x.type if x.type.axis is None else PARTIAL
        return Placed(x.local.sum(), type_, x.wire)
    if x.type.axis is None:
        return x.like(x.local.sum(axis))
    if x.type.axis < axis:
        raise ValueError(
            f"add_up over axis {axis} would leave a tensor whose axis "
            f"{x.type.axis} is counted differently; expected axis "
            f"{x.type.axis}, on which it is sharded, or an earlier one"
        )
    if axis < x.type.axis:
        return x.like(x.local.sum(axis))
    return Placed(x.local.sum(axis), PARTIAL, x.wire)


def backward(loss: Placed) -> None:
    """Compute the gradients of a loss, in every rank.

    Of a partial loss each rank has a summand, and of a replicated one each
    has all of it. Both begin with a gradient of 1 in every rank. For a copied
    one that would be N gradients, to be added up, so it is refused.

    Raises:
        ValueError: a loss of another type, or one that has axes.
    """
    if loss.type not in (REPLICATED, PARTIAL) or loss.local.ndim:
        raise ValueError(
            "a loss has to be one number, replicated or partial; got one "
            f"that is {loss.type} with shape {tuple(loss.local.shape)}. A "
            f"copied one would count {loss.wire.size} times"
        )
    loss.local.backward()


def finished(gradient: Placed) -> Tensor:
    """A gradient with which this rank may change what it has of a weight.

    Raises:
        ValueError: a partial one, of which this rank has only its own share.
    """
    if gradient.type == PARTIAL:
        raise ValueError(
            "a partial gradient is not finished: this rank has only its own "
            "share, and with it the copies of the weight would drift apart; "
            "`total` adds the shares up"
        )
    return gradient.local


#: Why two types cannot be put together, and what to do.
_REASONS: dict[tuple[str | Type, ...], str] = {
    ("add", REPLICATED, PARTIAL): (
        "what is replicated would be counted once by each rank; make a total "
        "of the partial one first"
    ),
    ("matmul", REPLICATED, sharded(-1)): (
        "each rank would find only its share of the gradient of what is "
        "replicated, and take it for the whole; use `copy` first"
    ),
    ("apply", PARTIAL): (
        "a function of a sum is not the sum of the function; make a total of "
        "it first"
    ),
}


def _refuse(what: str, *given: Placed) -> NoReturn:
    """Raise a ValueError, because these types cannot be put together."""
    types = [x.type for x in given]
    both_ways: list[tuple[str | Type, ...]] = [
        (what, *types),
        (what, *reversed(types)),
    ]
    known = [_REASONS[key] for key in both_ways if key in _REASONS]
    unknown = "the result, or a gradient, would not be that of one process"
    reason = known[0] if known else unknown
    got = " and ".join(f"{x.type} {tuple(x.local.shape)}" for x in given)
    raise ValueError(f"{what} refuses {got}: {reason}")
