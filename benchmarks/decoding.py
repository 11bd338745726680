"""Time the next token, with and without a KV cache, as the context grows.

A model of GPT-2 small's shape with random weights computes the logits of one
token after contexts of up to its full length: once from a cache that holds
the context, once by reading everything again. The steps take turns, so that a
machine that gets slower for a while slows all of them. What is kept is the
time over that of a step with the cache at the shortest context, within each
round. The processor's time on one thread is counted, because other programs
disturb it least. It takes about three minutes.

usage: python benchmarks/decoding.py [ROUNDS]     9 if not given
"""

from __future__ import annotations

import os
import platform
import random
import sys
from collections.abc import Callable
from functools import partial

if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it is timed on a CPU

import torch
from results import here, n_rounds, now, quartiles, store
from torch import Tensor

from attnbook.cache import KVCache
from attnbook.gpt import GPT, GPTConfig

#: How many tokens come before the new one. After 1023 it is the last that
#: the model can read.
CONTEXTS = [31, 63, 127, 255, 511, 767, 1023]
#: Each step is repeated in a round until it has taken about this long.
LEAST_SECONDS = 0.3

WHAT = (
    "time of the next token over that of a step with the cache at the "
    "shortest context: the three quartiles of the ratios within one round"
)

Steps = dict[tuple[str, int], Callable[[], None]]


def steps(model: GPT) -> Steps:
    """What is timed, by kind ("with" or "without" the cache) and context.

    Raises:
        AssertionError: the model gives other logits with the cache.
    """
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.config.vocab_size
    found: Steps = {}
    for context in CONTEXTS:
        tokens = torch.randint(
            vocabulary, (1, context + 1), generator=generator, device="cpu"
        )
        tokens = here(tokens)
        cache = model.new_cache(1, context + 1)
        model(tokens[:, :-1], cache=cache)
        _check(model, tokens, cache)

        found["with", context] = partial(
            _continue, model, tokens[:, -1:], cache, context
        )
        found["without", context] = partial(_read_again, model, tokens)
    return found


def _continue(model: GPT, new: Tensor, cache: KVCache, context: int) -> None:
    """Read one token after the context in the cache, then remove it again."""
    model(new, cache=cache, last=True)
    cache.trim(context)


def _read_again(model: GPT, tokens: Tensor) -> None:
    """Read the context and the token after it, without a cache."""
    model(tokens, last=True)


def _check(model: GPT, tokens: Tensor, cache: KVCache) -> None:
    """Raise an AssertionError unless both ways give the same logits."""
    a = model(tokens[:, -1:], cache=cache, last=True)
    b = model(tokens, last=True)
    cache.trim(tokens.shape[1] - 1)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-3)


def measure(timed: Steps, rounds: int) -> dict[str, list[list[float]]]:
    """Time the steps in turns.

    Returns:
        for each kind, and each context in order, the quartiles of a step's
        time over that of a step with the cache at the shortest context.
    """
    reference = ("with", CONTEXTS[0])
    repeats = {key: _repeats(step) for key, step in timed.items()}
    ratios: dict[tuple[str, int], list[float]] = {key: [] for key in timed}
    keys = list(timed)
    mixed = random.Random(0)
    for _ in range(rounds):
        mixed.shuffle(keys)  # so that no step always follows the same one
        seconds = {key: _time(timed[key], repeats[key]) for key in keys}
        for key, taken in seconds.items():
            ratios[key].append(taken / seconds[reference])
    return {
        kind: [quartiles(ratios[kind, context]) for context in CONTEXTS]
        for kind in ("with", "without")
    }


def _repeats(step: Callable[[], None]) -> int:
    """How often a step is repeated to take `LEAST_SECONDS`."""
    _time(step, 3)  # warm
    return max(1, round(LEAST_SECONDS / _time(step, 3)))


def _time(step: Callable[[], None], repeats: int) -> float:
    """The mean seconds of one step, of so many in a row."""
    if repeats > 1:
        step()  # fills the processor's caches with what this step needs
    start = now()
    for _ in range(repeats):
        step()
    return (now() - start) / repeats


def main(arguments: list[str]) -> int:
    rounds = n_rounds(arguments, 9)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT(GPTConfig()).eval()  # GPT-2 small
    with torch.inference_mode():
        ratio = measure(steps(model), rounds)
    for kind, rows in ratio.items():
        for context, row in zip(CONTEXTS, rows):
            print(f"{kind:8}{context:6}", *(f"{q:10.4g}" for q in row))
    store(
        "decoding",
        {
            "what": WHAT,
            "machine": "one core of a CPU",
            "kind": platform.machine(),
            "torch": torch.__version__.split("+")[0],
            "dtype": "float32",
            "rounds": rounds,
            "model": "GPT-2 small",
            "contexts": CONTEXTS,
            "ratio": ratio,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
