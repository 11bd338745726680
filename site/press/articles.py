"""The built pages as chapters of one document: for the PDF and the EPUB.

Every id of a page gets the page's name before it, so that ids are unique in
the whole book and links between pages become links between places of it. The
solutions and answers that the pages have folded are moved into a chapter of
their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from bs4 import BeautifulSoup, Tag

from press.contents import Contents
from press.markup import Markup
from press.settings import Settings, is_placeholder
from press.tree import around, fragment, one, parse, value


class Book(NamedTuple):
    """The book as one document.

    Attributes:
        parts: the titles of the parts, each with its chapters.
        sheets: the style sheets that the chapters link, each once, in the
            order in which they are first linked.
    """

    parts: list[tuple[str, list[Tag]]]
    sheets: list[str]

    @property
    def chapters(self) -> list[Tag]:
        """All chapters, in their order."""
        return [chapter for _, part in self.parts for chapter in part]


def parse_lightly(html: str) -> BeautifulSoup:
    """The tree of a page with less in it, which takes a third of the time.

    What KaTeX draws for a formula is left out, its MathML stays; code has no
    colours. These are most of a page's elements.

    >>> page = '<p>a<span class="katex-html"><span>b</span></span></p>'
    >>> str(parse_lightly(page + '<pre><span class="k">if</span> c</pre>'))
    '<p>a</p><pre>if c</pre>'
    """
    return parse(lightened(Markup(html)))


def lightened(page: Markup) -> str:
    """The article of a page, without formulas' drawings and code's colours.

    A text without an article, such as a part of a page, stays whole.
    """
    needless = page.boxes + page.colours
    for tag in page.tags:
        if tag.name == "article":
            end = page.html.rindex("</article>")
            inner = [place for place in needless if tag.start < place[0] < end]
            return page.without(
                [(0, tag.start), *inner, (end, len(page.html))]
            )
    return page.without(needless)


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
    """The article of a built page, reduced to what a printed book can use.

    Buttons, scripts, the links beside headings, the badge for Colab and the
    folded code, which draws figures, are removed. In the caption of a figure
    that moves, the words about scripts become words about the book's page. A
    choice of a question becomes a line, without what is said about it: the
    answer is in the question's own fold.

    Args:
        page: the page's name, for the message.
        whole: the tree of the page, from which all this is removed.

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
        around(badge, "p").decompose()
    # Files beside the pages, which a printed book does not have.
    for link in found.select('a[href^="run/"], a[href="tutor.txt"]'):
        link.unwrap()
    for choice in found.select("details.choice"):
        words = one(choice, "summary").decode_contents()
        choice.replace_with(fragment(f'<p class="choice">○ {words}</p>'))
    for figure in found.select("[data-explore]"):
        caption = one(figure, "p")
        caption.string = caption.get_text().replace(
            "Where scripts run,", "On the book’s page,"
        )
    return found


def chapter(page: str, whole: BeautifulSoup, known: Iterable[str]) -> Tag:
    """The article of a page, its ids and links made for the whole book.

    Args:
        page: its name.
        whole: the tree of the built page, which is taken apart.
        known: the names of all pages of the book.
    """
    found = article(page, whole)
    found.name = "section"
    found["class"] = "chapter"
    found["id"] = place(page)
    for tag in found.find_all(id=True):
        tag["id"] = place(page, value(tag, "id"))
    for link in found.find_all("a", href=True):
        link["href"] = inside(value(link, "href"), page, known)
    return found


def linked(name: str, words: Tag, target: str) -> Tag:
    """A new element that holds the words of another one as a link.

    Args:
        name: of the new element, "h2" for example.
        words: the element whose content becomes the link's text.
        target: the id that the link leads to.
    """
    link = f'<a href="#{target}">{words.decode_contents()}</a>'
    return fragment(f"<{name}>{link}</{name}>")


