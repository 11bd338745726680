"""Models whose layers have a state, alone or beside layers of attention.

`StateLayer` takes the place of attention in a block; `StateCache` holds what
such layers have left of a text, and keys and values for the other layers;
`StateGPT` is a GPT of both kinds of layers, a hybrid.

Axis names: B rows, H heads, T tokens, C channels, w taps of the convolution;
width d_k of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.attention import check_heads, merge_heads, split_heads
from attnbook.cache import KVCache, LayerCache, Places
from attnbook.gpt import GPT, GPTConfig, RunBlock
from attnbook.norms import RMSNorm
from attnbook.shapes import check_tokens
from attnbook.state import in_chunks, short_convolution
from attnbook.values import check_sizes, whole


class StateLayer(nn.Module):
    """A layer that reads and writes a state, where attention has keys.

    Queries, keys and values are made of the token and the `taps` − 1 tokens
    before it. Queries and keys are brought to length 1, and β and α are
    computed from the token, a pair for each head. There are no biases but
    that of α, and no positions: the order is in the state.

    Args:
        d_model: the width of a token; each head has d_k = d_model / n_heads.
        n_heads: the number of heads.
        taps: how many tokens the short convolution sees.
        delta: the delta rule with gates, else plain linear attention, whose
            α and β are 1.

    Shapes: x (B, T, d_model) → the same.

    Raises:
        TypeError, ValueError: sizes that do not fit.

    Source: Yang, Kautz and Hatamizadeh (2025), arXiv:2412.06464, figure 1,
    here without the gate of the output, and with α = sigmoid.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        taps: int = 4,
        delta: bool = True,
    ) -> None:
        super().__init__()
        check_heads(d_model, n_heads)
        check_sizes(taps=taps)
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.delta = delta
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.convolution = nn.Parameter(torch.empty(3 * d_model, taps))
        self.write = nn.Linear(d_model, n_heads, bias=False)  # of β
        self.keep = nn.Linear(d_model, n_heads)  # of α
        self.norm = RMSNorm(self.d_head)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.start()

    def start(self) -> None:
        """Begin with a convolution that is nearly the token itself, and with
        heads that keep from 0.88 of their state at a token to 0.998."""
        with torch.no_grad():
            nn.init.normal_(self.convolution, std=0.1)
            self.convolution[:, -1] += 1
            self.keep.bias.copy_(torch.linspace(2, 6, self.n_heads))

    def forward(
        self,
        x: Tensor,
        *,
        real: Tensor | None = None,
        fresh: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """What each token reads: (B, T, d_model).

        Args:
            real: False at padding, (B, T). Padding writes nothing and fades
                nothing, and what comes out there means nothing.
            fresh: True where a new text begins, (B, T).
            cache: the layer's part of a `StateCache`: the state that earlier
                tokens have left.

        Raises:
            TypeError: x is no tensor, or not of the weights' type.
            ValueError: x has another width, or is empty.
        """
        check_tokens(self.qkv.weight, "B T d_model", x)
        order = None
        if real is not None:
            x, real, order = real_first(x, real)
        made = self.qkv(x)  # (B, T, 3 · d_model)
        tail, state = self._kept(x, cache)
        mixed = F.silu(short_convolution(made, self.convolution, tail, fresh))
        parts = (split_heads(a, self.n_heads) for a in mixed.chunk(3, -1))
        q, k, v = parts  # (B, H, T, d_k) each
        q, k = (F.normalize(a, dim=-1, eps=1e-6) for a in (q, k))
        beta, log_alpha = self._gates(x, real)
        at = None if fresh is None else fresh[:, None].expand_as(beta)
        out, state = in_chunks(
            q, k, v, beta, log_alpha, state, delta=self.delta, fresh=at
        )
        if cache is not None:
            seen = torch.cat([tail, made], 1)  # (B, taps − 1 + T, 3 · d_model)
            tail = last_of(seen, tail, real)
            _states_of(cache).remember(cache.number, state, tail)
        out = self.out(merge_heads(self.norm(out)))
        if order is not None:  # back to where the tokens were
            out = torch.zeros_like(out).scatter(1, order.expand_as(out), out)
        return out

    def _gates(self, x, real):
        """β and log α of each head and token, (B, H, T)."""
        beta = torch.sigmoid(self.write(x)).mT
        log_alpha = F.logsigmoid(self.keep(x)).mT
        if not self.delta:
            beta = torch.ones_like(beta)
            log_alpha = torch.zeros_like(log_alpha)
        if real is not None:  # padding writes nothing and fades nothing
            beta = beta * real[:, None]
            log_alpha = log_alpha * real[:, None]
        return beta, log_alpha

    def _kept(self, x, cache):
        """The tokens before x as the convolution saw them, and the state."""
        B, d = len(x), self.d_head
        if cache is not None:
            return _states_of(cache).recall(cache.number)
        before = self.convolution.shape[1] - 1
        tail = x.new_zeros(B, before, len(self.convolution))
        return tail, x.new_zeros(B, self.n_heads, d, d)


def real_first(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bring the real tokens of each row to its front, in their order.

    Then padding is never between two of them, where a convolution would see
    it.

    Returns:
        x (B, T, d) and `real` (B, T) in the new order, and the column from
        which each token came, (B, T, 1).
    """
    real = real.bool()
    order = torch.sort((~real).long(), stable=True).indices  # (B, T)
    columns = order[..., None]
    return x.gather(1, columns.expand_as(x)), real.gather(1, order), columns


def last_of(seen: Tensor, tail: Tensor, real: Tensor | None) -> Tensor:
    """The last real tokens of each row, as many as `tail` has: (B, w, C).

    `seen` (B, w + T, C) is `tail` and the new tokens after it; of the new
    ones only the first are real, as `real` (B, T) says.
    """
    w = tail.shape[1]
    if real is None:
        return seen[:, seen.shape[1] - w :]
    columns = torch.arange(w, device=seen.device)
    at = real.sum(-1, keepdim=True) + columns  # (B, w)
    return seen.gather(1, at[..., None].expand(-1, -1, seen.shape[-1]))


class StateCache(KVCache):
    """States of some layers, and the keys and values of the others.

    A row's state has the same size after one token as after a million. It
    cannot be cut back: what a token has written is mixed with all the rest.

    Args:
        batch: B, how many texts are kept.
        capacity: how many tokens each may have in layers with keys.
        state_layers: the numbers of the layers that have a state.
        n_layers: of the model.
        taps: of the convolution, of which the last tokens are kept.
        sizes: what else `KVCache` takes.

    Raises:
        TypeError, ValueError: a size that is no whole number from 1 on.
    """

    def __init__(
        self,
        batch: int,
        capacity: int,
        *,
        state_layers: Sequence[int],
        n_layers: int,
        n_heads: int,
        d_k: int,
        taps: int = 4,
        **options: Any,
    ) -> None:
        with_keys = [n for n in range(n_layers) if n not in {*state_layers}]
        self._place_of = {n: i for i, n in enumerate(with_keys)}
        n_kept = max(1, len(with_keys))
        sizes = {"n_layers": n_kept, "n_heads": n_heads, "d_k": d_k}
        super().__init__(batch, capacity, **sizes, **options)
        if not with_keys:  # then no memory is held for keys
            self.keys = self.keys[:0].clone()
            self.values = self.values[:0].clone()
        width = 3 * n_heads * d_k
        L = len(state_layers)
        self._number_of = {n: i for i, n in enumerate(state_layers)}
        with torch.inference_mode(False):
            shape = L, batch, n_heads, d_k, d_k
            self.states = torch.zeros(*shape, **options)
            self.tails = torch.zeros(L, batch, taps - 1, width, **options)
        self._new: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def capacity(self) -> Any:
        """How many tokens a row can hold; infinite without layers of keys."""
        return self.keys.shape[-2] if len(self.keys) else float("inf")

    @property
    def nbytes(self) -> int:
        """The bytes of its memory: keys, values, states, and tails."""
        return super().nbytes + self.states.nbytes + self.tails.nbytes

    def place(
        self, batch: int, n_tokens: int, real: Tensor | None = None
    ) -> Places:
        """Say where the next tokens go; see `KVCache.place`. What a call that
        failed has left is forgotten."""
        self._new = {}
        return super().place(batch, n_tokens, real)

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer that has them; see `KVCache.write`."""
        return super().write(self._place_of[index], k, v, places)

    def recall(self, index: int) -> tuple[Tensor, Tensor]:
        """What a layer has left of all tokens so far: the last few as its
        convolution saw them, (B, taps − 1, 3·H·d_k), and its state, (B, H,
        d_k, d_k)."""
        n = self._number_of[index]
        return self.tails[n], self.states[n]

    def remember(self, index: int, state: Tensor, tail: Tensor) -> None:
        """Note what a layer leaves. It counts from `commit` on, so that a
        call that fails leaves the states as they were.

        Raises:
            TypeError: a state that records gradients.
        """
        if state.requires_grad:
            raise TypeError(
                "the state records gradients, which a cache cannot keep; "
                "expected a call under torch.inference_mode() or "
                "torch.no_grad(); got requires_grad=True"
            )
        self._new[index] = state, tail

    def commit(self, places: Places) -> None:
        """Count the new tokens in, once all layers have read them."""
        for index, (state, tail) in self._new.items():
            n = self._number_of[index]
            self.states[n] = state
            self.tails[n] = tail
        self._new = {}
        super().commit(places)

    def trim(self, lengths: Any) -> None:
        """Forget all tokens.

        Raises:
            ValueError: a length other than 0.
        """
        if lengths != 0:
            raise ValueError(
                "a state cannot go back, since what each token wrote is mixed "
                "with all the rest; expected 0, to forget all, or a copy that "
                f"was made before; got {lengths!r}"
            )
        super().trim(0)
        self.states.zero_()
        self.tails.zero_()

    def select(self, rows: Sequence[int]) -> None:
        """Keep some rows only, in the order in which they are given.

        Raises:
            ValueError: no rows, or one that there is not.
        """
        super().select(rows)
        with torch.inference_mode(False):
            self.states = self.states[:, rows]
            self.tails = self.tails[:, rows]


def _states_of(cache: LayerCache) -> StateCache:
    """The cache that a layer's view belongs to, which has states.

    Raises:
        TypeError: it keeps keys and values only.
    """
    if not isinstance(cache.cache, StateCache):
        raise TypeError(
            "a layer with a state was given a cache without states; expected "
            f"a StateCache; got a {type(cache.cache).__name__}"
        )
    return cache.cache


class StateGPT(GPT):
    """A GPT whose layers have states, but for every few, which attend.

    Counted from 1, layers number `every`, 2 · `every` and so on have
    attention; 0 leaves no layer with attention.

    Args:
        config: the sizes. Positions are for the layers with attention.
        every: which layers attend.
        layer: options of `StateLayer`, `taps` and `delta`.

    Raises:
        TypeError, ValueError: an `every` that is no whole number from 0 on,
            or heads that share keys, or a width of heads of its own.
    """

    def __init__(
        self, config: GPTConfig, *, every: int = 4, **layer: Any
    ) -> None:
        super().__init__(config)
        every = whole("every", every, at_least=0)
        if config.n_kv_heads or config.d_head:
            raise ValueError(
                "a model with states has heads of one kind; expected no "
                f"n_kv_heads and no d_head; got {config.n_kv_heads} and "
                f"{config.d_head}"
            )
        numbers = range(config.n_layers)
        attending = {n for n in numbers if every and (n + 1) % every == 0}
        self.state_layers = [n for n in numbers if n not in attending]
        self.taps = layer.get("taps", 4)
        states = [
            StateLayer(config.d_model, config.n_heads, **layer)
            for _ in self.state_layers
        ]
        for n, state in zip(self.state_layers, states):
            self.blocks[n].attention = state
        self._initialise()
        for state in states:
            state.start()

    def new_cache(self, batch: int, capacity: int | None = None) -> StateCache:
        """An empty cache for the states, and for the keys where there are
        any; see `GPT.new_cache`."""
        config = self.config
        weight = self.token_embedding.weight
        return StateCache(
            batch,
            config.context if capacity is None else capacity,
            state_layers=self.state_layers,
            n_layers=config.n_layers,
            n_heads=config.n_heads,
            d_k=config.head_width(),
            taps=self.taps,
            dtype=weight.dtype,
            device=weight.device,
        )

    def _plan(self, tokens, real, places, segments=None):
        """What each block is told; the states need `real` and `fresh`, too."""
        plan = super()._plan(tokens, real, places, segments)
        fresh = None
        if segments is not None:
            fresh = plan["positions"] == 0
        return plan | {"real": real, "fresh": fresh}

    def run_blocks(
        self,
        x: Tensor,
        run_block: RunBlock | None = None,
        *,
        cache: KVCache | None = None,
        places: Places | None = None,
        real: Tensor | None = None,
        fresh: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """Send the residual stream through all blocks; see `GPT.run_blocks`.

        Args:
            real, fresh: what `StateLayer.forward` takes; the other options
                are those of attention.
        """
        states = {*self.state_layers}

        def one_block(n: int, block: Any, x: Tensor) -> Tensor:
            part = None
            if cache is not None and places is not None:
                part = LayerCache(cache, n, places)
            if n in states:
                return block(x, real=real, fresh=fresh, cache=part)
            return block(x, **options, cache=part)

        return super().run_blocks(x, run_block or one_block)
