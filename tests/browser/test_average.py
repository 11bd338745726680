"""Chapter 1's balance: loads, weights, and where the beam balances."""

import numpy as np
import pytest
from figure import Figure, numbers

PAGE = "01_weighted_averages"
DAYS = ["day 1", "day 2", "day 3"]


def load(figure, loads):
    for day, weight in zip(DAYS, loads):
        figure.slide(f"Load on {day}", weight)


def loads_of(figure):
    return [
        float(figure.control(f"Load on {day}").input_value()) for day in DAYS
    ]


def assert_shows(figure, loads):
    """Table, sentence and picture say what np.average does."""
    values = np.array(figure.data["values"])
    average = np.average(values, weights=loads)
    weights = np.array(loads) / np.sum(loads)
    *rows, total = figure.table("Weight × value").values()
    expected = np.stack([weights, values, weights * values], axis=-1)
    assert np.array(rows) == pytest.approx(expected, abs=0.0051)
    assert total == pytest.approx([average], abs=0.0051)
    said = numbers(figure.said.partition("; ")[2])
    assert said[:4] == pytest.approx([*weights, average], abs=0.0051)


def test_numbers_are_numpys(visit):
    figure = Figure(visit(PAGE), "average")
    assert_shows(figure, [1, 3, 6])
    for loads in ([2, 0.5, 9.5], [10, 0, 0], [0, 0.5, 0], [4, 4, 0]):
        load(figure, loads)
        assert_shows(figure, loads)
    assert "between 90 and 120" in figure.said
    figure.press("Equal loads")
    assert_shows(figure, [1, 1, 1])
    assert "the plain mean" in figure.said


def test_no_load_has_no_average(visit):
    figure = Figure(visit(PAGE), "average")
    load(figure, [0, 0, 0])
    assert "no weights and no average" in figure.said
    assert "NaN" not in figure.host.locator("figure").inner_html()
    assert figure.table("Weight × value")["Sum"] == []
    figure.control("Load on day 2").press("ArrowRight")
    assert "120.00, the value of day 2 itself" in figure.said


@pytest.mark.parametrize("touch", [False, True])
def test_a_load_is_pulled(visit, touch):
    """From 52 pixels above the beam, at ten pixels a load."""
    figure = Figure(visit(PAGE, has_touch=touch), "average")
    figure.pull("load1", 0, -30, touch=touch)
    first, second, third = loads_of(figure)
    assert (first, third) == (1, 6)
    assert second == pytest.approx(8.2, abs=0.5)
    assert_shows(figure, [first, second, third])
    figure.pull("load1", 0, 200, touch=touch)
    assert loads_of(figure) == [1, 0, 6]
    assert_shows(figure, [1, 0, 6])
