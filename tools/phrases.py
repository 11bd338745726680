"""Phrases that a page of this book does not use, with what to say instead.

They are correct English in some place or other, but readers had to read the
sentences twice in which they stood. Each row has a regular expression, which
is looked for in running text without regard to capitals, and the advice that
an author is given. Code, formulas and the addresses of links are left out.

`tests/chapters/test_prose.py` holds the pages to this list, and
`tools/measures.py 04` prints what it finds in a chapter.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Words that may come before "behind", because "left behind", for example, is
#: usual English.
_USUAL = r"(?<!left )(?<!leave )(?<!fall )(?<!falls )(?<!lag )(?<!lags )"
_USUAL += r"(?<!left it )(?<!left them )(?<!leave it )(?<!leaves it )"
_USUAL += r"(?<!idea )(?<!reason )(?<!hidden )(?<!folded )(?<!hide )"

PHRASES = {
    # Places in a text.
    _USUAL + r"\bbehind\b": "say 'after': one word comes after another",
    r"\bst(?:and|ands|ood) (?:at|in(?! for)|on|under|before|between|beside"
    r"|alone|above|below|there|here|behind|folded|as)\b": (
        "say 'is': a token is at position 3"
    ),
    r"\blies (?:at|before|there|here)\b": "say 'is'",
    # Pronouns that make the reader look back.
    r"\b(?:of|from|in|to) these(?=[,.;:)]| (?:is|are|was|were|has|have|do"
    r"|does|can|may|must|will)\b)": "say 'of them', or name them again",
    r"\bthat of\b(?= the (?:one|other)\b)": "name the thing again",
    r"\bso it is with\b": "say 'the same is true of'",
    r"\bwhat (?:became|becomes|has become|came|comes) of\b": (
        "say what happened"
    ),
    r"\bwhatever (?:follows|became|becomes|came|comes|it is|they are)\b": (
        "say 'no matter what'"
    ),
    r"\bthe same but for\b|\bbut for\b": "say 'except for'",
    # Own words for what everybody says in another way.
    r"\bof one['’]s own\b": "say 'your own text', or 'its own text'",
    r"\bas it were\b": "leave it out",
    r"\bnot one bit\b": "say 'no bit', or 'nothing'",
    # Oracles: a thing that wants, asks or meets nothing.
    r"\b(?:asks|meets|wants|owes|knows of|promises) nothing\b": (
        "say plainly who does not do what"
    ),
    r"\b(?:nothing|nobody|none) (?:meets|asks|wants|owes)\b": (
        "say plainly who does not do what"
    ),
    r"\bnothing (?:was|is) asked of\b": "say what the argument did not use",
    r"\bcounts? for nothing\b": "say 'is ignored'",
    r"\bfor nothing\b": "say 'free of charge', or 'in vain'",
}


class Found(NamedTuple):
    """A phrase that should be avoided and was found in a text."""

    place: str  # a piece of the text around it
    phrase: str  # as the text has it
    advice: str  # what to say instead


def running_text(markdown: str) -> str:
    """The text of a page without code, formulas and addresses of links.

    What stands in a directive of MyST, such as the glossary's, is text.
    """
    text = re.sub(r"(?ms)^ *(```|~~~)(?!\{).*?^ *\1", "", markdown)
    text = re.sub(r"(?s)\$\$.*?\$\$", "", text)
    text = re.sub(r"(?s)<!--.*?-->", "", text)
    text = re.sub(r"`[^`\n]+`|\$[^$\n]+\$", "…", text)
    # An address may have brackets of its own, which are closed again.
    return re.sub(r"\]\((?:[^()\s]|\([^()\s]*\))*\)", "]", text)


def find_phrases(markdown: str) -> list[Found]:
    """The phrases of the list that a text in Markdown has."""
    found = []
    for paragraph in re.split(r"\n\s*\n", running_text(markdown)):
        text = " ".join(paragraph.split())
        for pattern, advice in PHRASES.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                place = text[max(0, match.start() - 40) : match.end() + 30]
                found.append(Found(f"…{place}…", match[0], advice))
    return found
