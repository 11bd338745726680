"""What a server brings, in tokens for each second of the processor's time.

It is measured over answering one request after another, beside static
batches, and in a form that gives each request the same bits as alone. Batches
and server are also compared where both work on equally many requests at a
time, because a larger step is faster by itself. And it is measured what users
wait for: the time to the first token, and the time between tokens.

Chapter 19 shows the result. Prompts have 8 to 32 tokens, answers 32, or 4 to
64 where lengths are unequal; the model has random weights. It takes about
ten minutes on one core.

usage: python benchmarks/server.py [ROUNDS]     5 if not given
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from results import now, quartiles, store
from rounds import machine, rounds_of

from attnbook.generate import complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.server import Server, sample

CONFIG = GPTConfig(
    vocab_size=1000, context=128, d_model=256, n_heads=8, n_layers=4
)
SIZES = (1, 8, 32)  # requests that are to be answered
STATIC = 8  # requests in a static batch
AT_ONCE = (1, 2, 4, 8, 16, 32)  # requests that are served at a time

#: Requests: the tokens of each prompt, and how many tokens it wants.
Ask = list[tuple[list[int], int]]


def drawn(
    n: int, config: GPTConfig, *, least: int = 32, most: int = 32
) -> Ask:
    """Random requests: for each a prompt, and how many tokens it wants.

    Args:
        n: how many requests.
        config: of the model, for its vocabulary.
        least, most: the bounds of how many tokens a request wants.
    """
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


def static(model: GPT, asked: Ask, size: int = STATIC) -> None:
    """Answer in batches; each begins when the one before has ended.

    A batch goes on until its longest answer is written.
    """
    for start in range(0, len(asked), size):
        batch = asked[start : start + size]
        longest = max(n for _, n in batch)
        complete(model, [prompt for prompt, _ in batch], longest)


def served(model: GPT, asked: Ask, *, exact: bool = False) -> None:
    """Answer by the server of chapter 19, all requests at once.

    Args:
        exact: whether each request gets the same bits as alone.
    """
    server = Server(model, n_pages=8 * len(asked), exact=exact)
    for prompt, n in asked:
        server.submit(prompt, n)
    server.run()


def steps_at_most(
    model: GPT, asked: Ask, size: int, after_step: Callable = lambda *_: None
) -> int:
    """Let the server answer at most `size` requests at a time.

    Args:
        after_step: is called after each step with the server and with the
            requests that have been submitted so far.

    Returns:
        How many steps it took.
    """
    server = Server(model, n_pages=8 * size)
    submitted: list[Any] = []
    steps = 0
    while server.open or len(submitted) < len(asked):
        while len(server.open) < size and len(submitted) < len(asked):
            submitted.append(server.submit(*asked[len(submitted)]))
        server.step()
        steps += 1
        after_step(server, submitted)
    return steps


def at_equal_size(
    rounds: int, asked: Ask, sizes: tuple[int, int], config: GPTConfig = CONFIG
) -> dict[str, Any]:
    """Compare batches and server that hold equally many requests at a time.

    Args:
        rounds: how often all ways are timed, in turns.
        sizes: how many requests are worked on at a time.

    Returns:
        "times": for each way how many times faster than one by one it is, the
        least, the middle and the largest of the rounds; "schedule": for each
        size the same of server over batch; "calls": how often each way calls
        the model; "slots": for how many tokens each way needs room at a time.
    """
    torch.manual_seed(0)
    model = GPT(config).eval()
    ways: dict[str, Callable[[], float]] = {
        "alone": partial(seconds, one_by_one, model, asked)
    }
    calls: dict[str, int] = {}
    slots: dict[str, int] = {}
    for size in sizes:
        batch, server = f"static {size}", f"server {size}"
        ways[batch] = partial(
            seconds, partial(static, size=size), model, asked
        )
        ways[server] = partial(
            seconds, partial(steps_at_most, size=size), model, asked
        )
        calls[batch], slots[batch] = _needs_of_batches(asked, size)
        calls[server], slots[server] = _needs_of_server(model, asked, size)
    found = rounds_of(ways, rounds)
    times = {
        way: _spread(found["alone"], found[way])
        for way in ways
        if way != "alone"
    }
    schedule = {
        str(size): _spread(found[f"static {size}"], found[f"server {size}"])
        for size in sizes
    }
    return {
        "times": times,
        "schedule": schedule,
        "calls": calls,
        "slots": slots,
    }


def _needs_of_batches(asked: Ask, size: int) -> tuple[int, int]:
    """How many calls of the model batches make, and how many slots they need.

    A slot is room for one token's keys and values.
    """
    calls = 0
    slots = []
    for start in range(0, len(asked), size):
        batch = asked[start : start + size]
        longest = max(n for _, n in batch)
        calls += longest
        padded = max(len(prompt) for prompt, _ in batch) + longest
        slots.append(len(batch) * padded)
    return calls, max(slots)


def _needs_of_server(model: GPT, asked: Ask, size: int) -> tuple[int, int]:
    """How many steps the server makes, and how many slots it holds at most.

    A slot is room for one token's keys and values.
    """
    held: list[int] = []

    def count(server: Server, _: list[Any]) -> None:
        pages = server.pages
        held.append(sum(n > 0 for n in pages.holders) * pages.size)

    return steps_at_most(model, asked, size, count), max(held)


def _spread(slow: list[float], fast: list[float]) -> list[float]:
    """The least, the middle and the largest ratio within a round."""
    ordered = sorted(x / y for x, y in zip(slow, fast))
    ends = ordered[0], statistics.median(ordered), ordered[-1]
    return [float(f"{x:.4g}") for x in ends]


def waiting(
    model: GPT, sizes: tuple[int, ...] = AT_ONCE, n_each: int = 3
) -> dict[str, dict[str, float]]:
    """What users wait for when so many requests are served at a time.

    A request that ends is followed by another one at once, until each place
    has had `n_each` of them.

    Returns:
        for each number of requests at a time: "first", the milliseconds from
        submitting a request to its first token, and "between", those from
        one token to the next, medians both; "a second", the tokens that all
        requests get in a second.
    """
    return {
        str(size): waited(model, drawn(n_each * size, model.config), size)
        for size in sizes
    }


def waited(model: GPT, asked: Ask, size: int) -> dict[str, float]:
    """What `waiting` returns for one number of requests at a time."""
    came: dict[Any, list[float]] = {}  # when submitted, then each token
    start = last = now()

    def note(_: Server, submitted: list[Any]) -> None:
        nonlocal last
        for request in submitted:
            times = came.setdefault(request, [last])
            if len(request.written) >= len(times):
                times.append(now())
        last = now()

    steps_at_most(model, asked, size, note)
    took = now() - start
    first = [times[1] - times[0] for times in came.values()]
    between = [
        b - a for times in came.values() for a, b in zip(times[1:], times[2:])
    ]
    found = {
        "first": float(f"{1000 * statistics.median(first):.3g}"),
        "between": float(f"{1000 * statistics.median(between):.3g}"),
        "a second": float(f"{sum(n for _, n in asked) / took:.3g}"),
    }
    print(size, found, flush=True)
    return found


def bits(model: GPT, asked: Ask, *, exact: bool) -> float:
    """The share of a request's logits that change in company.

    The request is served alone, and then together with the others. Logits
    count as changed if they are not equal to the bit.
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
    """The processor's seconds in which a way answers all requests."""
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
    for name, least, most in (("equal", 32, 32), ("unequal", 4, 64)):
        asked = drawn(32, CONFIG, least=least, most=most)
        found[f"{name}_size"] = at_equal_size(rounds, asked, (STATIC, 32))
        print(name, found[f"{name}_size"], flush=True)
    torch.manual_seed(0)
    model = GPT(CONFIG).eval()
    found["waiting"] = waiting(model)
    asked = drawn(8, CONFIG)
    found["other_bits"] = {
        name: bits(model, asked, exact=exact)
        for name, exact in (("served", False), ("exact", True))
    }
    print(found["other_bits"])
    store("server", found)


if __name__ == "__main__":
    main()
