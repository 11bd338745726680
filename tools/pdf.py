"""Print the whole book as one PDF, from the built pages, by a Chromium.

usage: .venv/bin/python tools/pdf.py     after `make book`; or: make pdf

The pages' articles become one document in the order of `_toc.yml`, with a
title page, contents and, at the end, the solutions that the pages have
folded. It is printed twice: once to learn on which page everything stands,
and then with these numbers.
"""

from __future__ import annotations

import io
import json
import os
import sys
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from browser import open_chromium, serve
from bs4 import BeautifulSoup, Tag
from build import HTML, ROOT
from pikepdf import Name, ObjectStreamMode, Pdf
from playwright.sync_api import Browser, Page
from repository import is_placeholder

PDF = ROOT / "_build" / "averages-to-attention.pdf"
STYLES = Path(__file__).with_suffix(".css")

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


def parse(html: str) -> BeautifulSoup:
    return BeautifulSoup(html, "html.parser")


# A page of the site as a chapter


def place(page: str, fragment: str = "") -> str:
    """The id in the one document of a page, or of an id on a page.

    >>> place("05_masking", "padding")
    '05_masking--padding'
    """
    return f"{page}--{fragment}" if fragment else page


def inside(url: str, page: str, printed: set[str]) -> str:
    """A page's link as a link of the document, if it leads to its pages.

    >>> inside("05_masking.html#padding", "index", {"05_masking"})
    '#05_masking--padding'
    >>> inside("#padding", "05_masking", {"05_masking"})
    '#05_masking--padding'
    >>> inside("https://pytorch.org", "index", {"05_masking"})
    'https://pytorch.org'
    """
    parts = urlsplit(url)
    target = Path(parts.path).stem or page
    if parts.scheme or parts.netloc or target not in printed:
        return url
    return "#" + place(target, parts.fragment)


def chapter(page: str, whole: BeautifulSoup, printed: set[str]) -> Tag:
    """The article of a page, its ids and links made for the document.

    Left out: what only a screen has a use for, and the folded code, which
    draws figures. A formula's MathML, which is there to be heard, becomes
    the formula's name, or its letters would be in the text twice.

    Raises:
        ValueError: the page has no article.
    """
    article = whole.select_one("article.bd-article")
    if article is None:
        raise ValueError(
            f"{page}.html has no article; expected a page of the book's "
            "theme; run: make book"
        )
    article.name = "section"
    article["class"] = "chapter"
    article["id"] = place(page)
    for formula in article.select(".katex"):
        formula["role"] = "img"
        formula["aria-label"] = formula.annotation.get_text()
    for tag in article.select(
        "script, .headerlink, .toctree-wrapper, .katex-mathml, details.hide"
    ):
        tag.decompose()
    for tag in article.select("[id]"):
        tag["id"] = place(page, tag["id"])
    for link in article.select("a[href]"):
        link["href"] = inside(link["href"], page, printed)
    return article


def linked(name: str, words: Tag, target: str) -> Tag:
    """An element with the words of another, as a link."""
    link = f'<a href="#{target}">{words.decode_contents()}</a>'
    return parse(f"<{name}>{link}</{name}>").contents[0]


def move_solutions(chapters: list[Tag]) -> Tag:
    """Take the folded solutions out of the chapters, into one of their own.

    Paper cannot fold, and an exercise beside its solution is none. The two
    lead to each other.
    """
    solutions = parse(
        '<section class="chapter" id="solutions"><h1>Solutions</h1></section>'
    ).section
    for part in chapters:
        found = [
            summary.parent
            for summary in part.select("details > summary")
            if summary.get_text(strip=True) == "Solution"
        ]
        if found:
            solutions.append(linked("h2", part.h1, part["id"]))
        for fold in found:
            exercise = fold.find_parent("section")
            title = linked("h3", exercise.h3, exercise["id"])
            title["id"] = f"solution--{exercise['id']}"
            fold.insert_before(
                parse(
                    f'<p><a href="#{title["id"]}">Solution</a>: page '
                    f"{page_number(title['id'])}</p>"
                )
            )
            fold.summary.decompose()
            fold.name = "div"
            solutions.append(title)
            solutions.append(fold.extract())
    return solutions


# Front matter


def page_number(target: str) -> str:
    """A place for the number of the page on which an id stands."""
    return f'<span class="page" data-of="{target}"></span>'


def title_page(config: dict, motto: str) -> str:
    url, branch = (config["repository"][key] for key in ("url", "branch"))
    place = "" if is_placeholder(url) else f' of <a href="{url}">{url}</a>'
    return f"""
<section class="title-page">
  <img src="_static/logo-light.svg" alt="">
  <p class="title">{escape(config["title"])}</p>
  <p class="motto">{escape(motto)}</p>
  <p class="imprint">Release {branch.removeprefix("v")}{place}. Every chapter
  is a notebook that runs. Here the solutions of the exercises stand at the
  end, and folded code, which draws figures, is left out.</p>
  <p class="imprint">{config["html"]["extra_footer"]}</p>
</section>"""


