"""The benchmark of the server runs, in its smallest form."""

import sys

import pytest
from notebooks import CHAPTERS

from attnbook.gpt import GPT, GPTConfig

sys.path.append(str(CHAPTERS.parent / "benchmarks"))
TINY = GPTConfig(vocab_size=20, context=64, d_model=8, n_heads=2, n_layers=1)


@pytest.fixture
def bench():
    import server

    return server


def test_its_smallest_form_runs(bench):
    found = bench.measure(2, TINY, (1, 2), least=1, most=3)
    assert list(found) == ["1", "2"]
    for ratios in found.values():
        assert list(ratios) == ["static", "served", "exact"]
        for low, middle, high in ratios.values():
            assert 0 < low <= middle <= high


def test_exact_has_no_other_bits(bench):
    model = GPT(TINY).eval()
    asked = bench.drawn(3, TINY, least=2, most=4)
    assert bench.bits(model, asked, exact=True) == 0
