"""The KV cache: keys and values of earlier tokens, kept for later ones.

A cache is filled in three moves. `place` says where new tokens go and
changes nothing; each layer of the model writes its keys and values there and
reads all so far; `commit` counts them in. What fails in between leaves the
cache as it was: slots that no token has been counted into are never read.

Axis names: L layers, B rows (sequences), H_kv heads of keys and values,
C capacity, T new tokens, S tokens so far with the new ones.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from attnbook.positions import token_positions


class Places(NamedTuple):
    """Where new tokens go.

    `positions` counts from a row's first token: (T,) where all rows are as
    long, else (B, T). `lengths` are those of the rows afterwards, `start`
    the first new slot where it is the same for all rows. `taken` and `slots`
    say else which tokens (rows and columns) go into which slots.
    """

    positions: Tensor
    lengths: list[int]
    start: int | None
    taken: tuple[Tensor, Tensor] | None = None
    slots: Tensor | None = None

    @property
    def n_keys(self) -> int:
        """Keys to look at, S; one even if there is nothing but padding."""
        return max(1, *self.lengths)


class LayerCache(Protocol):
    """What a layer sees of a cache."""

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write k and v (B, H_kv, T, d) and give all: (B, H_kv, S, d)."""


class KVCache:
    """Keys and values in memory that is taken once, a length for each row.

    The slot of a token is its position: padding is not kept, so rows of
    unequal length stand side by side, each from slot 0 on.

    Args:
        batch: rows, B.
        capacity: tokens that a row can hold, C.
        n_layers: layers of the model, L.
        n_heads: heads of keys and values, H_kv.
        d_k: width of a key and of a value.
        dtype, device: as the model's; torch's defaults if not given.

    Shapes: keys, values (L, B, H_kv, C, d_k).

    Raises:
        ValueError: a size below 1.
    """

    def __init__(
        self,
        batch: int,
        capacity: int,
        *,
        n_layers: int,
        n_heads: int,
        d_k: int,
        dtype: torch.dtype | None = None,
        device=None,
    ) -> None:
        shape = (n_layers, batch, n_heads, capacity, d_k)
        if min(shape) < 1:
            raise ValueError(
                "a size is below 1; expected positive sizes; got "
                f"{n_layers=}, {batch=}, {n_heads=}, {capacity=}, {d_k=}"
            )
        # Zeros: memory that nobody has written to may hold NaN, and weight
        # 0 times NaN is NaN. Made in inference mode, they could not be
        # written to outside it.
        with torch.inference_mode(False):
            self.keys = torch.zeros(shape, dtype=dtype, device=device)
            self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.lengths = [0] * batch
        self._written = 0  # slots that a call has filled and not counted in
        #: Bytes of keys and values that writing has moved so far.
        self.bytes_copied = 0

    @property
    def capacity(self) -> int:
        """Tokens that a row can hold."""
        return self.keys.shape[-2]

    @property
    def nbytes(self) -> int:
        """Bytes that the cache takes: 2 · L · B · H_kv · C · d_k · size."""
        return self.keys.nbytes + self.values.nbytes

    def place(
        self, batch: int, n_tokens: int, real: Tensor | None = None
    ) -> Places:
        """Where the next tokens go; nothing is counted in yet.

        Args:
            batch, n_tokens: B and T of the new tokens.
            real: True at real tokens, False at padding, (B, T); all are
                real if not given. The place of padding means nothing.

        Raises:
            ValueError: another number of rows; more tokens than there is
                room for; numbers other than 0 and 1 in `real`.
            TypeError: a `real` that is neither boolean nor integer.
        """
        rows = len(self.lengths)
        if batch != rows:
            raise ValueError(
                "the batch does not match the cache; expected "
                f"{rows} rows; got {batch}"
            )
        device, new = self.keys.device, [n_tokens] * batch
        if real is not None:
            offsets = token_positions(real).to(device)  # (B, T)
            new = real.sum(-1).tolist()
        lengths = [a + b for a, b in zip(self.lengths, new)]
        if max(lengths) > self.capacity:
            row = lengths.index(max(lengths))
            raise ValueError(
                "the cache is too small; expected at most "
                f"{self.capacity} tokens a row; got {self.lengths[row]} and "
                f"{new[row]} more in row {row}"
            )
        if self._written:  # a call has failed, perhaps of a NaN
            self._empty(self.lengths, [self._written] * rows)
            self._written = 0
        if len(set(self.lengths)) == 1 and new == [n_tokens] * batch:
            start = self.lengths[0]
            positions = torch.arange(start, start + n_tokens, device=device)
            return Places(positions, lengths, start)
        if real is None:
            real = torch.ones(batch, n_tokens, dtype=torch.bool)
            offsets = torch.arange(n_tokens, device=device)  # (T,)
        real = real.to(device)
        before = torch.tensor(self.lengths, device=device)  # (B,)
        positions = (offsets + before[:, None]) * real  # (B, T)
        taken = real.nonzero(as_tuple=True)  # rows, columns: (N,) each
        return Places(positions, lengths, None, taken, positions[taken])

    def layer(self, index: int, places: Places) -> LayerCache:
        """One layer's part of the cache, with the places of new tokens."""
        return _Layer(self, index, places)

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values of a layer, and give all so far.

        What comes back are views of the cache: who changes them in place
        changes what later tokens see.

        Shapes: k, v (B, H_kv, T, d_k) → (B, H_kv, S, d_k) each, S that of
        the longest row; a shorter row's later slots are to be masked.

        Raises:
            ValueError: keys or values of another shape or device; a layer
                that the cache does not have.
            TypeError: of another type, or such as record gradients.
        """
        self._check(index, k, v, places)
        keys, values = self.keys[index], self.values[index]  # (B, H_kv, C, d)
        S = self._written = places.n_keys
        if places.start is not None:
            new = slice(places.start, places.start + k.shape[-2])
            keys[:, :, new], values[:, :, new] = k, v
        else:
            rows, columns = places.taken
            keys[rows, :, places.slots] = k[rows, :, columns]
            values[rows, :, places.slots] = v[rows, :, columns]
        self.bytes_copied += k.nbytes + v.nbytes
        return keys[:, :, :S], values[:, :, :S]

    def commit(self, places: Places) -> None:
        """Count the tokens in, once all layers have written."""
        self.lengths = places.lengths
        self._written = 0

    def trim(self, lengths: int | Sequence[int]) -> None:
        """Forget what stands behind the first `lengths` tokens of each row.

        Raises:
            ValueError: a length below 0 or above the row's, or one for
                another number of rows.
            TypeError: a length that is no whole number.
        """
        each = isinstance(lengths, Iterable)
        wanted = lengths if each else [lengths] * len(self.lengths)
        wanted = [_whole(length, "length") for length in wanted]
        if len(wanted) != len(self.lengths) or not all(
            0 <= new <= old for new, old in zip(wanted, self.lengths)
        ):
            raise ValueError(
                "the cache cannot be cut so; expected for each row a length "
                f"from 0 to {self.lengths}; got {lengths}"
            )
        # Emptied, not only forgotten: a NaN of an earlier request would
        # reach a shorter row's context through a weight of 0.
        self._empty(wanted, self.lengths)
        self.lengths = wanted

    def reset(self) -> None:
        """Forget everything; the memory is kept for the next request."""
        self.trim(0)

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows only, in this order.

        Raises:
            ValueError: a row that there is not, or no row at all.
            TypeError: a row that is no whole number.
        """
        rows = [_whole(row, "row") for row in rows]
        if not rows or min(rows) < 0 or max(rows) >= len(self.lengths):
            raise ValueError(
                "these rows are not there; expected at least one, each from "
                f"0 to {len(self.lengths) - 1}; got {rows}"
            )
        lengths = [self.lengths[row] for row in rows]
        with torch.inference_mode(False):
            keys, values = self.keys[:, rows], self.values[:, rows]
        self.keys, self.values, self.lengths = keys, values, lengths

    def _empty(self, starts, ends):
        """Write 0 into each row's slots from its start to its end."""
        for row, (start, end) in enumerate(zip(starts, ends)):
            self.keys[:, row, :, start:end] = 0
            self.values[:, row, :, start:end] = 0

    def _check(self, index, k, v, places):
        L, B, H, _, d_k = self.keys.shape
        if not 0 <= index < L:
            raise ValueError(
                "the cache does not have this layer; expected one from 0 to "
                f"{L - 1}; got {index}"
            )
        T = places.positions.shape[-1]
        for name, x in {"keys": k, "values": v}.items():
            if x.shape != (B, H, T, d_k):
                raise ValueError(
                    f"the {name} do not match the cache; expected "
                    f"{(B, H, T, d_k)}; got {tuple(x.shape)}"
                )
            if x.device != self.keys.device:
                raise ValueError(
                    f"the {name} are on another device than the cache; "
                    f"expected {self.keys.device}; got {x.device}"
                )
            if x.dtype != self.keys.dtype:
                raise TypeError(
                    f"the {name} are of another type than the cache; "
                    f"expected {self.keys.dtype}; got {x.dtype}"
                )
            if x.requires_grad:
                raise TypeError(
                    "a cache is not for training; expected a call under "
                    f"torch.inference_mode(); got {name} that record "
                    "gradients"
                )


