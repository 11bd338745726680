"""What each choice buys: nanoGPT's small model, changed one choice at a time.

The first row has the model and the recipe that nanoGPT's README gives for a
CPU (4 blocks, 4 heads, width 128, context 64, batches of 12, and a twentieth
of the steps to warm up); each further row changes one thing in the row before
it. Trained on the first nine tenths of Tiny Shakespeare, character by
character, from three seeds; the loss is over the whole last tenth, in nats a
character. Chapter 12 shows it. With nanoGPT's 2,000 steps it takes an hour on
one thread.

usage: python benchmarks/choices.py --text FILE [--steps 2000]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from results import store
from shakespeare import held_out_loss

from attnbook.batches import windows
from attnbook.gpt import GPT, GPTConfig
from attnbook.training import Recipe, evaluating, train
from attnbook.vocabulary import Vocabulary

SEEDS = range(3)
START: dict[str, Any] = {
    "context": 64,
    "d_model": 128,
    "n_heads": 4,
    "n_layers": 4,
    "bias": False,
    "peak": 1e-3,
}
CHOICES: dict[str, dict[str, Any]] = {
    "nanoGPT's": {},
    "a higher peak rate": {"peak": 4e-3},
    "rotary positions": {"positions": "rotary"},
    "RMS norm": {"norm": "rms"},
    "SwiGLU": {"activation": "swiglu"},
    "larger first weights": {"initial_std": 0.05},
}


def loss_of(
    settings: dict[str, Any], text: str, steps: int, seed: int
) -> float:
    """Train once, and give the loss on the last tenth in nats a character.

    Args:
        settings: the peak of the learning rate, and the model's sizes.
        text: the whole text.
        steps: of the training.
        seed: of the first weights and of the batches.
    """
    vocabulary = Vocabulary.of_characters(text)
    numbers = torch.tensor(vocabulary.encode(text))
    config = dict(settings)
    recipe = Recipe(
        steps=steps,
        warmup=steps // 20,
        batch_size=12,
        peak=config.pop("peak"),
        seed=seed,
    )
    torch.manual_seed(seed)
    model = GPT(GPTConfig(vocab_size=len(vocabulary), **config))
    first = numbers[: len(numbers) - len(numbers) // 10]
    train(model, windows(first, model.config.context), recipe)
    with evaluating(model):
        return held_out_loss(model, numbers, model.config.context)


def main() -> None:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    given = parser.parse_args()
    text = given.text.read_text("utf-8")
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {name: [] for name in CHOICES}
    for seed in SEEDS:
        settings = dict(START)
        for name, changed in CHOICES.items():
            settings |= changed
            loss = round(loss_of(settings, text, given.steps, seed), 3)
            found[name].append(loss)
            print(f"{name:24} seed {seed}  {loss:.3f}", flush=True)
        store("choices", {"steps": given.steps, "losses": found})


if __name__ == "__main__":
    main()
