"""The search finds, says where there is nothing, and shows what it found."""

from __future__ import annotations

import re

import pytest


def found(page) -> list[str]:
    """The titles of the pages found, once all of them are there."""
    page.locator("#search-results p.search-summary").filter(
        has_text="Search finished"
    ).wait_for()
    return page.locator("#search-results li > a").all_inner_texts()


@pytest.mark.parametrize(
    "words, title",
    [
        ("rotary", "9. Positions"),
        ("KV cache", "14. The KV cache"),
    ],
)
def test_words_are_found(visit, words, title):
    page = visit("index")
    page.keyboard.press("Control+k")
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?*")
    titles = found(page)
    assert any(t.startswith(title) for t in titles[:3]), titles
    # Each is shown with words of its page, those of the search among them.
    extract = (
        page.locator("#search-results li", has_text=title)
        .locator(".context")
        .inner_text()
    )
    assert words.split()[-1].lower() in extract.lower()


@pytest.mark.parametrize("words", ["KV cache", "padding"])
def test_a_page_is_listed_and_counted_once(visit, words):
    """Sphinx finds it by its title, by its text and by each of its terms."""
    page = visit("search")
    page.goto(f"{page.url}?q={words}")
    found(page)
    links = page.locator("#search-results li > a").evaluate_all(
        "links => links.map((link) => new URL(link.href).pathname)"
    )
    assert len(set(links)) == len(links) > 1, links
    said = page.locator("#search-results p.search-summary").inner_text()
    assert re.findall(r"\d+", said) == [str(len(links))]


def test_a_result_leads_to_the_words(visit):
    page = visit("search")
    page.get_by_role("searchbox").first.fill("rotary")
    page.keyboard.press("Enter")
    title = found(page)[0]
    page.locator("#search-results li > a").first.click()
    page.get_by_role("heading", name=title).wait_for()
    marked = page.locator("article span.highlighted")  # a drawing has boxes
    marked.first.wait_for(state="attached")
    assert {word.lower() for word in marked.all_text_contents()} == {"rotary"}
    page.get_by_text("Hide Search Matches").click()
    assert marked.count() == 0


def test_words_do_not_lie_on_the_magnifying_glass(visit):
    page = visit("search")
    box = page.get_by_role("searchbox").first
    assert box.evaluate(
        "box => box.getBoundingClientRect().left"
        " + parseFloat(getComputedStyle(box).paddingLeft)"
    ) >= page.locator(".bd-search i:visible").first.evaluate(
        "glass => glass.getBoundingClientRect().right"
    )


def test_nothing_found_is_said(visit):
    page = visit("search")
    page.get_by_role("searchbox").first.fill("xyzzy")
    page.keyboard.press("Enter")
    page.get_by_text("did not match any documents").wait_for()
    assert page.locator("#search-results li").count() == 0


@pytest.mark.parametrize("word", ["constructor", "__proto__"])
def test_a_word_that_every_object_knows_is_searched_for(visit, word):
    page = visit("search")
    page.goto(f"{page.url}?q={word}")
    page.locator("#search-results p.search-summary").filter(
        has_text=re.compile("Search finished|did not match")
    ).wait_for()
    for title in page.locator("#search-results li > a").all_inner_texts():
        assert "undefined" not in title


def test_sections_come_before_pages(visit):
    """Their index is fetched for a search, and not for the empty page."""
    page = visit("search")
    assert page.evaluate("window.sectionsIndex") is None
    page.get_by_role("searchbox").first.fill("left padding")
    page.keyboard.press("Enter")
    first = page.locator("#sections-found a").first
    first.wait_for()
    assert page.evaluate("window.sectionsIndex.entries.length") > 100
    first.click()
    page.wait_for_url("**.html#*")
