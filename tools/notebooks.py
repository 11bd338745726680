"""The book's notebooks as files: which there are, and how to read and write.

Importing this also puts the library and the press on Python's path.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

# The library lies in chapters/, beside the notebooks that use it, and the
# press in site/. Neither is installed.
for folder in ("site", "chapters"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

from press.places import CHAPTERS, ROOT  # noqa: E402

__all__ = [
    "CHAPTERS",
    "ROOT",
    "chosen",
    "notebooks",
    "read",
    "write",
    "write_text",
]


def notebooks() -> list[Path]:
    """The paths of all notebooks of the book, sorted by name."""
    return sorted(CHAPTERS.glob("*.ipynb"))


def chosen(wanted: list[str], among: list[Path]) -> list[Path]:
    """Those of some notebooks that a command line asks for.

    Args:
        wanted: names such as mistakes, or a chapter's two digits; empty for
            all.
        among: the paths of the notebooks.

    Raises:
        ValueError: one of the names is no notebook's.
    """
    names = {path: {path.stem, path.stem[:2]} for path in among}
    unknown = {*wanted} - set().union(*names.values())
    if unknown:
        raise ValueError(
            f"there is no chapter {', '.join(sorted(unknown))}; expected "
            f"numbers such as 04, or {', '.join(p.stem for p in names)}"
        )
    return [path for path in names if not wanted or names[path] & {*wanted}]


def read(path: Path) -> nbformat.NotebookNode:
    """Read a notebook, in version 4 of the format."""
    return nbformat.read(path, as_version=4)


def write(path: Path, notebook: nbformat.NotebookNode) -> None:
    """Write a notebook, whole or not at all, always in the same form."""
    nbformat.validate(notebook)
    write_text(path, nbformat.writes(notebook, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text into a file in UTF-8.

    If something goes wrong the old file is still there, and whole.
    """
    from attnbook.files import replacing  # takes torch, which takes seconds

    with replacing(path) as file:
        file.write(text.encode())
