"""`make gpu`: without a card it says so; with one it writes a page."""

import re
from functools import partial

import gpu
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from notebooks import write
from pretend import CARD, Pretended

from attnbook import kernel
from attnbook.gpt import GPTConfig


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
    "speed.GPTConfig": TINY,
    "attnbook.gpt.GPTConfig": TINY,
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
    "1 × 5": 0,
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
    monkeypatch.syspath_prepend(gpu.ROOT / "benchmarks")
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
    rows = [r.split(" | ") for r in page.splitlines() if r[:4] == "| 32"]
    assert {"the whole matrix", "tiles, in Python"} <= {r[1] for r in rows}
    assert all(float(r[3].rstrip(" |")) < 1e-5 for r in rows)
    found = dict(re.findall(r"(?m)^\| (.+) \| (\S+) \|$", page))
    for name, unit in ROWS.items():
        if name != "largest error" or not kernel.MISSING:
            assert float(found[name]) > 0 and not unit or found[name] == "1"
    monkeypatch.delattr("guess.calls")
    assert gpu.main(["01"]) == 1
    page = gpu.PAGE.read_text("utf-8")
    assert "| fails | AttributeError: " in page and "| 2, served |" in page
    assert not card.found
    assert before == {p: p.read_bytes() for p in tmp_path.glob("*.ipynb")}


def test_a_card_is_waited_for_before_its_time_is_taken(monkeypatch):
    monkeypatch.syspath_prepend(gpu.ROOT / "benchmarks")
    import results

    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))
    results.now()
    assert not waited
    with torch.device("meta"):
        results.now()
    assert waited
