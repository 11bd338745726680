"""Masks: who may attend to whom, in one convention, and the way to others.

The book's convention is torch SDPA's: a boolean tensor, True = may attend,
that broadcasts to the scores (..., T, S): T queries, S keys.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.shapes import expect
from attnbook.values import one_of, whole

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
    the last query sees every key (torch's `is_causal` takes the first ones).
    """
    query, key = _positions(n_queries, n_keys)
    return key <= query


def window_mask(
    n_queries: int, n_keys: int | None = None, *, window: int
) -> Tensor:
    """True where a key lies less than `window` positions back: (T, S).

    Later keys stay allowed: combine with `causal_mask`.
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

    `side` is where the padding stands. Over keys: ``real[:, None, :]``.
    """
    one_of("side", side, ("left", "right"))
    if not isinstance(lengths, Tensor):
        lengths = torch.tensor([whole("a length", n) for n in lengths]).long()
    expect("integer", lengths=(lengths, "B"))
    whole("the shortest length", int(lengths.min()), at_least=0)
    place = torch.arange(int(lengths.max()), device=lengths.device)  # (S,)
    place = place if side == "right" else place.flip(0)
    return place < lengths[:, None]  # (B, S)


def combine(*masks: Tensor) -> Tensor:
    """True where every (boolean) mask is True; shapes broadcast."""
    whole("number of masks to combine", len(masks), at_least=1)
    given = {f"mask {n}": (mask, "...") for n, mask in enumerate(masks)}
    shape = expect("bool", **given)
    return functools.reduce(torch.logical_and, masks).expand(shape).clone()


def merge_causal(
    mask: Tensor | None, n_queries: int, n_keys: int, *, device: Any = None
) -> Tensor:
    """A mask, boolean or added, without later keys either: (..., T, S)."""
    causal = causal_mask(n_queries, n_keys).to(device)  # (T, S)
    if mask is None:
        return causal
    if mask.dtype == torch.bool:
        return mask & causal
    return mask.masked_fill(~causal, -torch.inf)


def convert(
    mask: Tensor, source: str, target: str, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The same mask in another convention, one of `CONVENTIONS`.

    `dtype` is the type of an additive result; float32 if not given. The
    shape stays: a padding mask (B, S) is still one over keys.

    Raises:
        TypeError: a mask of another type than `source` has.
        ValueError: an unknown convention, or numbers that `source` has not.
    """
    one_of("target", target, CONVENTIONS)
    expect_convention(mask, source)
    may = {"multihead": False, "transformers": 1, "additive": 0}
    allowed = mask == may.get(source, True)
    if target == "additive":
        zeros = torch.zeros_like(mask, dtype=dtype or torch.float32)
        expect("float", additive=(zeros, "..."))
        return zeros.masked_fill(~allowed, -torch.inf)
    if target == "multihead":
        return ~allowed
    return allowed.long() if target == "transformers" else allowed


def expect_convention(mask: Tensor, convention: str) -> None:
    """Refuse a mask that cannot be one of this convention."""
    meaning = CONVENTIONS[one_of("source", convention, CONVENTIONS)]
    kinds = {"transformers": "integer", "additive": "float"}
    expect(kinds.get(convention, "bool"), mask=(mask, "..."))
    may_not = {"transformers": 1, "additive": -torch.inf}
    other = (mask != 0) & (mask != may_not.get(convention, True))
    if other.any():
        got = f"{mask[other][0].item():g}"
        wrong = f"mask is not of convention {convention}"
        raise ValueError(f"{wrong}; expected {meaning}; got {got}")


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a mask that does not fit scores of a shape, or has NaN or +∞."""
    expect("bool or float", mask=(mask, "..."))
    try:
        mask.expand(shape)
    except RuntimeError:
        wrong = f"mask does not fit; expected what broadcasts to {shape}"
        raise ValueError(f"{wrong}; got {tuple(mask.shape)}") from None
    # NaN is not below +∞ either.
    if mask.is_floating_point() and not (mask < torch.inf).all():
        got = mask[~(mask < torch.inf)][0].item()
        raise ValueError(f"mask is wrong; expected less than inf; got {got}")
