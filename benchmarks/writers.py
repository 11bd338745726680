"""Two models that write, to be timed: the book's GPT and transformers'."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from rounds import seconds
from torch import Tensor

from attnbook.generate import generate
from attnbook.gpt import GPT, GPTConfig

#: How many tokens are written. The first comes from reading the prompt, the
#: other sixteen from steps of decoding.
NEW_TOKENS = 17


class Clock:
    """Keeps the time of each new token that transformers' `generate` writes.

    It is given to `generate` as a criterion to stop by, and never stops it.
    """

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(
        self, tokens: Tensor, scores: Tensor | None, **options: Any
    ) -> Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(len(tokens), dtype=torch.bool)


def a_token(times: list[float]) -> float:
    """The mean seconds of a decoding step; the prompt's step is left out."""
    return (times[-1] - times[0]) / (len(times) - 1)


def ours(
    model: GPT, prompts: list[list[int]], **options: Any
) -> Callable[[], float]:
    """Make a function that writes by the book's `generate` once, and returns
    the seconds that a step takes.

    Args:
        model: the book's model.
        prompts: the tokens of each text.
        **options: of `generate`.
    """

    def step_seconds() -> float:
        times = []
        for _ in generate(model, prompts, NEW_TOKENS, **options):
            times.append(time.perf_counter())
        return a_token(times)

    return step_seconds


def padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Prompts with padding on their left, and where they are real.

    Shapes: both (number of prompts, length of the longest), int64.
    """
    longest = max(len(prompt) for prompt in prompts)
    tokens = []
    real = []
    for prompt in prompts:
        padding = longest - len(prompt)
        tokens.append([0] * padding + prompt)
        real.append([0] * padding + [1] * len(prompt))
    return torch.tensor(tokens), torch.tensor(real)


def theirs(model: Any, prompts: list[list[int]]) -> Callable[[], float]:
    """Make a function that writes by transformers' greedy `generate` once.

    Like that of `ours` it returns the seconds that a step takes.
    """
    tokens, real = padded(prompts)

    def step_seconds() -> float:
        clock = Clock()
        model.generate(
            tokens,
            attention_mask=real,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            use_cache=True,
            stopping_criteria=[clock],
        )
        return a_token(clock.times)

    return step_seconds


def pair() -> tuple[GPT, Any]:
    """GPT-2 small of the book and of transformers, with the same weights.

    The weights are random.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    from attnbook.pretrained import rename

    torch.manual_seed(0)
    config = GPTConfig()
    theirs = GPT2Config(
        n_layer=config.n_layers,
        n_head=config.n_heads,
        n_embd=config.d_model,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    peer = GPT2LMHeadModel(theirs)
    peer.eval().generation_config.eos_token_id = None  # it never ends early
    model = GPT(config).eval()
    model.load_state_dict(rename(peer.state_dict(), model, "gpt2"))
    return model, peer


def draw_prompts(*lengths: int) -> list[list[int]]:
    """Prompts of these lengths, of random tokens that are always the same."""
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randint(50_257, (n,), generator=generator, device="cpu").tolist()
        for n in lengths
    ]


def read_bandwidth() -> float:
    """Bytes a second at which this process reads memory, at its best."""
    much = torch.ones(1 << 28)  # 1 GiB, far beyond the processor's caches
    a, b = much.chunk(2)
    reads: list[Callable[[], Tensor]] = [
        much.sum,
        much.amax,
        lambda: torch.dot(a, b),
    ]
    fastest = min(seconds(read) for read in reads * 5)
    return much.nbytes / fastest


def moved_bytes(model: GPT, n_prompt: int) -> int:
    """The bytes that one step of decoding must read, on average.

    These are the weights, and the cache as it is halfway. Of the table of
    positions a step reads one row, so the table is left out.
    """
    config = model.config
    assert model.position_embedding is not None, "GPT-2 has learned positions"
    table = model.position_embedding.weight.nbytes
    weights = sum(p.nbytes for p in model.parameters()) - table
    tokens = n_prompt + NEW_TOKENS / 2
    cache = 2 * config.n_layers * config.d_model * 4 * tokens
    return round(weights + cache)
