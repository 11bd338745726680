"""Drawings that grow from chapter to chapter, with the shapes in them.

Each is an svg file beside this one, made of boxes, arrows and names. How they
look is said by their classes, see `_STYLES`. The shape of a tensor is written
as ``<text class="shape" data-of="weights">(T, T)</text>``, and a test compares
it with the tensor of that name on the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote

from IPython.display import display

_HERE = Path(__file__).parent

#: The drawings; each is the name of a file beside this one.
DRAWINGS = sorted(path.stem for path in _HERE.glob("*.svg"))


def drawing(name: str) -> None:
    """Display a drawing, and its description where no drawing can be shown.

    Raises:
        ValueError: if there is no drawing of this name.
    """
    if name not in DRAWINGS:
        raise ValueError(
            f"unknown drawing; expected one of {', '.join(DRAWINGS)}; "
            f"got {name!r}"
        )
    svg = (_HERE / f"{name}.svg").read_text("utf-8")
    title = _found(r"(?s)<title[^>]*>(.*?)</title>", svg)
    text = _found(r"(?s)<desc[^>]*>(.*?)</desc>", svg)
    # No words besides those that are seen: a search would mark them, too.
    svg = re.sub(r"(?s)<(title|desc).*?</\1>\n?", "", svg)
    width = int(_found(r'viewBox="\S+ \S+ (\d+)', svg))
    # A narrow drawing fits a phone; a wide one scrolls sideways there.
    narrowest, widest = (280, width) if width < 480 else (480, 700)
    style = _STYLES["svg"]
    svg = re.sub(r'aria-labelledby="[^"]*"', f'style="{style}"', svg)
    svg = re.sub(r'class="([^"]*)"', lambda m: _styled(m[1], name), svg)
    svg = svg.replace(">", f">\n<defs>{_TIP.format(name)}</defs>", 1)
    html = _IMAGE.format(
        label=f"{title}. {text}",
        width=widest,
        box=_BOX.format(narrowest, widest),
        source=_as_address(svg),
    )
    display({"text/html": html, "text/plain": text}, raw=True)


def _as_address(svg: str) -> str:
    """An svg as an address that holds all of it, for an <img>.

    Only what would end the address, or have another meaning in it, is
    written as a percent sign and two digits, so that one can read the rest.
    """
    return "data:image/svg+xml," + quote(svg, safe=_AS_THEY_ARE)


def in_the_page(html: str) -> str:
    """A drawing that `drawing` has displayed, as a part of its page.

    A picture has the colours of paper. As elements of the page, the drawing
    takes the page's colours, light or dark, and its words can be found.

    Args:
        html: what `drawing` has displayed as HTML.

    Raises:
        ValueError: the HTML is not that of a drawing.
    """
    found = re.fullmatch(_IMAGE_AGAIN, html.strip())
    if found is None:
        raise ValueError(
            "this is not the HTML of a drawing; expected a <div> of the class "
            f'"drawing" with an <img> in it; got {html[:60]!r}'
        )
    svg = unquote(found["source"]).partition(",")[2]
    whole = f'aria-label="{found["label"]}" style="{found["box"]}; '
    svg = svg.replace('style="', whole, 1)
    return f'<div class="drawing">\n{svg}</div>'


def _found(pattern: str, svg: str) -> str:
    """The one group of a pattern that every drawing has, on one line.

    Raises:
        ValueError: if a drawing does not have it.
    """
    match = re.search(pattern, svg)
    if match is None:
        raise ValueError(
            f"a drawing lacks something; expected {pattern} in its svg; "
            "got none"
        )
    return " ".join(match[1].split())


def _styled(classes: str, name: str) -> str:
    """The attributes that an element of some classes gets in the page.

    Styles are written into the elements, because Jupyter and Colab have no
    style sheet of ours. `name` is the drawing's.
    """
    style = "; ".join(_STYLES[one] for one in classes.split())
    # Two drawings on one page may not share a name.
    tip = f' marker-end="url(#tip-{name})"' if classes == "flow" else ""
    return f'style="{style}"{tip}'


_ONE_HEAD = "fill: {0}; fill-opacity: .22; stroke: {0}; stroke-width: 1.6"

#: What the classes of a drawing mean; "svg" is the whole.
_STYLES = {
    "svg": "font: 14px sans-serif; fill: currentColor; text-anchor: middle",
    "left": "text-anchor: start",
    "name": "font-weight: 600",
    "note": "font-size: 12px",
    "shape": "font: 12px monospace",
    "part": "fill-opacity: .08; stroke: currentColor; stroke-width: 1.4",
    "one": _ONE_HEAD.format("#2f7fc1"),
    "two": _ONE_HEAD.format("#d9822b"),
    "three": _ONE_HEAD.format("#3a9d6b"),
    "off": "fill: none; stroke: currentColor; stroke-dasharray: 3 3",
    "flow": "fill: none; stroke: currentColor; stroke-width: 1.6",
}

_TIP = (
    '<marker id="tip-{}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>'
)

#: How wide a drawing is, at least and at most, in pixels.
_BOX = (
    "display: block; width: 100%; min-width: {}px; max-width: {}px; "
    "margin: auto"
)

#: A drawing as a picture. JupyterLab takes the elements of an svg away from a
#: notebook that was not run yet, and leaves its words; a picture it shows.
_IMAGE = (
    '<div class="drawing">\n<img alt="{label}" width="{width}" '
    "style=\"{box}; background: white\" src='{source}'>\n</div>"
)
_IMAGE_AGAIN = (
    r'<div class="drawing">\n<img alt="(?P<label>[^"]*)" width="\d+" '
    'style="(?P<box>[^"]*); background: white" '
    r"src='(?P<source>[^']*)'>\n</div>"
)

#: What an address in single quotes may have besides letters and digits.
_AS_THEY_ARE = ' !"$()*+,-./:;=?@[]^_{|}~'
