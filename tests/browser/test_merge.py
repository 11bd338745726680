"""Chapter 17's figure: peak, total and context as the blocks come."""

import numpy as np
import pytest
from figure import Figure, numbers

PAGE = "17_attention_without_matrix"
ORDERS = ["as written", "from the end"]


def by_numpy(data, order, size, n):
    """What n blocks of so many keys contribute, and the keys read."""
    scores, values = (np.array(data[name]) for name in ("scores", "values"))
    keys = np.arange(len(scores))[:: -1 if order else 1]
    read = keys[: n * size]
    peak = scores[read].max(initial=-np.inf)
    exp = np.exp(scores[read] - peak)
    return peak, exp.sum(), exp @ values[read], keys, len(read)


def assert_shows(figure, order, size, n):
    peak, total, context, keys, read = by_numpy(figure.data, order, size, n)
    shown = figure.table("The part so far")
    assert shown["peak"][-1] == pytest.approx(peak, abs=0.006)
    assert shown["total"][-1] == pytest.approx(total, abs=0.006)
    assert shown["context"][-2:] == pytest.approx(context, abs=0.006)
    average = context / total
    assert shown["context / total"] == pytest.approx(average, abs=0.006)
    before, factor = by_numpy(figure.data, order, size, n - 1)[0], 0
    if n > 1:
        factor = np.exp(before - peak)
        assert shown["peak"][0] == pytest.approx(before, abs=0.006)
    named = shown["factor for what was there"]
    assert named == pytest.approx([factor], abs=0.006)

    scores = np.array(figure.data["scores"])[keys]
    lengths = np.where(np.arange(6) < read, np.exp(scores - peak), 0)
    bars = figure.bars("exp(score − peak); * just read, – not yet")
    assert bars == pytest.approx(lengths, abs=0.02)
    assert numbers(figure.said)[0] == n
    assert numbers(figure.said)[-2:] == pytest.approx(average, abs=0.006)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_state_shows_numpys_numbers(visit, order, size):
    figure = Figure(visit(PAGE), "merge")
    figure.choose("Order", ORDERS[order])
    figure.choose("Keys a block", str(size))
    for n in range(1, 6 // size + 1):
        figure.slide("Blocks read", n)
        assert_shows(figure, order, size, n)


def test_buttons_step_and_stop_at_the_ends(visit):
    figure = Figure(visit(PAGE), "merge")
    figure.choose("Keys a block", "3")
    figure.slide("Blocks read", 6)
    assert_shows(figure, 0, 3, 2)  # there are no more than two
    figure.press("Next")
    assert_shows(figure, 0, 3, 2)
    figure.press("Back")
    assert_shows(figure, 0, 3, 1)
    figure.press("Back")
    assert_shows(figure, 0, 3, 1)
    figure.press("Next")
    assert_shows(figure, 0, 3, 2)
