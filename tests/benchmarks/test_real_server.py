"""What users of a real model wait for: the benchmark runs in a small form,
and what is stored is what the page needs."""

import json

import pytest
import torch
from notebooks import CHAPTERS
from real_models import SMOLLM2, needs_smollm2

from attnbook.gpt import GPT, GPTConfig
from attnbook.pretrained import load, load_tokenizer

SCRIPT = "real_server"
PATH = CHAPTERS / "attnbook" / "data" / "real_server.json"
TINY = GPTConfig(vocab_size=20, context=64, d_model=8, n_heads=2, n_layers=1)
PROMPTS = [[1, 2, 3], [4, 5]]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(TINY).eval()


def test_its_smallest_form_runs(script, model):
    found = script.at_a_time(model, PROMPTS, 2, (1, 2))
    assert list(found) == ["1", "2"]
    for one in found.values():
        for low, middle, high in one.values():
            assert 0 < low <= middle <= high
    loads = script.under_load(model, PROMPTS, 2, loads=(0.5,), places=2, n=4)
    assert list(loads) == ["full", "0.5"]
    assert list(loads["0.5"]) == ["static", "server"]


def test_each_request_is_served_and_no_sooner_than_it_comes(script, model):
    """Requests that come far apart find an empty server; a static batch lets
    nobody in while one writes."""
    asked = [([1, 2, 3], 5), ([4], 1), ([5, 6], 3)]
    for static in (False, True):
        far = script.play(model, asked, [0.0, 1e3, 2e3], 2, static=static)
        assert len(far["first"]) == 3 and len(far["between"]) == 4 + 0 + 2
        assert 0 < min(far["first"]) and max(far["first"]) < 10
        assert max(far["between"]) < 10
    at_once = script.play(model, asked, [0.0] * 3, 2, static=True)
    # The third waits until the first two are done, for all five steps.
    assert at_once["first"][2] > max(at_once["first"][:2])


def test_requests_come_at_the_rate_that_is_asked_for(script):
    asked = [([1], 10)] * 4000
    times = script.comes(asked, 50.0, seed=1)
    assert times == sorted(times) and times[0] == 0
    # 10 tokens each at 50 a second: one in 0.2 seconds; σ of the mean 1.6 %.
    assert abs(times[-1] / (0.2 * 3999) - 1) < 0.08


@needs_smollm2
def test_all_prompts_begin_alike(script):
    """So the server finds the first page of 16 tokens of each again."""
    tokenizer = load_tokenizer(SMOLLM2)
    prompts = script.questions(load(SMOLLM2), tokenizer)
    assert json.loads(PATH.read_text("utf-8"))["prompts"] == [
        len(prompt) for prompt in prompts
    ]
    assert len({tuple(prompt[:16]) for prompt in prompts}) == 1


def test_the_stored_numbers_are_whole():
    stored = json.loads(PATH.read_text("utf-8"))
    assert stored["rounds"] >= 3 and stored["machine"]["torch"]
    rows = [*stored["waiting"].values()]
    for load_, ways in stored["load"].items():
        if load_ != "full":
            assert list(ways) == ["static", "server"]
            rows += ways.values()
    for row in rows:
        for low, middle, high in row.values():
            assert 0 < low <= middle <= high
