"""The search box of the page "Something is wrong".

The page names a place for it. Its scripts are loaded on this page alone, and
the index, which `tools/clinic.py --write` stores in the catalogue, is put
beside them as a script: a page that is read from a disk may not fetch a file,
but may load a script.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from press.places import CHAPTERS

PAGE = "something_is_wrong"
INDEX = CHAPTERS / "attnbook/teach/catalogue/clinic_index.json"


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: Any, doctree: Any
) -> None:
    """Load the box's scripts on its page."""
    if pagename == PAGE:
        for script in "ranking.js", "clinic.js":
            app.add_js_file(script, loading_method="defer")


def write_index(app: Sphinx, exception: Exception | None) -> None:
    """Put the index beside the scripts, as a script."""
    if exception is None and app.builder.name == "html":
        script = f"window.clinicIndex = {INDEX.read_text('utf-8').strip()};\n"
        path = Path(app.outdir, "_static", "clinic-index.js")
        path.write_text(script, "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
