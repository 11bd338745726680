"""Chapter 14's figure: what each call computes, with a cache and without."""

import numpy as np
import pytest
from figure import Figure
from playwright.sync_api import expect

PAGE = "14_kv_cache"


def by_numpy(data, call):
    """The table's rows at a call, by the chapter's formulas."""
    prompt, flops = data["prompt"], data["flops"]
    S = prompt + np.arange(call)[:, None]  # (calls, 1)
    T = np.hstack([np.where(S == prompt, prompt, 1), S])  # (calls, 2)
    work = T * (flops["token"] + S * flops["pair"]) + flops["last"]
    return {
        "rows computed": T[-1],
        "rows reused": S[-1] - T[-1],
        "scores": T[-1] * S[-1],
        "FLOPs": work[-1],
        "rows so far": T.sum(0),
        "FLOPs so far": work.sum(0),
        "bytes kept": [S[-1, 0] * data["kept"], 0],
    }


def assert_shows(figure, call):
    wanted = by_numpy(figure.data, call)
    shown = figure.host.get_by_role("table").evaluate(
        "table => [...table.rows].slice(1).map(row => [...row.cells].map("
        "cell => cell.textContent.replaceAll(',', '')))"
    )
    assert [row[0] for row in shown] == list(wanted)
    for name, *cells in shown:
        assert [int(cell) for cell in cells] == list(wanted[name]), name

    words, S = figure.data["words"], figure.data["prompt"] + call - 1
    assert f"writes “{words[S]}”" in figure.said
    assert f"holds {S} tokens" in figure.said
    # The dots stand at the totals; 96 pixels are the largest there is.
    last = len(figure.data["words"]) - figure.data["prompt"]
    top = by_numpy(figure.data, last)["FLOPs so far"][1]
    dots = figure.host.locator("circle").evaluate_all(
        "dots => dots.map(dot => Number(dot.getAttribute('cy')))"
    )
    assert dots == pytest.approx(
        120 - 96 * wanted["FLOPs so far"][::-1] / top, abs=0.06
    )


def test_each_call_shows_numpys_numbers(visit):
    figure = Figure(visit(PAGE), "cache")
    calls = len(figure.data["words"]) - figure.data["prompt"]
    for call in range(1, calls + 1):
        figure.slide("Call", call)
        assert_shows(figure, call)


def test_buttons_step_and_stop_at_the_ends(visit):
    figure = Figure(visit(PAGE), "cache")
    figure.slide("Call", 1)
    figure.press("Back")
    assert_shows(figure, 1)
    figure.press("Next")
    assert_shows(figure, 2)
    calls = len(figure.data["words"]) - figure.data["prompt"]
    figure.slide("Call", calls)
    figure.press("Next")
    assert_shows(figure, calls)


@pytest.mark.parametrize("touch", [False, True])
def test_the_curve_is_a_handle(visit, touch):
    figure = Figure(visit(PAGE, has_touch=touch), "cache")
    figure.pull("call", 40, 0, touch=touch)
    width = figure.host.locator("svg").nth(1).evaluate("s => s.clientWidth")
    # The middle of the handle and 40 pixels on, on an axis from 60.
    place = (50 + width) / 2 + 40
    calls = len(figure.data["words"]) - figure.data["prompt"]
    call = round(1 + (calls - 1) * (place - 60) / (width - 70))
    expect(figure.control("Call")).to_have_value(str(call))
    assert_shows(figure, call)
