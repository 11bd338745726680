"""The figures' marks, pulled and pointed at, and their buttons: each leads to
the state that it says. What is shown there is in test_figure_numbers.py."""

import numpy as np
import pytest
from figure import Figure, numbers, tap, tip, unit
from playwright.sync_api import expect

AVERAGES = "01_weighted_averages"
by_mouse_and_finger = pytest.mark.parametrize("touch", [False, True])


def value(figure, label):
    return float(figure.control(label).input_value())


def width_of(figure, nth=0):
    picture = figure.host.locator("svg").nth(nth)
    return picture.evaluate("svg => svg.clientWidth")


@by_mouse_and_finger
def test_a_load_is_pulled(visit, touch):
    """From 52 pixels above the beam, at ten pixels a load."""
    figure = Figure(visit(AVERAGES, has_touch=touch), "average")
    figure.pull("load1", 0, -30, touch=touch)
    assert value(figure, "Load on day 2") == pytest.approx(8.2, abs=0.5)
    figure.pull("load1", 0, 200, touch=touch)
    loads = [value(figure, f"Load on day {n}") for n in (1, 2, 3)]
    assert loads == [1, 0, 6]


@by_mouse_and_finger
def test_the_query_of_the_kernel_is_pulled(visit, touch):
    """By 90 pixels of a month of 516."""
    figure = Figure(visit(AVERAGES, has_touch=touch), "kernel")
    figure.pull("day", -90, 0, touch=touch)
    day = value(figure, "Query: day")
    assert day == pytest.approx(12 - 90 * 30 / 516, abs=0.3)


@pytest.mark.parametrize(
    "page, touch",
    [("02_self_attention", True), ("03_queries_keys_values", False)],
)
def test_the_tip_of_the_query_is_a_handle(visit, page, touch):
    figure = Figure(visit(page, has_touch=touch), "query")
    x, y = (figure.data["start"][axis] for axis in "xy")
    pixels = unit(figure)
    figure.pull("query", -0.5 * pixels, -0.8 * pixels, touch=touch)
    told = numbers(figure.said)[:2]
    assert told == pytest.approx([x - 0.5, y + 0.8], abs=0.051)
    figure.pull("query", 2000, 0, touch=touch)  # far out: as far as it goes
    high = figure.data["planes"][0]["high"]
    assert numbers(figure.said)[:2] == [high, told[1]]


@by_mouse_and_finger
def test_the_curve_of_the_scale_is_a_handle(visit, touch):
    """To the right, and down out of the picture."""
    page = visit("04_scaled_dot_product_attention", has_touch=touch)
    figure = Figure(page, "scale")
    width = width_of(figure)
    figure.pull("scale", 120, 240, touch=touch)
    wanted = 12 * (width / 2 + 140 - 70) / (width - 100) - 6
    octave = value(figure, "scale × √d_k")
    assert octave == pytest.approx(wanted, abs=0.13)  # half a step


@by_mouse_and_finger
def test_a_row_of_the_mask_is_pointed_at(visit, touch):
    figure = Figure(visit("05_masking", has_touch=touch), "masks")
    row = figure.host.locator('[data-mark="6"]')
    tap(row) if touch else row.click()
    assert value(figure, "Query") == 6


def test_words_and_heads_are_pointed_at(visit):
    figure = Figure(visit("11_small_language_model"), "heads")
    for mark in ("11", "1 2"):
        figure.host.locator(f'[data-mark="{mark}"]').click()
    labels = "Word", "Block", "Head"
    assert [value(figure, label) for label in labels] == [11, 1, 2]
    figure.control("Word").press("ArrowUp")
    assert value(figure, "Word") == 10
    page = visit("06_multi_head_attention", has_touch=True)
    figure = Figure(page, "heads")
    for mark in ("9", "0 2"):
        tap(figure.host.locator(f'[data-mark="{mark}"]'))
    assert [value(figure, label) for label in ("Word", "Head")] == [9, 2]


