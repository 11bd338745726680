"""A GPT whose queries see only the last keys and the first few.

This is all that a `cache.RollingCache` holds, so a text can go on without
end. The first few keys are called sinks: trained models put much of their
attention there, and fail without them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.cache import Places, RollingCache
from attnbook.gpt import GPT
from attnbook.masks import causal_mask, combine, window_mask
from attnbook.shapes import expect
from attnbook.values import whole

#: Kinds of positions that a rolling cache can have: they have no end, and
#: need no bias for keys that are gone.
ENDLESS = ("rotary", "sinusoidal", "none")


def sink_mask(
    n_queries: int, n_keys: int | None = None, *, window: int, sinks: int = 0
) -> Tensor:
    """True at the last `window` keys and the first `sinks`: shape (T, S).

    Later keys are forbidden. The queries are the last `n_queries` of the
    `n_keys` positions.

    >>> sink_mask(4, window=2, sinks=1).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]

    Raises:
        TypeError, ValueError: numbers that are not whole, a window below 1,
            sinks below 0, fewer keys than queries.

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
    """Logits of a GPT that sees a window and sinks: (B, T, vocab_size).

    Args:
        tokens: integers (B, T), without padding. With a cache they are the
            next tokens of its texts.
        cache: the keys and values of earlier tokens, as many as are seen.
        sizes: `window`, and `sinks` if there are any, for a call without a
            cache; with one they are the cache's.

    Raises:
        TypeError: tokens that are not integers.
        ValueError: a model whose positions end or need a bias (see
            `ENDLESS`); sizes that are no whole numbers in their range.
    """
    expect("integer", tokens=(tokens, "B T"))
    if model.config.positions not in ENDLESS:
        raise ValueError(
            "this model cannot read a text through a window, because its "
            f"positions end or need a bias; expected {', '.join(ENDLESS)}; "
            f"got {model.config.positions!r}"
        )
    B, T = tokens.shape
    if cache is None:
        places = Places(torch.arange(T, device=tokens.device), [T] * B)
        mask = sink_mask(T, **sizes)  # (T, T)
    else:
        places = cache.place(B, T)
        mask = sink_mask(
            T, places.n_keys, window=cache.window, sinks=cache.sinks
        )
        # The positions whose keys are still in the cache, and the new ones.
        kept = torch.cat([cache.kept(places.start), places.positions])
        mask = mask[:, kept.cpu()]  # (T, kept + T)
    x = model.embed(tokens, places.positions)
    x = model.run_blocks(
        x,
        cache=cache,
        places=places,
        mask=mask[None, None].to(tokens.device),  # for all texts and heads
        positions=places.positions,
    )
    logits = model.unembed(x)  # (B, T, vocab_size)
    if cache is not None:
        cache.commit(places)
    return logits
