"""Print the whole book as one PDF, from the built pages, by a Chromium.

The pages' articles become one document in the order of `_toc.yml`, with a
title page, contents and, at the end, the solutions that the pages have
folded. It is printed twice: once to learn on which page everything stands,
and then with these numbers.
"""

from __future__ import annotations

import io
import json
import re
from html import escape
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from pikepdf import Name, ObjectStreamMode, Pdf
from playwright.sync_api import Browser, Page

from attnbook.files import replacing
from press.articles import Book, linked, title_page, whole_book
from press.browser import open_chromium, serve
from press.contents import Contents
from press.places import ROOT, SITE
from press.settings import Settings
from press.tree import around, one, parse, value

FILE = ROOT / "_build" / "averages-to-attention.pdf"
STYLES = SITE / "pdf.css"

#: Where the one document seems to lie while it is printed.
NAME = "whole-book.html"

#: The width of the text on paper, in CSS pixels: A4 less print.css's margins.
TEXT_WIDTH = round((210 - 2 * 20) / 25.4 * 96)

#: A formula that is wider than the paper is set smaller: there is nothing
#: to scroll with.
FIT_FORMULAS = """
for (const box of document.querySelectorAll(".katex-display")) {
  const formula = box.querySelector(".katex-html");
  const ratio = box.clientWidth / formula.scrollWidth;
  if (ratio < 1) box.style.fontSize = `${Math.floor(100 * ratio)}%`;
}
"""

#: What is still wider, each with its chapter. Chromium would print the whole
#: book smaller for it, and say nothing.
WIDER = """
() => [...document.querySelectorAll(
    ".bd-article *:not(svg, svg *, .katex-mathml *)")]
  .filter((tag) => tag.getBoundingClientRect().right > innerWidth + 1)
  .map((tag) => `${tag.tagName} in ${tag.closest("[id]").id}`)
"""


# Chapters on paper


def for_paper(book: Book) -> None:
    """Make the chapters fit for paper, which has page numbers.

    A formula's MathML, which is there to be heard, becomes the formula's
    name, or its letters would be in the text twice. A path in a table may be
    broken behind its slashes.
    """
    for part in book.chapters:
        for formula in part.select(".katex"):
            formula["role"] = "img"
            formula["aria-label"] = one(formula, "annotation").get_text()
            one(formula, ".katex-mathml").decompose()
        for path in part.find_all(string=re.compile("/")):
            if path.find_parent("code") and path.find_parent("td"):
                broken = escape(path).replace("/", "/<wbr>")
                path.replace_with(parse(broken))
        for line in part.select(".to-solution"):
            target = value(one(line, "a"), "href")[1:]
            line.append(parse(f": page {page_number(target)}"))


# Front matter


def page_number(target: str) -> str:
    """An empty element, in which `fill` writes a page's number.

    Args:
        target: the id of an element of the book; its page is meant.
    """
    return f'<span class="page" data-of="{target}"></span>'


def entry(part: Tag) -> str:
    """The lines of the contents for a chapter: its title, its sections."""
    name = value(part, "id")
    title = linked("span", one(part, "h1"), name)
    lines = f'<p class="entry">{title}{page_number(name)}</p>'
    sections = " · ".join(
        str(linked("span", heading, value(around(heading, "section"), "id")))
        for heading in part.select("section > section > h2")
    )
    return lines + (f'<p class="sections">{sections}</p>' if sections else "")


def contents_page(parts: list[tuple[str, list[Tag]]]) -> str:
    """The table of contents: parts, chapters and their sections."""
    lines = "".join(
        f'<p class="part">{escape(caption)}</p>'
        + "".join(map(entry, chapters))
        for caption, chapters in parts
    )
    return f'<section class="contents"><h1>Contents</h1>{lines}</section>'


def running_heads(chapters: list[Tag]) -> str:
    """Styles that print a chapter's title at the head of its pages.

    For this each chapter is given a kind of page of its own.
    """
    styles = ""
    for count, part in enumerate(chapters):
        part["style"] = f"page: chapter-{count}"
        title = json.dumps(one(part, "h1").get_text(), ensure_ascii=False)
        styles += (
            f"@page chapter-{count} {{ @top-right {{ content: {title}; }} }}\n"
        )
    return styles


# The document


