"""The clinic's search box, on the first screen and by keyboard alone."""

import pytest


@pytest.mark.parametrize("width, height", [(1280, 720), (390, 844)])
def test_the_box_is_on_the_first_screen(visit, width, height):
    viewport = {"width": width, "height": height}
    page = visit("something_is_wrong", viewport=viewport)
    page.get_by_label("What do you see?").wait_for()
    bottom = page.locator("#clinic input").evaluate(
        "box => box.getBoundingClientRect().bottom + scrollY"
    )
    assert bottom < height


def test_nothing_moves_when_the_box_comes(visit):
    page = visit("something_is_wrong")
    place = page.locator("#clinic")
    assert place.bounding_box()["height"] > 0
    height = "getComputedStyle(document.getElementById('clinic')).height"
    with_box = page.evaluate(height)
    place.evaluate("place => { place.hidden = true; place.innerHTML = ''; }")
    assert page.evaluate(height) == with_box


def test_what_one_sees_leads_to_its_cause(visit):
    page = visit("something_is_wrong")
    box = page.get_by_label("What do you see?")
    box.focus()
    page.keyboard.type("loss halves with padding mask")
    status = page.locator("#clinic [role=status]")
    status.filter(has_text="the likeliest first").wait_for()
    links = page.locator("#clinic li a")
    assert "padding mask is used in place of" in links.first.inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**#padding_mask_replaces_causal")


def test_what_nothing_fits_is_said(visit):
    page = visit("something_is_wrong")
    page.get_by_label("What do you see?").fill("xyzzy")
    status = page.locator("#clinic [role=status]")
    status.filter(has_text="Nothing fits these words").wait_for()
    assert page.locator("#clinic li").count() == 0
