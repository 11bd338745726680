"""Question cards: one a line, with its front, its back and its tag."""

import re

import pytest
from notebooks import CHAPTERS

from press import flashcards


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    path = tmp_path_factory.mktemp("cards") / "cards.txt"
    made = flashcards.write_cards(path)
    text = path.read_text("utf-8")
    assert text.startswith(flashcards.HEAD)
    found = text.removeprefix(flashcards.HEAD).splitlines()
    assert len(found) == made
    return [line.split("\t") for line in found]


def test_each_card_has_a_front_a_back_and_a_tag(lines):
    assert all(len(line) == 3 for line in lines)
    assert all(front and back and tag for front, back, tag in lines)
    fronts = [front for front, _, _ in lines]
    assert len(set(fronts)) == len(fronts)


def test_no_link_and_no_bare_formula_is_left(lines):
    for front, back, _ in lines:
        assert "](" not in front + back and "<a " not in front + back
        assert "$" not in re.sub(r"<code>.*?</code>", "", front + back)


def test_of_a_link_its_words_are_left():
    text = "a [way](#Side-road:-more-(2-minutes)), ([b](c.md))"
    assert flashcards.LINK.sub(r"\1", text) == "a way, (b)"


def test_every_chapter_has_its_questions_and_its_ideas(lines):
    tags = [tag for _, _, tag in lines]
    for path in CHAPTERS.glob("[0-9][0-9]_*.ipynb"):
        assert tags.count(f"chapter-{path.name[:2]}") >= 3, path.name
    asked = [front for front, _, tag in lines if tag == "chapter-14"]
    assert any("Why are keys and values kept" in front for front in asked)
    assert any("what is new here?" in front for front in asked)


def test_every_term_of_the_glossary_has_a_card(lines):
    text = (CHAPTERS / "glossary.md").read_text("utf-8")
    inside = text.partition("```{glossary}\n")[2].partition("\n```")[0]
    terms = re.findall(r"(?m)^(\S.*)$", inside)
    assert [tag for _, _, tag in lines].count("glossary") == len(terms)


def test_formulas_are_written_for_anki():
    assert r"\(\sqrt{d_k}\)" in flashcards.as_html(r"It is $\sqrt{d_k}$.")
    shown = flashcards.as_html("$$\na < b\n$$")
    assert r"\[" in shown and "a &lt; b" in shown
