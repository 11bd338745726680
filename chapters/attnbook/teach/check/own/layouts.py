"""Lay a task's tensors out as somebody's own function wants them, and back.

A layout is a word of one letter for each axis: B texts, H heads, T tokens (S
where keys are counted), and d components.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.teach.check.own.ways import Ways


class Unfit(Exception):
    """A case cannot be put to a function; the text says what it lacks."""


@dataclass(frozen=True)
class Lead:
    """The axes of a case that come before tokens and components.

    Attributes:
        shape: those that the results of the task have, of any number.
        texts: how many texts that makes, B.
        heads: how many heads, H.
    """

    shape: tuple[int, ...]
    texts: int
    heads: int


def lead_of(tensors: Sequence[Tensor], *, with_heads: bool) -> Lead:
    """The leading axes of a case, of its tensors (…, H, T, d) or (…, T, d)."""
    shapes = [tuple(x.shape[:-2]) for x in tensors]
    try:
        shape = tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:  # keys with fewer heads than queries
        shape = shapes[0]
    heads = shape[-1] if shape and with_heads else 1
    rest = shape[:-1] if with_heads else shape
    return Lead(shape, math.prod(rest), heads)


def laid_out(x: Tensor, lead: Lead, axes: str, ways: Ways) -> Tensor:
    """A tensor (…, H, T, d), or (…, T, d), in the layout that is asked for.

    Args:
        x: the tensor, as the task has it.
        lead: the leading axes of its case.
        axes: its axes, "BHTd" or "BTd".

    Raises:
        Unfit: if there are several texts or heads and no axis for them.
    """
    layout = _layout_for(axes, ways.layout)
    if not layout:
        return x
    full = _in_full(x, lead, axes)
    order = axes
    if "H" in axes and "H" not in layout:
        if full.shape[1] != lead.heads:
            raise Unfit("keys with fewer heads need an axis of heads")
        if "B" in layout:
            full = full.flatten(0, 1)
        elif full.shape[1] > 1:
            raise Unfit("several heads, and no axis for them")
        else:
            full = full[:, 0]
        order = order.replace("H", "")
    if "B" not in layout:
        if full.shape[0] > 1:
            raise Unfit("several texts, and no axis for them")
        full = full[0]
        order = order.replace("B", "")
    return full.permute([order.index(axis) for axis in layout])


def _layout_for(axes: str, layout: str) -> str:
    """The layout of a tensor with these axes: one without heads has none."""
    if layout and "H" not in axes:
        return layout.replace("H", "")
    return layout


def _in_full(x: Tensor, lead: Lead, axes: str) -> Tensor:
    """A tensor with all of its axes: (B, H, T, d), or (B, T, d)."""
    while x.ndim < 2:
        x = x[None]
    if "H" not in axes:
        return x.expand(*lead.shape, *x.shape[-2:]).reshape(
            lead.texts, *x.shape[-2:]
        )
    has_heads = x.ndim > 2
    heads = x.shape[-3] if has_heads else lead.heads
    if not has_heads:
        x = x[None].expand(heads, *x.shape)
    size = (*lead.shape[:-1], heads, *x.shape[-2:])
    return x.expand(size).reshape(lead.texts, *size[-3:])


def taken_back(y: Tensor, lead: Lead, axes: str, ways: Ways) -> Tensor:
    """A result in somebody's layout, as the task has it.

    Where it has another number of axes, or numbers, it stays as it is, and
    the comparison says that its shape is wrong.
    """
    layout = _layout_for(axes, ways.layout)
    if not layout:
        return y
    if "S" in axes:  # weights: what comes before T and S is B and H, if at all
        layout = "".join(a for a in "BH" if a in layout) + "TS"
    if y.ndim != len(layout):
        return y
    order = "".join(a for a in axes if a in layout)
    y = y.permute([layout.index(axis) for axis in order])
    size = (*lead.shape, *y.shape[-2:])
    return y.reshape(size) if math.prod(size) == y.numel() else y


def flat_positions(positions: Tensor, lead: Lead) -> Tensor:
    """Positions (T,), or (B, T) where they differ from text to text."""
    if positions.ndim < 2:
        return positions.reshape(-1)
    flat = positions.flatten(0, -2)
    return flat[0] if len(flat) == 1 else flat


def causal(n_queries: int, n_keys: int) -> Tensor:
    """True where a key is not later than its query, the last of the keys."""
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool)
    return ones.tril(n_keys - n_queries)


def mask_given(
    mask: Tensor, lead: Lead, ways: Ways, dtype: torch.dtype
) -> Tensor:
    """A mask (…, T, S) of the task as somebody's function wants it.

    Raises:
        Unfit: if it says what such a mask cannot say.
    """
    allowed = mask
    if mask.is_floating_point():
        if ways.masks in ("additive", "lowest", "either"):
            bias = mask.to(dtype)
            if ways.masks == "lowest":
                bias = bias.clamp(min=torch.finfo(dtype).min)
            return _mask_shaped(bias, lead, ways)
        if not bool(((mask == 0) | (mask == -torch.inf)).all()):
            raise Unfit("a bias is no mask of this kind")
        allowed = mask == 0
    zeros = torch.zeros(allowed.shape, dtype=dtype)
    made = {
        "allowed": allowed,
        "either": allowed,
        "hidden": ~allowed,
        "ones": allowed.to(torch.int64),
        "additive": zeros.masked_fill(~allowed, -torch.inf),
        "lowest": zeros.masked_fill(~allowed, torch.finfo(dtype).min),
    }
    return _mask_shaped(made[ways.masks], lead, ways)


def _mask_shaped(mask: Tensor, lead: Lead, ways: Ways) -> Tensor:
    """A mask with the axes that somebody's function wants, in their order.

    Raises:
        Unfit: the mask differs along an axis that the function does not have.
    """
    folded = bool(ways.layout) and "H" not in ways.layout
    if not ways.mask_shape:
        # Where heads and texts share an axis, so do their masks.
        if folded and mask.ndim > 2:
            size = (*lead.shape, *mask.shape[-2:])
            return mask.expand(size).reshape(-1, *size[-2:])
        return mask
    while mask.ndim < 4:
        mask = mask[None]
    mask = mask.flatten(0, -4)  # (B or 1, H or 1, T, S)
    front = ways.mask_shape[:-2]
    wanted = {"B": lead.texts, "H": lead.heads}
    sizes = []
    for axis, name in ((0, "B"), (1, "H")):
        if name in front:
            sizes.append(wanted[name])
        elif mask.shape[axis] > 1:
            raise Unfit(f"a mask that differs by {name}, and no axis for it")
        else:
            sizes.append(1)
    mask = mask.expand(*sizes, *mask.shape[-2:])
    if len(front) == 2:
        return mask
    if not front:
        return mask[0, 0]
    return mask[0] if front == "H" else mask[:, 0]


def mask_back(y: Tensor, axes: str, ways: Ways) -> Tensor:
    """A mask that somebody's function returns, as the task has it: boolean,
    True where a key may be read, with the axes "TS" or "BTS".

    A mask that holds what its kind cannot hold stays as it is.
    """
    allowed = _allowed(y, ways.masks)
    while allowed.ndim > len(axes) and 1 in allowed.shape[:-2]:
        ones = [n for n, s in enumerate(allowed.shape[:-2]) if s == 1]
        allowed = allowed.squeeze(ones[-1])
    one_text = bool(ways.layout) and "B" not in ways.layout
    if one_text and axes[0] == "B" and allowed.ndim == len(axes) - 1:
        allowed = allowed[None]
    return allowed


def _allowed(y: Tensor, kind: str) -> Tensor:
    """A mask of some kind as booleans, True where a key may be read.

    It stays as it is if it has something that no mask of its kind has.

    Args:
        y: the mask.
        kind: what its numbers mean, see `Ways.masks`.
    """
    if kind in ("allowed", "either", "hidden"):
        if y.dtype != torch.bool:
            return y
        return ~y if kind == "hidden" else y
    if kind == "ones":
        return y == 1 if bool(((y == 0) | (y == 1)).all()) else y
    if not y.is_floating_point():
        return y
    bottom = -torch.inf if kind == "additive" else torch.finfo(y.dtype).min
    return y == 0 if bool(((y == 0) | (y == bottom)).all()) else y


def to_neighbours(x: Tensor) -> Tensor:
    """Pairs (i, i + d/2) of the last axis moved to (2i, 2i + 1)."""
    return torch.stack(x.chunk(2, -1), -1).flatten(-2)


def to_halves(x: Tensor) -> Tensor:
    """Pairs (2i, 2i + 1) of the last axis moved to (i, i + d/2)."""
    return torch.cat([x[..., 0::2], x[..., 1::2]], -1)


def copies_of(
    named: Mapping[str, Any], given: Sequence[Any]
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The arguments of which a function gets a copy in another type: the
    original, the copy, and a copy of that.

    A function that changes a copy in place would change what it is given.
    """
    if any(isinstance(x, Tensor) and x.requires_grad for x in named.values()):
        return []
    originals = [x for x in named.values() if isinstance(x, Tensor)]
    found = []
    for x in given:
        if not isinstance(x, Tensor) or x.requires_grad:
            continue
        for original in originals:
            alike = x.shape == original.shape and x.dtype != original.dtype
            if alike and bool((x.cpu() == original.to(x.dtype)).all()):
                found.append((original, x, x.clone()))
                break
    return found
