"""The benchmark of guessing in its smallest form.

What was measured is not asserted: it is one machine's.
"""

from runpy import run_path

import torch
from notebooks import ROOT

from attnbook.gpt import GPT
from attnbook.town import TOWN_CONFIG

DRAFTS = {"bigram", "look-up", "smaller model", "grammar"}


def test_its_smallest_form_runs(monkeypatch):
    monkeypatch.setenv("ATTNBOOK_QUIET", "1")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = run_path(str(ROOT / "benchmarks" / "guess.py"))
    script["measure"].__globals__.update(LEAST_SECONDS=0.0, STORIES=1)
    torch.manual_seed(0)
    model = GPT(TOWN_CONFIG).double().eval()
    found = script["results"](2, {"town": model}, n=3, steps=1)
    row = found["calls"]["town"]
    assert list(row) == ["0", "1", "2", "4", "8"]
    assert row["0"] == [1, 1, 1]
    assert set(found["guess"]) == DRAFTS
    assert set(found["text"]) == DRAFTS | {"none"}
    rows = [*found["guess"].values(), *found["text"].values()]
    for low, middle, high in rows:
        assert low <= middle <= high
