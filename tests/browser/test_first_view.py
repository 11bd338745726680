"""A page shows its first view first; when it is read it is as any other.

What is far below is laid out once a reader scrolls (book.js).
"""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page
from views import PHONE, WIDE, visits

from press.browser import Pages, read_whole, serve
from press.places import HTML as SITE

CHAPTER = "14_kv_cache"
SECTIONS = '[...document.querySelectorAll(".bd-article section section")]'
LEFT = (
    f"{SECTIONS}.filter((section) => "
    "getComputedStyle(section).contentVisibility === 'auto').length"
)

#: Counts, as soon as the page has been read, the sections left for later.
AT_FIRST = f"""
document.addEventListener("DOMContentLoaded", () => {{
  window.left = {LEFT};
}});
"""


def opened(visit, mark: str = "") -> Page:
    """The chapter in a new tab, whose first state has been taken down."""
    page = visit("index")
    page.context.add_init_script(AT_FIRST)
    read_whole(page, page.url.replace("index.html", f"{CHAPTER}.html{mark}"))
    return page


def test_the_rest_follows_a_scroll(visit):
    page = opened(visit)
    whole = opened(visit, "#no-such-place")
    assert page.evaluate("left") > 10, "all was laid out at once"
    assert whole.evaluate("left") == 0
    assert page.evaluate(LEFT) == 0


def test_the_buttons_that_copy_come_with_the_first_move(visit):
    page = visit("index")
    buttons = ".copybtn"
    page.goto(page.url.replace("index.html", f"{CHAPTER}.html"))
    assert page.locator(buttons).count() == 0
    page.mouse.move(9, 9)
    page.locator(buttons).first.wait_for(state="attached")
    page.mouse.move(99, 99)
    blocks = page.locator("div.highlight pre")
    assert page.locator(buttons).count() == blocks.count() > 0


def test_a_link_into_a_page_leads_to_its_heading(visit):
    page = opened(visit, "#where-people-go-wrong")
    assert page.evaluate("left") == 0
    heading = page.locator("#where-people-go-wrong > h2")
    header = page.locator(".bd-header-article")
    foot = header.bounding_box()["y"] + header.bounding_box()["height"]
    assert heading.bounding_box()["y"] == pytest.approx(foot, abs=60)


def test_the_first_key_gets_the_rest_at_once(visit):
    page = visit("index")
    page.context.add_init_script(f"""
      document.addEventListener("DOMContentLoaded", () => {{
        const before = {LEFT};
        document.body.dispatchEvent(new Event("keydown"));
        window.left = [before, {LEFT}];
      }});
    """)
    page.goto(page.url.replace("index.html", f"{CHAPTER}.html"))
    before, after = page.evaluate("left")
    assert before > 10 and after == 0


class SlowPages(Pages):
    """What a page begins with comes piece by piece, as over a slow line."""

    def send(self, body: bytes) -> None:
        begin = 12_000 if self.path.endswith(".html") else 0
        for start in range(0, begin, 100):
            self.wfile.write(body[start : start + 100])
            time.sleep(0.02)
        self.wfile.write(body[begin:])


@pytest.mark.parametrize(
    "name, viewport",
    [
        ("07_layer_normalisation", PHONE),  # the header's buttons
        ("notation", WIDE),  # a table's columns
        ("404", PHONE),  # the footer, in the first view of so short a page
    ],
)
def test_what_comes_slowly_does_not_move(chromium, name, viewport):
    with (
        serve(SITE, pages=SlowPages) as address,
        visits(chromium, address) as visit,
    ):
        page = visit(name, viewport=viewport)
        assert page.evaluate("movementFaults(0.001)") == []
