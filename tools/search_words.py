"""Whether the site's search leads from the words of the trade to a section.

usage: python tools/search_words.py [--kept] [FILE]

`benchmarks/search_words.toml` has what practitioners type, and where it should
lead. It is printed how often that is among the first three results. An entry
of the glossary has links to the sections that explain it, so it counts as
leading there. Half of the words were chosen by chance and kept: nobody looked
at them while the search was made. Which of those fail is printed with --kept.
The fresh words came later, and were asked once. The words of another FILE of
this form are asked instead, if it is named.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
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
    """The addresses to which the first three results of the search lead.

    They are without ".html", as in "05_masking#padding". An entry of the
    glossary leads to itself and to the sections that explain it.

    Args:
        index: of the search.
        sections: the sections that it was made of.
        typed: what is searched for.
    """
    found: list[int] = []
    for number, _ in rank(index, typed)[:FIRST]:
        explaining = index["entries"][number][4:]
        found += [number, *(n for by in explaining for n in by)]
    return [f"{sections[n].page}#{sections[n].anchor}" for n in found]


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
    options = [given for given in sys.argv[1:] if given.startswith("-")]
    files = [given for given in sys.argv[1:] if not given.startswith("-")]
    if set(options) - {"--kept"} or len(files) > 1:
        sys.exit(
            "tools/search_words.py takes --kept and one file of words; got "
            f"{' '.join(sys.argv[1:])}"
        )
    sections = all_sections(contents().documents)
    index = search_index(sections)
    path = Path(files[0]) if files else WORDS
    data = tomllib.loads(path.read_text("utf-8"))
    groups = dict(data)
    if "word" in data:
        groups["seen"], groups["kept"] = halves(groups.pop("word"))
    for name, words in groups.items():
        if not words:
            continue  # of another file no half need be kept
        lost = misses(index, sections, words)
        n = len(words) - len(lost)
        print(f"{name}: {n} of {len(words)} ({n / len(words):.0%})")
        if name != "kept" or "--kept" in options:
            print(*(f"    {line}" for line in lost), sep="\n")


if __name__ == "__main__":
    main()
