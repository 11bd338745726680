"""What writing waits for on a graphics card, and what makes it faster there.

A model of GPT-2 small's shape, its weights as they were drawn, writes after
prompts of 512 tokens, for one text and for many at once. Beside it run the
model without its cache, the model in 16 bits, and one with as many layers and
next to no width, whose time is that of the calls alone. They take turns, and a
ratio is taken within a round. `make gpu` runs it; the page "How fast is it"
shows what it found.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

from results import quartiles
from rounds import against, rounds_of
from writers import draw_prompts, ours

from attnbook.gpt import GPT, GPTConfig

BATCHES = (1, 8, 64)
PROMPT = 512


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Ratios for each number of texts, as quartiles.

    Returns:
        under the number of texts: "tokens", tokens a second over those of one
        text; "cache" and "bfloat16", how many times as fast the cache and 16
        bits make a step; "calls", the share of a step that calls alone take.
    """
    model = GPT(GPTConfig()).eval()
    half = copy.deepcopy(model).bfloat16()
    narrow = dataclasses.replace(model.config, vocab_size=16, d_model=12)
    calls = GPT(narrow).eval()
    contenders: dict[tuple[str, int], Callable[[], float]] = {}
    for B in BATCHES:
        prompts = draw_prompts(*[PROMPT] * B)
        few = [[token % 16 for token in prompt] for prompt in prompts]
        contenders["plain", B] = ours(model, prompts)
        contenders["uncached", B] = ours(model, prompts, cached=False)
        contenders["bfloat16", B] = ours(half, prompts)
        contenders["calls", B] = ours(calls, few)
    found = rounds_of(contenders, rounds)
    one = found["plain", 1]
    return {
        str(B): {
            "tokens": quartiles(
                [B * a / b for a, b in zip(one, found["plain", B])]
            ),
            "cache": against(found, ("uncached", B), ("plain", B)),
            "bfloat16": against(found, ("plain", B), ("bfloat16", B)),
            "calls": against(found, ("calls", B), ("plain", B)),
        }
        for B in BATCHES
    }
