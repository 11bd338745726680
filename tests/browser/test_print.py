"""Paper: a page printed from the browser, and the book as one PDF."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO

import pytest
from pikepdf import Pdf
from playwright.sync_api import Browser, Page, expect

from press import pdf
from press.contents import Contents
from press.places import HTML as SITE
from press.settings import settings

#: A book of three pages, which prints in seconds.
CONTENTS = Contents.read(
    {
        "format": "jb-book",
        "root": "index",
        "parts": [
            {
                "caption": "Two pages",
                "chapters": [{"file": "05_masking"}, {"file": "notation"}],
            }
        ],
    }
)


def test_a_page_prints_as_its_article(visit: Callable[..., Page]) -> None:
    page = visit(
        "01_weighted_averages",
        theme="dark",
        viewport={"width": pdf.TEXT_WIDTH, "height": 900},
    )
    html = page.locator("html")
    expect(html).to_have_attribute("data-theme", "dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(html).to_have_attribute("data-theme", "light")
    for gone in (
        ".bd-sidebar-primary",
        ".bd-sidebar-secondary",
        ".bd-header-article",
        ".prev-next-footer",
        "details.hide",
        "button",
    ):
        assert page.locator(gone).count() > 0, f"no {gone} to be hidden"
        expect(page.locator(gone).locator("visible=true")).to_have_count(0)
    title = page.locator(".bd-article h1")
    expect(title).to_contain_text("1. Weighted averages")
    expect(title).to_be_visible()
    solution = page.locator("details:not([class]) > :not(summary)").first
    expect(solution).to_be_visible()
    assert solution.bounding_box()["height"] > 0
    left, width = page.locator(".bd-article").evaluate(
        "a => [a.getBoundingClientRect().left, a.clientWidth]"
    )
    assert (left, width) == (0, pdf.TEXT_WIDTH)
    assert page.evaluate(pdf.WIDER) == []
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(html).to_have_attribute("data-theme", "dark")


#: The sizes of all text that is shown, in points.
SIZES = """() => [...document.querySelectorAll(".bd-article *")]
  .filter((tag) => tag.checkVisibility() && [...tag.childNodes].some(
    (part) => part.nodeType === Node.TEXT_NODE && part.data.trim()))
  .map((tag) => parseFloat(getComputedStyle(tag).fontSize) * 0.75)
"""


def test_the_sheet_to_keep_fills_two_pages(visit: Callable[..., Page]) -> None:
    width = round((210 - 2 * 14) / 25.4 * 96)  # A4 less its own margins
    page = visit(
        "sheet", theme="dark", viewport={"width": width, "height": 900}
    )
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(pdf.WIDER) == []
    page.evaluate("document.fonts.ready.then(() => 0)")
    sizes = page.evaluate(SIZES)
    assert len(sizes) > 300 and min(sizes) >= 8
    printed = Pdf.open(BytesIO(page.pdf(prefer_css_page_size=True)))
    assert len(printed.pages) == 2
    for sheet in printed.pages:  # A4, in points
        assert [round(float(n)) for n in sheet.mediabox] == [0, 0, 595, 842]
    # What a wider font may take.
    height = page.locator(".bd-article").evaluate("a => a.scrollHeight")
    assert height < 0.95 * 2 * (297 - 2 * 12) / 25.4 * 96


@pytest.fixture(scope="module")
def book(chromium: Browser, address: str) -> Iterator[tuple]:
    """The small book as a document with page numbers, and as a PDF."""
    document = pdf.assemble(SITE, settings(), CONTENTS)
    yield document, pdf.print_numbered(chromium, address, document)


def test_every_link_leads_somewhere(book: tuple) -> None:
    document, printed = book
    places = {name.removeprefix("/") for name in printed.Root.Dests.keys()}
    linked = {link["href"][1:] for link in document.select('a[href^="#"]')}
    assert linked and linked == places


def test_the_contents_name_the_pages(book: tuple) -> None:
    document, printed = book
    numbers = pdf.page_numbers(printed)
    shown = {
        tag["data-of"]: int(tag.get_text()) for tag in document.select(".page")
    }
    assert len(shown) > 5  # chapters and solutions
    assert shown == {name: numbers[name] for name in shown}
    assert len(set(shown.values())) > 3


def test_what_is_wider_than_the_paper_is_named(
    chromium: Browser, address: str
) -> None:
    wide = pdf.parse(
        '<article class="bd-article"><section id="ants">'
        '<div style="width: 900px">x</div></section></article>'
    )
    with pytest.raises(ValueError, match="got DIV in ants"):
        pdf.print_numbered(chromium, address, wide)
