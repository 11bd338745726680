"""A deck for each chapter: what it shows, and what it says to it."""

import re
from functools import cache

import pytest
from notebooks import CHAPTERS

from press import slides
from press.places import HTML
from press.tree import parse

PAGES = sorted(path.stem for path in CHAPTERS.glob("[0-9][0-9]_*.ipynb"))


def built(page):
    return (HTML / f"{page}.html").read_text("utf-8")


@cache
def made(page):
    """The slides of a built page, for all tests that look at them."""
    return slides.slides_of(page, built(page))


@pytest.mark.parametrize("page", PAGES)
def test_a_deck_has_something_on_every_slide(page):
    found = made(page)
    assert len(found) > 8
    for slide in found[1:]:
        text = parse("".join(slide.shown))
        assert text.get_text().strip() or text.find(["img", "svg"]), slide
    assert [s.title for s in found].count("A question") == 3
    asked = [s for s in found if s.title == "A question"]
    assert all(any("Answer: " in n for n in s.notes) for s in asked)
    # Solutions and answers are not for the screen.
    assert "Solution" not in "".join("".join(s.shown) for s in found)


@pytest.mark.parametrize("page", PAGES)
def test_a_deck_loads_what_is_there_and_nothing_from_elsewhere(page):
    deck = slides.deck_of(made(page), built(page))
    loaded = re.findall(
        r'<(?:img|link|script)[^>]+(?:src|href)="([^"]+)"', deck
    )
    assert loaded
    for address in loaded:
        assert (slides.FOLDER / address).resolve().is_file(), address


def test_what_is_said_around_a_picture_is_in_the_notes():
    page = parse(
        "<article class='bd-article'><section><h1>1. A</h1><p>Begin.</p>"
        "<section><h2>B</h2><p>First said. More <strong>this sentence is "
        "the one that matters.</strong></p><div class='cell'><pre>x = 1"
        "</pre></div><p>Then said.</p><div class='cell'><pre>all agrees with "
        "all</pre></div></section><section><h2>What is new here</h2><ul>"
        "<li>An idea.</li></ul></section></section></article>"
    )
    first, one, ideas = slides.slides_of("a", str(page))
    assert (first.title, first.notes) == ("1. A", ["Begin."])
    assert "the one that matters." in one.shown[0] and "x = 1" in one.shown[1]
    assert len(one.shown) == 2, "a line of checks is not shown"
    assert one.notes[0].startswith("First said.")
    assert one.notes[1] == "Then said."
    assert "An idea." in ideas.shown[0]


def test_code_that_is_too_long_is_not_shown():
    code = "x = 1\n" * (slides.MOST_LINES + 1)
    page = parse(f"<div class='cell'><pre>{code}</pre></div>")
    assert not slides.is_shown(page.div)
    page.pre.string = "x = 1\n" * slides.MOST_LINES
    assert slides.is_shown(page.div)


KATEX = (
    "<span class='math'><span class='katex'><annotation>\\sqrt{{{}}}"
    "</annotation><b>root of {}</b></span></span>"
)


def formula(name):
    return KATEX.format(name, name)


def test_formulas_are_shown_on_a_slide_and_are_tex_in_the_notes():
    page = parse(
        "<article class='bd-article'><section><h1>1. A</h1><section><h2>B"
        f"</h2><p>First {formula('a')} < 1. Then {formula('b')}.</p></section>"
        "<section><h2>Three questions</h2><ol><li>Why "
        f"{formula('c')}, {formula('d')}?</li></ol><details><summary>Answer"
        f"</summary><p>By {formula('e')}.</p></details></section></section>"
        "</article>"
    )
    first, said, asked = slides.slides_of("a", str(page))
    assert "N shows the notes" in first.shown[0]
    shown = parse(said.shown[0])
    assert [f.b.text for f in shown.select(".katex")] == ["root of a"]
    assert "&lt; 1.</p>" in said.shown[0] and "Then" not in said.shown[0]
    assert said.notes == [r"First $\sqrt{a}$ < 1. Then $\sqrt{b}$."]
    shown = parse(asked.shown[0])
    formulas = [f.b.text for f in shown.select(".katex")]
    assert formulas == ["root of c", "root of d"]
    assert asked.notes == [r"Answer: By $\sqrt{e}$."]


@pytest.mark.parametrize("page", PAGES)
def test_no_slide_shows_a_formulas_source(page):
    for slide in made(page):
        text = parse("".join(slide.shown))
        for part in text.select(".katex, pre, script"):
            part.decompose()
        assert not re.search(r"\\[a-z]{2}|[_^]\{", text.get_text()), slide
