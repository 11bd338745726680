"""A GPT whose queries see only the last keys and the first few."""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.cache import Places, RollingCache
from attnbook.gpt import GPT
from attnbook.masks import causal_mask, combine, window_mask
from attnbook.shapes import expect
from attnbook.values import one_of, whole

#: Positions without end that need no bias: those that a ring may have.
ENDLESS = ("rotary", "sinusoidal", "none")


def sink_mask(
    n_queries: int, n_keys: int | None = None, *, window: int, sinks: int = 0
) -> Tensor:
    """Causal, with the last `window` keys and the first `sinks`: (T, S).

    Source: Xiao et al. (2024), arXiv:2309.17453, section 3.2, for the sinks.
    """
    near = window_mask(n_queries, n_keys, window=window)
    near[:, : whole("sinks", sinks, at_least=0)] = True
    return combine(causal_mask(n_queries, n_keys), near)


def read_window(
    model: GPT,
    tokens: Tensor,
    *,
    cache: RollingCache | None = None,
    **sizes: int,
) -> Tensor:
    """Logits (B, T, V) of a GPT that sees a window and sinks: tokens (B, T).

    `window` and `sinks` are given, or are those of the cache.
    """
    expect("integer", tokens=(tokens, "B T"))
    B, T = tokens.shape
    one_of("positions", model.config.positions, ENDLESS)
    places = Places(torch.arange(T, device=tokens.device), [T] * B)
    if cache is None:
        mask = sink_mask(T, **sizes)  # (T, T)
    else:
        places = cache.place(B, T)
        mask = sink_mask(
            T, places.n_keys, window=cache.window, sinks=cache.sinks
        )
        there = cache.kept(places.start), places.positions
        mask = mask[:, torch.cat(there).cpu()]  # (T, kept + T)
    mask = mask.to(tokens.device)
    x = model.embed(tokens, places.positions)
    x = model.run_blocks(
        x, cache=cache, places=places, mask=mask, positions=places.positions
    )
    logits = model.unembed(x)  # (B, T, V)
    if cache is not None:
        cache.commit(places)
    return logits