def _whole(number, name):
    """The number, if it is one to count with."""
    if isinstance(number, bool):
        raise TypeError(
            f"a {name} is no number; expected an integer; got {number}"
        )
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(
            f"a {name} is no whole number; expected an integer; got {number}"
        ) from None


class GrowingCache:
    """The plain way: one tensor a layer that grows by concatenation.

    Every step copies all that is there. For rows of one length; it stands
    beside `KVCache` to be compared with it.
    """

    def __init__(self, n_layers: int) -> None:
        self.layers: list[tuple[Tensor, Tensor] | None] = [None] * n_layers
        self.length = 0
        self.bytes_copied = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values that are kept."""
        return sum(k.nbytes + v.nbytes for k, v in filter(None, self.layers))

    def place(
        self, batch: int, n_tokens: int, real: Tensor | None = None
    ) -> Places:
        """Where the next tokens go: behind the others.

        Raises:
            ValueError: padding.
        """
        if real is not None and not real.all():
            raise ValueError(
                "this cache knows no padding; expected rows of one length; "
                f"got lengths {real.sum(-1).tolist()}"
            )
        end = self.length + n_tokens
        device = None if self.layers[0] is None else self.layers[0][0].device
        positions = torch.arange(self.length, end, device=device)
        return Places(positions, [end] * batch, self.length)

    def layer(self, index: int, places: Places) -> LayerCache:
        """One layer's part of the cache."""
        return _Layer(self, index, places)

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """New keys and values behind the old ones: (B, H_kv, S, d_k)."""
        if self.layers[index] is not None:
            old_k, old_v = self.layers[index]
            k = torch.cat([old_k[:, :, : self.length], k], -2)
            v = torch.cat([old_v[:, :, : self.length], v], -2)
        self.layers[index] = k, v
        self.bytes_copied += k.nbytes + v.nbytes
        return k, v

    def commit(self, places: Places) -> None:
        """Count the tokens in."""
        self.length = places.lengths[0]


class _Layer(NamedTuple):
    cache: KVCache | GrowingCache
    index: int
    places: Places

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.write(self.index, k, v, self.places)
