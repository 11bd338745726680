"""Build the book: its pages, or from these an EPUB, a PDF, or slides.

usage: .venv/bin/python tools/build.py          the pages, as `make book`
       .venv/bin/python tools/build.py epub     one EPUB, as `make epub`
       .venv/bin/python tools/build.py pdf      one PDF, as `make pdf`
       .venv/bin/python tools/build.py slides   decks, as `make slides`
       .venv/bin/python tools/build.py slides 04      one deck

The pages show the outputs that are stored in the notebooks. Anything amiss
is an error. The pages are at _build/html; an EPUB or a PDF is made of them,
lies beside that folder, and is offered at the foot of each page. The slides
are at _build/slides, a deck for each chapter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata

from notebooks import ROOT, chosen, notebooks

from press.contents import contents
from press.finish import put_on_site
from press.places import HTML
from press.settings import settings

USAGE = "usage: tools/build.py [epub | pdf | slides [CHAPTER ...]]"


def check_version(version: str) -> None:
    """Raise RuntimeError unless this Jupyter Book can build the book.

    Version 2 prints an error in a folder like this, writes nothing and
    reports success.
    """
    if version.split(".")[0] != "1":
        raise RuntimeError(
            "this Jupyter Book cannot build the book; expected version 1.x; "
            f"got {version}; run: make clean book"
        )


#: Runs the command of Jupyter Book. The function that it calls can let Sphinx
#: read and write pages in several processes; the command does not offer it.
#: Nearly all that a build makes is needed to its end, so nobody looks for
#: garbage meanwhile: that took a quarter of the time.
JUPYTER_BOOK = """\
import gc
import sys
from functools import partial

from jupyter_book import sphinx
from jupyter_book.cli.main import main

gc.disable()
processes = int(sys.argv.pop(1))
sphinx.build_sphinx = partial(sphinx.build_sphinx, jobs=processes)
main()
"""


def processes() -> int:
    """How many processes read and write pages: one, or two for each core.

    Sphinx hands out the pages in a few large parts. With more parts than
    cores, the last part keeps one core alone for a shorter time.
    """
    cores = os.cpu_count() or 1
    return 2 * cores if cores > 1 else 1


def jupyter_book() -> list[str]:
    """The command that builds the pages; it takes a warning for an error."""
    return [
        sys.executable,
        "-c",
        JUPYTER_BOOK,
        str(processes()),
        "build",
        "chapters",
        "--path-output",
        ".",
        "--config",
        "_config.yml",
        "--toc",
        str(ROOT / "_toc.yml"),  # read from the sources' folder, too
        "--quiet",
        "-W",
        "--keep-going",
        "-n",
    ]


def build_pages() -> int:
    """Build the pages anew, and return an exit status: 0 if all is well."""
    try:
        check_version(metadata.version("jupyter-book"))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    # A page left over from an earlier build would hide that this one did not
    # write it.
    shutil.rmtree(ROOT / "_build", ignore_errors=True)
    (ROOT / "_build").mkdir()
    built = subprocess.run(jupyter_book(), cwd=ROOT)
    if built.returncode:
        return built.returncode
    if missing := contents().missing(HTML):
        print(f"the build left out {', '.join(missing)}", file=sys.stderr)
        return 1
    return 0


def pages_with_slides(chapters: list[str]) -> list[str]:
    """The names of the pages of which slides are made, which have a number.

    Args:
        chapters: those that are wanted; empty for all.

    Raises:
        ValueError: there is no such chapter.
    """
    numbered = [path for path in notebooks() if path.stem[0].isdigit()]
    return [path.stem for path in chosen(chapters, numbered)]


def make_format(kind: str, chapters: list[str]) -> int:
    """Make an EPUB or a PDF of the built pages, and link it on them; or make
    slides of the chapters.

    Args:
        kind: "epub", "pdf" or "slides".
        chapters: of which slides are made; empty for all.

    Returns:
        the exit status: 0, or 1 after an error, which is printed.
    """
    # Imported here: they import torch, for which the pages need not wait.
    from press import epub, pdf, slides
    from press.browser import open_chromium

    book = contents()
    try:
        if kind == "slides":
            with open_chromium() as chromium:
                print(slides.make(pages_with_slides(chapters), chromium))
            return 0
        writer = {"epub": epub, "pdf": pdf}[kind]
        print(writer.make(HTML, settings(), book))
    except FileNotFoundError as error:
        print(
            f"there is no {error.filename}; expected the built book; "
            "run: make book",
            file=sys.stderr,
        )
        return 1
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    put_on_site(writer.FILE, HTML, book)
    return 0


def main(arguments: list[str]) -> int:
    """Build what the command line asks for, and return an exit status."""
    if not arguments:
        return build_pages()
    kind, *chapters = arguments
    alone = kind in ("epub", "pdf") and not chapters
    if not alone and kind != "slides":
        print(USAGE, file=sys.stderr)
        return 2
    try:
        pages_with_slides(chapters)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return make_format(kind, chapters)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
