"""A small habit for SmolLM2, by examples and by a reward.

SmolLM2-135M-Instruct answers even short questions at length. It is taught to
answer briefly, by adapters (LoRA) on its upper ten blocks, in three ways:

- by example: 48 questions with short answers, supervised fine-tuning;
- by reward: 16 answers to 4 of the same questions a step are drawn, and each
  has the reward 1 if it has ended within 16 tokens, else 0. The baseline is
  the mean of the other three answers to its question;
- braked: the same, but from each reward β = 0.2 times log(π/π₀) of the whole
  answer is taken off, so that its mean is the reward minus β KL(π‖π₀).

Then it is measured on 32 other questions: how often an answer ends within 16
tokens, how long it is, and how often it has the right word in it; how far the
law of its answers has moved; and the loss on two texts that have nothing to do
with all this. Chapter 23 shows the numbers. What is stored already is not
computed again. It takes about twenty minutes of one core.

usage: python benchmarks/habit.py [--seeds 2] [--ways reward braked example]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime

import torch
from habit_texts import ASKED, EXAMPLES, RECIPE
from real_texts import TEXT
from results import CHAPTERS, now, store
from torch import Tensor

from attnbook.answers import answer_batch, answer_logs
from attnbook.byte_pairs import BytePairs
from attnbook.chat import END, START
from attnbook.generate import Sampling, complete
from attnbook.gpt import GPT
from attnbook.lora import add_lora, without_lora
from attnbook.pretrained import load, load_tokenizer
from attnbook.reward import advantages
from attnbook.training import evaluating, loss_share

MODEL = "SmolLM2-135M-Instruct"
BRIEF = 16  # tokens within which an answer has to end, its end included
LONG = 40  # tokens after which an answer is cut when it is measured
RANK, ALPHA = 8, 16
UPPER = 10  # blocks with adapters, counted from the top
GROUP = 4  # answers to a question, in a step by reward
PER_STEP = 4  # questions in a step by reward
STEPS = {"example": 15, "reward": 24, "braked": 24}
PEAK = 2e-3  # the first learning rate, in all ways
BETA = 0.2  # of the brake
DRAWN = Sampling(temperature=1.0)


class Talker:
    """The model with new adapters, and the tokens of its chat template.

    Args:
        seed: of the adapters' first numbers.
    """

    def __init__(self, seed: int) -> None:
        model = load(MODEL)
        words = load_tokenizer(MODEL)
        assert isinstance(model, GPT) and isinstance(words, BytePairs)
        self.model = model
        self.words = words
        self.start = words.special[START]
        self.end = words.special[END]
        model.requires_grad_(False)
        upper = model.blocks[-UPPER:]
        assert isinstance(upper, torch.nn.ModuleList)
        self.adapters = add_lora(upper, RANK, ALPHA, seed=seed)
        parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(parameters, weight_decay=0.0)

    def prompt(self, question: str) -> list[int]:
        """A question in the chat template, without a system message."""
        asked = self.words.encode(f"user\n{question}")
        begun = self.words.encode("assistant\n")
        line = self.words.encode("\n")
        return [self.start, *asked, self.end, *line, self.start, *begun]

    def draw(
        self, prompts: list[list[int]], most: int, seed: int | None
    ) -> list[list[int]]:
        """An answer to each prompt, drawn at temperature 1, or the likeliest
        one where there is no seed."""
        options = {"sampling": DRAWN, "seed": seed} if seed is not None else {}
        with evaluating(self.model):
            return complete(
                self.model, prompts, most, stop=[self.end], **options
            )

    def step(self, loss: Tensor, n: int, steps: int) -> None:
        """One update; the rate falls in a straight line to a tenth."""
        rate = PEAK * (1 - 0.9 * n / steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()
        parameters = self.optimizer.param_groups[0]["params"]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        self.optimizer.step()


def rewarded(answer: list[int], end: int) -> float:
    """1 for an answer that has ended within `BRIEF` tokens, else 0."""
    return float(answer[-1] == end and len(answer) <= BRIEF)


def by_example(talker: Talker, seed: int, steps: int) -> list[float]:
    """Supervised fine-tuning on the examples: the loss of each step."""
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    losses = []
    for n in range(steps):
        if len(order) < 16:
            order += torch.randperm(
                len(EXAMPLES), generator=generator
            ).tolist()
        some = [EXAMPLES[order.pop(0)] for _ in range(16)]
        prompts = [talker.prompt(question) for question, _ in some]
        answers = [[*talker.words.encode(a), talker.end] for _, a in some]
        loss = loss_share(talker.model, *answer_batch(prompts, answers))
        talker.step(loss, n, steps)
        losses.append(round(loss.item(), 4))
    return losses


def braked(talker: Talker, seed: int, steps: int) -> list[float]:
    """`by_reward` with the brake."""
    return by_reward(talker, seed, steps, BETA)


def by_reward(
    talker: Talker, seed: int, steps: int, beta: float = 0.0
) -> list[float]:
    """Policy gradients with a baseline: the mean reward of each step.

    Args:
        talker: is changed.
        seed: of the questions that are asked and of the answers.
        steps: updates.
        beta: what a nat of log(π/π₀) costs.
    """
    generator = torch.Generator().manual_seed(seed)
    means = []
    for n in range(steps):
        chosen = torch.randperm(len(EXAMPLES), generator=generator)[:PER_STEP]
        prompts = [
            talker.prompt(EXAMPLES[number][0])
            for number in chosen.tolist()
            for _ in range(GROUP)
        ]
        answers = talker.draw(prompts, BRIEF, seed=1000 * seed + n)
        rewards = torch.tensor([rewarded(a, talker.end) for a in answers])
        means.append(rewards.mean().item())
        batch = answer_batch(prompts, answers)
        logs = answer_logs(talker.model, *batch)
        if beta:
            with torch.no_grad(), without_lora(talker.model):
                before = answer_logs(talker.model, *batch)
            rewards = rewards - beta * (logs.detach() - before)
        better = advantages(rewards.view(PER_STEP, GROUP), "others").flatten()
        if not better.any():  # all groups agree: nothing to learn from
            continue
        loss = -(better * logs).mean()
        talker.step(loss, n, steps)
    return means


def quality_of(talker: Talker) -> dict:
    """What the model does with the other questions and the other texts."""
    prompts = [talker.prompt(question) for question, _ in ASKED]
    likeliest = talker.draw(prompts, LONG, seed=None)
    texts = [talker.words.decode(a).lower() for a in likeliest]
    right = [
        any(word in text for word in wanted)
        for text, (_, wanted) in zip(texts, ASKED)
    ]
    twice = [prompt for prompt in prompts for _ in range(2)]
    drawn = talker.draw(twice, BRIEF, seed=7)
    batch = answer_batch(twice, drawn)
    with evaluating(talker.model):
        moved = answer_logs(talker.model, *batch)
        with without_lora(talker.model):
            moved = moved - answer_logs(talker.model, *batch)
    lengths = [len(answer) for answer in likeliest]
    brief = [rewarded(answer, talker.end) for answer in likeliest]
    also = [rewarded(answer, talker.end) for answer in drawn]
    return {
        "brief": round(sum(brief) / len(brief), 4),
        "brief when drawn": round(sum(also) / len(also), 4),
        "tokens": round(sum(lengths) / len(lengths), 2),
        "right": sum(right),
        "moved": round(moved.mean().item(), 3),
        "texts": {
            name: round(text_loss(talker, text), 4)
            for name, text in (("ferry", TEXT), ("soup", RECIPE))
        },
        "answers": [talker.words.decode(a) for a in likeliest],
    }


def text_loss(talker: Talker, text: str) -> float:
    """The mean loss of a text, in nats a token."""
    tokens = torch.tensor([talker.words.encode(text)])
    with evaluating(talker.model):
        return loss_share(talker.model, tokens[:, :-1], tokens[:, 1:]).item()


def nothing_said(talker: Talker) -> list[float]:
    """The largest and the mean log p of an answer that ends at once."""
    prompts = [talker.prompt(question) for question, _ in ASKED]
    batch = answer_batch(prompts, [[talker.end]] * len(prompts))
    with evaluating(talker.model):
        logs = answer_logs(talker.model, *batch)
    return [round(logs.max().item(), 2), round(logs.mean().item(), 2)]


def stored() -> dict:
    """The study's settings, and the runs that have been stored so far."""
    file = CHAPTERS / "attnbook" / "data" / "habit.json"
    finished: dict = {}
    if file.exists():
        finished = json.loads(file.read_text("utf-8"))["runs"]
    return {
        "model": MODEL,
        "settings": {
            "rank": RANK,
            "alpha": ALPHA,
            "blocks": UPPER,
            "brief": BRIEF,
            "group": GROUP,
            "questions a step": PER_STEP,
            "steps": STEPS,
            "peak": PEAK,
            "beta": BETA,
            "examples": len(EXAMPLES),
            "asked": len(ASKED),
        },
        "on": {
            "processor": platform.machine(),
            "torch": torch.__version__,
            "threads": 1,
            "date": datetime.now(UTC).date().isoformat(),
        },
        "runs": finished,
    }


