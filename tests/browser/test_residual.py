"""Chapter 10's figure: what the residual stream is made of, by height."""

import numpy as np
import pytest
from figure import Figure, numbers
from playwright.sync_api import expect

PAGE = "10_transformer_block"
PULL = 100  # pixels
CLOSE = 0.0051  # what is shown has two decimals
HEIGHT = 90  # of a bar with all of the stream


def by_numpy(design, n):
    """The rows of the table, and the shares of all parts."""
    written = np.array(design["written"][n])
    size = np.sqrt(written.sum())
    rows = [size]
    if n:
        below = np.sqrt(np.sum(design["written"][n - 1]))
        rows += [
            np.sqrt(design["newest"][n]),
            design["below"][n] / size / below,
        ]
        rows.append(written[-1] / size**2)
    rows.append(written[0] / size**2)
    return rows, written / size**2


def assert_shows(figure, n):
    designs = figure.data["designs"]
    rows, shares = zip(*(by_numpy(d, n) for d in designs.values()))
    shown = figure.table(f"After block {n}" if n else "Below the first block")
    assert [x for row in shown.values() for x in row] == pytest.approx(
        np.transpose(rows).ravel(), abs=CLOSE
    )
    told = numbers(figure.said)[1 if n else 0 :]
    assert told == pytest.approx(
        [x for row in rows for x in (row[-1], row[0])], abs=CLOSE
    )
    for panel, expected in enumerate(shares):
        bars = (
            figure.host.locator("svg")
            .nth(panel)
            .locator("rect:not([data-mark])")
            .evaluate_all(
                "bars => bars.map(bar => ['y', 'height'].map("
                "name => Number(bar.getAttribute(name))))"
            )
        )
        assert all(height == 0 for _, height in bars[n + 1 :])
        for (y, height), share in zip(bars, expected):
            assert height == pytest.approx(
                max(1, HEIGHT * abs(share)), abs=0.1
            )
            assert y == pytest.approx(
                22 + HEIGHT * (1 - max(0, share)), abs=0.1
            )


def test_every_height_is_numpys(visit):
    figure = Figure(visit(PAGE), "residual")
    slider = figure.control("After block")
    for n in (24, 13, 1, 0):
        figure.slide("After block", n)
        assert_shows(figure, n)
    figure.press("Back")  # there is nothing below
    assert slider.input_value() == "0"
    figure.press("Next")
    slider.press("ArrowRight")
    assert_shows(figure, 2)


@pytest.mark.parametrize("touch", [False, True])
def test_the_pictures_are_handles(visit, touch):
    figure = Figure(visit(PAGE, has_touch=touch), "residual")
    figure.pull("block", PULL, 0, touch=touch)
    box = figure.host.locator('[data-mark="block"]').first.bounding_box()
    n = round(12 + PULL / (box["width"] / 25))  # the middle is block 12
    expect(figure.control("After block")).to_have_value(str(n))
    assert_shows(figure, n)
