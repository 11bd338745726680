"""The measurement of the tiles counts what is there."""

import sys
from runpy import run_path

import pytest
import torch
from notebooks import ROOT

sys.path.append(str(ROOT / "benchmarks"))
tiles = run_path(ROOT / "benchmarks" / "tiles.py")


def test_bytes_alive_at_once():
    """Two of three tensors at once; a view and what is known cost nothing."""
    x = torch.zeros(1000)  # not made while it looks
    with tiles["Alive"]() as alive:
        a = x + 1
        a.view(10, 100).add_(1)
        del a
        b = x + 1
        c = b * 2
        x.add_(1)
        del b, c
    assert alive.most == 8000 and alive.now == 0


@pytest.mark.parametrize("way", ["forward", "both"])
def test_the_three_agree_and_the_matrix_costs_what_it_must(way):
    found = {
        name: tiles["steps"](kind, 64)[way]()
        for name, kind in tiles["KINDS"].items()
    }
    for name in ("tiled", "fused"):
        torch.testing.assert_close(found[name], found["explicit"])


def test_the_smallest_run(monkeypatch):
    measure = tiles["measure"]
    monkeypatch.setitem(measure.__globals__, "LEAST_SECONDS", 0)
    found = measure(tiles["SHORTEST"])
    assert found["lengths"] == [256]
    least = 256 * 256 * 4
    assert found["explicit"]["forward bytes"][0] > 2 * least
    assert found["fused"]["forward bytes"][0] < least
