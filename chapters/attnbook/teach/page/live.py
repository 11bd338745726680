"""Places in the built pages where the town's model itself answers.

The model runs there in the reader's browser; `site/town/` has the scripts and
`press.town_page` the weights. In a notebook, in print, and where no script
runs, the reader sees a sentence and the picture of the same cell instead.
"""

from __future__ import annotations

import html

from IPython.display import display

#: What a place may show, besides the story; `site/town/view.js` draws them.
PANELS = ("next", "paid", "tries", "switches", "work", "heads", "parts")
#: How it may begin; the names of `TRIES` in `site/town/view.js`.
TRIES = "omar mira carrier bank number cache hot window guess".split()


def answers_here(*panels: str, sentence: str, start: str = "omar") -> None:
    """Display a place in the page where the model answers.

    Args:
        panels: what it shows besides the story, some of `PANELS`.
        sentence: what a reader would see there, in words. It is shown where
            no script runs.
        start: the story that it begins with, one of `TRIES`.

    Raises:
        ValueError: no panel, an unknown one, or an unknown start.
    """
    unknown = [name for name in panels if name not in PANELS]
    if unknown or not panels:
        raise ValueError(
            "a place where the model answers shows panels; expected one or "
            f"more of {', '.join(PANELS)}; got {', '.join(unknown) or 'none'}"
        )
    if start not in TRIES:
        raise ValueError(
            "the model cannot begin with this; expected one of "
            f"{', '.join(TRIES)}; got {start!r}"
        )
    text = (
        f'<div data-town="{" ".join(panels)}" data-try="{start}">\n'
        "<p>In the book's pages, where scripts run, the model answers here. "
        f"{html.escape(sentence)}</p>\n</div>"
    )
    display({"text/html": text, "text/plain": sentence}, raw=True)