@pytest.mark.parametrize("name, touch", [("query", False), ("key", True)])
def test_the_tips_of_the_dial_are_handles(visit, name, touch):
    figure = Figure(visit("09_positions", has_touch=touch), "rotary")
    figure.choose("Pair", "1, ω = 0.1")
    way = tip(figure, name) * (np.exp(1.2j) - 1)  # twelve positions on
    figure.pull(name, way.real, -way.imag, touch=touch)
    labels = "query’s position m", "key’s position n"
    found = [value(figure, label) for label in labels]
    assert found == ([16, 1] if name == "query" else [4, 13])


@by_mouse_and_finger
def test_the_bars_of_the_stream_are_handles(visit, touch):
    page = visit("10_transformer_block", has_touch=touch)
    figure = Figure(page, "residual")
    figure.pull("block", 100, 0, touch=touch)
    box = figure.host.locator('[data-mark="block"]').first.bounding_box()
    n = round(12 + 100 / (box["width"] / 25))  # the middle is block 12
    expect(figure.control("After block")).to_have_value(str(n))


@by_mouse_and_finger
def test_the_curves_of_the_calls_are_handles(visit, touch):
    figure = Figure(visit("14_kv_cache", has_touch=touch), "cache")
    figure.pull("call", 40, 0, touch=touch)
    # The middle of the handle and 40 pixels on, on an axis from 60.
    width = width_of(figure, 1)
    place = (50 + width) / 2 + 40
    calls = len(figure.data["words"]) - figure.data["prompt"]
    call = round(1 + (calls - 1) * (place - 60) / (width - 70))
    expect(figure.control("Call")).to_have_value(str(call))


@pytest.mark.parametrize(
    "page, kind, label",
    [
        ("10_transformer_block", "residual", "After block"),
        ("14_kv_cache", "cache", "Call"),
        ("17_attention_without_matrix", "merge", "Blocks read"),
        ("19_small_server", "pages", "Step"),
    ],
)
def test_buttons_step_and_stop_at_the_ends(visit, page, kind, label):
    figure = Figure(visit(page), kind)
    slider = figure.control(label)
    first, last = (float(slider.get_attribute(n)) for n in ("min", "max"))
    for start, button, end in (
        (first, "Back", first),
        (first, "Next", first + 1),
        (last, "Next", last),
        (last, "Back", last - 1),
    ):
        figure.slide(label, start)
        figure.press(button)
        assert value(figure, label) == end


@pytest.mark.parametrize(
    "page, kind, button, shown",
    [
        (AVERAGES, "average", "Equal loads", "the plain mean"),
        (AVERAGES, "kernel", "8 days", "At bandwidth 8 the answer for day 12"),
        ("02_self_attention", "query", "query: zero", "weights are equal"),
        ("03_queries_keys_values", "query", "ask where", "“bank”"),
        ("04_scaled_dot_product_attention", "scale", "Undivided", "At 8.00 "),
    ],
)
def test_a_button_leads_to_its_state(visit, page, kind, button, shown):
    figure = Figure(visit(page), kind)
    figure.press(button)
    assert shown in figure.said


def test_no_more_blocks_are_read_than_there_are(visit):
    figure = Figure(visit("17_attention_without_matrix"), "merge")
    figure.choose("Keys a block", "3")
    figure.slide("Blocks read", 6)
    assert numbers(figure.said)[:2] == [2, 2]
    figure.press("Back")
    assert numbers(figure.said)[:2] == [1, 2]


def test_there_are_never_more_heads_of_keys_than_of_queries(visit):
    figure = Figure(visit("18_fewer_keys"), "bytes")
    figure.slide("Heads of keys", 7)
    figure.slide("Heads of queries", 2)
    expect(figure.control("Heads of keys")).to_have_attribute(
        "aria-valuetext", "4"
    )
