"""Places in the built pages where the town's model itself answers.

The model runs there in the reader's browser; `site/town/` has the scripts and
`press.town_page` the weights. In a notebook, in print, and where no script
runs, a sentence and the picture of the same cell stand in its place.
"""

from __future__ import annotations

import html

from IPython.display import display

#: What a place may show, besides the story; `site/town/view.js` draws them.
PANELS = ("next", "paid", "tries", "switches", "work", "heads", "parts")
#: How it may begin; the names of `TRIES` in `site/town/view.js`.
TRIES = "omar mira carrier bank number cache hot window guess".split()


def answers_here(*panels: str, sentence: str, start: str = "omar") -> None:
    """Display a place where the model answers, with these of the `PANELS`.

    Args:
        sentence: what it would show; it stands in where no script runs.
        start: one of the `TRIES`.

    Raises:
        ValueError: no panel, an unknown one, or an unknown start.
    """
    unknown = [name for name in panels if name not in PANELS]
    if unknown or not panels:
        raise ValueError(
            f"panels are not allowed; expected some of {', '.join(PANELS)}; "
            f"got {', '.join(unknown) or 'none'}"
        )
    if start not in TRIES:
        raise ValueError(
            f"unknown start; expected one of {', '.join(TRIES)}; got {start!r}"
        )
    text = (
        f'<div data-town="{" ".join(panels)}" data-try="{start}">\n'
        "<p>In the book's pages, where scripts run, the model answers here. "
        f"{html.escape(sentence)}</p>\n</div>"
    )
    display({"text/html": text, "text/plain": sentence}, raw=True)
