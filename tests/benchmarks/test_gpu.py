"""`make gpu`: without a card it says so; with one it writes a page."""

import re
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from notebooks import ROOT, write
from pretend import CARD, Pretended

from attnbook import kernel
from attnbook.gpt import GPTConfig

sys.path.append(str(ROOT / "benchmarks"))
import gpu  # noqa: E402


def test_without_a_card_it_says_so_and_that_is_no_failure(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "PAGE", tmp_path / "gpu.md")
    assert gpu.main([]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert not gpu.PAGE.exists()


TINY = partial(GPTConfig, d_model=24, n_layers=1, n_heads=2)
SMALL = {
    "writers.GPTConfig": TINY,
    "card.GPTConfig": TINY,
    "card.BATCHES": (1, 3),
    "card.PROMPT": 6,
    # No card, no recorded calls: test_recorded.py is about them.
    "card.Recorded": lambda model, backend=None: model,
    "card.compile_steps": lambda model: model,
    "gpu.GPTConfig": TINY,
    "ladder.SIZES": {"small": (1, 4, 8, 2)},
    "ladder.LEAST_SECONDS": 0,
    "decoding.CONTEXTS": [3, 5],
    "decoding.LEAST_SECONDS": 0,
    "guess.CONTEXT": {"GPT-2 small": 8},
    "guess.LEAST_SECONDS": 0,
    "fewer_keys.SPANS": (8,),
    "server.CONFIG": TINY(vocab_size=20, context=64),
    "server.SIZES": (2,),
}
#: A row of each benchmark; some are the unit of their table.
ROWS = {
    "32, torch's fused": 0,
    "32, tiles, in Python": 0,
    "1, cache": 0,
    "3, tokens": 0,
    "3, compiled": 0,
    "1, recorded": 0,
    "1, both": 0,
    "1 × 5": 0,
    "1 × 5, recorded": 0,
    "2 × 4": 0,
    "small, SDPA": 1,
    "small, GPT2Attention": 0,
    "with the cache, 3": 1,
    "without the cache, 5": 0,
    "largest error": 0,
    "8, 16 heads": 1,
    "2, served": 0,
    "0": 1,
    "8": 0,
}


class Elsewhere(Pretended):
    """Remembers what is multiplied beside the card."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def _goes_to_card(self, name, tensors, devices):
        goes = super()._goes_to_card(name, tensors, devices)
        if not goes and name in ("matmul", "linear", "bmm", "einsum"):
            self.found.add((name, *(tuple(t.shape) for t in tensors)))
        return goes


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A card that is pretended, two notebooks, and benchmarks for moments."""
    cells = {
        "01_passes": ["print(1)", "print('0.5 ± 0.1')"],
        "02_fails": ["1 / 0"],
    }
    for name, sources in cells.items():
        notebook = new_notebook(cells=[new_code_cell(s) for s in sources])
        write(tmp_path / f"{name}.ipynb", notebook)
    paths = sorted(tmp_path.glob("*.ipynb"))
    monkeypatch.setattr(gpu, "notebooks", lambda: paths)
    monkeypatch.setattr(gpu, "PAGE", tmp_path / "_build" / "gpu.md")
    monkeypatch.setattr(gpu, "LENGTHS", (32,))
    monkeypatch.setattr(gpu, "ROUNDS", 2)
    monkeypatch.setattr(gpu, "PROMPTS", ((5,), (4, 4)))
    for name, value in SMALL.items():
        monkeypatch.setattr(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A Card")
    monkeypatch.setattr(gpu, "CARD", CARD)
    for name in ("ATTNBOOK_OFFLINE", "ATTNBOOK_QUIET"):
        monkeypatch.setenv(name, "1")
    with Elsewhere() as elsewhere:
        yield elsewhere


@pytest.mark.slow
def test_with_a_card_it_writes_one_page(card, tmp_path, monkeypatch):
    before = {p: p.read_bytes() for p in tmp_path.glob("*.ipynb")}
    assert gpu.main([]) == 1  # a notebook fails
    page = gpu.PAGE.read_text("utf-8")
    assert "A Card, driver" in page and f"torch {torch.__version__}" in page
    assert "| 01_passes | passes | 2 of 2 |" in page  # nothing was stored
    assert "| 02_fails | fails: ZeroDivisionError" in page
    found = dict(re.findall(r"(?m)^\| (.+) \| (\S+) \|$", page))
    for name, unit in ROWS.items():
        if name != "largest error" or not kernel.MISSING:
            assert float(found[name]) > 0 and not unit or found[name] == "1"
    assert not card.found
    assert before == {p: p.read_bytes() for p in tmp_path.glob("*.ipynb")}


def test_what_all_ran_is_stored_and_what_fails_costs_one_table(
    card, monkeypatch
):
    def no_memory():
        raise torch.OutOfMemoryError("no memory")

    stored = {}
    monkeypatch.setattr(gpu, "store", stored.__setitem__)
    came = {Path("a"): ("passes", "0 of 9"), Path("b"): ("passes", "1 of 9")}
    monkeypatch.setattr(gpu, "notebooks", lambda: [*came])
    monkeypatch.setattr(gpu, "run_notebook", came.get)
    runs = {"a": gpu.Benchmark("What", lambda: {"x": [1, 2, 3]})}
    monkeypatch.setattr(gpu, "benchmarks", lambda: runs)
    assert gpu.main([]) == 0
    assert stored == {
        "card": {
            "card": "A Card",
            "torch": torch.__version__.split("+")[0],
            "notebooks": {"run": 2, "same": 1},
            "a": {"x": [1, 2, 3]},
        }
    }
    stored.clear()
    assert gpu.main(["01"]) == 0 and not stored  # not all ran
    runs = {"b": gpu.Benchmark("No", no_memory)} | runs
    assert gpu.main([]) == 1 and not stored
    page = gpu.PAGE.read_text("utf-8")
    assert "| fails | OutOfMemoryError: no memory |" in page
    assert "| x | 2 |" in page


def test_a_way_that_computes_something_else_is_no_contender(card, monkeypatch):
    ways = gpu.contenders(32, CARD)
    ways["wrong"] = lambda: ways["torch's fused"]() + 1e-4
    monkeypatch.setattr(gpu, "contenders", lambda *_: ways)
    with pytest.raises(AssertionError, match="not close"):
        gpu.attention(32)


def test_a_card_is_waited_for_before_its_time_is_taken(monkeypatch):
    import results

    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))
    results.now()
    assert not waited
    with torch.device("meta"):
        results.now()
    assert waited
