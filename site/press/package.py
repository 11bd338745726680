"""Files of the site that are taken away: to run a page, to learn, to teach.

For whoever runs a page without a clone of the repository, the built site
carries the helper package as a wheel, all notebooks in one archive, and the
list of the two published models; the page *Run a page* says what to do with
them. For whoever learns there are question cards, and for AI tutors a file
that says how to help; the page *For teachers* says more about both.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from press.flashcards import write_cards
from press.places import CHAPTERS, ROOT, SITE

#: The folder of the site in which these files are.
FOLDER = "run"

#: The archive of the notebooks, and the list of the published models.
NOTEBOOKS = "notebooks.zip"
MODELS = "models.txt"

#: The question cards, and the file for AI tutors, which is beside llms.txt.
CARDS, TUTOR = "cards.txt", "tutor.txt"

#: What a wheel is built from, beside the folder of the package.
SOURCES = ("pyproject.toml", "README.md", "LICENSE")

#: The date of each file in the archives: the earliest that a zip can have. So
#: the same notebooks give the same bytes.
DATE = (1980, 1, 1, 0, 0, 0)

#: Builds a wheel into the folder that is named, without any network.
BUILD = """\
import sys
from setuptools.build_meta import build_wheel

build_wheel(sys.argv[1])
"""


def build_wheel(folder: Path) -> Path:
    """Build the helper package as a wheel into a folder, and return its path.

    It is built from a copy, so that nothing is left in the repository, and
    nothing that an earlier build left there gets into the wheel.

    Raises:
        RuntimeError: setuptools failed; the message has what it printed.
    """
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for source in SOURCES:
            shutil.copy(ROOT / source, copy)
        shutil.copytree(
            CHAPTERS / "attnbook",
            copy / CHAPTERS.name / "attnbook",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        made = copy / "made"
        made.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", BUILD, str(made)],
            cwd=copy,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        if done.returncode:
            raise RuntimeError(
                f"the package could not be built as a wheel:\n{done.stderr}"
            )
        (wheel,) = made.glob("*.whl")
        return Path(shutil.copy(wheel, folder))


def pack_notebooks(path: Path) -> None:
    """Write all notebooks of the book into a zip archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for notebook in sorted(CHAPTERS.glob("*.ipynb")):
            entry = zipfile.ZipInfo(notebook.name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, notebook.read_bytes())


def put_package_on_site(site: Path) -> None:
    """Write all these files into the site.

    Raises:
        RuntimeError: the wheel could not be built.
    """
    folder = site / FOLDER
    folder.mkdir(exist_ok=True)
    build_wheel(folder)
    pack_notebooks(folder / NOTEBOOKS)
    shutil.copy(ROOT / MODELS, folder)
    write_cards(folder / CARDS)
    shutil.copy(SITE / TUTOR, site)
