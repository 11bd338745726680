"""Masks: which query may attend to which key.

The book has one convention, that of torch's `scaled_dot_product_attention`:
a boolean tensor in which True means "may attend", and which broadcasts to
the scores (..., T, S) of T queries and S keys. `convert` translates between
it and the three other conventions in use.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.shapes import expect
from attnbook.values import one_of, whole

#: The four conventions in use, by the name that `convert` takes.
CONVENTIONS = {
    "sdpa": "boolean, True = may attend",
    "multihead": "boolean, True = may not attend",
    "transformers": "integer, 1 = real token, 0 = padding",
    "additive": "floating-point, 0 = may attend, −inf = may not",
}


def causal_mask(n_queries: int, n_keys: int | None = None) -> Tensor:
    """True where a key is not later than the query: shape (T, S).

    The queries are the *last* `n_queries` of the `n_keys` positions, so the
    last query sees every key. (Torch's `is_causal` takes them for the first
    ones instead.) If `n_keys` is not given, there are as many as queries.

    Raises:
        TypeError, ValueError: numbers that are not whole, no query, or fewer
            keys than queries.
    """
    query, key = _positions(n_queries, n_keys)
    return key <= query


def window_mask(
    n_queries: int, n_keys: int | None = None, *, window: int
) -> Tensor:
    """True where a key is less than `window` positions back: shape (T, S).

    A window of 1 leaves each query its own key. Later keys stay allowed, so
    a decoder combines this with a `causal_mask`. The queries are the last of
    the positions, as there.

    >>> combine(causal_mask(3), window_mask(3, window=2)).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]

    Raises:
        TypeError, ValueError: as in `causal_mask`, or a window below 1.
    """
    query, key = _positions(n_queries, n_keys)
    return query - key < whole("window", window, at_least=1)


def _positions(n_queries, n_keys):
    """The positions of the queries, (T, 1), and of the keys, (1, S)."""
    T = whole("n_queries", n_queries, at_least=1)
    S = T
    if n_keys is not None:
        S = whole("n_keys", n_keys, at_least=T)
    query = torch.arange(S - T, S)[:, None]  # (T, 1)
    return query, torch.arange(S)[None, :]  # (1, S)


def padding_mask(
    lengths: Sequence[int] | Tensor, *, side: str = "right"
) -> Tensor:
    """True at the real tokens of a padded batch: shape (B, S).

    `lengths` are the numbers of real tokens in the B rows, as a list or as a
    tensor (B,) of integers; S is the longest of them. `side` says on which
    side of a row the padding is, "right" or "left". As a mask over keys the
    result needs an axis for the queries, ``real[:, None, :]``, and with
    heads one for them too, ``real[:, None, None, :]``.

    >>> padding_mask([3, 1]).int().tolist()
    [[1, 1, 1], [1, 0, 0]]

    Raises:
        TypeError: lengths that are no whole numbers.
        ValueError: no length, one below 0, or another side.
    """
    one_of("side", side, ("left", "right"))
    if not isinstance(lengths, Tensor):
        lengths = torch.tensor([whole("a length", n) for n in lengths]).long()
    expect("integer", lengths=(lengths, "B"))
    whole("the shortest length", int(lengths.min()), at_least=0)
    place = torch.arange(int(lengths.max()), device=lengths.device)  # (S,)
    if side == "left":
        place = place.flip(0)
    return place < lengths[:, None]  # (B, S)


def combine(*masks: Tensor) -> Tensor:
    """True where every mask is True; all are boolean, and shapes broadcast.

    The result is a tensor of its own, and has the broadcast shape.

    Raises:
        TypeError: something that is no boolean tensor.
        ValueError: no mask at all, or shapes that do not broadcast.
    """
    if not masks:
        raise ValueError(
            "there is nothing to combine; expected at least one mask; got none"
        )
    named = {f"mask {n}": (mask, "...") for n, mask in enumerate(masks)}
    shape = expect("bool", **named)
    return functools.reduce(torch.logical_and, masks).expand(shape).clone()


def merge_causal(
    mask: Tensor | None, n_queries: int, n_keys: int, *, device: Any = None
) -> Tensor:
    """A mask that forbids later keys as well: shape (..., T, S).

    `mask` is boolean, or floating-point and added to the scores, or None;
    the result is of the same kind, boolean for None.
    """
    causal = causal_mask(n_queries, n_keys).to(device)  # (T, S)
    if mask is None:
        return causal
    if mask.dtype == torch.bool:
        return mask & causal
    return mask.masked_fill(~causal, -torch.inf)


def convert(
    mask: Tensor, source: str, target: str, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The same mask in another convention.

    `source` and `target` are names in `CONVENTIONS`. `dtype` is the type of
    an additive result, float32 if not given. The shape stays as it is: a
    padding mask (B, S) is still one over keys.

    >>> convert(torch.tensor([1, 1, 0]), "transformers", "multihead").tolist()
    [False, False, True]

    Raises:
        TypeError: a mask of another type than its convention has, or an
            additive result that is to be of no floating-point type.
        ValueError: an unknown convention, or a mask with other numbers in it
            than its convention knows: a bias is more than a mask.
    """
    one_of("target", target, CONVENTIONS)
    expect_convention(mask, source)
    may_attend = {"multihead": False, "transformers": 1, "additive": 0}
    allowed = mask == may_attend.get(source, True)
    if target == "additive":
        zeros = torch.zeros_like(mask, dtype=dtype or torch.float32)
        expect("float", additive=(zeros, "..."))
        return zeros.masked_fill(~allowed, -torch.inf)
    if target == "multihead":
        return ~allowed
    if target == "transformers":
        return allowed.long()
    return allowed


