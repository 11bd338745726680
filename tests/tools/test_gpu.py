"""`make gpu`: without a card it says so; with one it writes a page."""

from functools import partial

import gpu
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from notebooks import write

from attnbook.gpt import GPTConfig


def test_without_a_card_it_says_so_and_that_is_no_failure(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "PAGE", tmp_path / "gpu.md")
    assert gpu.main([]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert not gpu.PAGE.exists()


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A card that is the CPU by another name, and two notebooks."""
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
    small = partial(GPTConfig, d_model=24, n_layers=1, n_heads=2)
    monkeypatch.setattr("speed.GPTConfig", small)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A Card")
    monkeypatch.setattr(gpu, "CARD", torch.device("cpu"))
    for name in ("ATTNBOOK_OFFLINE", "ATTNBOOK_QUIET"):
        monkeypatch.setenv(name, "1")


@pytest.mark.slow
def test_with_a_card_it_writes_one_page(card, tmp_path, capsys):
    before = {p: p.read_bytes() for p in tmp_path.glob("*.ipynb")}
    assert gpu.main([]) == 1  # a notebook fails
    page = gpu.PAGE.read_text("utf-8")
    assert "A Card, driver" in page and f"torch {torch.__version__}" in page
    assert "| 01_passes | passes | 2 of 2 |" in page  # nothing was stored
    assert "| 02_fails | fails: ZeroDivisionError" in page
    rows = [r.split(" | ") for r in page.splitlines() if r[:4] == "| 32"]
    assert {"the whole matrix", "tiles, in Python"} <= {r[1] for r in rows}
    assert all(float(r[3].rstrip(" |")) < 1e-5 for r in rows)
    lines = page.splitlines()
    for prompts in "1 × 5", "2 × 4":
        (row,) = [
            r.split(" | ") for r in lines if r.startswith(f"| {prompts}")
        ]
        assert all(float(ratio.rstrip(" |")) > 0 for ratio in row[1:])
    assert gpu.main(["01"]) == 0
    assert before == {p: p.read_bytes() for p in tmp_path.glob("*.ipynb")}
