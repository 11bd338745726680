"""Phrases that readers had to read twice: tools/phrases.py.

Chapters that were told again, and all pages in Markdown, are held to the
list; the phrases in the other chapters are counted and printed.
"""

import pytest
from book import CHAPTER_FILES, by_notebook, seen
from notebooks import CHAPTERS
from phrases import find_phrases

PAGES = sorted(CHAPTERS.glob("*.md"))


def prose(path) -> str:
    if path.suffix == ".md":
        return path.read_text("utf-8")
    cells = seen(path).cells
    return "\n\n".join(c.source for c in cells if c.cell_type == "markdown")


@by_notebook([*CHAPTER_FILES, *PAGES])
def test_a_page_has_no_phrase_that_is_read_twice(path):
    found = find_phrases(prose(path))
    assert not found, "\n".join(
        f"{path.name}: “{phrase}” in: {place}\n    {advice}"
        for place, phrase, advice in found
    )


@pytest.mark.parametrize(
    "text, phrases",
    [
        ("The token behind it.", ["behind"]),
        ("Before a word, Behind a text.", ["Behind"]),
        ("The idea behind it; we left it behind... she is left behind.", []),
        ("A key stands at position 3.", ["stands at"]),
        ("A dot stands for any word, and stands in for a name.", []),
        ("Two of these.", ["of these"]),
        ("Two of these words", []),
        ("each of these is kept", ["of these"]),
        ("It says what became of the guesses.", ["what became of"]),
        ("the same but for the last bit", ["the same but for"]),
        ("nothing but for a dot", ["but for"]),
        ("a text of one's own", ["of one's own"]),
        ("So it is with the other.", ["So it is with"]),
        ("whatever follows", ["whatever follows"]),
        ("A target of −100 asks nothing.", ["asks nothing"]),
        ("Nothing meets nothing.", ["Nothing meets", "meets nothing"]),
        ("`behind` in code, $x$ and [a link](#what-stands-at-3)", []),
        ("[a link](#What-is-(in-a-row)-behind) in a row", []),
        ("```python\n# behind\n```\n\n$$\nbehind\n$$\n", []),
        ("```{glossary}\ndraft\n  A word behind a word.\n```\n", ["behind"]),
        ("what\nbecame of it", ["what became of"]),
    ],
)
def test_which_phrases_are_found(text, phrases):
    found = [f.phrase for f in find_phrases(text)]
    assert sorted(found) == sorted(phrases)
