"""Which pages the book has, and in which order: read from `_toc.yml`.

Everything that asks for the book's pages asks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sphinx_external_toc.api import Document, SiteMap
from sphinx_external_toc.parsing import parse_toc_data

from press.places import ROOT

#: Pages that are made of no document: the theme's search, and the page that
#: is shown for an address at which there is none.
BESIDE = ("404", "search")


class Part(NamedTuple):
    """A part of the book: its title, and its pages in their order.

    The first page of all is a part of its own, which has no title.
    """

    caption: str
    pages: list[str]


class Contents(NamedTuple):
    """The table of contents. A page is named as its file, without suffix."""

    parts: list[Part]

    @classmethod
    def of(cls, site_map: SiteMap) -> Contents:
        """The contents as Sphinx knows them while it builds the book.

        Args:
            site_map: what the extension sphinx_external_toc has read.
        """
        root = site_map.root
        parts = [Part("", [root.docname])]
        for tree in root.subtrees:
            pages = []
            for name in tree.files():
                pages += [name, *_below(site_map, site_map[name])]
            parts.append(Part(tree.caption or "", pages))
        return cls(parts)

    @classmethod
    def read(cls, toc: dict[str, Any]) -> Contents:
        """The contents that a file like `_toc.yml` gives.

        Raises:
            MalformedError: the file is not as Jupyter Book expects it.
        """
        return cls.of(parse_toc_data(toc))

    @property
    def documents(self) -> list[str]:
        """All pages that are made of a document, in the book's order."""
        return [page for part in self.parts for page in part.pages]

    def files(self, site: Path) -> list[Path]:
        """The files of all pages in the folder of a built site, sorted.

        Old addresses, which only lead on to a page, are not among them.
        """
        names = sorted([*self.documents, *BESIDE])
        return [site / f"{name}.html" for name in names]

    def missing(self, site: Path) -> list[str]:
        """The names of the files that should have been built and were not."""
        return [file.name for file in self.files(site) if not file.is_file()]


def _below(site_map: SiteMap, document: Document) -> Iterator[str]:
    """The pages below a page in the contents, at every depth."""
    for tree in document.subtrees:
        for name in tree.files():
            yield name
            yield from _below(site_map, site_map[name])


def contents() -> Contents:
    """The contents of this book."""
    return Contents.read(
        yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    )
