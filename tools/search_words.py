"""Whether the site's search leads from the words of the trade to a section.

usage: python tools/search_words.py [--kept]

`benchmarks/search_words.toml` has what practitioners type, and where it should
lead. It is printed how often that is among the first three sections. Half of
the words were chosen by chance and kept: nobody looked at them while the
search was made. Which of those fail is printed with --kept. The fresh words
came later, and were asked once.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from typing import Any

from notebooks import ROOT

from attnbook.teach.page.ranking import rank
from press.contents import contents
from press.sections import Section, all_sections, search_index

WORDS = ROOT / "benchmarks" / "search_words.toml"
FIRST = 3


def halves(words: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The words that were looked at while tuning, and those that were not."""
    seen = [word for word in words if not word.get("kept")]
    return seen, [word for word in words if word.get("kept")]


def first(index: Any, sections: Sequence[Section], typed: str) -> list[str]:
    """The addresses of the first three sections that the search finds.

    They are without ".html", as in "05_masking#padding".

    Args:
        index: of the search.
        sections: the sections that it was made of.
        typed: what is searched for.
    """
    found = [sections[n] for n, _ in rank(index, typed)[:FIRST]]
    return [f"{s.page}#{s.anchor}" for s in found]


def misses(
    index: Any, sections: Sequence[Section], words: Sequence[Any]
) -> list[str]:
    """The words that do not lead to their place, with where they lead."""
    lost = []
    for word in words:
        found = first(index, sections, word["typed"])
        if not any(at.startswith(tuple(word["leads_to"])) for at in found):
            lost.append(f"{word['typed']!r}: {', '.join(found) or 'nothing'}")
    return lost


def main() -> None:
    """Print how many of the words are found, and which are not."""
    if unknown := set(sys.argv[1:]) - {"--kept"}:
        sys.exit(
            f"tools/search_words.py does not know {', '.join(unknown)}; "
            "expected --kept or nothing"
        )
    sections = all_sections(contents().documents)
    index = search_index(sections)
    data = tomllib.loads(WORDS.read_text("utf-8"))
    seen, kept = halves(data["word"])
    groups = {"seen": seen, "kept": kept, "fresh": data["fresh"]}
    for name, words in groups.items():
        lost = misses(index, sections, words)
        n = len(words) - len(lost)
        print(f"{name}: {n} of {len(words)} ({n / len(words):.0%})")
        if name != "kept" or "--kept" in sys.argv:
            print(*(f"    {line}" for line in lost), sep="\n")


if __name__ == "__main__":
    main()
