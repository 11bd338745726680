"""The book's notebooks as files: which there are, reading, safe writing."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

# The library lies in chapters/, beside the notebooks that use it, and the
# press in site/. Neither is installed.
for folder in ("site", "chapters"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

from press.places import CHAPTERS, ROOT  # noqa: E402

__all__ = ["CHAPTERS", "ROOT", "notebooks", "read", "write", "write_text"]


def notebooks() -> list[Path]:
    """Every notebook of the book, in order."""
    return sorted(CHAPTERS.glob("*.ipynb"))


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def write(path: Path, notebook: nbformat.NotebookNode) -> None:
    """Write a notebook whole or not at all, in one stable form."""
    nbformat.validate(notebook)
    write_text(path, nbformat.writes(notebook, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text into a file. Whatever goes wrong, the file is whole
    afterwards: the old one or the new one."""
    from attnbook.files import replacing  # takes torch, which takes seconds

    with replacing(path) as file:
        file.write(text.encode())
