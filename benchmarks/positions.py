"""Five ways to tell positions, within and beyond the trained length.

Small GPTs are trained on the book's own language, story after story in
sequences of 96 tokens, and asked about sequences of 384. Chapter 9 shows the
result. It takes about five minutes on two idle cores.

usage: python benchmarks/positions.py
"""

from __future__ import annotations

import dataclasses
import itertools
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from results import store
from torch import Tensor

from attnbook.gpt import GPT, POSITIONS, GPTConfig
from attnbook.grammar import LEFT, WORDS
from attnbook.town import Town
from attnbook.training import Recipe, train

TRAINED, LONG, BIN = 96, 384, 48  # tokens
SEEDS = range(4)
D_MODEL, N_HEADS, N_LAYERS = 32, 4, 2
RECIPE = Recipe(
    steps=800,
    batch_size=16,
    peak=1e-2,
    warmup=80,
    final=0.0,
    betas=(0.9, 0.98),
    weight_decay=0.0,
)
POOL, ASKED = 3000, 200  # sequences to draw batches from, and to measure on
NUMBERS = {word: n for n, word in enumerate(WORDS)}


@dataclass(frozen=True)
class Sequences:
    """Stories in a row, cut into sequences of one length.

    Attributes:
        tokens, targets: (n, length), int64.
        truth: the logarithm of each target's probability in the language, (n,
            length). The target's own story alone decides it.
    """

    tokens: Tensor
    targets: Tensor
    truth: Tensor


def sequences(n: int, length: int, *, seed: int) -> Sequences:
    """Draw n sequences; each begins with the beginning of a story."""
    town = Town()
    numbers = torch.zeros(n, length + 1, dtype=torch.long)
    truth = torch.zeros(n, length + 1, dtype=torch.float64)
    for row in range(n):
        words: list[str] = []
        logs: list[float] = []
        while len(words) <= length:
            (story,) = town.stories(1, seed=seed)
            seed += 1
            words += story
            logs += town.log_probabilities(story)
        kept = words[: length + 1]
        numbers[row] = torch.tensor([NUMBERS[word] for word in kept])
        truth[row] = torch.tensor(logs[: length + 1])
    return Sequences(numbers[:, :-1], numbers[:, 1:], truth[:, 1:])


def trained(kind: str, seed: int, data: Sequences) -> GPT:
    """A small GPT after training on sequences of the trained length.

    A learned table gets room for the long length; its rows beyond the
    trained one stay as they were drawn.
    """
    torch.manual_seed(seed)
    model = GPT(
        GPTConfig(
            vocab_size=len(WORDS),
            context=LONG,
            positions=kind,
            d_model=D_MODEL,
            n_heads=N_HEADS,
            n_layers=N_LAYERS,
        )
    )

    def batches(
        size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        rows = torch.randint(POOL, (size,), generator=generator)
        return data.tokens[rows], data.targets[rows]

    train(model, batches, dataclasses.replace(RECIPE, seed=seed))
    return model


@torch.no_grad()
def measure(model: GPT, data: Sequences) -> dict[str, list[float]]:
    """What a model knows by position, in bins of `BIN` tokens.

    Returns:
        "above", the cross-entropy above the language's entropy, in nats;
        "bank", how often the model knows which bank was left.
    """
    log_p = F.log_softmax(model(data.tokens).double(), -1)  # (n, LONG, V)
    given = log_p.gather(-1, data.targets[..., None])[..., 0]  # (n, LONG)
    river, city = (
        torch.tensor([NUMBERS[word] for word in LEFT[bank]])
        for bank in ("river", "city")
    )
    guess = log_p[..., river].exp().sum(-1) > log_p[..., city].exp().sum(-1)
    by_river = torch.isin(data.targets, river)
    asked = by_river | torch.isin(data.targets, city)  # (n, LONG)
    known = asked & (guess == by_river)

    def total(x: Tensor) -> Tensor:
        return x.double().sum(0).unflatten(0, (-1, BIN)).sum(-1)  # (bins,)

    above = total(data.truth - given) / (len(given) * BIN)
    return {
        "above": above.tolist(),
        "bank": (total(known) / total(asked)).tolist(),
    }


def trained_and_measured(kind: str, seed: int) -> dict[str, list[float]]:
    """Train one model, and measure it on sequences of the long length.

    Args:
        kind: how the model is told positions.
        seed: of its weights and of its data.
    """
    data = sequences(POOL, TRAINED, seed=10**6 * seed)
    model = trained(kind, seed, data)
    return measure(model, sequences(ASKED, LONG, seed=10**9))


def main() -> None:
    trainings = list(itertools.product(POSITIONS, SEEDS))
    found: dict[str, list[dict[str, list[float]]]] = {
        kind: [] for kind in POSITIONS
    }
    with ProcessPoolExecutor(
        initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        for (kind, seed), measured in zip(
            trainings, pool.map(trained_and_measured, *zip(*trainings))
        ):
            found[kind].append(measured)
            first, *_, last = measured["above"]
            print(f"{kind:10} seed {seed}: {first:.3f} … {last:.3f}")
    result = {
        "trained": TRAINED,
        "long": LONG,
        "bin": BIN,
        "steps": RECIPE.steps,
        "above": {k: [m["above"] for m in v] for k, v in found.items()},
        "bank": {k: [m["bank"] for m in v] for k, v in found.items()},
    }
    store("positions", result)


if __name__ == "__main__":
    main()
