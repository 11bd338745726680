"""The study of fewer bits: its ways are what they are called, and what is
stored has the form that chapter 22 shows. What was measured is not
asserted."""

import importlib
import json
import sys

import pytest
import torch
from notebooks import CHAPTERS, ROOT

from attnbook.gpt import GPT, GPTConfig
from attnbook.gptq import input_moments
from attnbook.quantised import by_range, by_scale

sys.path.append(str(ROOT / "benchmarks"))
study = importlib.import_module("fewer_bits")

STORED = json.loads(
    (CHAPTERS / "attnbook" / "data" / "fewer_bits.json").read_text("utf-8")
)


def small():
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=16, context=16, d_model=32, n_heads=2, n_layers=1
    )
    return GPT(config).eval().requires_grad_(False)


def test_the_ways_of_rounding_are_what_they_are_called():
    model = small()
    moments = input_moments(model, torch.randint(16, (4, 16)))
    found = study.rounded(model, 3, moments)
    name = "blocks.0.attention.query.weight"
    table = "token_embedding.weight"
    w = model.get_parameter(name)
    wanted = {
        "row": by_scale(w, 3).values(),
        "group": by_scale(w, 3, 16).values(),
        "blocks": by_scale(w, 3).values(),
        "tensor": by_scale(w.reshape(1, -1), 3).values().view_as(w),
    }
    for way, rounded in wanted.items():
        assert torch.equal(found[way].get_parameter(name), rounded), way
    for way, other in found.items():
        kept = torch.equal(
            other.get_parameter(table), model.get_parameter(table)
        )
        assert kept == way.startswith("blocks"), way


def test_the_cache_rounds_what_it_is_told():
    sizes = {"capacity": 6, "n_layers": 1, "n_heads": 2, "d_k": 4}
    k, v = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    for of in ("keys", "values"):
        for per, wanted in (
            ("token", lambda x: by_range(x, 3).values()),
            ("channel", lambda x: by_range(x.mT, 3).values().mT),
        ):
            cache = study.RoundingCache(bits=3, of=of, per=per, **sizes)
            keys, values = cache.write(0, k, v, cache.place(1, 5))
            changed, kept = (keys, values)[:: 1 if of == "keys" else -1]
            old, other = (k, v)[:: 1 if of == "keys" else -1]
            assert torch.equal(changed, wanted(old))
            assert torch.equal(kept, other)


def test_what_is_stored_has_the_form_that_the_page_shows():
    weights = STORED["town"]["weights"]
    for bits in study.BITS:
        ways = {"tensor", "row", "group", "blocks"}
        if bits <= 4:
            ways.add("blocks, gptq")
        assert set(weights[str(bits)]) == ways
    for part in (STORED["town"], STORED["smollm2"]):
        assert list(part["cache"]) == [str(b) for b in study.CACHE_BITS]
    assert len(STORED["smollm2"]["weights"]) == 9
    for way in study.WAYS:
        assert len(STORED["training"][way]) == 5


@pytest.mark.slow
def test_the_smallest_training_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTNBOOK_QUIET", "1")
    (tmp_path / "attnbook" / "data").mkdir(parents=True)
    file = tmp_path / "attnbook" / "data" / "fewer_bits.json"
    monkeypatch.setattr(
        study, "store", lambda _, found: file.write_text(json.dumps(found))
    )
    model = study.town_model()
    monkeypatch.setattr(study, "CHAPTERS", tmp_path)
    monkeypatch.setattr(study, "town_model", lambda: model)
    monkeypatch.setattr(
        study, "LEARN", study.Recipe(steps=2, batch_size=2, warmup=1)
    )
    study.main(["training"], range(1))
    found = json.loads(file.read_text())["training"]
    assert set(found) == {*study.WAYS, "recipe"}
    assert 0 < found["nearest"]["0"]["changed"] <= 1
