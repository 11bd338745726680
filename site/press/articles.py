"""The built pages as chapters of one document: for the PDF and the EPUB.

Every id of a page gets the page's name before it, so that ids are unique in
the whole book and links between pages become links between places of it. The
solutions and answers that the pages have folded are moved into a chapter of
their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from bs4 import BeautifulSoup, Tag

from press.contents import Contents
from press.settings import Settings, is_placeholder


class Book(NamedTuple):
    """The parts with their chapters, in order, and the styles they ask for."""

    parts: list[tuple[str, list[Tag]]]
    sheets: list[str]

    @property
    def chapters(self) -> list[Tag]:
        return [chapter for _, part in self.parts for chapter in part]


def parse(html: str) -> BeautifulSoup:
    return BeautifulSoup(html, "html.parser")


def parse_lightly(html: str) -> BeautifulSoup:
    """The article of a page without the boxes of its formulas, whose MathML
    stays, and without colours in its code: they are most of its elements.

    >>> page = '<p>a<span class="katex-html"><span>b</span></span></p>'
    >>> str(parse_lightly(page + '<pre><span class="k">if</span> c</pre>'))
    '<p>a</p><pre>if c</pre>'
    """
    alone = re.search("(?s)<article.*</article>", html)
    return parse(
        re.sub(
            "(?s)<pre>.*?</pre>",
            lambda code: re.sub("</?span[^>]*>", "", code[0]),
            without_boxes(alone[0] if alone else html),
        )
    )


def without_boxes(html: str) -> str:
    """A page's text without what KaTeX draws for its formulas."""
    kept, end = [], 0
    for box in re.finditer('<span class="katex-html"', html):
        kept.append(html[end : box.start()])
        depth = 0
        for tag in re.compile("<(/?)span[^>]*>").finditer(html, box.start()):
            depth += -1 if tag[1] else 1
            if not depth:
                end = tag.end()
                break
    return "".join(kept) + html[end:]


def place(page: str, fragment: str = "") -> str:
    """The id in the whole book of a page, or of an id on a page.

    >>> place("05_masking", "padding")
    '05_masking--padding'
    """
    return f"{page}--{fragment}" if fragment else page


def inside(url: str, page: str, known: Iterable[str]) -> str:
    """A page's link as a link of the whole book, if it leads to its pages.

    >>> inside("05_masking.html#padding", "index", {"05_masking"})
    '#05_masking--padding'
    >>> inside("#padding", "05_masking", {"05_masking"})
    '#05_masking--padding'
    >>> inside("https://pytorch.org", "index", {"05_masking"})
    'https://pytorch.org'
    """
    parts = urlsplit(url)
    target = Path(parts.path).stem or page
    if parts.scheme or parts.netloc or target not in known:
        return url
    return "#" + place(target, parts.fragment)


def article(page: str, whole: BeautifulSoup) -> Tag:
    """The article of a page, without what only a screen has a use for, and
    without the folded code, which draws figures.

    Raises:
        ValueError: the page has no article.
    """
    found = whole.select_one("article.bd-article")
    if found is None:
        raise ValueError(
            f"{page}.html has no article; expected a page of the book's "
            "theme; run: make book"
        )
    for tag in [
        *found.find_all(["button", "input", "script", "select", "style"]),
        *found.find_all(class_=["headerlink", "toctree-wrapper", "hide"]),
    ]:
        tag.decompose()
    for badge in found.find_all("img", src=re.compile("open-in-colab")):
        badge.find_parent("p").decompose()
    for figure in found.find_all(attrs={"data-explore": True}):
        figure.p.string = figure.p.get_text().replace(
            "Where scripts run,", "On the book’s page,"
        )
    return found


def chapter(page: str, whole: BeautifulSoup, known: Iterable[str]) -> Tag:
    """The article of a page, its ids and links made for the whole book."""
    found = article(page, whole)
    found.name = "section"
    found["class"] = "chapter"
    found["id"] = place(page)
    for tag in found.find_all(id=True):
        tag["id"] = place(page, tag["id"])
    for link in found.find_all("a", href=True):
        link["href"] = inside(link["href"], page, known)
    return found


def linked(name: str, words: Tag, target: str) -> Tag:
    """An element with the words of another, as a link."""
    link = f'<a href="#{target}">{words.decode_contents()}</a>'
    return parse(f"<{name}>{link}</{name}>").contents[0]


