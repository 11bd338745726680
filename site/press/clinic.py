"""The search box of the page "Something is wrong".

The page has an empty element in which the scripts put the box. They are loaded
on this page alone. The index that they search is stored in the catalogue by
`tools/clinic.py --write`, and is put beside them as a script: a page that is
read from a disk may not fetch a file, but may load a script.
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
    """Load the scripts of the search box on the one page that has it."""
    if pagename == PAGE:
        for script in "ranking.js", "clinic.js":
            app.add_js_file(script, loading_method="defer")


def write_index(app: Sphinx, exception: Exception | None) -> None:
    """Write the index of the search box as a script, after an HTML build."""
    if exception is None and app.builder.name == "html":
        script = f"window.clinicIndex = {INDEX.read_text('utf-8').strip()};\n"
        path = Path(app.outdir, "_static", "clinic-index.js")
        path.write_text(script, "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
