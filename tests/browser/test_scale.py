"""Chapter 4's figure: softmax bars and gradient at any scale."""

import numpy as np
import pytest
from figure import Figure, numbers

PAGE = "04_scaled_dot_product_attention"
PULL = 120  # pixels


def by_numpy(data, octave):
    """Weights, keys heard and the gradient's norm at 2^octave / √d_k."""
    scale = 2.0**octave / data["root"]
    raised = np.exp(scale * np.array(data["scores"]))
    a = raised / raised.sum()
    J = np.diag(a) - np.outer(a, a)
    reaching = scale * np.sqrt(np.trace(J @ data["products"] @ J))
    return a, np.exp(-(a * np.log(a)).sum()), reaching


def assert_shows(figure, octave):
    weights, heard, reaching = by_numpy(figure.data, octave)
    shown = np.concatenate(list(figure.table("Weights").values()))
    assert shown == pytest.approx(weights, abs=0.0051)
    assert figure.bars("Weights") == pytest.approx(weights, abs=0.01)
    width = figure.host.locator("svg").bounding_box()["width"]
    dot = float(figure.host.locator("circle").get_attribute("cx"))
    assert dot == pytest.approx(70 + (width - 100) * (octave + 6) / 12, abs=1)
    *_, found, _, gradient = numbers(figure.said)
    assert found == pytest.approx(heard, abs=0.0051)
    assert gradient == pytest.approx(reaching, abs=0.00051)


def test_numbers_are_numpys(visit):
    figure = Figure(visit(PAGE), "scale")
    for octave in (-6, -2.75, 0, 1.5, 6):
        figure.slide("scale × √d_k", octave)
        assert_shows(figure, octave)
    figure.press("Undivided")
    assert_shows(figure, 3)
    figure.press("1/√d_k")
    figure.control("scale × √d_k").press("ArrowRight")
    assert_shows(figure, 0.25)


@pytest.mark.parametrize("touch", [False, True])
def test_the_curve_is_a_handle(visit, touch):
    figure = Figure(visit(PAGE, has_touch=touch), "scale")
    width = figure.host.locator("svg").bounding_box()["width"]
    # To the right, and down out of the picture.
    figure.pull("scale", PULL, 2 * PULL, touch=touch)
    octave = float(figure.control("scale × √d_k").input_value())
    place = width / 2 + 20 + PULL
    wanted = 12 * (place - 70) / (width - 100) - 6
    assert octave == pytest.approx(wanted, abs=0.13)  # half a step
    assert_shows(figure, octave)
