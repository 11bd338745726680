"""The sections of the book, for the site's search.

Sphinx's own search finds pages. This one finds sections, and entries of the
glossary: what a title says counts most, and words of the trade that mean the
same count for each other. The order is made by `attnbook.teach.page.ranking`,
and on the page by `static/ranking.js`. `search_words.toml` has what people
type to find a section, such as the names of arguments in libraries: these
words count as if they stood in it, and how much each of its words counts is
also learned from them. An entry of the glossary says which sections explain
it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from docutils.nodes import make_id
from sphinx.application import Sphinx

from attnbook.teach.page.ranking import make_index, pairs, rank, stems
from press.headings import ADDRESS
from press.places import CHAPTERS, SITE

#: How much a word counts, by where it is.
FIELDS = {"title": 6.0, "typed": 6.0, "page": 1.5, "text": 1.0}

#: The fields in which two words side by side count once more as a pair.
PAIRS_IN = {"title", "typed"}

#: Pages that list what other pages explain. The score of their sections is
#: multiplied by `SHARE_OF_A_LIST`.
LISTS = {"notation", "sheet", "checks", "mistakes", "errata", "changes"}
LISTS |= {"bibliography", "teachers", "something_is_wrong"}
LISTS |= {"check_your_own", "where_next"}
SHARE_OF_A_LIST = 0.6

#: How much a word counts, in tenths, that is part of a longer phrase.
COVERED_TENTHS = 5

#: The index is written with its weights divided by this number, and rounded.
STEP = 32

#: Anchors of sections that are on every page, and explain nothing.
LEFT_OUT = {"further-reading", "three-questions", "what-is-new-here"}

CLINIC = CHAPTERS / "attnbook/teach/catalogue/clinic.toml"
WORDS = SITE / "search_words.toml"
GLOSSARY = "glossary"


class Section(NamedTuple):
    """A section, or an entry of the glossary."""

    page: str
    anchor: str
    title: str
    of: str  # the title of the page that it is on
    text: str
    typed: tuple[str, ...] = ()  # what people type who look for it
    explained_on: tuple[str, ...] = ()  # of an entry: the chapters it links


def markdown(path: Path) -> str:
    """The text of a source: of a notebook, its Markdown cells."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join(
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == "markdown"
    )


def plain(text: str) -> str:
    """The words of a text in Markdown, without tags, formulas and links'
    addresses."""
    text = re.sub(r"<[^>]+>|\$[^$]*\$", " ", text, flags=re.S)
    return re.sub(rf"\]{ADDRESS}|[*`\[\]]", " ", text)


def sections_of(page: str, text: str) -> Iterator[Section]:
    """The sections of a page, in their order, without those `LEFT_OUT`.

    Exercises are left out as well.

    Args:
        page: the page's name.
        text: its source in Markdown.
    """
    text = re.sub(r"```.*?```", " ", text, flags=re.S)
    pieces = re.split(r"(?m)^(#{1,3}) (.+)$", text)
    of = plain(pieces[2]).strip() if len(pieces) > 2 else page
    for title, body in zip(pieces[2::3], pieces[3::3], strict=True):
        anchor = make_id(title)
        if anchor not in LEFT_OUT and not anchor.startswith("exercise"):
            yield Section(page, anchor, plain(title).strip(), of, plain(body))


def entries_of(text: str) -> Iterator[Section]:
    """The entries of the glossary, each as a section of its own."""
    inside = text.partition("```{glossary}\n")[2].partition("\n```")[0]
    for entry in re.split(r"\n(?=\S)", inside):
        term, _, body = entry.partition("\n")
        called = re.findall(r"(?:called|See here for):([^.]*)\.", body)
        anchor = f"term-{re.sub(r'[^A-Za-z0-9]+', '-', term).strip('-')}"
        title = ", ".join([term, *(" ".join(c.split()) for c in called)])
        body = re.sub(r"(?m)^ *%.*$", "", body)
        chapters = re.findall(r"\[[Cc]hapter \d+\]\((\w+)\.ipynb", body)
        yield Section(
            GLOSSARY,
            anchor,
            title,
            "Glossary",
            plain(body),
            explained_on=tuple(dict.fromkeys(chapters)),
        )


def all_sections(documents: list[str]) -> list[Section]:
    """The sections of these pages, and the glossary's entries."""
    found: list[Section] = []
    for page in documents:
        [path] = CHAPTERS.glob(f"{page}.[im][pd]*")
        text = markdown(path)
        is_glossary = page == GLOSSARY
        found += entries_of(text) if is_glossary else sections_of(page, text)
    typed = what_is_typed()
    return [s._replace(typed=tuple(typed.get(key(s), ()))) for s in found]


