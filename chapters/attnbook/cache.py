"""The KV cache: keys and values of earlier tokens, kept for later ones.

A cache is filled in three moves. `place` says where new tokens go and
counts none in; each layer of the model writes its keys and values there and
reads all so far; `commit` counts them in. What fails in between leaves the
cache as it was: slots that no token has been counted into are never read.

Axis names: L layers, B rows (sequences), H_kv heads of keys and values,
C capacity, T new tokens, S tokens so far with the new ones.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.positions import token_positions
from attnbook.shapes import expect
from attnbook.values import bad_value, check_sizes, whole


class Places(NamedTuple):
    """Where new tokens go, and how long the rows are afterwards.

    `positions` counts from a row's first token: (T,) where all rows are as
    long, else (B, T). `start` is the first new slot of all rows; where it
    differs, `slots` are rows, columns and slots of the tokens, (N,) each.
    """

    positions: Tensor
    lengths: list[int]
    start: int = 0
    slots: tuple[Tensor, ...] | None = None

    @property
    def n_keys(self) -> int:
        """Keys to look at, S; one even if there is nothing but padding."""
        return max(1, *self.lengths)


class KVCache:
    """Keys and values in memory that is taken once, a length for each row.

    The slot of a token is its position: padding is not kept, so rows of
    unequal length stand side by side, each from slot 0 on.

    Shapes: keys (L, B, H_kv, C, d_k), values (L, B, H_kv, C, d_v); d_v is
    d_k if not given.
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
        **options: Any,
    ) -> None:
        d_v = d_k if d_v is None else d_v
        check_sizes(batch=batch, capacity=capacity, n_heads=n_heads, d_k=d_k)
        check_sizes(n_layers=n_layers, d_v=d_v)
        shape = n_layers, batch, n_heads, capacity
        # Zeros: memory as it comes may hold NaN, and weight 0 times NaN is
        # NaN. Made in inference mode, it could not be written outside it.
        with torch.inference_mode(False):
            self.keys = torch.zeros(*shape, d_k, **options)
            self.values = torch.zeros(*shape, d_v, **options)
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
        """Bytes that it takes: L · B · H_kv · C · (d_k + d_v) · size."""
        return self.keys.nbytes + self.values.nbytes

    def place(
        self, batch: int, n_tokens: int, real: Tensor | None = None
    ) -> Places:
        """Where the next tokens go, (B, T); nothing is counted in yet.

        `real` (B, T) is False at padding, whose place means nothing. Another
        number of rows, or no room for the tokens, is a ValueError.
        """
        rows = len(self.lengths)
        if batch != rows:
            raise bad_value(
                ValueError, "the batch", batch, f"the cache's {rows}"
            )
        n_tokens = whole("n_tokens", n_tokens, at_least=1)
        device = self.keys.device
        offsets = columns = torch.arange(n_tokens, device=device)  # (T,)
        new = [n_tokens] * batch
        if real is not None:
            offsets = token_positions(real).to(device)  # (B, T)
            new = real.sum(-1).tolist()
        lengths = [a + b for a, b in zip(self.lengths, new)]
        if max(lengths) > self.capacity:
            row = lengths.index(max(lengths))
            raise ValueError(
                f"the cache is too small; expected {self.capacity} tokens a "
                f"row; got {self.lengths[row]} + {new[row]} in row {row}"
            )
        if self._written:  # a call has failed, perhaps of a NaN
            self._empty(self.lengths, [self._written] * rows)
            self._written = 0
        start = self.lengths[0]
        if self.lengths == [start] * rows and new == [n_tokens] * rows:
            return Places(columns + start, lengths, start)
        if real is None:
            real = torch.ones(batch, n_tokens, dtype=torch.bool)
        real = real.to(device)
        before = torch.tensor(self.lengths, device=device)  # (B,)
        positions = (offsets + before[:, None]) * real  # (B, T)
        at = real.nonzero(as_tuple=True)  # rows and columns, (N,) each
        return Places(positions, lengths, slots=(*at, positions[at]))

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values of a layer, and give views of all so far.

        Shapes: k (B, H_kv, T, d_k), v (B, H_kv, T, d_v) → the same with S, of
        the longest row, for T; a shorter row's later slots are to be masked.
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
        """Forget what stands behind the first `lengths` tokens of each row."""
        rows = len(self.lengths)
        if not isinstance(lengths, Sequence):
            lengths = [lengths] * rows
        whole("number of lengths", len(lengths), at_least=rows, at_most=rows)
        wanted = [
            whole("length", new, at_least=0, at_most=old)
            for new, old in zip(lengths, self.lengths)
        ]
        # Emptied, not only forgotten: a NaN of an earlier request would
        # reach a shorter row's context through a weight of 0.
        self._empty(wanted, self.lengths)
        self.lengths = wanted

    def reset(self) -> None:
        """Forget everything; the memory is kept for the next request."""
        self.trim(0)

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows only, at least one, in this order."""
        n = len(self.lengths)
        rows = [whole("row", row, at_least=0, below=n) for row in rows]
        whole("number of rows", len(rows), at_least=1)
        with torch.inference_mode(False):
            self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.lengths = [self.lengths[row] for row in rows]

    def grow(self, capacity: int) -> None:
        """Take room for more tokens a row; what is there is copied."""
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
        axes = f"{B} {H} {places.positions.shape[-1]}"
        d_v = self.values.shape[-1]
        given = dict(keys=(k, f"{axes} {d_k}"), values=(v, f"{axes} {d_v}"))
        expect(self.keys.dtype, **given)
        for name, x in {"keys": k, "values": v}.items():
            if x.device != self.keys.device:
                device = f"the cache's {self.keys.device}"
                raise bad_value(
                    ValueError, f"{name}' device", x.device, device
                )
            if x.requires_grad:
                raise TypeError(
                    f"{name} record gradients; expected a call under "
                    "torch.inference_mode(); got requires_grad=True"
                )


class RollingCache(KVCache):
    """The last `window` keys and values, and the first `sinks`, of all rows.

    Position p stands in slot p if it is a sink's, else in a ring behind them:
    sinks + (p − sinks) mod window. It takes no padding.
    """

    def __init__(
        self, batch: int, window: int, *, sinks: int = 0, **sizes: Any
    ) -> None:
        self.window = whole("window", window, at_least=1)
        self.sinks = whole("sinks", sinks, at_least=0)
        super().__init__(batch, sinks + window, **sizes)
        self._new: dict[int, tuple[Tensor, Tensor]] = {}

    def kept(self, length: int) -> Tensor:
        """The positions whose keys a row of this length holds, in order."""
        sinks = range(min(self.sinks, length))
        ring = range(max(len(sinks), length - self.window), length)
        return torch.tensor([*sinks, *ring], device=self.keys.device).long()

    def _slots(self, positions):
        ring = self.sinks + (positions - self.sinks) % self.window
        return torch.where(positions < self.sinks, positions, ring)

    def place(
        self, batch: int, n_tokens: int, real: Tensor | None = None
    ) -> Places:
        """Where the next tokens go; there is always room."""
        rows, start = len(self.lengths), self.lengths[0]
        if batch != rows or real is not None:
            got = f"{batch} with{'out' * (real is None)} padding"
            raise bad_value(
                ValueError, "the batch", got, f"{rows} rows without"
            )
        end = start + whole("n_tokens", n_tokens, at_least=1)
        at = torch.arange(start, end, device=self.keys.device)
        return Places(at, [end] * rows, start)

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """What is kept, with the new behind it; only `commit` stores the new:
        the chunk's first queries may read what its last ones overwrite."""
        self._check(index, k, v, places)
        self._new[index] = k, v
        old = self._slots(self.kept(places.start))
        keys, values = (a[index][:, :, old] for a in (self.keys, self.values))
        return torch.cat([keys, k], -2), torch.cat([values, v], -2)

    def commit(self, places: Places) -> None:
        """Store what all layers have written, and count the tokens in."""
        new = self.kept(places.lengths[0])
        new = new[new >= places.start]
        to, chunk = self._slots(new), new - places.start
        for n, (k, v) in self._new.items():
            self.keys[n][:, :, to] = k[:, :, chunk]
            self.values[n][:, :, to] = v[:, :, chunk]
        super().commit(places)

    def trim(self, lengths: Any) -> None:
        """Forget everything: what a ring has overwritten does not return."""
        if lengths != 0:
            raise bad_value(ValueError, "lengths", lengths, "0 for a ring")
        super().trim(0)


class LayerCache(NamedTuple):
    """One layer's part of a cache, with the places of new tokens."""

    cache: KVCache
    number: int
    places: Places

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write k and v (B, H_kv, T, d) and give all: (B, H_kv, S, d)."""
        return self.cache.write(self.number, k, v, self.places)
