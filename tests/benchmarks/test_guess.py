"""The benchmark of guessing in its smallest form, and what it has stored.

What was measured is not asserted: it is one machine's.
"""

import json
from runpy import run_path

import torch
from notebooks import CHAPTERS, ROOT

from attnbook.gpt import GPT
from attnbook.town import TOWN_CONFIG

STORED = CHAPTERS / "attnbook" / "data" / "guess.json"
DRAFTS = {"bigram", "look-up", "smaller model", "grammar"}


def assert_form(found):
    for name, row in found["calls"].items():
        assert list(row) == ["0", "1", "2", "4", "8"], name
        assert row["0"] == [1, 1, 1]
    assert set(found["guess"]) == DRAFTS
    assert set(found["text"]) == DRAFTS | {"none"}
    rows = [*found["guess"].values(), *found["text"].values()]
    for low, middle, high in rows:
        assert 0 < low <= middle <= high


def test_its_smallest_form_runs(monkeypatch):
    monkeypatch.setenv("ATTNBOOK_QUIET", "1")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = run_path(str(ROOT / "benchmarks" / "guess.py"))
    script["measure"].__globals__.update(LEAST_SECONDS=0.0, STORIES=1)
    torch.manual_seed(0)
    model = GPT(TOWN_CONFIG).double().eval()
    assert_form(script["results"](2, {"town": model}, n=3, steps=1))


def test_what_is_stored_has_its_form():
    stored = json.loads(STORED.read_text("utf-8"))
    assert_form(stored)
    assert set(stored["calls"]) == {"town", "GPT-2 small"}
    assert stored["k"] == 4 and stored["machine"] == "one core of a CPU"
