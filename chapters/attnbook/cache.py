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
from attnbook.values import check_sizes, whole


class Places(NamedTuple):
    """Where the new tokens of a call go, and how long the rows become.

    `KVCache.place` makes it, every layer writes by it, and `KVCache.commit`
    counts the tokens in.
    """

    #: The position of each new token in its row, counted from the row's
    #: first: (T,) where all rows are as long, else (B, T).
    positions: Tensor
    #: How many tokens each row has afterwards.
    lengths: list[int]
    #: The first new slot, if it is the same in all rows.
    start: int = 0
    #: If it differs: the row, the column of the call and the slot of every
    #: real token, each (N,).
    slots: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def n_keys(self) -> int:
        """How many keys there are to look at, S. At least one, so that no
        tensor is empty where there is nothing but padding."""
        return max(1, *self.lengths)


class KVCache:
    """Keys and values in memory that is taken once.

    Each row has a length of its own. A token is kept in the slot that is its
    position, and padding is not kept, so rows of different lengths lie side
    by side, each from slot 0 on.

    Args:
        batch: B, how many texts are kept.
        capacity: C, how many tokens each may have.
        n_heads: H_kv, heads of keys and values.
        d_k, d_v: width of a key and of a value; d_v is d_k if not given.
        options: of the memory, `dtype` and `device`.

    Shapes: keys (L, B, H_kv, C, d_k), values (L, B, H_kv, C, d_v).

    Raises:
        TypeError, ValueError: a size that is no whole number from 1 on.
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
        if d_v is None:
            d_v = d_k
        check_sizes(batch=batch, capacity=capacity, n_layers=n_layers)
        check_sizes(n_heads=n_heads, d_k=d_k, d_v=d_v)
        shape = n_layers, batch, n_heads, capacity
        # Zeros, because memory as it comes may hold NaN, and a weight of 0
        # times NaN is NaN. Not in inference mode, because such a tensor could
        # not be written outside of it.
        with torch.inference_mode(False):
            self.keys = torch.zeros(*shape, d_k, **options)
            self.values = torch.zeros(*shape, d_v, **options)
        self.lengths = [0] * batch
        # How far a call has written that did not get as far as counting its
        # tokens: what failed in between must not stay in memory.
        self._written = 0
        #: Bytes of keys and values that have been written so far.
        self.bytes_copied = 0

    @property
    def capacity(self) -> int:
        """How many tokens each row has memory for, C, used or not."""
        return self.keys.shape[-2]

    @property
    def nbytes(self) -> int:
        """The bytes of its memory: L · B · H_kv · C · (d_k + d_v) · size,
        where a number takes `size` bytes."""
        return self.keys.nbytes + self.values.nbytes

    def place(
        self, batch: int, n_tokens: int, real: Tensor | None = None
    ) -> Places:
        """Say where the next tokens go. None of them is counted in yet.

        Args:
            batch, n_tokens: B and T, the shape of the new tokens.
            real: (B, T), False at padding, which gets no slot.

        Raises:
            ValueError: another number of rows than the cache has, or no room
                for the tokens.
        """
        rows = len(self.lengths)
        if batch != rows:
            raise ValueError(
                f"the batch does not fit the cache; expected {rows} rows, as "
                f"the cache has; got {batch}"
            )
        n_tokens = whole("n_tokens", n_tokens, at_least=1)
        device = self.keys.device
        columns = torch.arange(n_tokens, device=device)  # (T,)
        offsets = columns
        new = [n_tokens] * batch  # how many real tokens each row gets
        if real is not None:
            offsets = token_positions(real).to(device)  # (B, T)
            new = real.sum(-1).tolist()
        lengths = [a + b for a, b in zip(self.lengths, new)]
        if max(lengths) > self.capacity:
            row = lengths.index(max(lengths))
            raise ValueError(
                f"the cache is too small; expected at most {self.capacity} "
                f"tokens in a row; got {self.lengths[row]} + {new[row]} in "
                f"row {row}"
            )
        if self._written:
            # The last call failed before it was counted in, perhaps because
            # of a NaN, which must not stay in memory.
            self._empty(self.lengths, [self._written] * rows)
            self._written = 0
        start = self.lengths[0]
        if self.lengths == [start] * rows and new == [n_tokens] * rows:
            return Places(columns + start, lengths, start)
        if real is None:
            real = torch.ones(batch, n_tokens, dtype=torch.bool)
        return self._uneven_places(offsets, real.to(device), lengths)

    def _uneven_places(
        self, offsets: Tensor, real: Tensor, lengths: list[int]
    ) -> Places:
        """The places where rows differ in length or in what is real.

        Args:
            offsets: the place of each token among the new ones of its row,
                (T,) or (B, T).
            real: (B, T), False at padding.
            lengths: of the rows afterwards.
        """
        before = torch.tensor(self.lengths, device=real.device)  # (B,)
        positions = (offsets + before[:, None]) * real  # (B, T)
        at = real.nonzero(as_tuple=True)  # rows and columns, (N,) each
        slots = (at[0], at[1], positions[at])
        return Places(positions, lengths, slots=slots)

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values, and return all of its own.

        What is returned are views of the memory, so nothing is copied. In a
        row that is shorter than the longest the later slots are to be
        masked.

        Shapes: k (B, H_kv, T, d_k), v (B, H_kv, T, d_v) → (B, H_kv, S, d_k)
        and (B, H_kv, S, d_v), S being the length of the longest row.
        """
        self._check(index, k, v, places)
        keys = self.keys[index]  # (B, H_kv, C, d_k)
        values = self.values[index]  # (B, H_kv, C, d_v)
        S = places.n_keys
        self._written = S
        if places.slots is None:
            new = slice(places.start, places.start + k.shape[-2])
            keys[:, :, new] = k
            values[:, :, new] = v
        else:
            rows, columns, slots = places.slots
            keys[rows, :, slots] = k[rows, :, columns]
            values[rows, :, slots] = v[rows, :, columns]
        self.bytes_copied += k.nbytes + v.nbytes
        return keys[:, :, :S], values[:, :, :S]

    def slots(self, places: Places, n: int) -> tuple[Tensor, Tensor]:
        """The first n slots of all layers, for a step that writes by itself.

        The step is to write the new keys and values of every layer where
        `places` says. What is returned are views of the memory, so nothing is
        copied.

        Shapes: keys (L, B, H_kv, n, d_k), values (L, B, H_kv, n, d_v).
        """
        n = whole("n", n, at_least=places.n_keys, at_most=self.capacity)
        self._written = places.n_keys
        keys = self.keys[..., :n, :]
        values = self.values[..., :n, :]
        new = places.positions.shape[-1] * len(self.lengths)
        a_token = keys[:, :1, :, :1].nbytes + values[:, :1, :, :1].nbytes
        self.bytes_copied += new * a_token
        return keys, values

    def commit(self, places: Places) -> None:
        """Count the new tokens in, once all layers have written."""
        self.lengths = places.lengths
        self._written = 0

    def trim(self, lengths: int | Sequence[int]) -> None:
        """Forget all tokens of a row but its first few.

        Args:
            lengths: how many tokens are kept, one number for all rows or one
                for each.

        Raises:
            ValueError: another number of lengths than there are rows, or a
                length above that of the row.
        """
        rows = len(self.lengths)
        if not isinstance(lengths, Sequence):
            lengths = [lengths] * rows
        whole("number of lengths", len(lengths), at_least=rows, at_most=rows)
        wanted = [
            whole("length", new, at_least=0, at_most=old)
            for new, old in zip(lengths, self.lengths)
        ]
        # The slots are set to 0 as well: a NaN that an earlier request left
        # there would reach another row's context, since 0 · NaN is NaN.
        self._empty(wanted, self.lengths)
        self.lengths = wanted

    def reset(self) -> None:
        """Forget the tokens of all rows, to serve other texts.

        The memory is kept, because to take it anew costs time. It is filled
        with 0.
        """
        self.trim(0)

    def select(self, rows: Sequence[int]) -> None:
        """Keep some rows only, in the order in which they are given.

        Raises:
            ValueError: no rows, or one that there is not.
        """
        n = len(self.lengths)
        rows = [whole("row", row, at_least=0, below=n) for row in rows]
        whole("number of rows", len(rows), at_least=1)
        with torch.inference_mode(False):
            self.keys = self.keys[:, rows]
            self.values = self.values[:, rows]
        self.lengths = [self.lengths[row] for row in rows]

    def grow(self, capacity: int) -> None:
        """Make room for more tokens in each row, by copying what is there.

        Raises:
            ValueError: a capacity that is no larger than the present one.
        """
        capacity = whole("capacity", capacity, above=self.capacity)
        more = capacity - self.capacity
        with torch.inference_mode(False):
            self.keys = F.pad(self.keys, (0, 0, 0, more))
            self.values = F.pad(self.values, (0, 0, 0, more))

    def _empty(self, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Write 0 into each row's slots from its start to its end."""
        for row, (start, end) in enumerate(zip(starts, ends)):
            self.keys[:, row, :, start:end] = 0
            self.values[:, row, :, start:end] = 0

    def _check(self, index: int, k: Tensor, v: Tensor, places: Places) -> None:
        """Raise for keys and values that do not fit the cache."""
        L, B, H, _, d_k = self.keys.shape
        d_v = self.values.shape[-1]
        T = places.positions.shape[-1]
        whole("the layer", index, at_least=0, below=L)
        expect(
            self.keys.dtype,
            keys=(k, f"{B} {H} {T} {d_k}"),
            values=(v, f"{B} {H} {T} {d_v}"),
        )
        for name, x in {"keys": k, "values": v}.items():
            if x.device != self.keys.device:
                raise ValueError(
                    f"the {name} are on another device than the cache; "
                    f"expected {self.keys.device}; got {x.device}"
                )
            if x.requires_grad:
                raise TypeError(
                    f"the {name} record gradients, which a cache cannot keep; "
                    "expected a call under torch.inference_mode() or "
                    "torch.no_grad(); got requires_grad=True"
                )


class RollingCache(KVCache):
    """The last `window` keys and values of each row, and the first `sinks`.

    The token at position p is kept in slot p if it is one of the sinks. Else
    its slot is in a ring that follows them: sinks + (p − sinks) mod window.
    All rows have one length, and there is no padding.

    Args:
        batch: B, how many texts are kept.
        window: how many of the last tokens are kept.
        sinks: how many of the first tokens are kept besides.
        sizes: what else `KVCache` takes.

    Source: Xiao et al. (2023), arXiv:2309.17453, for the sinks.
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

    def _slots(self, positions: Tensor) -> Tensor:
        """The slots in which the tokens at some positions are kept.

        They are an integer tensor of the shape of `positions`. The first
        positions, the sinks, have a slot each for good. All later ones share
        the remaining slots as a ring: a token takes the place of the one that
        is `window` positions older.
        """
        ring = self.sinks + (positions - self.sinks) % self.window
        return torch.where(positions < self.sinks, positions, ring)

    def place(
        self, batch: int, n_tokens: int, real: Tensor | None = None
    ) -> Places:
        """Say where the next tokens go. There is always room.

        Raises:
            ValueError: another number of rows than the cache has, or padding.
        """
        rows = len(self.lengths)
        if batch != rows:
            raise ValueError(
                f"the batch does not fit the cache; expected {rows} rows, as "
                f"the cache has; got {batch}"
            )
        if real is not None:
            raise ValueError(
                "a rolling cache takes no padding, since all its rows have "
                "one length; expected texts of equal length and no mask of "
                "real tokens; got one"
            )
        start = self.lengths[0]
        end = start + whole("n_tokens", n_tokens, at_least=1)
        at = torch.arange(start, end, device=self.keys.device)
        return Places(at, [end] * rows, start)

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """Return a layer's kept keys and values with the new ones after them.

        The new ones are stored by `commit` only, because the first queries
        of a chunk may have to read what its last tokens overwrite.

        Shapes: as those of `KVCache.write`, with S the kept and the new.
        """
        self._check(index, k, v, places)
        self._new[index] = k, v
        old = self._slots(self.kept(places.start))
        keys = self.keys[index][:, :, old]
        values = self.values[index][:, :, old]
        return torch.cat([keys, k], -2), torch.cat([values, v], -2)

    def commit(self, places: Places) -> None:
        """Store what all layers have written, and count the tokens in."""
        new = self.kept(places.lengths[0])
        new = new[new >= places.start]
        to = self._slots(new)
        chunk = new - places.start  # where the token is among the new ones
        for n, (k, v) in self._new.items():
            self.keys[n][:, :, to] = k[:, :, chunk]
            self.values[n][:, :, to] = v[:, :, chunk]
        super().commit(places)

    def trim(self, lengths: Any) -> None:
        """Forget all tokens.

        Raises:
            ValueError: a length other than 0: what the ring has overwritten
                cannot come back.
        """
        if lengths != 0:
            raise ValueError(
                "a rolling cache cannot go back, since older keys have been "
                f"overwritten; expected 0, to forget all; got {lengths!r}"
            )
        super().trim(0)


class LayerCache(NamedTuple):
    """What a layer is handed: the cache, its own number, and the places of
    the new tokens."""

    cache: KVCache
    number: int
    places: Places

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new k and v, (B, H_kv, T, d), and return all of the
        layer's keys and values, (B, H_kv, S, d); see `KVCache.write`."""
        return self.cache.write(self.number, k, v, self.places)
