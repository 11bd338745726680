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


def test_batches_and_server_are_compared_at_equal_size(bench):
    asked = [([1, 2, 3], 4), ([4], 1), ([5, 6], 2)]
    found = bench.at_equal_size(2, asked, (1, 2), TINY)
    ways = ["static 1", "server 1", "static 2", "server 2"]
    assert list(found["times"]) == ways and list(found["schedule"]) == [
        "1",
        "2",
    ]
    # Two at a time: a batch of 4 calls and one of 2; the server's third
    # request takes the place of the second one after one step.
    expected = {"static 1": 7, "server 1": 7, "static 2": 6, "server 2": 4}
    assert found["calls"] == expected
    assert found["slots"]["static 2"] == 2 * (3 + 4)
    for low, middle, high in found["times"].values():
        assert 0 < low <= middle <= high


def test_waiting_is_told_for_each_number_at_a_time(bench):
    found = bench.waiting(GPT(TINY).eval(), (1, 2), n_each=2)
    assert list(found) == ["1", "2"]
    for one in found.values():
        assert min(one.values()) > 0
