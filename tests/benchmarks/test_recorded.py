"""Recorded steps, as a graphics card would repeat them: no card is needed,
since what records is pretended. The calls are repeated with the addresses of
the first time, as a card does it."""

import sys

import pytest
import torch
from notebooks import ROOT

from attnbook.generate import complete
from attnbook.gpt import GPT, GPTConfig

sys.path.append(str(ROOT / "benchmarks"))
import card  # noqa: E402

PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()


@pytest.fixture
def model():
    torch.manual_seed(5)
    sizes = {"vocab_size": 37, "context": 40, "d_model": 24, "n_heads": 4}
    config = GPTConfig(
        **sizes, n_layers=2, positions="rotary", initial_std=0.2
    )
    return GPT(config).eval()


class Tape:
    """Records a function: `repeat` runs it again, and counts."""

    def __init__(self):
        self.recorded = 0
        self.repeated = 0

    def __call__(self, run):
        self.recorded += 1
        run()

        def repeat():
            self.repeated += 1
            run()

        return repeat


def test_a_recorded_step_writes_the_plain_text(model):
    """One text, then three of different lengths: a tape for each cache."""
    tape = Tape()
    recorded = card.Recorded(model, "eager", tape)
    for prompts in PROMPTS[:1], PROMPTS:
        before = tape.repeated
        assert complete(recorded, prompts, 20) == complete(model, prompts, 20)
        assert tape.repeated - before == 19  # the first comes of the prompt
    assert tape.recorded == 2


def test_a_tape_that_keeps_old_inputs_writes_another_text(model):
    """Mistake: the new token is handed over in a tensor of its own, but the
    recorded calls read the memory of the first."""
    tape = Tape()
    recorded = card.Recorded(model, "eager", tape)
    recorded.step = lambda *inputs: step_without_copy(recorded, *inputs)
    assert complete(recorded, PROMPTS[:1], 20) != complete(
        model, PROMPTS[:1], 20
    )


def step_without_copy(recorded, tokens, at, keys, values):
    """`Recorded.step`, but what is new does not reach the recorded calls."""
    if not recorded.inputs:
        return card.Recorded.step(recorded, tokens, at, keys, values)
    old = [own.clone() for own in recorded.inputs]
    return card.Recorded.step(recorded, *old, keys, values)
