"""The theme's script, without what it does badly.

As soon as a page is read, the script measures everything on it that may
scroll, folded parts and all, and a browser lays each out for that. The book's
own static/book.js does it later, when somebody comes near.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)

THEME_SCRIPT = "_static/scripts/pydata-sphinx-theme.js"

#: The measuring, as the packed script of the theme has it.
TAB_STOPS = re.compile(
    r"\.forEach\((\w)=>\{\1\.tabIndex=\1\.scrollWidth>\1\.clientWidth"
    r"\|\|\1\.scrollHeight>\1\.clientHeight\?0:-1\}\)"
)


def mend_theme_script(site: Path) -> None:
    """Leave out the measuring, and the map that no longer fits the script.

    A version of the theme whose script looks otherwise is a warning, which
    fails the build.
    """
    path = site / THEME_SCRIPT
    script, found = TAB_STOPS.subn("", path.read_text("utf-8"))
    if not found:
        logger.warning("%s has no %s to mend", THEME_SCRIPT, TAB_STOPS.pattern)
    script = re.sub(r"//# sourceMappingURL=.*", "", script)
    path.write_text(script, "utf-8")