def move_solutions(chapters: list[Tag]) -> Tag:
    """Take the folded solutions and answers out of the chapters, into one of
    their own.

    Paper cannot fold, and an exercise beside its solution is none. The two
    lead to each other.
    """
    end = parse(
        '<section class="chapter" id="solutions"><h1>Solutions</h1></section>'
    ).section
    for part in chapters:
        solutions, answers = folds(part, "Solution"), folds(part, "Answer")
        if solutions or answers:
            end.append(linked("h2", part.h1, part["id"]))
        for fold in solutions:
            exercise = fold.find_parent("section")
            fold.insert_before(way_to(exercise, "Solution"))
            move([fold], "div", exercise.h3, end)
        if answers:
            quiz = answers[0].find_parent("section")
            quiz.append(way_to(quiz, "Answers"))
            move(answers, "ol", quiz.h2, end)
    return end


def folds(part: Tag, said: str) -> list[Tag]:
    """What a chapter folds below these words."""
    every = part.find_all("summary")
    return [s.parent for s in every if s.get_text(strip=True) == said]


def way_to(section: Tag, said: str) -> Tag:
    """A line that leads from a section to its place at the end."""
    target = f"solution--{section['id']}"
    line = f'<p class="to-solution"><a href="#{target}">{said}</a></p>'
    return parse(line).contents[0]


def move(folded: list[Tag], box: str, title: Tag, end: Tag) -> None:
    """Put folds into a box at the end, below the title of their section."""
    section = title.find_parent("section")
    head = linked("h3", title, section["id"])
    head["id"] = f"solution--{section['id']}"
    end.append(head)
    holder = parse(f"<{box}></{box}>").contents[0]
    end.append(holder)
    for fold in folded:
        fold.summary.decompose()
        fold.name = "li" if box == "ol" else "div"
        holder.append(fold.extract())


def whole_book(
    site: Path,
    contents: Contents,
    parse: Callable[[str], BeautifulSoup] = parse,
) -> Book:
    """Every page of a built site as a chapter, then the solutions.

    Raises:
        FileNotFoundError: a page has not been built.
        ValueError: a page has no article; a link leads nowhere, or an id
            stands twice.
    """
    known = set(contents.documents)
    sheets: dict[str, None] = {}  # in order, each once
    parts = []
    for caption, pages in contents.parts:
        chapters = []
        for page in pages:
            whole = parse((site / f"{page}.html").read_text("utf-8"))
            chapters.append(chapter(page, whole, known))
            for link in whole.select("link[rel=stylesheet]"):
                sheets[link["href"].partition("?")[0]] = None
        parts.append((caption, chapters))
    parts[0][1][0].h1.string = "About this book"  # its title has its own page
    book = Book(parts, list(sheets))
    parts[-1][1].append(move_solutions(book.chapters))
    if lost := lost_links(book.chapters):
        raise ValueError(
            "links lead nowhere, or ids stand twice, in the book as one; "
            f"expected none; got {', '.join(lost)}"
        )
    return book


def title_page(settings: Settings, book: Book) -> Tag:
    """The first page: what the book is, which release, under what licence."""
    url = settings.url
    at = "" if is_placeholder(url) else f' of <a href="{url}">{url}</a>'
    release = settings.branch.removeprefix("v")
    motto = book.chapters[0].p.em  # the book in a sentence, as it begins
    return parse(f"""
<section class="title-page" id="title-page">
  <img src="_static/logo-light.svg" alt="">
  <p class="title">{escape(settings.title)}</p>
  <p class="motto">{escape(motto.get_text())}</p>
  <p class="imprint">Release {release}{at}. Every chapter
  is a notebook that runs. Here solutions and answers stand at the end,
  and folded code, which draws figures, is left out.</p>
  <p class="imprint">{settings.licence}</p>
</section>""").section


def inner_links(chapters: list[Tag]) -> list[Tag]:
    """The links of chapters into the book."""
    return [
        link
        for part in chapters
        for link in part.find_all("a", href=re.compile("^#"))
    ]


def lost_links(chapters: list[Tag]) -> list[str]:
    """The links into the book that find no place in it, and doubles."""
    ids = [tag["id"] for part in chapters for tag in part.find_all(id=True)]
    ids += [part["id"] for part in chapters]
    wanted = {link["href"][1:] for link in inner_links(chapters)}
    once: set[str] = set()
    twice = {i for i in ids if i in once or once.add(i)}
    return sorted((wanted - once) | twice)
