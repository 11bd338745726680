"""The study of smaller caches: its smallest form runs, and what is stored has
the form that chapter 18 shows. What was measured is not asserted."""

import functools
import json
import sys

import pytest
from notebooks import CHAPTERS, ROOT

sys.path.append(str(ROOT / "benchmarks"))
import fewer_keys  # noqa: E402

STORED = json.loads(
    (CHAPTERS / "attnbook" / "data" / "fewer_keys.json").read_text("utf-8")
)


@pytest.fixture
def study(monkeypatch):
    monkeypatch.setenv("ATTNBOOK_QUIET", "1")
    return fewer_keys


@pytest.mark.slow
def test_the_smallest_form_runs_and_goes_on_where_it_stopped(
    study, monkeypatch, tmp_path
):
    kept, trained = [], []
    (tmp_path / "attnbook" / "data").mkdir(parents=True)
    file = tmp_path / "attnbook" / "data" / "fewer_keys.json"

    def store(name, results):
        kept.append(json.loads(json.dumps(results)))
        file.write_text(json.dumps(results))

    learn = study.learn
    monkeypatch.setattr(study, "store", store)
    monkeypatch.setattr(study, "CHAPTERS", tmp_path)
    monkeypatch.setattr(study, "SPANS", (8,))
    monkeypatch.setattr(study, "KINDS", ("4 heads", "latent 16 + 8"))
    monkeypatch.setattr(
        study, "quality_of", functools.partial(study.quality_of, n=2)
    )
    monkeypatch.setattr(
        study, "learn", lambda *a, **k: trained.append(a[1]) or learn(*a, **k)
    )
    study.main(20, range(1), 1)
    assert len(kept) == 3 and trained == [20, 1, 4, 1, 4, 20]
    assert kept[-1]["steps"] == 20 and list(kept[-1]["time"]) == ["8"]
    assert list(kept[-1]["time"]["8"]) == list(STORED["time"]["256"])
    assert kept[-1]["quality"].keys() < STORED["quality"].keys()
    assert kept[-1]["quality"]["4 heads"]["0"].keys() == {
        "loss",
        "bank",
        "agreement",
    }
    study.main(20, range(1))
    assert len(kept) == 3  # nothing was computed again


def test_a_window_is_felt_while_it_is_trained(study):
    """The kinds are what they are called."""
    import torch

    tokens = torch.arange(12)[None]
    windowed = study.new_model("window 8", 0)
    same = study.new_model("4 heads", 0)
    a, b = windowed(tokens), same(tokens)
    assert torch.allclose(a[:, :8], b[:, :8], atol=1e-6)
    assert (a[:, 8:] - b[:, 8:]).abs().max() > 1e-4
    kinds = {
        kind: study.new_model(kind, 0) for kind in ("1 head", "latent 16 + 8")
    }
    assert kinds["1 head"].blocks[0].attention.n_kv_heads == 1
    layer = kinds["latent 16 + 8"].blocks[1].attention
    assert (layer.d_latent, layer.d_rotary) == (16, 8)
