"""Prompts: what a model is given, and goes on from.

Texts of different lengths are put into one tensor (`pad_left`); what no model
could continue is refused before anything is computed (`check_prompt`); and of
a text that has become longer than the model's context, `window_start` says
which part the model reads.

Axis names: B prompts, T tokens of the longest.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.gpt import GPT
from attnbook.values import whole


def pad_left(
    sequences: Sequence[Sequence[int]], *, device: Any = None
) -> tuple[Tensor, Tensor | None]:
    """Put texts of different lengths into one tensor, padded on the left.

    On the left, so that the last token of every text is in the last column,
    where the next token is asked for.

    Returns:
        Tokens (B, T), T being the longest text, with 0 at padding; and a
        boolean tensor (B, T), True at real tokens, or None if nothing had to
        be padded.

    Raises:
        ValueError: no texts, or one without tokens.
    """
    lengths = [len(s) for s in sequences]
    if not lengths:
        raise ValueError("there are no prompts; expected at least one; got []")
    if min(lengths) == 0:
        raise _empty(f"prompt {lengths.index(0)}")
    T = max(lengths)
    rows = [[0] * (T - len(s)) + list(s) for s in sequences]
    tokens = torch.tensor(rows, device=device)  # (B, T)
    if min(lengths) == T:
        return tokens, None
    start = T - torch.tensor(lengths, device=device)  # (B,)
    return tokens, torch.arange(T, device=device) >= start[:, None]


def _empty(name: str) -> ValueError:
    """The error about a prompt of no tokens; `name` is what it is called."""
    return ValueError(
        f"{name} has no tokens; expected at least one for the model to go on "
        "from; got an empty list"
    )


def check_prompt(
    name: str, prompt: Any, model: GPT, n: int, stop: Sequence[int]
) -> None:
    """Raise if a model cannot continue a prompt.

    Args:
        name: what the prompt is called in the message.
        n: how many tokens are to be written at most.
        stop: tokens that end the text.

    Raises:
        TypeError: a prompt or stop tokens that are no list of whole numbers.
        ValueError: an empty prompt, a token outside the vocabulary, n below
            1, or a model whose dropout is on.
    """
    config = model.config
    for what, tokens in {name: prompt, "stop": stop}.items():
        if not isinstance(tokens, Sequence):
            raise TypeError(
                f"{what} is of the wrong type; expected a list of token "
                f"numbers, such as [1, 2]; got {tokens!r}"
            )
        for place, token in enumerate(tokens):
            called = f"token {place} of {what}"
            whole(called, token, at_least=0, below=config.vocab_size)
    if len(prompt) == 0:
        raise _empty(name)
    whole("max_new_tokens", n, at_least=1)
    if model.training and config.dropout:
        raise ValueError(
            f"the model is in training mode, where its dropout of "
            f"{config.dropout} changes every pass at random; expected "
            "evaluation mode: call model.eval() first"
        )


def window_start(length: int, context: int) -> int:
    """Where the part of a text begins that a model reads.

    A model has learned texts of up to `context` tokens, and writes nonsense
    (or cannot go on) when it is given more. A text that has become longer is
    therefore read through a window. The window does not move at every token,
    since all keys and values would have to be computed again each time: when
    it is full, the older half of a context is left out at once, the rest is
    read again, and then the cache serves for another half.

    The start depends on the length alone. So a text goes on in the same way
    in one call or in several, alone or in a batch, with a cache or without.

    >>> [window_start(length, 8) for length in (8, 9, 12, 13, 16, 17)]
    [0, 4, 4, 8, 8, 12]
    """
    if length <= context:
        return 0
    hop = max(1, context // 2)
    n_hops = -(-(length - context) // hop)  # rounded up
    return n_hops * hop
