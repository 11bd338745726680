"""The pages' Content-Security-Policy: it lets the book through, served and
from a file, and no other host's code."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page
from views import PATIENCE

from press.browser import read_whole
from press.contents import contents
from press.places import HTML as SITE

NAMES = contents().documents

#: Keeps what the policy refuses, from before the page's first line.
WATCH = """
window.refused = [];
addEventListener("securitypolicyviolation", (event) => window.refused.push(
  `${event.violatedDirective}: ${event.blockedURI}`), true);
"""


@pytest.fixture(params=["http", "file"])
def page(request, chromium: Browser, address: str):
    with chromium.new_context() as context:
        context.add_init_script(WATCH)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.root = address if request.param == "http" else f"{SITE.as_uri()}/"
        yield page


def refused(page: Page) -> list[str]:
    return page.evaluate("window.refused")


def test_a_figure_moves_and_formulas_have_their_fonts(page):
    page.goto(f"{page.root}05_masking.html")
    figure = page.locator("[data-explore=masks]")
    figure.scroll_into_view_if_needed()
    before = figure.locator(".say").inner_text()
    figure.locator("input[type=range]").first.press("ArrowRight")
    assert figure.locator(".say").inner_text() != before
    page.locator(":root:not([data-first-view])").wait_for(state="attached")
    page.evaluate(
        "document.body.offsetHeight;"  # lays out, so that fonts are asked for
        "document.fonts.ready.then(() => 0)"
    )
    assert page.evaluate("document.fonts.check('16px KaTeX_Main')")
    loaded = "[...document.fonts].filter(f => f.status == 'loaded')"
    assert page.evaluate(f"{loaded}.map(f => f.family)").count("KaTeX_Main")
    assert refused(page) == []


@pytest.mark.parametrize("name", NAMES)
def test_each_page_is_let_through(chromium: Browser, address: str, name: str):
    with chromium.new_context() as context:
        context.add_init_script(WATCH)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        read_whole(page, f"{address}{name}.html")
        assert refused(page) == []


def test_the_search_finds(page):
    page.goto(f"{page.root}index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("rotary")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?*")
    page.locator("#search-results li > a").first.wait_for()
    assert refused(page) == []


def test_another_host_is_refused(page):
    """It would answer, if it were asked."""
    asked = []

    def answer(route):
        asked.append(route.request.url)
        route.fulfill(body="window.theirs = true")

    page.route("https://example.org/**", answer)
    page.goto(f"{page.root}index.html")
    page.evaluate(
        """() => {
          const add = (name, to) => document.head.append(
            Object.assign(document.createElement(name), to));
          add("script", { src: "https://example.org/code.js" });
          add("img", { src: "https://example.org/picture.png" });
          add("base", { href: "https://example.org/" });
          fetch("https://example.org/words").catch(() => 0);
          return new Promise((done) => {
            const look = () =>
              window.refused.length < 4 ? setTimeout(look, 20) : done();
            look();
          });
        }"""
    )
    assert {line.partition(":")[0] for line in refused(page)} == {
        "script-src-elem",
        "img-src",
        "base-uri",
        "connect-src",
    }
    assert asked == [] and page.evaluate("window.theirs") is None
