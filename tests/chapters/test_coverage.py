"""`coverage.md` names every row of the sources, and places that exist."""

import re
from pathlib import Path

from book import CHAPTER_FILES
from notebooks import ROOT
from pages import built, ids

#: How many rows each of the five source notebooks has.
ROWS = {"S0": 8, "S1": 4, "S2": 15, "S3": 6, "S4": 7}
NAMES = [f"{s}.{n}" for s, last in ROWS.items() for n in range(1, last + 1)]
LINE = re.compile(r"^\| (S\d\.\d+) \| (.+?) \| (.+?) \|$", re.M)
LATER = re.compile(r"to come in chapter (\d+)")
LINK = re.compile(r"\]\(([\w/.]+)\.(?:ipynb|md)(?:#([\w-]+))?\)")


def faults(text: str, html: Path) -> list[str]:
    """What is wrong with a coverage table, given the built pages."""
    found = []
    lines = LINE.findall(text)
    names = [name for name, _, _ in lines]
    found += [f"{n} is missing" for n in NAMES if n not in names]
    found += [f"{n} stands twice" for n in set(names) if names.count(n) > 1]
    done = {int(p.name[:2]) for p in CHAPTER_FILES}
    for name, _, where in lines:
        links = LINK.findall(where)
        later = [int(n) for n in LATER.findall(where)]
        if not links and not later:
            found.append(f"{name} is taught nowhere")
        found += [f"{name}: chapter {n} is there" for n in later if n in done]
        for page, anchor in links:
            file = html / f"{Path(page).name}.html"
            if not file.exists():
                found.append(f"{name}: there is no page {file.name}")
            elif not anchor:
                found.append(f"{name}: {file.name} without a section")
            elif anchor not in ids(file):
                found.append(f"{name}: {file.name} has no #{anchor}")
    return found


def test_every_row_is_taught_where_the_table_says():
    text = (ROOT / "tests" / "chapters" / "coverage.md").read_text(
        encoding="utf-8"
    )
    assert faults(text, built()) == []