def entry(part: Tag) -> str:
    """The lines of the contents for a chapter: its title, its sections."""
    title = linked("span", part.h1, part["id"])
    sections = " · ".join(
        str(linked("span", section, section.find_parent("section")["id"]))
        for section in part.select("section > section > h2")
    )
    return f'<p class="entry">{title}{page_number(part["id"])}</p>' + (
        f'<p class="sections">{sections}</p>' if sections else ""
    )


def contents(parts: list[tuple[str, list[Tag]]]) -> str:
    lines = "".join(
        f'<p class="part">{escape(caption)}</p>'
        + "".join(map(entry, chapters))
        for caption, chapters in parts
    )
    return f'<section class="contents"><h1>Contents</h1>{lines}</section>'


def running_heads(chapters: list[Tag]) -> str:
    """Styles that print the chapter's title at the head of its pages."""
    styles = ""
    for count, part in enumerate(chapters):
        part["style"] = f"page: chapter-{count}"
        title = json.dumps(part.h1.get_text(), ensure_ascii=False)
        styles += (
            f"@page chapter-{count} {{ @top-right {{ content: {title}; }} }}\n"
        )
    return styles


# The document


def assemble(site: Path, config: dict, toc: dict) -> BeautifulSoup:
    """All pages as one document, in the pages' own styles."""
    listed = [("", [toc["root"]])] + [
        (part["caption"], [chapter["file"] for chapter in part["chapters"]])
        for part in toc["parts"]
    ]
    printed = {page for _, names in listed for page in names}
    sheets: dict[str, None] = {}  # in order, each once
    parts = []
    for caption, names in listed:
        chapters = []
        for name in names:
            whole = parse((site / f"{name}.html").read_text("utf-8"))
            chapters.append(chapter(name, whole, printed))
            for link in whole.select("link[rel=stylesheet]"):
                sheets[link["href"].partition("?")[0]] = None
        parts.append((caption, chapters))
    about = parts[0][1][0]
    motto = about.p.em.get_text()
    about.h1.string = "About this book"  # its title has a page of its own
    every = [part for _, chapters in parts for part in chapters]
    every.append(move_solutions(every))
    parts[-1][1].append(every[-1])
    links = "".join(f'<link rel="stylesheet" href="{s}">' for s in sheets)
    styles = STYLES.read_text("utf-8") + running_heads(every)
    return parse(f"""<!DOCTYPE html>
<html lang="en" data-theme="light">
<head><meta charset="utf-8"><title>{escape(config["title"])}</title>
{links}<style>{styles}</style></head>
<body><main class="bd-main"><div class="bd-content">
<div class="bd-article-container"><article class="bd-article">
{title_page(config, motto)}{contents(parts)}{"".join(map(str, every))}
</article></div></div></main></body></html>""")


def lost_links(document: BeautifulSoup) -> list[str]:
    """The links into the document that find no place in it, and doubles."""
    ids = [tag["id"] for tag in document.select("[id]")]
    wanted = {a["href"][1:] for a in document.select('a[href^="#"]')}
    twice = {i for i in ids if ids.count(i) > 1}
    return sorted((wanted - set(ids)) | twice)


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
    """On which page each id stands that a link leads to."""
    count = {page.objgen: n for n, page in enumerate(pdf.pages, start=1)}
    return {
        name.removeprefix("/"): count[target[0].objgen]
        for name, target in pdf.Root.Dests.items()
    }


def fill(document: BeautifulSoup, numbers: dict[str, int]) -> None:
    """Write the pages' numbers to where they are referred to."""
    for tag in document.select(".page[data-of]"):
        tag.string = str(numbers[tag["data-of"]])


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
    """Write the PDF, small and without the hour, whole or not at all."""
    del pdf.docinfo
    pdf.docinfo["/Title"], pdf.docinfo["/Author"] = title, author
    pdf.Root.PageMode = Name.UseOutlines
    temporary = path.with_suffix(".writing")
    try:
        pdf.save(
            temporary,
            deterministic_id=True,
            object_stream_mode=ObjectStreamMode.generate,
        )
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def settings() -> tuple[dict, dict]:
    """The book's settings and its table of contents."""
    config, toc = (
        yaml.safe_load((ROOT / name).read_text("utf-8"))
        for name in ("_config.yml", "_toc.yml")
    )
    return config, toc


def main() -> int:
    config, toc = settings()
    try:
        document = assemble(HTML, config, toc)
        if lost := lost_links(document):
            raise ValueError(
                "links lead nowhere, or ids stand twice, in the one "
                f"document; expected none; got {', '.join(lost)}"
            )
        with serve(HTML) as address, open_chromium() as chromium:
            pdf = print_numbered(chromium, address, document)
    except FileNotFoundError as error:
        print(
            f"there is no {error.filename}; expected the built book; run: "
            "make book",
            file=sys.stderr,
        )
        return 1
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    save(pdf, PDF, config["title"], config["author"])
    size = PDF.stat().st_size / 1e6
    print(f"{len(pdf.pages)} pages, {size:.1f} MB, are at {PDF}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
