"""Chapter 1's kernel regression: any width, any query."""

import numpy as np
import pytest
from figure import Figure, numbers

PAGE = "01_weighted_averages"
PULL = -90  # pixels of a month of 516


def weights_of(data, width, queries):
    """The weights of each query, a row a query."""
    squares = np.subtract.outer(queries, data["keys"]) ** 2
    nearest = squares.min(axis=1, keepdims=True)
    kernel = np.exp((nearest - squares) / (2 * width**2))
    return kernel / kernel.sum(axis=1, keepdims=True)


def by_numpy(data, width, day):
    """What the figure shows at a width and a query."""
    (weights,) = weights_of(data, width, [day])
    days = np.linspace(0, data["last"], len(data["truth"]))
    fit = weights_of(data, width, days) @ data["values"]
    return {
        "weights": weights,
        "answer": weights @ data["values"],
        "truth": np.interp(day, days, data["truth"]),
        "days": days,
        "fit": fit,
        "error": np.sqrt(np.mean((fit - data["truth"]) ** 2)),
    }


def assert_shows(figure, width, day):
    data = figure.data
    right = by_numpy(data, width, day)
    weights = right["weights"]
    order = np.argsort(-weights, kind="stable")
    shares = [*weights[order[:4]], weights[order[4:]].sum()]
    assert figure.bars("Largest weights × counts") == pytest.approx(
        shares, abs=0.02
    )
    *largest, rest = figure.table("Largest weights × counts").items()
    for (name, (weight, count)), j in zip(largest, order, strict=False):
        assert numbers(name) == pytest.approx([data["keys"][j]], abs=0.0051)
        assert weight == pytest.approx(weights[j], abs=0.0051)
        assert count == pytest.approx(data["values"][j], abs=0.051)
    assert rest[1] == pytest.approx(shares[-1:], abs=0.0051)
    assert numbers(figure.said) == pytest.approx(
        [
            width,
            day,
            right["answer"],
            right["truth"],
            weights.max(),
            data["keys"][order[0]],
            right["error"],
        ],
        abs=0.051,
    )
    assert numbers(figure.said)[-1] == pytest.approx(
        right["error"], abs=0.0051
    )


def test_numbers_are_numpys(visit):
    figure = Figure(visit(PAGE), "kernel")
    widths = figure.data["widths"]
    assert_shows(figure, 0.2, 12)
    for width, day in [(0.1, 6.5), (0.6, 0), (1.6, 19), (8, 30), (30, 15)]:
        figure.slide("Bandwidth", widths.index(width))
        figure.slide("Query: day", day)
        assert_shows(figure, width, day)
    figure.press("8 days")
    assert_shows(figure, 8, 15)
    figure.control("Bandwidth").press("ArrowLeft")
    figure.control("Query: day").press("ArrowRight")
    assert_shows(figure, 6, 15.5)


def test_the_picture_is_to_scale(visit):
    """The answer stands on the curve, each count as large as its weight."""
    figure = Figure(visit(PAGE), "kernel")
    figure.press("1.4 days")
    figure.slide("Query: day", 7)
    right = by_numpy(figure.data, 1.4, 7)
    discs, curves, (x, y) = figure.host.locator("svg").evaluate("""svg => {
      const list = (kind) => [...svg.querySelectorAll(kind)];
      const { cx, cy } = list("circle[r='6']")[0];
      return [
        list("circle[fill-opacity]").map((c) => c.r.baseVal.value),
        list("polyline").map((line) => [...line.points].map(
          ({ x, y }) => [x, y])),
        [cx.baseVal.value, cy.baseVal.value],
      ];
    }""")
    assert discs[: len(right["weights"])] == pytest.approx(
        3 + 15 * np.sqrt(right["weights"]), abs=0.06
    )
    *_, truth, fit = (
        np.array(line) for line in curves if len(line) == len(right["fit"])
    )
    assert np.interp(x, *fit.T) == pytest.approx(y, abs=0.3)
    # Both curves by one scale, and upside down, as pixels are.
    up = np.polyfit(figure.data["truth"], truth[:, 1], 1)
    assert up[0] < 0
    assert fit[:, 1] == pytest.approx(np.polyval(up, right["fit"]), abs=0.3)


@pytest.mark.parametrize("touch", [False, True])
def test_the_query_is_pulled(visit, touch):
    figure = Figure(visit(PAGE, has_touch=touch), "kernel")
    figure.pull("day", PULL, 0, touch=touch)
    day = float(figure.control("Query: day").input_value())
    assert day == pytest.approx(12 + PULL * 30 / 516, abs=0.3)
    assert_shows(figure, 0.2, day)
