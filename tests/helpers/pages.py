"""The built book as the tests see it: its pages, parsed, and their links."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup, Tag

from press.contents import contents
from press.markup import BOX
from press.places import HTML


def built() -> Path:
    """The folder of the built book; a test fails where there is none."""
    if not (HTML / "index.html").is_file():
        pytest.fail(f"there is no site at {HTML}; run `make book` first")
    return HTML


def pages() -> list[Path]:
    return contents().files(built())


@cache
def parse(text: str) -> BeautifulSoup:
    """A page without the boxes of its formulas, more than half of its tags:
    their MathML stays."""
    return BeautifulSoup(without_boxes(text), "html.parser")


#: The tags of spans: the first ones of boxes, other first ones, last ones.
SPANS = re.compile(rf'<span class="{BOX}"|<span\b|</span>')


def without_boxes(html: str) -> str:
    """A text in HTML without the elements in which KaTeX draws formulas.

    >>> without_boxes('a<span class="katex-html"><span>b</span></span>c')
    'ac'
    """
    kept = []
    done = 0  # the place up to which the text is kept or left out
    depth = 0  # how many spans are open in a box, that of the box with them
    for tag in SPANS.finditer(html):
        if depth:
            depth += -1 if tag[0] == "</span>" else 1
            if not depth:
                done = tag.end()
        elif BOX in tag[0]:
            kept.append(html[done : tag.start()])
            depth = 1
    return "".join([*kept, html[done:]])


def soup_of(page: Path) -> BeautifulSoup:
    return parse(page.read_text("utf-8"))


@cache
def ids(page: Path) -> set[str]:
    """All ids of a page: the places to which a link may lead."""
    return {tag["id"] for tag in soup_of(page).select("[id]")}


@cache
def urls_of(
    page: Path, css: str = "[href]:not(base), [src], [action]"
) -> list[str]:
    """The addresses that elements of a page name, in their order."""
    return [address(tag) for tag in soup_of(page).select(css)]


def address(tag: Tag) -> str:
    return tag.get("href") or tag.get("src") or tag.get("action") or ""


def is_local(url: str) -> bool:
    parts = urlsplit(url)
    return not parts.scheme and not parts.netloc


def target_of(url: str, page: Path) -> Path:
    """The file that a local URL names on a page."""
    path = unquote(urlsplit(url).path)
    if path.startswith("/"):
        return built() / path.strip("/") / "index.html"
    return (page.parent / path).resolve() if path else page
