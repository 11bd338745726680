"""A deck of slides for each chapter, made of its built page.

A section of the core path gives a slide for each of its pictures, formulas,
tables and short pieces of code, with the section's title above them and the
sentence that matters most below it. What the page says around them becomes
the speaker's notes. A deck is a page of HTML that needs no network, beside
the built book, and is printed as a PDF as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from bs4 import Tag
from playwright.sync_api import Browser

from press.articles import article
from press.places import HTML, SITE
from press.plain import tex
from press.tree import classes, fragment, one, parse, value

FOLDER = HTML.parent / "slides"
STYLES = SITE / "slides.css"
SCRIPT = SITE / "slides.js"

#: Sections without slides of their own; the questions come at the end.
LEFT_OUT = ("Exercises", "Side roads", "Further reading")

#: The section that lists a chapter's ideas, all of which are shown.
IDEAS = "What is new here"

#: A slide has room for so many lines of code, or of an output.
MOST_LINES = 18

#: Stands for a formula in a text.
FORMULA = "\N{OBJECT REPLACEMENT CHARACTER}"

#: Says on the first slide how to go on; not on paper.
HINT = (
    "<p class='keys'>The arrow keys go from slide to slide; "
    "N shows the notes.</p>"
)

SENTENCE = re.compile(r".+?[.?!](?=\s|$)", re.DOTALL)


@dataclass
class Slide:
    """A slide: its title, what it shows, and what the speaker says to it."""

    title: str
    shown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_html(self) -> str:
        """The slide as a section of the deck."""
        notes = "".join(f"<p>{escape(text)}</p>" for text in self.notes)
        return (
            f"<section class='slide'><h2>{escape(self.title)}</h2>"
            f"<div class='shown'>{''.join(self.shown)}</div>"
            f"<aside class='notes'>{notes}</aside></section>\n"
        )


def words_and_formulas(tag: Tag) -> tuple[str, list[Tag]]:
    """The words of an element in one line, and its formulas.

    Among the words `FORMULA` stands for each of the formulas.
    """
    copy = fragment(str(tag))
    formulas = copy.select(".katex")
    for formula in formulas:
        formula.replace_with(FORMULA)
    return " ".join(copy.get_text().split()), formulas


def filled_in(text: str, formulas: list[str]) -> str:
    """A text with formulas in the places where `FORMULA` stands for them.

    Args:
        text: the text, or its beginning.
        formulas: all formulas of the text, as they are to be written.
    """
    first, *rest = text.split(FORMULA)
    pairs = zip(formulas, rest, strict=False)
    return first + "".join(formula + after for formula, after in pairs)


def words(tag: Tag) -> str:
    """The words of an element in one line, for the speaker's notes; formulas
    are TeX between dollars, as in the page's plain text."""
    text, formulas = words_and_formulas(tag)
    return filled_in(text, [f"${tex(formula)}$" for formula in formulas])


def shown_words(text: str, formulas: list[Tag]) -> str:
    """Words as HTML for a slide, with the formulas as the page shows them."""
    return filled_in(escape(text), [str(formula) for formula in formulas])


def key_sentence(section: Tag) -> str:
    """The sentence of a section that matters most, as HTML: the first that
    is set in bold, else its first sentence."""
    for strong in section.select(":scope > p strong"):
        text = strong.get_text()
        if len(text.split()) > 5 and text.strip()[-1] in ".?!":
            return f"<p class='key'>{strong.decode_contents()}</p>"
    first = section.select_one(":scope > p")
    if first is None:
        return ""
    text, formulas = words_and_formulas(first)
    if found := SENTENCE.match(text):
        text = found[0]
    return f"<p class='key'>{shown_words(text, formulas)}</p>"


def is_shown(part: Tag) -> bool:
    """Whether an element goes on a slide: a picture, a formula, a table, or
    code and outputs that are short enough to be read from afar."""
    if part.name == "table" or {"math", "pst-scrollable-table-container"} & {
        *classes(part)
    }:
        return True
    if "cell" not in classes(part):
        return False
    if part.find(["img", "svg", "table"]):
        return True
    lines = [
        line
        for block in part.find_all("pre")
        for line in block.get_text().strip().splitlines()
    ]
    only_checks = all(" agrees with " in line for line in lines)
    return len(lines) <= MOST_LINES and not only_checks


