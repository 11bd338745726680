"""Time what guessing ahead costs, and what it gains on the clock.

There are three kinds of ratios, all of them of the processor's time on one
thread:

- a call that reads 1 + k tokens over one that reads a single token, for the
  town's model and for one of GPT-2 small's shape;
- one guess of each draft over such a call;
- a written token with guesses over one without.

The steps of a round take turns, and a ratio is taken within its round. It
takes about four minutes.

usage: python benchmarks/guess.py [ROUNDS]     9 if not given
"""

from __future__ import annotations

import os
import platform
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it is timed on a CPU
os.environ["ATTNBOOK_QUIET"] = "1"

import torch
from results import CHAPTERS, here, n_rounds, now, quartiles, store

from attnbook.gpt import GPT, GPTConfig
from attnbook.pretrained import load_model
from attnbook.speculative import Draft, Reader, look_up_draft, write
from attnbook.town import (
    END,
    START,
    TOWN_CONFIG,
    Town,
    bigram,
    grammar_draft,
    vocabulary,
)
from attnbook.training import Recipe, train

GUESSES = [0, 1, 2, 4, 8]
K = 4  # guesses a call where whole texts are written
#: Tokens in the cache while a call is timed.
CONTEXT = {"town": 48, "GPT-2 small": 256}
#: A step is repeated in a round until it has taken about this long.
LEAST_SECONDS = 0.1
#: How many stories a step writes.
STORIES = 6
WHAT = (
    "processor time: of a call that reads 1 + k tokens over one that reads "
    "one; of a guess over such a call of the town's model; of a written word "
    "with guesses over without; the three quartiles of the ratios within one "
    "round"
)

#: What is timed. A step that writes gives the number of words.
Step = Callable[[], int | None]
Steps = dict[str, Step]


def small_draft(town: Town, steps: int = 200) -> GPT:
    """The small model that guesses in chapter 20, trained as on the page."""
    torch.manual_seed(0)
    config = replace(
        TOWN_CONFIG, d_model=16, n_heads=2, n_layers=1, initial_std=0.25
    )
    model = GPT(config).double()
    recipe = Recipe(
        steps=steps,
        batch_size=16,
        peak=1e-2,
        warmup=steps // 10,
        weight_decay=0.01,
    )
    train(model, town.batches, recipe)
    return model.eval()


def drafts(town: Town, small: GPT) -> dict[str, Draft]:
    """The four ways of guessing that chapter 20 compares, by name."""
    table = bigram(town.stories(1000, seed=1)).exp()
    return {
        "bigram": lambda text: table[text[-1]],
        "look-up": look_up_draft(len(table)),
        "smaller model": Reader(small),
        "grammar": grammar_draft(town),
    }


def calls(model: GPT, context: int) -> Steps:
    """Calls of a model that read one token and some guesses after it.

    Args:
        model: the model.
        context: how many tokens are in the cache before the call.

    Returns:
        a step for each number of guesses.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(
        model.config.vocab_size,
        (1, context + 1 + GUESSES[-1]),
        generator=generator,
        device="cpu",
    )
    tokens = here(tokens)
    cache = model.new_cache(1, tokens.shape[1])
    with torch.inference_mode():
        model(tokens[:, :context], cache=cache)

    @torch.inference_mode()
    def call(k: int) -> None:
        """Read one token and k guesses, then remove them from the cache."""
        model(tokens[:, context : context + 1 + k], cache=cache)
        cache.trim(context)

    return {str(k): partial(call, k) for k in GUESSES}


def guesses(named: dict[str, Draft], text: list[int]) -> Steps:
    """For each draft a step that guesses twice.

    It guesses after a text and after one word more. A draft that keeps a cache
    reads only the new word for the second guess.

    Args:
        named: the drafts by name.
        text: the numbers of its words.
    """
    longer = [*text, *text[-1:]]

    def guess(draft: Draft) -> None:
        draft(text)
        draft(longer)

    return {name: partial(guess, draft) for name, draft in named.items()}


def texts(model: GPT, named: dict[str, Draft], n: int) -> Steps:
    """For each draft a step that writes stories with its guesses.

    Each step gives the number of words that it has written.

    Args:
        model: the town's model.
        named: the drafts by name.
        n: the most words of a story.
    """
    start = vocabulary().number(START)
    end = vocabulary().number(END)

    def tell(draft: Draft, k: int) -> int:
        """Write some stories, and count their words."""
        written = 0
        for seed in range(STORIES):
            calls = write(model, [start], n, draft, k, stop=[end], seed=seed)
            written += sum(map(len, calls))
        return written

    found: Steps = {"none": partial(tell, lambda text: None, 0)}
    for name, draft in named.items():
        found[name] = partial(tell, draft, K)
    return found


def measure(timed: Steps, against: str, rounds: int) -> dict[str, list[float]]:
    """The quartiles of each step's time over that of one of them.

    Args:
        timed: what is timed, by name.
        against: the name of the step that the others are compared with.
        rounds: how often all are timed.
    """
    repeats = {name: _repeats(step) for name, step in timed.items()}
    ratios: dict[str, list[float]] = {name: [] for name in timed}
    names = list(timed)
    mixed = random.Random(0)
    for _ in range(rounds):
        mixed.shuffle(names)
        seconds = {name: _time(timed[name], repeats[name]) for name in names}
        for name, taken in seconds.items():
            ratios[name].append(taken / seconds[against])
    return {name: quartiles(found) for name, found in ratios.items()}


def _repeats(step: Step) -> int:
    """How often a step is repeated to take `LEAST_SECONDS`."""
    start = now()
    step()
    return max(1, round(LEAST_SECONDS / (now() - start)))


def _time(step: Step, repeats: int) -> float:
    """The seconds of a step, or of a word where the step counts its words."""
    step()  # fills the processor's caches with what this step needs
    start = now()
    done = sum(step() or 1 for _ in range(repeats))
    return (now() - start) / done


def results(rounds: int, models: dict[str, GPT], n: int, steps: int) -> dict:
    """Measure all ratios that the module's text names.

    Args:
        rounds: how often each step is timed.
        models: models by name, the town's among them.
        n: the most words of a story.
        steps: of the smaller model's training.
    """
    town = Town()
    named = drafts(town, small_draft(town, steps))
    story = vocabulary().encode(" ".join(town.stories(1, seed=2)[0][:40]))
    small_call = {"call": calls(models["town"], CONTEXT["town"])["0"]}
    guessed = measure(small_call | guesses(named, story), "call", rounds)
    return {
        "calls": {
            name: measure(calls(model, CONTEXT[name]), "0", rounds)
            for name, model in models.items()
        },
        # Each step guesses twice, and takes one token back.
        "guess": {
            name: [round(q / 2, 4) for q in found]
            for name, found in guessed.items()
            if name != "call"
        },
        "text": measure(texts(models["town"], named, n), "none", rounds),
    }


def main(arguments: list[str]) -> int:
    rounds = n_rounds(arguments, 9)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    file = CHAPTERS / "attnbook" / "data" / "town.safetensors"
    models = {
        "town": load_model(file).model.double().eval(),
        "GPT-2 small": GPT(GPTConfig()).eval(),
    }
    found = results(rounds, models, n=97, steps=200)
    for kind, rows in found.items():
        print(kind, rows)
    store(
        "guess",
        {
            "what": WHAT,
            "machine": "one core of a CPU",
            "kind": platform.machine(),
            "torch": torch.__version__.split("+")[0],
            "dtype": {"town": "float64", "GPT-2 small": "float32"},
            "rounds": rounds,
            "k": K,
            "context": CONTEXT,
            **found,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
