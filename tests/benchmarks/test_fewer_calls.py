"""What fewer calls buy and cost: each way is asked by turns, one that cannot
be had is left out with its reason, and texts are compared. Nothing is timed:
the processes here are pretended."""

import argparse
import sys

import pytest
import torch
from notebooks import ROOT

from attnbook.gpt import GPT, GPTConfig
from attnbook.quantised import by_scale

sys.path.append(str(ROOT / "benchmarks"))
import fewer_calls  # noqa: E402
import small_calls  # noqa: E402

SECONDS = {"plain": 6.0, "quick": 2.0}


class Pretended:
    """The process of a way, which is made in 9 seconds, then in 1."""

    begun: dict[str, int] = {}

    def __init__(self, way, python, folder):
        self.way = way
        self.begun[way] = self.begun.get(way, 0) + 1
        self.ended = False

    def ask(self, request):
        if self.way == "absent":
            raise RuntimeError("ModuleNotFoundError: no torchao")
        answers = {
            "make": {"clock": 9.0 if self.begun[self.way] == 1 else 1.0},
            "compare": {"logits": 0.1, "texts": 8},
            "memory": {"MiB": 700},
        }
        return answers[request["do"]]

    def seconds(self, request):
        return SECONDS[self.way] / request["threads"]

    def end(self):
        self.ended = True


@pytest.fixture
def pretended(monkeypatch):
    Pretended.begun = {}
    all_of_them = []

    def begin(*arguments):
        all_of_them.append(Pretended(*arguments))
        return all_of_them[-1]

    monkeypatch.setattr(fewer_calls, "begin", begin)
    return all_of_them


def test_ways_take_turns_and_what_is_missing_is_said(
    pretended, tmp_path, capsys
):
    asked = argparse.Namespace(
        ways=["plain", "absent", "quick"],
        python="python",
        rounds=2,
        threads=[1, 2],
    )
    found = fewer_calls.measure(asked, tmp_path)
    said = capsys.readouterr().out
    assert "absent is left out: ModuleNotFoundError: no torchao" in said
    assert list(found) == ["plain", "quick"]
    assert all(process.ended for process in pretended)
    assert found["quick"] == {
        "made": {"clock": 9.0},
        "found": {"clock": 1.0},
        "MiB": 700,
        "logits": 0.1,
        "texts": 8,
        "cores: 1": {
            "milliseconds": [2000.0] * 3,
            "times as fast as plain": [3.0] * 3,
        },
        "cores: 2": {
            "milliseconds": [1000.0] * 3,
            "times as fast as plain": [3.0] * 3,
        },
    }


def new_model(seed):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 37, "context": 100, "d_model": 24, "n_heads": 4}
    return GPT(GPTConfig(**sizes, n_layers=2, initial_std=0.2)).eval()


def test_texts_and_logits_are_compared_with_the_plain_models():
    prompts = [[n, n + 1, n + 2] for n in range(fewer_calls.TEXTS)]
    model = new_model(1)
    same = fewer_calls.compare(model, model, prompts)
    assert (same["logits"], same["texts"]) == (0, len(prompts))
    other = fewer_calls.compare(model, new_model(2), prompts)
    assert other["logits"] > 0.5 and other["texts"] == 0
    right = fewer_calls.logits_of(model, prompts[:1])
    with torch.inference_mode():
        alone = model(torch.tensor(prompts[:1]))[0, -1:]
    torch.testing.assert_close(right, alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_4_bits_are_what_they_say():
    """A single token goes another way than several."""
    torch.manual_seed(0)
    weight = torch.randn(48, 128)
    bias = torch.randn(48)
    layer = small_calls.FourBitLinear(weight, bias)
    rounded = by_scale(weight, 4, 32).values()
    for shape in ((1, 1), (3, 1), (2, 5)):
        x = torch.randn(*shape, 128)
        torch.testing.assert_close(
            layer(x), x @ rounded.T + bias, atol=1e-4, rtol=1e-4
        )
    assert layer.packed.numel() == weight.numel() / 2


@torch.no_grad()
def test_torchs_4_bits_are_near_the_weights():
    torch.manual_seed(0)
    weight = torch.randn(64, 128)
    layer = small_calls.Int4Linear(weight, None)
    found = layer(torch.eye(128)[:, None])[:, 0].T  # the rounded matrix
    groups = weight.unflatten(1, (-1, 32))
    step = (groups.amax(-1) - groups.amin(-1)) / 15
    error = (found - weight).unflatten(1, (-1, 32)).abs().amax(-1)
    assert (error <= 0.5 * step + 1e-2).all()
