"""What of the site needs no page: made beside the pages, by its own process.

usage: python -m press.beside FOLDER

It is the script of *The town*, the index of the search, and the files for
those who run pages themselves. To make them takes seconds, and a library that
takes seconds to load, so the process begins before Sphinx reads the first
page. Once the pages are written, its files are put among them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

from press.places import CHAPTERS, ROOT, SITE

logger = logging.getLogger(__name__)

#: Where the process writes, in a folder that is removed at the end.
FILES = "site"


def make(folder: Path) -> None:
    """Write all these files into a folder, where they will be in the site."""
    # Imported here: they take torch, for which the pages need not wait.
    from press.contents import contents
    from press.package import put_package_on_site
    from press.sections import write_search
    from press.town_page import main

    static = folder / "_static"
    static.mkdir()
    write_search(static / "sections-index.js", contents().documents)
    main(str(static / "town.js"))
    put_package_on_site(folder)


class Beside:
    """The process, for the extension: where it writes, and how it ended."""

    def __init__(self) -> None:
        self.folder: TemporaryDirectory[str] | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, app: Sphinx) -> None:
        """Begin, if the pages that Sphinx is about to read become a site."""
        if app.builder.name != "html":
            return
        self.folder = TemporaryDirectory()
        # That folder is for this user alone, what lies in it is for all.
        files = Path(self.folder.name, FILES)
        files.mkdir()
        imports = os.pathsep.join([str(SITE), str(CHAPTERS)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "press.beside", str(files)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": imports},
        )

    def put(self, app: Sphinx, exception: Exception | None) -> None:
        """Wait for the files, and put them on the site.

        A process that failed has said why, and gives a warning, which fails
        the build. After a build that failed, the process is ended.
        """
        if self.process is None or self.folder is None:
            return
        with self.folder as name:
            if exception is not None:
                self.process.kill()
            if self.process.wait() == 0:
                files = Path(name, FILES)
                shutil.copytree(files, app.outdir, dirs_exist_ok=True)
            elif exception is None:
                logger.warning(
                    "the town's script, the index of the search and the files "
                    "to run a page could not be made"
                )
        self.process = None


def setup(app: Sphinx) -> dict[str, Any]:
    beside = Beside()
    app.connect("builder-inited", beside.start)
    # Before press.finish reads what the site has.
    app.connect("build-finished", beside.put)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    make(Path(sys.argv[1]))
