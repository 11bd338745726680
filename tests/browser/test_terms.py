"""A word leads to the glossary, a symbol to the notation."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from views import PHONE

CHAPTER = "03_queries_keys_values"
LINK_RULES = ["link-in-text-block", "link-name"]


def assert_accessible(page: Page, **options: object) -> None:
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        found = Axe().run(page, options={"preload": False, **options})
        assert not found.violations_count, found.generate_report()


def test_a_word_and_a_symbol_lead_to_what_they_mean(visit):
    page = visit(CHAPTER)
    assert_accessible(page, runOnly=LINK_RULES)
    word = page.locator("a.term", has_text="projection")
    assert word.get_attribute("title").startswith("A product of a vector")
    word.focus()
    word.press("Enter")
    page.wait_for_url("**/glossary.html#term-projection")
    expect(page.locator("dt#term-projection")).to_be_in_viewport()
    page.go_back()
    page.locator("p.symbols > a.symbol[href$='#sym-d-k']").click()
    page.wait_for_url("**/notation.html#sym-d-k")
    expect(page.locator("tr#sym-d-k")).to_be_in_viewport()


@pytest.mark.parametrize("name", ["glossary", "notation"])
def test_meanings_can_be_read(visit, name):
    page = visit(name)
    assert_accessible(page)
    page.set_viewport_size(PHONE)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]
