"""The page for addresses that the book has not, shown from any depth."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect
from repository import address as repository
from views import FAULTS, PATIENCE, settle, violations

from press.browser import serve
from press.places import HTML as SITE

NAME = repository()[0].rpartition("/")[2]


@pytest.mark.parametrize(
    "prefix, path, theme",
    [("/", "mistyped.html", "light"), (f"/{NAME}/", "a/b/c", "dark")],
)
def test_the_page_finds_its_files_and_the_book(
    chromium: Browser, prefix: str, path: str, theme: str
) -> None:
    asked = []
    with (
        serve(SITE, prefix) as address,
        chromium.new_context(color_scheme=theme) as context,
    ):
        context.add_init_script(path=FAULTS)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on(
            "response",
            lambda response: (
                asked.append(response.url) if response.status == 404 else None
            ),
        )
        page.goto(address + path)
        # A browser may ask ahead at the published place, before the page's
        # script has said that the book lies elsewhere.
        missing = [
            url for url in asked if not url.startswith(f"{address}{NAME}/")
        ]
        assert missing == [address + path]
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        settle(page)
        assert violations(page) == []
        skip = page.get_by_text("Skip to main content")
        assert skip.evaluate("a => a.href") == (f"{address}{path}#page-text")
        first = page.get_by_role("link", name="first page")
        assert first.evaluate("a => a.href") == f"{address}index.html"
        words = page.get_by_role("searchbox", name="Search this book")
        words.fill("softmax")
        words.press("Enter")
        page.wait_for_url(f"{address}search.html?q=softmax")
        page.wait_for_selector("#search-results li")
