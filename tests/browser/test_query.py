"""The figure of chapters 2 and 3: a query among keys in the plane."""

import numpy as np
import pytest
from figure import Figure, numbers

ONE_PLANE = "02_self_attention"  # the keys are the values
TWO_PLANES = "03_queries_keys_values"
EDGE = 20  # pixels around a plane


def by_numpy(data, x, y):
    """Scores, weights and the context of a query."""
    asked = data["sets"][0]
    scores = data["scale"] * (np.array(asked["keys"]) @ (x, y))
    weights = np.exp(scores) / np.exp(scores).sum()
    return scores, weights, weights @ asked["values"]


def unit(figure, plane):
    """How many pixels of a plane's picture make up one."""
    size = figure.host.locator("svg").nth(plane).bounding_box()["width"]
    ends = figure.data["planes"][plane]
    return (size - 2 * EDGE) / (ends["high"] - ends["low"])


def drawn(figure, selector, plane):
    """The point of a plane at which the middle of a shape stands."""
    picture = figure.host.locator("svg").nth(plane)
    frame = picture.bounding_box()
    box = picture.locator(selector).bounding_box()
    right = box["x"] + box["width"] / 2 - frame["x"] - EDGE
    up = frame["y"] + frame["width"] - box["y"] - box["height"] / 2
    low = figure.data["planes"][plane]["low"]
    return [low + pixels / unit(figure, plane) for pixels in (right, up)]


def assert_shows(figure, x, y):
    data = figure.data
    scores, weights, context = by_numpy(data, x, y)
    score = "Score" if data["scale"] == 1 else "Scaled score"
    caption = f"{score} {data['formula']} and weight"
    shown = np.array(list(figure.table(caption).values()))
    assert shown[:, 0] == pytest.approx(scores, abs=0.0051)
    assert shown[:, 1] == pytest.approx(weights, abs=0.0051)
    assert figure.bars(caption) == pytest.approx(weights, abs=0.02)
    said = numbers(figure.said)
    assert said[:3] == pytest.approx([x, y, np.hypot(x, y)], abs=0.0051)
    assert said[-2:] == pytest.approx(context, abs=0.0051)
    last = len(data["planes"]) - 1
    assert drawn(figure, "rect", last) == pytest.approx(context, abs=0.02)
    assert drawn(figure, "g", 0) == pytest.approx([x, y], abs=0.02)


def test_one_plane(visit):
    figure = Figure(visit(ONE_PLANE), "query")
    assert_shows(figure, 1, 0.8)
    figure.slide("query: moves", -0.4)
    figure.slide("query: water", 1.35)
    assert_shows(figure, -0.4, 1.35)
    figure.press("query: zero")
    assert_shows(figure, 0, 0)
    assert "All weights are equal" in figure.said


def test_two_planes(visit):
    figure = Figure(visit(TWO_PLANES), "query")
    assert_shows(figure, 3, 0)
    figure.press("ask where")
    assert_shows(figure, 0, 3)
    assert "“bank”" in figure.said
    figure.slide("query: who", -1.7)
    figure.slide("query: where", 0.25)
    assert_shows(figure, -1.7, 0.25)


@pytest.mark.parametrize(
    "page, touch", [(ONE_PLANE, True), (TWO_PLANES, False)]
)
def test_the_tip_is_a_handle(visit, page, touch):
    figure = Figure(visit(page, has_touch=touch), "query")
    x, y = (figure.data["start"][axis] for axis in "xy")
    pixels = unit(figure, 0)
    figure.pull("query", -0.5 * pixels, -0.8 * pixels, touch=touch)
    told = numbers(figure.said)[:2]
    assert told == pytest.approx([x - 0.5, y + 0.8], abs=0.051)
    assert_shows(figure, *told)
    figure.pull("query", 2000, 0, touch=touch)  # far out: as far as it goes
    assert_shows(figure, figure.data["planes"][0]["high"], told[1])
