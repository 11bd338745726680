"""A KV cache in 8 or 4 bits: each key and each value is a block of bytes.

A block holds a head's key, or value, of one token: a scale and a smallest
number of 16 bits each, and then the codes. So what a token's key becomes
depends on that token alone, and never on how a text was cut into calls.
"""

from typing import Any

import torch
from torch import Tensor

from attnbook.cache import KVCache, Places
from attnbook.quantised import Rounded, by_range, pack, unpack
from attnbook.values import check_sizes

#: What scale and smallest are kept in.
KEPT = torch.float16


def to_blocks(x: Tensor, bits: int) -> Tensor:
    """Round vectors and write each into a block of bytes.

    Shapes: (..., d), floats → (..., 4 + d · bits / 8), uint8.

    Raises:
        TypeError: numbers that record gradients.
        ValueError: other bits than 4 or 8, an odd d with 4 bits, or numbers
            that do not fit into 16 bits, among them NaN and infinity.
    """
    if x.requires_grad:
        raise TypeError(
            "keys and values that record gradients cannot be rounded for a "
            "cache; expected a call under torch.inference_mode() or "
            "torch.no_grad(); got requires_grad=True"
        )
    codes, scale, smallest = by_range(x, bits, kept=KEPT)
    shared = torch.cat([scale, smallest], -1)[..., 0, :]  # (..., 2)
    if not shared.isfinite().all():
        raise ValueError(
            "keys and values cannot be rounded, because their scale or their "
            "smallest number does not fit into 16 bits; expected finite "
            f"numbers up to {torch.finfo(KEPT).max:,.0f}"
        )
    packed = pack(codes[..., 0, :], bits)
    return torch.cat([shared.to(KEPT).view(torch.uint8), packed], -1)


def from_blocks(blocks: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """The vectors in some blocks: (..., 4 + d · bits / 8) → (..., d)."""
    shared = blocks[..., :4].contiguous().view(KEPT).to(dtype)
    codes = unpack(blocks[..., 4:], bits)
    scale = shared[..., :1, None]
    smallest = shared[..., 1:, None]
    return Rounded(codes[..., None, :], scale, smallest).values()


class RoundedCache(KVCache):
    """Keys and values in 8 or 4 bits, and a scale for each of them.

    Its memory, `keys` and `values`, is made of blocks. `write` returns
    floats, which are computed anew for each call: that saves memory and, in
    this plain form, no time.

    Args:
        batch, capacity, n_layers, n_heads: as for `KVCache`.
        d_k, d_v: width of a key and of a value; d_v is d_k if not given.
        bits: 8 or 4, of a number.
        dtype: of the keys and values that are written and returned.
        device: of the memory.

    Shapes: keys (L, B, H_kv, C, 4 + d_k · bits / 8), uint8; values likewise.

    Raises:
        TypeError, ValueError: as `KVCache`, and as `to_blocks` for the bits.
    """

    def __init__(
        self,
        batch: int,
        capacity: int,
        *,
        n_layers: int,
        n_heads: int,
        d_k: int,
        d_v: int | None = None,
        bits: int = 8,
        dtype: torch.dtype = torch.float32,
        device: Any = None,
    ) -> None:
        d_v = d_k if d_v is None else d_v
        check_sizes(d_k=d_k, d_v=d_v)
        self.bits = bits
        self.dtype = dtype
        # The width of a block is found by making one.
        key, value = (to_blocks(torch.zeros(d), bits) for d in (d_k, d_v))
        super().__init__(
            batch,
            capacity,
            n_layers=n_layers,
            n_heads=n_heads,
            d_k=len(key),
            d_v=len(value),
            dtype=torch.uint8,
            device=device,
        )

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """Round and keep a layer's new keys and values; return all, rounded.

        The new ones are returned rounded, too, so that a query reads the
        same key in the call that writes it and in all later ones.
        """
        blocks = to_blocks(k, self.bits), to_blocks(v, self.bits)
        kept = super().write(index, *blocks, places)
        keys, values = (from_blocks(x, self.bits, self.dtype) for x in kept)
        return keys, values
