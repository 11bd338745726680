"""Every page as a reader has it: wide and on a phone, light and dark.

A page is opened once for each width; all the tests of it read that one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from views import PHONE, WIDE, settle, show_in, violations, visits

from press.contents import contents

NAMES = [*contents().documents, "search"]
WIDTHS = {"wide": WIDE, "phone": PHONE}

#: How much of what is in view may move while a page loads and is read.
SHIFT = 0.01


@pytest.fixture(
    scope="module",
    params=[(name, width) for name in NAMES for width in WIDTHS],
    ids="-".join,
)
def page(
    request: pytest.FixtureRequest, chromium: Browser, address: str
) -> Iterator[Page]:
    name, width = request.param
    with visits(chromium, address) as visit:
        yield visit(name, viewport=WIDTHS[width], reduced_motion="reduce")


def open_folds(page: Page) -> None:
    page.evaluate(
        "document.querySelectorAll('details')"
        ".forEach(fold => { fold.open = true; })"
    )
    settle(page)


def is_wide(page: Page) -> bool:
    return page.viewport_size == WIDE


def test_nothing_moves(page):
    assert page.evaluate(f"movementFaults({SHIFT})") == []


def test_all_is_shown(page):
    assert page.evaluate("pictureFaults()") == []
    open_folds(page)
    page.wait_for_function("document.fonts.status === 'loaded'")
    assert page.evaluate("formulaFaults()") == []


def test_nothing_is_wider_than_its_place(page):
    open_folds(page)
    assert page.evaluate("widthFaults()") == []
    if is_wide(page):
        assert page.evaluate("codeFaults()") == []


def test_with_letters_twice_as_large_a_phone_need_not_scroll_sideways(page):
    if is_wide(page):
        pytest.skip("wide enough")
    root = "document.documentElement"
    page.evaluate(f"{root}.style.fontSize = '200%'")
    settle(page)
    widths = page.evaluate(f"[{root}.scrollWidth, innerWidth]")
    page.evaluate(f"{root}.style.fontSize = ''")
    settle(page)
    assert widths[0] <= widths[1]


def test_axe_finds_nothing(page):
    """Colours on the wide page, which has all that a telephone's has but
    for the bar at the top."""
    open_folds(page)
    assert violations(page, "structure") == []
    if is_wide(page) or "/index." in page.url:
        assert violations(page, "colours") == []
        show_in(page, "dark")
        assert violations(page, "colours") == []


def test_figures_keep_their_colours(page):
    show_in(page, "dark")
    assert page.evaluate("colourFaults()") == []
