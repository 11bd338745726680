"""The KV cache: keys and values of earlier tokens, kept for later ones.

A cache is filled in three moves. `place` says where new tokens go and
changes nothing; each layer of the model writes its keys and values there and
reads all so far; `commit` counts them in. What fails in between leaves the
cache as it was: slots that no token has been counted into are never read.

Axis names: L layers, B rows (sequences), H_kv heads of keys and values,
C capacity, T new tokens, S tokens so far with the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.config import whole
from attnbook.positions import token_positions
from attnbook.shapes import expect


class Places(NamedTuple):
    """Where new tokens go.

    `positions` counts from a row's first token: (T,) where all rows are as
    long, else (B, T). `lengths` are those of the rows afterwards, `start`
    is the first new slot of all rows; where it differs, `slots` are the
    rows, the columns and the slots of the tokens, (N,) each.
    """

    positions: Tensor
    lengths: list[int]
    start: int = 0
    slots: tuple[Tensor, Tensor, Tensor] | None = None

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
        device: torch.device | str | None = None,
    ) -> None:
        sizes = dict(
            n_layers=n_layers,
            batch=batch,
            n_heads=n_heads,
            capacity=capacity,
            d_k=d_k,
        )
        shape = [whole(n, size, at_least=1) for n, size in sizes.items()]
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
        n_tokens = whole("n_tokens", n_tokens, at_least=1)
        device = self.keys.device
        offsets = torch.arange(n_tokens, device=device)  # (T,)
        new = [n_tokens] * batch
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
        start = self.lengths[0]
        if self.lengths == [start] * rows and new == [n_tokens] * rows:
            positions = torch.arange(n_tokens, device=device) + start
            return Places(positions, lengths, start)
        if real is None:
            real = torch.ones(batch, n_tokens, dtype=torch.bool)
        real = real.to(device)
        before = torch.tensor(self.lengths, device=device)  # (B,)
        positions = (offsets + before[:, None]) * real  # (B, T)
        at = real.nonzero(as_tuple=True)  # rows and columns, (N,) each
        slots = at[0], at[1], positions[at]
        return Places(positions, lengths, slots=slots)

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
        if places.slots is None:
            new = slice(places.start, places.start + k.shape[-2])
            keys[:, :, new], values[:, :, new] = k, v
        else:
            rows, columns, slots = places.slots
            keys[rows, :, slots] = k[rows, :, columns]
            values[rows, :, slots] = v[rows, :, columns]
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
        if not isinstance(lengths, Sequence):
            lengths = [lengths] * len(self.lengths)
        wanted = [whole("length", length) for length in lengths]
        if len(wanted) != len(self.lengths) or not all(
            0 <= new <= old for new, old in zip(wanted, self.lengths)
        ):
            raise ValueError(
                "the lengths cannot be cut so; expected for each row one "
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
        n = len(self.lengths)
        rows = [whole("row", row, at_least=0, below=n) for row in rows]
        if not rows:
            raise ValueError("no row is left; expected at least one; got []")
        lengths = [self.lengths[row] for row in rows]
        with torch.inference_mode(False):
            keys, values = self.keys[:, rows], self.values[:, rows]
        self.keys, self.values, self.lengths = keys, values, lengths

    def grow(self, capacity: int) -> None:
        """Take room for `capacity` tokens a row; what is there is copied.

        Raises:
            ValueError: no more than there is.
            TypeError: a capacity that is no whole number.
        """
        more = whole("capacity", capacity, above=self.capacity) - self.capacity
        with torch.inference_mode(False):
            self.keys = F.pad(self.keys, (0, 0, 0, more))
            self.values = F.pad(self.values, (0, 0, 0, more))

    def _empty(self, starts, ends):
        """Write 0 into each row's slots from its start to its end."""
        for row, (start, end) in enumerate(zip(starts, ends)):
            self.keys[:, row, :, start:end] = 0
            self.values[:, row, :, start:end] = 0

    def _check(self, index, k, v, places):
        L, B, H, _, d_k = self.keys.shape
        whole("the layer", index, at_least=0, below=L)
        T = places.positions.shape[-1]
        axes = f"{B} {H} {T} {d_k}"
        expect(self.keys.dtype, keys=(k, axes), values=(v, axes))
        for name, x in {"keys": k, "values": v}.items():
            if x.device != self.keys.device:
                raise ValueError(
                    f"{name} are on another device than the cache; "
                    f"expected {self.keys.device}; got {x.device}"
                )
            if x.requires_grad:
                raise TypeError(
                    f"{name} record gradients; expected a call under "
                    "torch.inference_mode(), as a cache is not for training; "
                    "got requires_grad=True"
                )


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
        first = self.layers[0]
        device = None if first is None else first[0].device
        positions = torch.arange(self.length, end, device=device)
        return Places(positions, [end] * batch, self.length)

    def layer(self, index: int, places: Places) -> LayerCache:
        """One layer's part of the cache."""
        return _Layer(self, index, places)

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """New keys and values behind the old ones: (B, H_kv, S, d_k)."""
        old = self.layers[index]
        if old is not None:
            k = torch.cat([old[0][:, :, : self.length], k], -2)
            v = torch.cat([old[1][:, :, : self.length], v], -2)
        self.layers[index] = k, v
        self.bytes_copied += k.nbytes + v.nbytes
        return k, v

    def commit(self, places: Places) -> None:
        """Count the tokens in."""
        self.length = places.lengths[0]


class _Layer(NamedTuple):
    cache: KVCache | GrowingCache
    number: int
    places: Places

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.write(self.number, k, v, self.places)