def move_solutions(chapters: list[Tag]) -> Tag:
    """Move the folded solutions and answers of all chapters into a new one.

    A printed page cannot fold, and an exercise is no exercise with its
    solution below it. A link leads from each exercise to its solution, and one
    leads back. The new chapter is returned.
    """
    end = fragment(
        '<section class="chapter" id="solutions"><h1>Solutions</h1></section>'
    )
    for part in chapters:
        solutions = folds(part, "Solution")
        answers = folds(part, "Answer")
        if solutions or answers:
            end.append(linked("h2", one(part, "h1"), value(part, "id")))
        for fold in solutions:
            exercise = around(fold, "section")
            fold.insert_before(way_to(exercise, "Solution"))
            move([fold], "div", one(exercise, "h3"), end)
        if answers:
            quiz = around(answers[0], "section")
            quiz.append(way_to(quiz, "Answers"))
            move(answers, "ol", one(quiz, "h2"), end)
    return end


def folds(part: Tag, said: str) -> list[Tag]:
    """The folded parts of a chapter that are labelled with these words.

    Args:
        part: the chapter.
        said: the words that a reader clicks on to open a fold.
    """
    return [
        around(summary, "details")
        for summary in part.find_all("summary")
        if summary.get_text(strip=True) == said
    ]


def way_to(section: Tag, said: str) -> Tag:
    """A paragraph with a link from a section to its solution at the end.

    Args:
        section: the section of an exercise or of questions; it has an id.
        said: the words of the link.
    """
    target = f"solution--{value(section, 'id')}"
    return fragment(
        f'<p class="to-solution"><a href="#{target}">{said}</a></p>'
    )


def move(folded: list[Tag], box: str, title: Tag, end: Tag) -> None:
    """Move folded parts into one element at the end of a chapter.

    Above them comes the title of their section, as a link back to it.

    Args:
        folded: the folded parts; they lose the line that opens them.
        box: the name of the element, "ol" for numbered answers.
        title: the heading of the section that the parts are from.
        end: the chapter that they are moved to.
    """
    section = value(around(title, "section"), "id")
    head = linked("h3", title, section)
    head["id"] = f"solution--{section}"
    end.append(head)
    holder = fragment(f"<{box}></{box}>")
    end.append(holder)
    for fold in folded:
        one(fold, "summary").decompose()
        fold.name = "li" if box == "ol" else "div"
        holder.append(fold.extract())


def whole_book(
    site: Path,
    contents: Contents,
    parse: Callable[[str], BeautifulSoup] = parse,
) -> Book:
    """Every page of a built site as a chapter, then the solutions.

    Args:
        site: the folder of the built pages.
        parse: makes a tree of a page; `parse_lightly` is the faster one.

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
            for link in whole.select("link[rel=stylesheet]"):
                sheets[value(link, "href").partition("?")[0]] = None
            chapters.append(chapter(page, whole, known))
        parts.append((caption, chapters))
    # The first page's title is the book's, which has a page of its own.
    one(parts[0][1][0], "h1").string = "About this book"
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
    motto = one(book.chapters[0], "p > em")  # the book in one sentence
    return fragment(f"""
<section class="title-page" id="title-page">
  <img src="_static/logo-light.svg" alt="">
  <p class="title">{escape(settings.title)}</p>
  <p class="motto">{escape(motto.get_text())}</p>
  <p class="imprint">Release {release}{at}. Every chapter
  is a notebook that runs. Here solutions and answers stand at the end,
  and folded code, which draws figures, is left out.</p>
  <p class="imprint">{settings.licence}</p>
</section>""")


def inner_links(chapters: list[Tag]) -> list[Tag]:
    """All links of the chapters that lead to an id in the book (`#…`)."""
    return [
        link
        for part in chapters
        for link in part.find_all("a", href=re.compile("^#"))
    ]


def lost_links(chapters: list[Tag]) -> list[str]:
    """The targets of links that the book lacks, and ids that it has twice."""
    counts = Counter(value(part, "id") for part in chapters)
    for part in chapters:
        counts.update(value(tag, "id") for tag in part.find_all(id=True))
    twice = {name for name, count in counts.items() if count > 1}
    wanted = {value(link, "href")[1:] for link in inner_links(chapters)}
    return sorted((wanted - counts.keys()) | twice)
