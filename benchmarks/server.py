"""What a server brings, in tokens for each second of the processor's time.

It is measured over answering one request after another, beside static
batches, and in a form that gives each request the same bits as alone.

Chapter 19 shows the result. Prompts have 8 to 32 tokens, answers 32, or 4 to
64 where lengths are unequal; the model has random weights. It takes about
five minutes on one core.

usage: python benchmarks/server.py [ROUNDS]     5 if not given
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from results import now, quartiles, store
from rounds import machine

from attnbook.generate import complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.server import Server, sample

CONFIG = GPTConfig(
    vocab_size=1000, context=128, d_model=256, n_heads=8, n_layers=4
)
SIZES = (1, 8, 32)
STATIC = 8  # requests in a static batch

Ask = list[tuple[list[int], int]]


def drawn(
    n: int, config: GPTConfig, *, least: int = 32, most: int = 32
) -> Ask:
    """Requests: prompts, and how many tokens each wants."""
    rng = random.Random(0)
    return [
        (
            [rng.randrange(config.vocab_size) for _ in range(length)],
            rng.randint(least, most),
        )
        for length in (rng.randint(8, 32) for _ in range(n))
    ]


def one_by_one(model: GPT, asked: Ask) -> None:
    """Answer one request after another."""
    for prompt, n in asked:
        complete(model, [prompt], n)


def static(model: GPT, asked: Ask) -> None:
    """Answer in batches; the next begins when the last has ended."""
    for start in range(0, len(asked), STATIC):
        batch = asked[start : start + STATIC]
        longest = max(n for _, n in batch)
        complete(model, [prompt for prompt, _ in batch], longest)


def served(model: GPT, asked: Ask, *, exact: bool = False) -> None:
    """Answer by the server of chapter 19."""
    server = Server(model, n_pages=8 * len(asked), exact=exact)
    for prompt, n in asked:
        server.submit(prompt, n)
    server.run()


def bits(model: GPT, asked: Ask, *, exact: bool) -> float:
    """How many of a request's logits change when others are served with it.

    It is the share of logits that are not equal to the bit.
    """

    def logits(company: Ask) -> torch.Tensor:
        found: list[torch.Tensor] = []

        def keep(request: Any, guesses: Any, logits: torch.Tensor) -> Any:
            if request is first:
                found.append(logits)
            return sample(request, guesses, logits)

        n_pages = 8 * len(asked)
        server = Server(model, n_pages=n_pages, exact=exact, accept=keep)
        first, *_ = [server.submit(*one) for one in [asked[0], *company]]
        server.run()
        return torch.cat(found)

    differ = logits(asked[1:]) != logits([])
    return round(differ.double().mean().item(), 4)


def exactly(model: GPT, asked: Ask) -> None:
    """Answer by the server, each request with the bits that it has alone."""
    served(model, asked, exact=True)


def measure(
    rounds: int,
    config: GPTConfig = CONFIG,
    sizes: tuple[int, ...] = SIZES,
    **lengths: int,
) -> dict[str, dict[str, list[float]]]:
    """How many times faster than one by one each way is.

    Args:
        rounds: how often all ways are timed.
        config: the model's sizes.
        sizes: numbers of requests.
        **lengths: `least` and `most`, the tokens that a request asks for.

    Returns:
        for each number of requests and each way the quartiles of the ratios.
    """
    torch.manual_seed(0)
    model = GPT(config).eval()
    found = {}
    ways: dict[str, Callable] = {
        "static": static,
        "served": served,
        "exact": exactly,
    }
    for size in sizes:
        asked = drawn(size, config, **lengths)
        ratios: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(rounds + 1):
            alone = seconds(one_by_one, model, asked)
            for name, way in ways.items():
                ratio = alone / seconds(way, model, asked)
                if turn:  # the first one is to warm up
                    ratios[name].append(ratio)
        found[str(size)] = {n: quartiles(r) for n, r in ratios.items()}
        print(size, found[str(size)], flush=True)
    return found


def seconds(way: Callable, model: GPT, asked: Ask) -> float:
    """The processor's seconds that a way takes to answer."""
    start = now()
    way(model, asked)
    return now() - start


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "machine": machine() | {"threads": 1},
        "rounds": rounds,
    }
    found["equal"] = measure(rounds)
    found["unequal"] = measure(rounds, sizes=(32,), least=4, most=64)
    torch.manual_seed(0)
    model = GPT(CONFIG).eval()
    asked = drawn(8, CONFIG)
    found["other_bits"] = {
        name: bits(model, asked, exact=exact)
        for name, exact in (("served", False), ("exact", True))
    }
    print(found["other_bits"])
    store("server", found)


if __name__ == "__main__":
    main()