def trained_and_measured(way: str, seed: int) -> dict:
    """Teach a new model one way, and judge it; "before" teaches nothing."""
    begun = now()
    talker = Talker(seed)
    found: dict = {}
    if way != "before":
        ways = {"example": by_example, "reward": by_reward, "braked": braked}
        teach = ways[way]
        found["learning"] = teach(talker, seed, STEPS[way])
        found["minutes"] = round((now() - begun) / 60, 1)
    else:
        found["nothing said"] = nothing_said(talker)
    size = sum(a.down.numel() + a.up.numel() for a in talker.adapters)
    return found | {"trained": size} | quality_of(talker)


def main(
    seeds: int = 2, ways: Sequence[str] = ("reward", "braked", "example")
) -> None:
    """Measure what is not stored yet, and store it at once."""
    torch.set_num_threads(1)
    os.environ["ATTNBOOK_QUIET"] = "1"
    wanted = [("before", 0)]
    wanted += [(way, seed) for seed in range(seeds) for way in ways]
    for way, seed in wanted:
        if str(seed) in stored()["runs"].get(way, {}):
            continue
        result = trained_and_measured(way, seed)
        # Read again: another process may have stored its own meanwhile.
        found = stored()
        found["runs"].setdefault(way, {})[str(seed)] = result
        store("habit", found)
        shown = {k: v for k, v in result.items() if k != "answers"}
        print(way, seed, shown, flush=True)


if __name__ == "__main__":
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--ways", nargs="*", default=["reward", "braked", "example"]
    )
    given = parser.parse_args()
    main(given.seeds, given.ways)