def expect_convention(
    mask: Tensor, convention: str, name: str = "mask"
) -> None:
    """Check that a mask can be one of this convention.

    `name` is what the message calls it.

    Raises:
        TypeError: a mask of another type than the convention has.
        ValueError: an unknown convention, or a number that it has not.
    """
    meaning = CONVENTIONS[one_of("source", convention, CONVENTIONS)]
    kinds = {"transformers": "integer", "additive": "float"}
    kind = kinds.get(convention, "bool")
    expect(kind, **{name: (mask, "...")})
    not_zero = {"transformers": 1, "additive": -torch.inf}
    other = (mask != 0) & (mask != not_zero.get(convention, True))
    if other.any():
        raise ValueError(
            f"{name} is no mask of the convention {convention!r}; expected "
            f"{meaning}; got {mask[other][0].item():g} in it"
        )


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Check that a mask, boolean or added, fits scores of this shape.

    Raises:
        TypeError: a mask that is neither boolean nor floating-point.
        ValueError: a mask that does not broadcast to `shape`, or in which
            there is NaN or +∞.
    """
    expect("bool or float", mask=(mask, "..."))
    try:
        mask.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"the mask does not fit the scores; expected a shape that "
            f"broadcasts to {shape}; got {tuple(mask.shape)}"
        ) from None
    if torch.compiler.is_compiling():
        return  # the calls are being recorded, and there are no numbers yet
    # NaN is not below +∞ either.
    if mask.is_floating_point() and not (mask < torch.inf).all():
        got = mask[~(mask < torch.inf)][0].item()
        raise ValueError(
            "the mask cannot be added to scores; expected finite numbers, or "
            f"−inf where a query may not attend; got {got}"
        )


def check_head_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> None:
    """Refuse a mask that does not fit the scores of heads.

    Shapes: q (..., H, T, d_k), k (..., H_kv, S, d_k).

    A mask that lacks the heads' axis is refused too where sizes happen to
    agree: its axis of texts would fall on the heads, or on the queries, and
    hide other keys than it should without a word.

    Raises:
        TypeError, ValueError: what `check_mask` refuses, or a mask whose
            first axis may mean two things.
    """
    if mask is None:
        return
    batch = expect(q=(q, "... H T d_k"), k=(k, "... H_kv S d_k"))
    n_heads, n_queries = q.shape[-3:-1]
    check_mask(mask, (*batch, n_heads, n_queries, k.shape[-2]))
    if not batch or mask.ndim not in (2, 3):
        return
    if mask.ndim == 3:
        name = "heads"
        size = n_heads
        # Three axes of numbers to add, one number for each head, query and
        # key, are a bias of positions, and no masks of texts.
        may_be_texts = mask.dtype == torch.bool or mask.shape[1] < n_queries
    else:
        name = "queries"
        size = n_queries
        may_be_texts = True
    if may_be_texts and 1 < size == batch[-1] == mask.shape[0]:
        raise ValueError(
            f"the mask's first axis may mean the {size} texts or the {size} "
            f"{name}; expected a mask with an axis for texts, heads, queries "
            "and keys each, such as real[:, None, None, :] for padding or "
            f"mask[None, None] for one that all texts share; got one of shape "
            f"{tuple(mask.shape)}"
        )
