"""Drawings that grow from chapter to chapter, with the shapes in them.

Each is an svg file beside this one: boxes, arrows and names, in the classes of
``style.css``. A shape stands in a ``<text class="shape" data-of="weights">``,
as ``(T, T)``; a test holds it against the tensor of that name.
"""

from __future__ import annotations

import re
from pathlib import Path

from IPython.display import display

_HERE = Path(__file__).parent

#: The drawings; each is the name of a file beside this one.
DRAWINGS = sorted(path.stem for path in _HERE.glob("*.svg"))


def drawing(name: str) -> None:
    """Display a drawing; its description stands in where none is shown.

    Raises:
        ValueError: if there is no drawing of this name.
    """
    if name not in DRAWINGS:
        raise ValueError(
            f"unknown drawing; expected one of {', '.join(DRAWINGS)}; "
            f"got {name!r}"
        )
    svg = (_HERE / f"{name}.svg").read_text("utf-8")
    style = (_HERE / "style.css").read_text("utf-8")
    inside = f"<style>{style}</style>\n<defs>{_TIP.format(name)}</defs>"
    svg = svg.replace("</desc>", f"</desc>\n{inside}", 1)
    # Two drawings on one page may not share a name.
    svg = re.sub(r'class="flow"', rf'\g<0> marker-end="url(#tip-{name})"', svg)
    description = re.search(r"(?s)<desc[^>]*>(.*?)</desc>", svg)[1]
    text = " ".join(description.split())
    html = f'<div class="drawing">\n{svg}</div>'
    display({"text/html": html, "text/plain": text}, raw=True)


_TIP = (
    '<marker id="tip-{}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>'
)
