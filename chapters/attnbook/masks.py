"""Masks: who may attend to whom, in one convention, and the way to others.

The book's convention is torch SDPA's: a boolean tensor, True = may attend,
that broadcasts to the scores (..., T, S). Masks of this kind are combined
with `combine` (a logical and).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from attnbook.config import one_of, whole
from attnbook.shapes import KINDS, expect

#: The four conventions in use, by the name `convert` takes.
CONVENTIONS = {
    "sdpa": "boolean, True = may attend",
    "multihead": "boolean, True = may not attend",
    "transformers": "integer, 1 = real token, 0 = padding",
    "additive": "floating-point, 0 = may attend, −inf = may not",
}


def causal_mask(n_queries: int, n_keys: int | None = None) -> Tensor:
    """True where a key is not later than the query: shape (T, S).

    The queries are the *last* `n_queries` of the `n_keys` positions, so that
    the last query sees every key. (`F.scaled_dot_product_attention(...,
    is_causal=True)` takes them for the first ones.)

    Raises:
        TypeError: sizes that are no whole numbers.
        ValueError: no queries, or fewer keys than queries.
    """
    query, key = _positions(n_queries, n_keys)
    return key <= query


def window_mask(
    n_queries: int, n_keys: int | None = None, *, window: int
) -> Tensor:
    """True where a key lies less than `window` positions back: (T, S).

    A window of 1 leaves each query its own key. Keys that are later than the
    query stay allowed: combine with `causal_mask`.

    Raises:
        TypeError: sizes that are no whole numbers.
        ValueError: no queries, fewer keys than queries, or a window below 1.
    """
    query, key = _positions(n_queries, n_keys)
    return query - key < whole("window", window, at_least=1)


def _positions(n_queries, n_keys):
    T = whole("n_queries", n_queries, at_least=1)
    S = T if n_keys is None else whole("n_keys", n_keys, at_least=T)
    query = torch.arange(S - T, S)[:, None]  # (T, 1)
    return query, torch.arange(S)[None, :]  # (1, S)


def padding_mask(
    lengths: Sequence[int] | Tensor, *, side: str = "right"
) -> Tensor:
    """True at real tokens of a padded batch: shape (B, S), S = the longest.

    `side` is where the padding stands. As a mask over keys it is used as
    ``real[:, None, :]``, shape (B, 1, S).

    Raises:
        TypeError: lengths that are no whole numbers.
        ValueError: no lengths, a length below 0, or another side.
    """
    one_of("side", side, ("left", "right"))
    if not isinstance(lengths, Tensor):
        lengths = torch.tensor(
            [whole("a length", n) for n in lengths], dtype=torch.int64
        )
    expect("integer", lengths=(lengths, "B"))
    whole("the shortest length", int(lengths.min()), at_least=0)
    longest = int(lengths.max())
    place = torch.arange(longest, device=lengths.device)[None, :]  # (1, S)
    if side == "right":
        return place < lengths[:, None]  # (B, S)
    return place >= longest - lengths[:, None]  # (B, S)


def combine(*masks: Tensor) -> Tensor:
    """True where every mask is True; shapes broadcast.

    Raises:
        TypeError: a mask that is not boolean.
        ValueError: no masks, or shapes that do not broadcast.
    """
    if not masks:
        raise ValueError(
            "nothing to combine; expected at least one mask; got none"
        )
    given = {f"mask {n}": (mask, "...") for n, mask in enumerate(masks)}
    shape = expect("bool", **given)
    return functools.reduce(torch.logical_and, masks).expand(shape).clone()


def merge_causal(
    mask: Tensor | None,
    n_queries: int,
    n_keys: int,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    """A mask, boolean or additive, with later keys forbidden as well.

    Shapes: mask broadcasts to (..., T, S); the result is (..., T, S).
    """
    causal = causal_mask(n_queries, n_keys).to(device)  # (T, S)
    if mask is None:
        return causal
    if mask.dtype == torch.bool:
        return mask & causal
    return mask.masked_fill(~causal, -torch.inf)


def convert(
    mask: Tensor,
    source: str,
    target: str,
    *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The same mask in another convention, one of `CONVENTIONS`.

    `dtype` is the type of an additive result. The shape stays as it is: a
    padding mask of shape (B, S) is still one over keys.

    Raises:
        TypeError: a mask whose type is not that of `source`; a `dtype` that
            is not floating-point.
        ValueError: an unknown convention; an additive mask that holds
            anything but 0 and −inf (a bias is more than a mask); an integer
            mask that holds anything but 0 and 1.
    """
    one_of("target", target, CONVENTIONS)
    expect_convention(mask, source)
    allowed = {
        "sdpa": lambda: mask.clone(),
        "multihead": lambda: ~mask,
        "transformers": lambda: mask == 1,
        "additive": lambda: mask == 0,
    }[source]()
    if target == "additive":
        zeros = torch.zeros(allowed.shape, dtype=dtype, device=mask.device)
        expect("float", additive=(zeros, "..."))
        return zeros.masked_fill(~allowed, -torch.inf)
    if target == "multihead":
        return ~allowed
    return allowed.long() if target == "transformers" else allowed


def expect_convention(mask: Tensor, convention: str) -> None:
    """Raise if the mask cannot be one of this convention."""
    meaning = CONVENTIONS[one_of("source", convention, CONVENTIONS)]
    kinds = {"transformers": "integer", "additive": "float"}
    fits, _ = KINDS[kinds.get(convention, "bool")]
    if not isinstance(mask, Tensor) or not fits(mask.dtype):
        raise TypeError(
            f"mask is of the wrong type; expected {convention}: {meaning}; "
            f"got {getattr(mask, 'dtype', type(mask).__name__)}"
        )
    may_not = {"transformers": 1, "additive": -torch.inf}
    allowed = (mask == 0) | (mask == may_not.get(convention, True))
    if not allowed.all():
        raise ValueError(
            f"mask holds other values; expected {convention}: {meaning}; "
            f"got {mask[~allowed][0].item():g}"
        )


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise a clear error for a mask that does not fit scores of a shape.

    Raises:
        TypeError: a mask that is neither boolean nor floating-point.
        ValueError: another shape; NaN or +∞.
    """
    if not isinstance(mask, Tensor) or not (
        mask.dtype == torch.bool or mask.is_floating_point()
    ):
        raise TypeError(
            "mask is of the wrong type; expected a boolean tensor "
            "(True = may attend) or a floating-point one (added to the "
            f"scores); got {getattr(mask, 'dtype', type(mask).__name__)}"
        )
    try:
        fits = torch.broadcast_shapes(mask.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            "mask does not fit the scores; expected a shape that "
            f"broadcasts to {shape}; got {tuple(mask.shape)}"
        )
    # NaN is not below +∞ either.
    if mask.is_floating_point() and not (mask < torch.inf).all():
        raise ValueError(
            "mask contains NaN or +inf; expected numbers or −inf; got "
            f"{int((~(mask < torch.inf)).sum())} of them"
        )
