"""The study of states: its kinds are what they are called, its bytes are the
caches' own, and what is stored has the form that chapter 21 shows. What was
measured is not asserted."""

import functools
import importlib
import json
import sys

import pytest
from notebooks import CHAPTERS, ROOT

from attnbook.hybrid import StateCache, StateGPT, StateLayer

sys.path.append(str(ROOT / "benchmarks"))
study = importlib.import_module("state")

STORED = json.loads(
    (CHAPTERS / "attnbook" / "data" / "state.json").read_text("utf-8")
)


def test_the_kinds_are_what_they_are_called():
    layers = {
        kind: [
            isinstance(block.attention, StateLayer)
            for block in study.new_model(kind, 0).blocks
        ]
        for kind in study.KINDS
    }
    assert layers["attention"] == [False] * 4
    assert layers["state"] == layers["sum"] == [True] * 4
    assert layers["hybrid"] == [True, True, True, False]
    assert study.new_model("state", 0).blocks[0].attention.delta
    assert not study.new_model("sum", 0).blocks[0].attention.delta


@pytest.mark.parametrize("span", [1, 40])
def test_the_bytes_are_those_of_the_caches(span):
    sizes = {"n_heads": study.HEADS, "d_k": study.WIDTH, "n_layers": 4}
    found = study.caches(span)
    for kind, states in {
        "attention": [],
        "hybrid": [0, 1, 2],
        "state": [0, 1, 2, 3],
    }.items():
        cache = StateCache(1, span, state_layers=states, **sizes)
        assert found[kind] == 6 * cache.nbytes  # 24 layers


def test_what_is_stored_has_the_form_that_the_page_shows():
    assert STORED["steps"] == 1000
    for kind in ("attention", "hybrid", "state"):
        runs = STORED["quality"][kind].values()
        assert len(runs) >= 3
        for run in runs:
            assert len(run["learning"]) == 10
            assert [n for n, _ in run["far"]] == [96, 117, 87]
    spans = [str(span) for span in study.SPANS]
    assert list(STORED["bytes"]) == spans
    assert list(STORED["ms"]["one token"]) == spans
    assert list(STORED["ms"]["a text"]) == spans


@pytest.mark.slow
def test_the_smallest_form_runs_and_goes_on_where_it_stopped(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("ATTNBOOK_QUIET", "1")
    kept = []
    (tmp_path / "attnbook" / "data").mkdir(parents=True)
    file = tmp_path / "attnbook" / "data" / "state.json"

    def store(name, results):
        kept.append(name)
        file.write_text(json.dumps(results))

    monkeypatch.setattr(study, "store", store)
    monkeypatch.setattr(study, "CHAPTERS", tmp_path)
    monkeypatch.setattr(study, "SPANS", (8,))
    monkeypatch.setattr(study, "EVERY", 2)
    monkeypatch.setattr(
        study, "quality_of", functools.partial(study.quality_of, n=4)
    )
    study.main(4, range(1), 2, kinds=("hybrid",))
    found = json.loads(file.read_text())
    assert len(kept) == 2
    assert list(found["ms"]["one token"]["8"]) == ["attention", "state"]
    assert len(found["quality"]["hybrid"]["0"]["learning"]) == 2
    study.main(4, range(1), kinds=("hybrid",))
    assert len(kept) == 2  # nothing was computed again
    assert isinstance(study.new_model("hybrid", 0), StateGPT)
