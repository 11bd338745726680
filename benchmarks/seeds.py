"""Chapter 11's model from six seeds: when does it learn to look up a place?

Each seed gives other first weights and other stories; all else is
`TOWN_RECIPE`. Chapter 11 shows the result. It takes about three minutes.

usage: python benchmarks/seeds.py
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "chapters"))
from attnbook import language
from attnbook.gpt import GPT
from attnbook.training import TOWN_CONFIG, TOWN_RECIPE, mean_loss, train

RESULT = ROOT / "chapters" / "attnbook" / "data" / "seeds.json"
SEEDS = range(6)
EVERY = 100  # steps


def answered(model: GPT, questions: list[language.Question]) -> float:
    """The share of questions whose answer beats the other candidates."""
    words = language.vocabulary()
    tokens, _ = language.encode([[*q.prompt, q.answer] for q in questions])
    with torch.no_grad():
        logits = model(tokens)  # (N, T, V)
    right = 0
    for row, q in zip(logits, questions):
        last = row[len(q.prompt) - 1]
        best = max(q.candidates, key=lambda word: last[words.number(word)])
        right += best == q.answer
    return right / len(questions)


def run(seed: int) -> dict:
    """Train from one seed; what it knows on the way, and at the end."""
    torch.set_num_threads(1)
    town, crowded = language.Town(), language.Town(people=(4, 4))
    questions = crowded.questions("returning", 300, seed=2_000_000)
    held_out = town.stories(300, seed=1_000_000)
    torch.manual_seed(seed)
    model = GPT(TOWN_CONFIG)
    returning = []

    def ask(step, history):
        if step % EVERY == 0:
            model.eval()
            returning.append(round(answered(model, questions), 4))
            model.train()

    recipe = dataclasses.replace(TOWN_RECIPE, seed=seed)
    train(model, town.batches, recipe, on_step=ask, progress=False)
    loss = mean_loss(model, *language.encode(held_out))
    return {
        "seed": seed,
        "returning": returning,
        "loss_over_entropy": round(loss / town.entropy(held_out), 4),
    }


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(run, SEEDS))
    for one in runs:
        print(one)
    text = json.dumps({"every": EVERY, "runs": runs}, indent=1) + "\n"
    part = RESULT.with_name(RESULT.name + ".part")
    part.write_text(text)
    os.replace(part, RESULT)


if __name__ == "__main__":
    main()