def key(section: Section) -> tuple[str, str]:
    """How `search_words.toml` names a section: its chapter and its title.

    The chapter is the number that the page's name begins with, such as "18",
    or that name where it has none. Of the title there are the stems of the
    words, without "Side road", the minutes and, of an entry of the glossary,
    the other names.
    """
    number = re.match(r"\d+", section.page)
    title = section.title
    if section.page == GLOSSARY:
        title = title.partition(",")[0]
    return number[0] if number else section.page, words_of(title)


def words_of(title: str) -> str:
    """The stems of a title, without "Side road" and the minutes."""
    title = re.sub(r"^Side road|\(\d+ minutes?\)$", "", title)
    return " ".join(stems(title))


def what_is_typed() -> dict[tuple[str, str], list[str]]:
    """What people type to find a section, under the section's `key`."""
    leads = tomllib.loads(WORDS.read_text("utf-8"))["leads"]
    return {
        (chapter, words_of(title)): typed
        for chapter, titles in leads.items()
        for title, typed in titles.items()
    }


def synonyms() -> list[list[str]]:
    """Words of the trade that mean the same, the site's own first."""
    found = [
        group
        for path in (WORDS, CLINIC)
        for group in tomllib.loads(path.read_text("utf-8"))["synonyms"]
    ]
    glossary = markdown(CHAPTERS / f"{GLOSSARY}.md")
    for entry in re.split(r"\n(?=\S)", glossary):
        called = re.search(r"(?m)^  Also called:([^.]*)\.", entry)
        if called:
            names = [" ".join(n.split()) for n in called[1].split(",")]
            found.append([entry.partition("\n")[0], *names])
    return found


def examples(sections: Sequence[Section]) -> list[tuple[str, int]]:
    """What people type, each with the number of the section that is meant."""
    return [
        (phrase, number)
        for number, section in enumerate(sections)
        for phrase in section.typed
    ]


def explaining(
    index: dict[str, Any], sections: Sequence[Section], entry: Section
) -> list[Section]:
    """The sections that explain an entry of the glossary.

    An entry links chapters. Of each of them, this is the section that the
    search finds first for the entry's name, or the chapter as a whole where
    no section has a word of that name.

    Args:
        index: of the search.
        sections: the sections that it was made of.
        entry: the entry.
    """
    name = entry.title.partition(",")[0]
    found = [sections[number] for number, _ in rank(index, name)]
    found += [s for s in sections if s.of == s.title]
    of_pages = {s.page: s for s in reversed(found)}
    return [of_pages[page] for page in entry.explained_on if page in of_pages]


def coarser(listed: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The terms of an index, each with its entries and smaller weights.

    The index then has fewer digits, and a reader fetches a fifth less. Which
    sections come first hardly depends on the digits that are lost.
    """
    return {
        term: [
            number
            for entry, weight in pairs(weighed)
            for number in (entry, round(weight / STEP))
        ]
        for term, weighed in listed.items()
    }


def search_index(sections: list[Section]) -> dict[str, Any]:
    """All that the search page needs, ready to be written as JSON.

    Returns:
        under "entries" what is shown of each section: its page, its anchor,
        its title and the title of its page, and of an entry of the glossary
        the numbers of the sections that explain it; and what the index has,
        by which the sections are put into order.
    """
    entries = [
        {
            "title": s.title,
            "typed": ". ".join(s.typed),
            "page": s.of,
            "text": s.text,
        }
        for s in sections
    ]
    shares = [SHARE_OF_A_LIST if s.page in LISTS else 1.0 for s in sections]
    index = make_index(entries, FIELDS, synonyms(), PAIRS_IN, shares)
    if told := examples(sections):
        # Imported here: it takes torch, for which Sphinx need not wait.
        from attnbook.teach.page.learning import learn

        index = learn(index, told)
    index["terms"] = coarser(index["terms"])
    index["covered"] = COVERED_TENTHS
    numbers = {(s.page, s.anchor): n for n, s in enumerate(sections)}
    shown: list[list[Any]] = []
    for section in sections:
        shown.append([section.page, section.anchor, section.title, section.of])
        if section.explained_on:
            by = explaining(index, sections, section)
            shown[-1].append([numbers[s.page, s.anchor] for s in by])
    return {"entries": shown, **index}


def search_script(index: dict[str, Any]) -> str:
    """The index of the search as the script that the search page loads."""
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    return f"window.sectionsIndex = {text};\n"


def write_search(path: Path, documents: list[str]) -> None:
    """Write the script of the search's index; press.beside asks for it."""
    index = search_index(all_sections(documents))
    path.write_text(search_script(index), "utf-8")


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: Any, doctree: Any
) -> None:
    """Load the search's scripts on the search page alone."""
    if pagename == "search":
        for script in "ranking.js", "sections.js":
            app.add_js_file(script, loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