def slides_of_section(section: Tag) -> Iterator[Slide]:
    """The slides of a section: one for each element that is shown. A section
    that shows nothing has one slide, with its sentence."""
    title = one(section, "h2").get_text()
    if title == IDEAS:
        yield Slide(title, [str(one(section, "ul, ol"))])
        return
    slide = Slide(title, [key_sentence(section)])
    used = False
    for part in parts_of(section):
        if is_shown(part):
            if used:
                slide = Slide(title)
            slide.shown.append(str(part))
            used = True
            yield slide
        elif part.name in ("p", "ul", "ol"):
            slide.notes.append(words(part))
    if not used and slide.shown[0]:
        yield slide


def parts_of(section: Tag) -> Iterator[Tag]:
    """The elements of a section and, in their place, those of the sections
    within it."""
    for part in section.find_all(recursive=False):
        if part.name == "section":
            yield from parts_of(part)
        else:
            yield part


def questions(section: Tag) -> Iterator[Slide]:
    """A slide for each question; its choices are shown, its answer is for
    the speaker."""
    slide: Slide | None = None
    for part in section.find_all(recursive=False):
        if part.name == "ol":
            asked = shown_words(*words_and_formulas(one(part, "li")))
            slide = Slide("A question", [f"<p>{asked}</p>"])
            yield slide
        elif slide and "choice" in classes(part):
            slide.shown.append(str(part))
        elif slide and part.name == "details":
            one(part, "summary").decompose()
            slide.notes.append(f"Answer: {words(part)}")


def slides_of(page: str, html: str) -> list[Slide]:
    """All slides of a chapter's built page.

    Args:
        page: the name of the page.
        html: the built page.

    Raises:
        ValueError: the page has no article.
    """
    found = article(page, parse(html))
    title = one(found, "h1").get_text()
    first = Slide(title, [HINT])
    top = one(found, "section")
    first.notes += [words(p) for p in top.select(":scope > p")]
    slides = [first]
    asked: list[Slide] = []
    for section in top.select(":scope > section"):
        heading = section.select_one(":scope > h2")
        if heading is None or heading.get_text().startswith("Side road"):
            continue
        if heading.get_text() == "Three questions":
            asked = [*questions(section)]
        elif heading.get_text() not in LEFT_OUT:
            slides += slides_of_section(section)
    return slides + asked


def deck(page: str, html: str) -> str:
    """The deck of a chapter, as a page of HTML beside the built book."""
    return deck_of(slides_of(page, html), html)


def deck_of(slides: list[Slide], html: str) -> str:
    """The deck of some slides, in the style of the page that they are from.

    Args:
        slides: of the chapter, the first one with its title.
        html: the chapter's built page.
    """
    head, _, _ = html.partition("</head>")
    sheets = [
        f'<link rel="stylesheet" href="../{HTML.name}/{value(link, "href")}">'
        for link in parse(head).select("link[rel=stylesheet]")
        if not value(link, "href").startswith("http")
    ]
    body = "".join(slide.as_html() for slide in slides)
    body = re.sub(r'(src|href)="(_[^"]+)"', rf'\1="../{HTML.name}/\2"', body)
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light">
<head><meta charset="utf-8"><title>{escape(slides[0].title)}</title>
{"".join(sheets)}<style>{STYLES.read_text("utf-8")}</style></head>
<body class="bd-article">
{body}<script>{SCRIPT.read_text("utf-8")}</script></body></html>
"""


def make(pages: list[str], chromium: Browser) -> str:
    """Write the decks of chapters, print them, and return a line that says
    where they are.

    Args:
        pages: the names of the chapters' pages.
        chromium: which prints the decks.

    Raises:
        FileNotFoundError: a page has not been built.
    """
    FOLDER.mkdir(exist_ok=True)
    for page in pages:
        html = (HTML / f"{page}.html").read_text("utf-8")
        path = FOLDER / f"{page}.html"
        path.write_text(deck(page, html), "utf-8")
        tab = chromium.new_page()
        tab.goto(path.as_uri())
        tab.evaluate("document.fonts.ready.then(() => true)")
        tab.pdf(
            path=path.with_suffix(".pdf"),
            prefer_css_page_size=True,
            print_background=True,
        )
        tab.close()
    if len(pages) == 1:
        return f"the deck is in {FOLDER}, as {pages[0]}.html and as PDF"
    return f"{len(pages)} decks are in {FOLDER}, as HTML and as PDF"
