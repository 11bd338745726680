"""The book does not hang on Jupyter Book: plain Sphinx builds the same pages.

Jupyter Book 1 is in maintenance. Should it have to go, `jupyter-book config
sphinx` writes the settings of Sphinx that it has used; here they build the
book without it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import built

from press.contents import contents
from press.finish import FILES, put_on_site
from press.places import CHAPTERS, ROOT, SITE

pytestmark = pytest.mark.slow  # the book is built once more

#: What differs from build to build, and what is made of the built pages.
APART = {".buildinfo", *FILES}
#: What press.beside makes, in a process of its own that is the same whatever
#: builds the pages. Plain Sphinx finds the usual build's; that these are what
#: is made now, test_sections, test_town_page and test_package see to.
BESIDE = ("_static/sections-index.js", "_static/town.js", "tutor.txt")
#: Runs Sphinx without looking for garbage, as tools/build.py does.
SPHINX = """\
import gc, sys
from sphinx.cmd.build import main
gc.disable()
sys.exit(main(sys.argv[1:]))
"""


def run(folder, *command):
    """Run a command of Python's; what it says, if it fails."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SITE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The book as built by plain Sphinx, in a folder of its own."""
    folder = tmp_path_factory.mktemp("plain")
    for name in ("images", "site", "references.bib", "CHANGELOG.md"):
        (folder / name).symlink_to(ROOT / name)
    sources = folder / "chapters"
    sources.mkdir()
    for path in CHAPTERS.iterdir():
        if path.suffix in (".ipynb", ".md"):
            shutil.copy(path, sources)
    (sources / "attnbook").symlink_to(CHAPTERS / "attnbook")
    shutil.copy(ROOT / "_toc.yml", sources)
    shutil.copy(ROOT / "_config.yml", folder)
    jupyter_book = "from jupyter_book.cli.main import main; main()"
    config = ["--config", "_config.yml", "--toc", sources / "_toc.yml"]
    run(folder, "-c", jupyter_book, "config", "sphinx", "chapters", *config)
    text = (folder / "conf.py").read_text("utf-8")
    for extension in ("jupyter_book", "press.beside"):
        text, found = re.subn(f"'{extension}', ", "", text)
        assert found == 1
    (sources / "conf.py").write_text(text, "utf-8")
    site = folder / "html"
    (site / "_static").mkdir(parents=True)
    for name in BESIDE:
        shutil.copy(built() / name, site / name)
    options = ["-q", "-W", "--keep-going", "-n", "-d", folder / "doctrees"]
    run(folder, "-c", SPHINX, "-b", "html", *options, sources, site)
    for name in FILES:  # made of the usual build since, and offered by it
        if (built() / name).is_file():
            put_on_site(built() / name, site, contents())
    return site


def files(site):
    """The names of a site's files, from its folder on."""
    found = {p.relative_to(site).as_posix() for p in site.rglob("*.*")}
    pages = {name for name in found if (site / name).is_file()} - APART
    return {name for name in pages if not name.startswith("run/")}


def test_plain_sphinx_writes_the_same_pages(plain: Path):
    assert files(plain) == files(built())
    assert len(contents().files(plain)) > 30
    different = [
        name
        for name in sorted(files(plain))
        if (plain / name).read_bytes() != (built() / name).read_bytes()
    ]
    assert different == []
