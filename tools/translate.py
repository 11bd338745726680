"""Hold a translated notebook against the original: what is no prose is equal.

usage: python tools/translate.py --check ORIGINAL TRANSLATED

A translation changes text: markdown cells, and the descriptions of figures.
The cells, their kinds, tags and order, all code and all outputs stay byte for
byte, and so does in each cell what code, formulas and links have in it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from nbformat import NotebookNode
from notebooks import read

#: What a translated text keeps: fenced code, formulas, places that a link
#: leads to, and names in code.
KEPT = re.compile(
    r"```.*?```|\$\$.*?\$\$|\$[^$\n]+\$|`[^`\n]+`|\]\(([^)]*)\)", re.DOTALL
)


def kept(text: str) -> list[str]:
    """What a translation keeps of a text, sorted: sentences turn round."""
    return sorted(m[1] or m[0] for m in KEPT.finditer(text))


def faults(original: NotebookNode, translated: NotebookNode) -> list[str]:
    """What differs and should not, a line each."""
    ours, theirs = original.cells, translated.cells
    if len(ours) != len(theirs):
        return [f"expected {len(ours)} cells; got {len(theirs)}"]
    found = []
    for number, (a, b) in enumerate(zip(ours, theirs)):
        for part in ("cell_type", "id", "outputs", "execution_count"):
            if a.get(part) != b.get(part):
                found.append(f"cell {number}: another {part}")
        if a.metadata.get("tags") != b.metadata.get("tags"):
            found.append(f"cell {number}: other tags")
        if a.cell_type == "code" and a.source != b.source:
            found.append(f"cell {number}: other code")
        if a.cell_type == "markdown":
            lost = set(kept(a.source)) ^ set(kept(b.source))
            found += [f"cell {number}: {x!r} is in one alone" for x in lost]
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[0] != "--check":
        print(__doc__, file=sys.stderr)
        return 2
    found = faults(*(read(Path(path)) for path in arguments[1:]))
    print("\n".join(found) or "only prose differs")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
