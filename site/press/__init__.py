"""The press: everything that makes the book's pages and its other formats.

Sphinx, which Jupyter Book calls, writes the pages. Some of the modules here
are extensions of it. `book_page`, `terms` and `cards` change what it writes.
`beside` makes in the meantime what needs no page: `town_page` makes the script
of the page *The town*, `sections` the index of the search, `package` the files
to run a page. `finish` reads each page once when all are written, lets
`pictures` and `styles` make it lighter, writes it, and puts beside it what
`plain` (a plain text of each page) and `changes` (a feed) make. Of the built
pages `epub` and `pdf` make one file of the whole book. What is no Python lies
beside this folder: templates, style sheets, scripts, KaTeX.

The press may import the library; nothing of the library imports the press.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The library lies in chapters/, which is on Python's path where a command of
# tools/ has started the press, but not where Sphinx has.
_CHAPTERS = str(Path(__file__).resolve().parents[2] / "chapters")
if _CHAPTERS not in sys.path:
    sys.path.append(_CHAPTERS)
