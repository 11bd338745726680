"""The changes of the book, edition by edition, as an Atom feed."""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5
from xml.etree import ElementTree as xml

from markdown_it import MarkdownIt

from press.places import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"
ATOM = "http://www.w3.org/2005/Atom"


class Edition(NamedTuple):
    """A heading of the changelog, `name, date`, and the text below it."""

    name: str
    date: str
    text: str

    @property
    def place(self) -> str:
        """The link to the edition's section on the page of changes."""
        name = re.sub(r"\W+", "-", f"{self.name} {self.date}".lower())
        return f"changes.html#{name}"


def editions(changelog: str) -> list[Edition]:
    """The editions of a changelog, the newest first.

    Raises:
        ValueError: a heading names no date, or one is not older than that
            above it.
    """
    _, *sections = re.split(r"(?m)^## ", changelog)
    found = []
    for section in sections:
        heading, _, text = section.partition("\n")
        parts = re.fullmatch(r"(.+), (\d{4}-\d\d-\d\d)", heading)
        if not parts:
            raise ValueError(
                "an edition has no date; expected a heading such as "
                f"'## Second edition, 2026-11-23'; got {heading!r}"
            )
        found.append(Edition(parts[1], parts[2], text.strip()))
    dates = [edition.date for edition in found]
    if dates != sorted(set(dates), reverse=True) or not dates:
        raise ValueError(
            "the editions are out of order; expected the newest first; got "
            + ", ".join(dates)
        )
    return found


def urn(name: str) -> str:
    """An identifier that depends on a name alone.

    So it stays the same when the book moves to another address.
    """
    return uuid5(NAMESPACE_URL, name).urn


def feed(title: str, author: str, found: list[Edition], address: str) -> str:
    """The Atom feed of the editions (RFC 4287), as a text.

    Args:
        title, author: of the book.
        found: the editions, the newest first.
        address: where the pages lie. If it is empty, the links are relative
            to the feed's own place.
    """
    xml.register_namespace("", ATOM)
    root = xml.Element(f"{{{ATOM}}}feed")

    def add(
        to: xml.Element, name: str, text: str = "", **attributes: str
    ) -> xml.Element:
        element = xml.SubElement(to, f"{{{ATOM}}}{name}", attributes)
        element.text = text or None
        return element

    add(root, "title", f"{title}: changes")
    add(root, "id", urn(title))
    add(root, "updated", f"{found[0].date}T00:00:00Z")
    add(add(root, "author"), "name", author)
    add(root, "link", href=f"{address}changes.html")
    if address:
        add(root, "link", rel="self", href=f"{address}feed.xml")
    for edition in found:
        entry = add(root, "entry")
        add(entry, "title", edition.name)
        add(entry, "id", urn(f"{title}, {edition.name}"))
        add(entry, "updated", f"{edition.date}T00:00:00Z")
        add(entry, "link", href=address + edition.place)
        add(entry, "content", MarkdownIt().render(edition.text), type="html")
    xml.indent(root)
    text = xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'
