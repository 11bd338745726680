"""What users of a real model wait for, with the server of chapter 19.

SmolLM2 is asked questions through its chat template, so all prompts begin
alike, and the server finds the first page of each again. Two things are
measured: the time to the first token and between tokens when a fixed number
of texts is written at a time, and the same when requests come at random, for
the server and for static batches, at several loads.

The clock is the processor's time. Where nobody is there, it is put forward
to the next request. An answer goes on for as many tokens as it was asked for,
even where the model would have ended it, so that all rounds do equal work.
Chapter 19 shows the result. It takes about five minutes on one core.

usage: python benchmarks/real_server.py [ROUNDS]     3 if not given
"""

from __future__ import annotations

import random
import statistics
import sys
from typing import Any

import torch
from real_texts import QUESTIONS
from results import n_rounds, now, store
from rounds import machine
from server import Ask, waited

from attnbook.chat import Chat
from attnbook.gpt import GPT
from attnbook.pretrained import load, load_tokenizer
from attnbook.server import Server

SMOLLM2 = "SmolLM2-135M-Instruct"
AT_ONCE = (1, 2, 4, 8, 16)  # texts that are written at a time
PLACES = 8  # texts at a time where requests come at random
LOADS = (0.3, 0.6, 0.9)  # shares of the tokens that the places can write
REQUESTS = 16  # of each run at a load
LEAST, MOST = 4, 28  # tokens that an answer has; on average 16


def questions(model: GPT, tokenizer: Any) -> list[list[int]]:
    """The prompts: what a chat sends to the model for each question."""
    prompts = []
    for question in QUESTIONS:
        chat = Chat(model, tokenizer)
        chat.ask(question)
        prompts.append(chat.tokens)
    return prompts


def drawn(prompts: list[list[int]], n: int, *, seed: int) -> Ask:
    """Requests with the prompts in turns, and answers of unequal length."""
    rng = random.Random(seed)
    return [
        (prompts[i % len(prompts)], rng.randint(LEAST, MOST)) for i in range(n)
    ]


def at_a_time(
    model: GPT, prompts: list[list[int]], rounds: int, sizes: tuple[int, ...]
) -> dict[str, dict[str, list[float]]]:
    """What users wait for when so many texts are written at a time.

    Returns:
        for each number of texts what `server.waited` finds, each as the
        least, the middle and the largest of the rounds.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for size in sizes:
        asked = [(prompts[i % len(prompts)], 16) for i in range(2 * size)]
        each = [waited(model, asked, size) for _ in range(rounds)]
        found[str(size)] = {
            key: spread([e[key] for e in each]) for key in each[0]
        }
    return found


def spread(numbers: list[float]) -> list[float]:
    """The least, the middle and the largest, to three digits."""
    ends = min(numbers), statistics.median(numbers), max(numbers)
    return [float(f"{x:.3g}") for x in ends]


def comes(asked: Ask, a_second: float, *, seed: int) -> list[float]:
    """When each request comes, in seconds, if tokens are asked for at a rate.

    Args:
        asked: the requests.
        a_second: how many tokens are asked for in a second, on average.
        seed: of the times between requests, which are exponential.
    """
    rng = random.Random(seed)
    mean = statistics.mean(n for _, n in asked) / a_second
    times = [0.0]
    for _ in asked[1:]:
        times.append(times[-1] + rng.expovariate(1 / mean))
    return times


def play(
    model: GPT, asked: Ask, times: list[float], places: int, *, static: bool
) -> dict[str, list[float]]:
    """Serve requests that come at given times.

    Args:
        places: how many texts are written at a time.
        static: whether somebody is let in only when nobody is left who
            writes; this is what static batches do.

    Returns:
        "first": for each request the seconds until its first token;
        "between": for each later token those since the one before.
    """
    server = Server(model, n_pages=8 * places)
    came: list[tuple[Any, list[float]]] = []  # each with when its tokens came
    start = now()
    skipped = 0.0  # seconds in which nobody was there
    while server.open or len(came) < len(asked):
        clock = now() - start + skipped
        if not server.open and times[len(came)] > clock:
            skipped += times[len(came)] - clock
            clock = times[len(came)]
        if not (static and server.open):
            while (
                len(came) < len(asked)
                and times[len(came)] <= clock
                and len(server.open) < places
            ):
                n = len(came)
                came.append((server.submit(*asked[n]), [times[n]]))
        server.step()
        clock = now() - start + skipped
        for request, tokens in came:
            if len(request.written) >= len(tokens):
                tokens.append(clock)
    return {
        "first": [tokens[1] - tokens[0] for _, tokens in came],
        "between": [
            b - a for _, tokens in came for a, b in zip(tokens[1:], tokens[2:])
        ],
    }


def under_load(
    model: GPT,
    prompts: list[list[int]],
    rounds: int,
    *,
    loads: tuple[float, ...] = LOADS,
    places: int = PLACES,
    n: int = REQUESTS,
) -> dict[str, Any]:
    """What users wait for when requests come at random.

    A load of 1 is as many tokens a second as the server has written with all
    places full, which is measured first. Each round draws other requests and
    other times, and both ways get the same ones.

    Returns:
        "full": the tokens a second with all places full; and for each load
        and each way "first" and "between", the medians in milliseconds, and
        "first, 95%", which one request in twenty exceeds: of each the least,
        the middle and the largest of the rounds.
    """
    full = waited(model, drawn(prompts, n, seed=0), places)["a second"]
    found: dict[str, Any] = {"full": full}
    for share in loads:
        each: dict[str, list[dict[str, float]]] = {}
        for turn in range(rounds):
            asked = drawn(prompts, n, seed=turn)
            times = comes(asked, share * full, seed=turn)
            for way in ("static", "server"):
                static = way == "static"
                got = play(model, asked, times, places, static=static)
                each.setdefault(way, []).append(summary(got))
        found[str(share)] = {
            way: {key: spread([r[key] for r in rows]) for key in rows[0]}
            for way, rows in each.items()
        }
        print(share, found[str(share)], flush=True)
    return found


def summary(got: dict[str, list[float]]) -> dict[str, float]:
    """Medians in milliseconds, and what one request in twenty exceeds."""
    first = sorted(got["first"])
    return {
        "first": 1000 * statistics.median(first),
        "first, 95%": 1000 * first[len(first) * 95 // 100],
        "between": 1000 * statistics.median(got["between"]),
    }


def main() -> None:
    rounds = n_rounds(sys.argv[1:], 3)
    torch.set_num_threads(1)
    model, tokenizer = load(SMOLLM2), load_tokenizer(SMOLLM2)
    assert isinstance(model, GPT)
    prompts = questions(model, tokenizer)
    waited(model, [(prompts[0], 4)], 1)  # to warm up
    found: dict[str, Any] = {
        "machine": machine() | {"threads": 1},
        "rounds": rounds,
        "prompts": [len(prompt) for prompt in prompts],
        "places": PLACES,
        "requests": REQUESTS,
        "tokens": [LEAST, MOST],
    }
    found["waiting"] = at_a_time(model, prompts, rounds, AT_ONCE)
    found["load"] = under_load(model, prompts, rounds)
    store("real_server", found)


if __name__ == "__main__":
    main()