def assemble(
    site: Path, settings: Settings, contents: Contents
) -> BeautifulSoup:
    """All pages as one document, in the pages' own styles.

    Raises:
        FileNotFoundError, ValueError: see `articles.whole_book`.
    """
    book = whole_book(site, contents)
    for_paper(book)
    links = "".join(f'<link rel="stylesheet" href="{s}">' for s in book.sheets)
    styles = STYLES.read_text("utf-8") + running_heads(book.chapters)
    return parse(f"""<!DOCTYPE html>
<html lang="en" data-theme="light">
<head><meta charset="utf-8"><title>{escape(settings.title)}</title>
{links}<style>{styles}</style></head>
<body><main class="bd-main"><div class="bd-content">
<div class="bd-article-container"><article class="bd-article">
{title_page(settings, book)}{contents_page(book.parts)}
{"".join(map(str, book.chapters))}
</article></div></div></main></body></html>""")


# Printing


def print_document(tab: Page, address: str, document: BeautifulSoup) -> Pdf:
    """The document as a PDF; `address` serves its images and styles.

    Raises:
        ValueError: something is wider than the paper.
    """
    tab.unroute_all()
    tab.route(
        address + NAME,
        lambda route: route.fulfill(
            body=str(document), content_type="text/html; charset=utf-8"
        ),
    )
    tab.goto(address + NAME)
    tab.evaluate("document.fonts.ready.then(() => true)")
    tab.evaluate(FIT_FORMULAS)
    if wider := tab.evaluate(WIDER):
        raise ValueError(
            "the book does not fit on its paper; expected nothing wider than "
            f"{TEXT_WIDTH} pixels; got {', '.join(wider[:5])}"
        )
    return Pdf.open(
        io.BytesIO(
            tab.pdf(
                prefer_css_page_size=True,
                print_background=True,
                outline=True,
                tagged=True,
            )
        )
    )


def page_numbers(pdf: Pdf) -> dict[str, int]:
    """The numbers of the pages, from 1 on, by the ids that are on them.

    Only ids to which a link leads are in a PDF.
    """
    count = {page.objgen: n for n, page in enumerate(pdf.pages, start=1)}
    found = {}
    for name, target in pdf.Root.Dests.items():
        page: Any = target[0]  # an object, whose number is not typed
        found[name.removeprefix("/")] = count[page.objgen]
    return found


def fill(document: BeautifulSoup, numbers: dict[str, int]) -> None:
    """Write the pages' numbers to where they are referred to."""
    for tag in document.select(".page[data-of]"):
        tag.string = str(numbers[value(tag, "data-of")])


def print_numbered(
    chromium: Browser, address: str, document: BeautifulSoup
) -> Pdf:
    """The document as a PDF, with the numbers of the pages filled in.

    Raises:
        RuntimeError: the numbers have moved the text.
        ValueError: something is wider than the paper.
    """
    with chromium.new_context(
        viewport={"width": TEXT_WIDTH, "height": 900}
    ) as context:
        tab = context.new_page()
        tab.set_default_timeout(0)  # hundreds of pages; some machines slow
        tab.emulate_media(media="print")
        numbers = page_numbers(print_document(tab, address, document))
        fill(document, numbers)
        pdf = print_document(tab, address, document)
    moved = {n for n, page in page_numbers(pdf).items() if numbers[n] != page}
    if moved:
        raise RuntimeError(
            "filling in the pages' numbers has moved the text; expected all "
            f"to stay; got other pages for {', '.join(sorted(moved))}"
        )
    return pdf


def save(pdf: Pdf, path: Path, title: str, author: str) -> None:
    """Write the PDF to a path, small, and whole or not at all.

    No time is written into it, so that the same book gives the same bytes.
    """
    del pdf.docinfo
    pdf.docinfo["/Title"], pdf.docinfo["/Author"] = title, author
    pdf.Root.PageMode = Name.UseOutlines
    with replacing(path) as file:
        pdf.save(
            file,
            deterministic_id=True,
            object_stream_mode=ObjectStreamMode.generate,
        )


def make(site: Path, settings: Settings, contents: Contents) -> str:
    """Print a built site as one PDF, and return a line that says so.

    Raises:
        FileNotFoundError: a page has not been built.
        RuntimeError: there is no Chromium, or the page numbers have moved the
            text.
        ValueError: see `articles.whole_book`; or something is wider than the
            paper.
    """
    document = assemble(site, settings, contents)
    with serve(site) as address, open_chromium() as chromium:
        pdf = print_numbered(chromium, address, document)
    save(pdf, FILE, settings.title, settings.author)
    size = FILE.stat().st_size / 1e6
    return f"{len(pdf.pages)} pages, {size:.1f} MB, are at {FILE}"
