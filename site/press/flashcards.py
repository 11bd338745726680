"""Question cards for spaced repetition, as a file that Anki imports.

There is a card for each term of the glossary, for each of the three questions
of a chapter, and for what is new in a chapter. The file is text: a card a
line, its front, its back and its tags with tabs between them, and lines at
the top that tell Anki so (docs.ankiweb.net/importing/text-files.html).
Formulas are written as Anki's MathJax wants them.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from press.headings import ADDRESS
from press.places import CHAPTERS

#: What Anki reads before the first card.
HEAD = """\
#separator:tab
#html:true
#deck:From Averages to Attention
#columns:Front\tBack\tTags
#tags column:3
"""

#: One of the three questions of a chapter, and the answer below it.
QUESTION = re.compile(
    r"(?ms)^\d\. (?P<question>.*?)\n\n.*?"
    r"<summary>Answer</summary>\s*(?P<answer>.*?)\s*</details>"
)
LINK = re.compile(rf"\[([^]]+)\]{ADDRESS}")
TITLE = re.compile(r"(?m)^# (.+)$")


class Card(NamedTuple):
    """What a card asks, what it answers, both in Markdown, and its tag."""

    front: str
    back: str
    tag: str


def cards_of_the_glossary() -> Iterator[Card]:
    """A card for each term: what does it mean?"""
    text = (CHAPTERS / "glossary.md").read_text("utf-8")
    inside = text.partition("```{glossary}\n")[2].partition("\n```")[0]
    for entry in re.split(r"\n(?=\S)", inside):
        term, _, body = entry.partition("\n")
        # Comments say by which other wordings the pages lead here.
        body = re.sub(r"(?m)^ *%.*\n?", "", body)
        yield Card(f"What does **{term}** mean?", dedent(body), "glossary")


def cards_of_a_chapter(notebook: dict[str, Any], tag: str) -> Iterator[Card]:
    """The cards of a chapter: its new ideas, and its three questions.

    Args:
        notebook: the notebook, as its JSON says it.
        tag: the tag of these cards.
    """
    text = "\n\n".join(
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
    )
    title = TITLE.findall(text)[0]
    if ideas := notebook["metadata"].get("ideas"):
        listed = "\n".join(f"{n}. {idea}" for n, idea in enumerate(ideas, 1))
        front = f"*{title}*: what is new here? ({len(ideas)} ideas)"
        yield Card(front, listed, tag)
    _, _, quiz = text.partition("## Three questions\n")
    quiz, _, _ = quiz.partition("\n## ")
    for asked in QUESTION.finditer(quiz):
        yield Card(asked["question"], asked["answer"], tag)


def formula(content: str, options: dict[str, Any]) -> str:
    """A formula between the marks by which Anki's MathJax knows it."""
    if options["display_mode"]:
        return rf"\[{html.escape(content)}\]"
    return rf"\({html.escape(content)}\)"


def as_html(text: str) -> str:
    """Markdown as HTML in one line. Of a link only the words are kept, since
    a card has no page around it.

    >>> as_html("The [scale](#scale) is $1/d$.")
    '<p>The scale is <span class="math inline">\\\\(1/d\\\\)</span>.</p>'
    """
    renderer = MarkdownIt("commonmark")
    dollarmath_plugin(renderer, renderer=formula)
    rendered = renderer.render(LINK.sub(r"\1", text))
    return " ".join(rendered.split())


def write_cards(path: Path) -> int:
    """Write all cards of the book into a file, and return their number."""
    cards = [*cards_of_the_glossary()]
    for chapter in sorted(CHAPTERS.glob("[0-9][0-9]_*.ipynb")):
        notebook = json.loads(chapter.read_text("utf-8"))
        cards += cards_of_a_chapter(notebook, f"chapter-{chapter.name[:2]}")
    lines = [
        f"{as_html(card.front)}\t{as_html(card.back)}\t{card.tag}\n"
        for card in cards
    ]
    path.write_text(HEAD + "".join(lines), "utf-8")
    return len(cards)
