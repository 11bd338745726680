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
        ValueError: no queries, fewer keys than queries, or a window below 1.
    """
    if window < 1:
        raise ValueError(
            f"the window is empty; expected at least 1; got {window}"
        )
    query, key = _positions(n_queries, n_keys)
    return query - key < window


def _positions(n_queries, n_keys):
    n_keys = n_queries if n_keys is None else n_keys
    if not 1 <= n_queries <= n_keys:
        raise ValueError(
            "the queries are not the last of the keys; expected "
            f"1 ≤ n_queries ≤ n_keys; got {n_queries} and {n_keys}"
        )
    query = torch.arange(n_keys - n_queries, n_keys)[:, None]  # (T, 1)
    return query, torch.arange(n_keys)[None, :]  # (1, S)


def padding_mask(
    lengths: Sequence[int] | Tensor, *, side: str = "right"
) -> Tensor:
    """True at real tokens of a padded batch: shape (B, S), S = the longest.

    `side` is where the padding stands. As a mask over keys it is used as
    ``real[:, None, :]``, shape (B, 1, S).

    Raises:
        ValueError: no lengths, a length below 0, or another side.
    """
    lengths = torch.as_tensor(lengths)
    if (
        lengths.ndim != 1
        or lengths.numel() == 0
        or lengths.is_floating_point()
        or (lengths < 0).any()
    ):
        raise ValueError(
            "these are no lengths; expected one integer ≥ 0 a sequence; "
            f"got {lengths.tolist()}"
        )
    longest = int(lengths.max())
    place = torch.arange(longest, device=lengths.device)[None, :]  # (1, S)
    if side == "right":
        return place < lengths[:, None]  # (B, S)
    if side == "left":
        return place >= longest - lengths[:, None]  # (B, S)
    raise ValueError(
        f"padding has no side {side!r}; expected 'left' or 'right'"
    )


def combine(*masks: Tensor) -> Tensor:
    """True where every mask is True; shapes broadcast.

    Raises:
        TypeError: a mask that is not boolean.
        ValueError: no masks, or shapes that do not broadcast.
    """
    if not masks:
        raise ValueError("nothing to combine; expected at least one mask")
    for mask in masks:
        expect_convention(mask, "sdpa")
    try:
        shape = torch.broadcast_shapes(*(m.shape for m in masks))
    except RuntimeError:
        raise ValueError(
            "the masks do not fit together; expected shapes that broadcast; "
            f"got {', '.join(str(tuple(m.shape)) for m in masks)}"
        ) from None
    return functools.reduce(torch.logical_and, masks).expand(shape).clone()


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
    for name in (source, target):
        if name not in CONVENTIONS:
            raise ValueError(
                f"{name!r} is no mask convention; expected one of "
                f"{', '.join(CONVENTIONS)}"
            )
    expect_convention(mask, source)
    allowed = {
        "sdpa": lambda: mask,
        "multihead": lambda: ~mask,
        "transformers": lambda: mask == 1,
        "additive": lambda: mask == 0,
    }[source]()
    if target == "additive":
        if not dtype.is_floating_point:
            raise TypeError(
                "an additive mask cannot be of this type; expected a "
                f"floating-point type; got {dtype}"
            )
        zeros = torch.zeros(allowed.shape, dtype=dtype, device=mask.device)
        return zeros.masked_fill(~allowed, -torch.inf)
    return {
        "sdpa": allowed.clone,
        "multihead": allowed.logical_not,
        "transformers": allowed.long,
    }[target]()


def expect_convention(mask: Tensor, convention: str) -> None:
    """Raise if the mask cannot be one of this convention."""
    if not isinstance(mask, Tensor):
        raise TypeError(
            f"the mask is no tensor; expected {convention}: "
            f"{CONVENTIONS[convention]}; got {type(mask).__name__}"
        )
    boolean = mask.dtype == torch.bool
    floating = mask.is_floating_point()
    fits = {
        "sdpa": boolean,
        "multihead": boolean,
        "transformers": not boolean and not floating,
        "additive": floating,
    }[convention]
    if not fits:
        raise TypeError(
            f"the mask is of the wrong type; expected {convention}: "
            f"{CONVENTIONS[convention]}; got {mask.dtype}"
        )
    allowed = {
        "transformers": (mask == 0) | (mask == 1),
        "additive": (mask == 0) | (mask == -torch.inf),
    }.get(convention)
    if allowed is not None and not allowed.all():
        raise ValueError(
            f"the mask holds other values; expected {convention}: "
            f"{CONVENTIONS[convention]}; got {mask[~allowed][0].item():g}"
        )
