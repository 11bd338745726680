"""Chapter 9's figure: a query and a key turned by their positions."""

import numpy as np
import pytest
from figure import Figure, numbers

PAGE = "09_positions"
M, N, FRONT = "query’s position m", "key’s position n", "tokens put in front"


def assert_shows(figure, m, n, shift, pair):
    """Against NumPy; the products from the distance alone."""
    data = figure.data
    omegas = np.array(data["omegas"])
    query, key = (complex(*data[name]) for name in ("query", "key"))
    products = (query * key.conjugate() * np.exp(1j * (m - n) * omegas)).real
    at = m + shift, n + shift

    *rows, total = figure.table("Distance").values()
    angles = np.outer(omegas, at)
    assert np.array(rows) == pytest.approx(
        np.column_stack([angles, products]), abs=0.00051
    )
    assert total == pytest.approx([products.sum()], abs=0.00051)
    said = numbers(figure.said)
    assert set(at) <= set(said)
    assert said[-5:] == pytest.approx(
        [m - n, pair, products[pair], len(omegas), products.sum()], abs=0.00051
    )
    turned = np.array([query, key]) * np.exp(1j * angles[pair])
    places = np.array([place(figure, name) for name in ("query", "key")])
    scale = abs(places[0]) / abs(query)  # pixels
    assert places / scale == pytest.approx(turned, abs=0.02)


def middle(shape):
    """Where the middle of a shape stands on the page, as a + bi upwards."""
    box = shape.bounding_box()
    return complex(box["x"] + box["width"] / 2, -box["y"] - box["height"] / 2)


def place(figure, name):
    """An arrow's tip, from the middle of the dial."""
    dial = figure.host.locator("svg").first
    return middle(dial.locator(f'[data-mark="{name}"]')) - middle(dial)


def test_numbers_are_numpys(visit):
    figure = Figure(visit(PAGE), "rotary")
    assert_shows(figure, 4, 1, 0, 0)
    for shift in (1, 9, 100):  # both move, no product does
        figure.slide(FRONT, shift)
        assert_shows(figure, 4, 1, shift, 0)
    figure.slide(M, 0)
    figure.slide(N, 40)
    assert_shows(figure, 0, 40, 100, 0)
    for pair, omega in enumerate(("1", "0.1", "0.01", "0.001")):
        figure.choose("Pair", f"{pair}, ω = {omega}")
        assert_shows(figure, 0, 40, 100, pair)


@pytest.mark.parametrize("name, touch", [("query", False), ("key", True)])
def test_a_tip_is_a_handle(visit, name, touch):
    figure = Figure(visit(PAGE, has_touch=touch), "rotary")
    figure.choose("Pair", "1, ω = 0.1")
    way = place(figure, name) * (np.exp(1.2j) - 1)  # twelve positions on
    figure.pull(name, way.real, -way.imag, touch=touch)
    m, n = (16, 1) if name == "query" else (4, 13)
    assert_shows(figure, m, n, 0, 1)
