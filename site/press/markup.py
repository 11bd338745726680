"""HTML that is read by a parser and changed in places.

A tree of elements, written out again, would change every line of a page a
little. Here a page keeps each character that nobody asked to change, so that
two builds, or a build before and after a change of the press, can be compared
byte by byte.
"""

from __future__ import annotations

from collections.abc import Container
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

#: The class of the element in which KaTeX draws a formula.
BOX = "katex-html"


class StartTag(NamedTuple):
    """A tag that begins an element: what it says, and where it stands."""

    name: str
    attributes: dict[str, str]  # the value of one without a value is empty
    start: int  # of its "<" in the whole text
    text: str  # as it is written

    @property
    def end(self) -> int:
        """The place after its ">"."""
        return self.start + len(self.text)

    def having(self, attributes: dict[str, str]) -> str:
        """The tag as text, with more attributes before those that it has.

        >>> Markup('<img src="a.svg">').tags[0].having({"width": "20"})
        '<img width="20" src="a.svg">'
        """
        added = "".join(f' {k}="{value}"' for k, value in attributes.items())
        after_name = 1 + len(self.name)
        return self.text[:after_name] + added + self.text[after_name:]

    def without(self, attribute: str) -> str:
        """The tag as text without an attribute that it has.

        >>> Markup('<ul role="list" id="a">').tags[0].without("role")
        '<ul id="a">'
        """
        written = f' {attribute}="{self.attributes[attribute]}"'
        return self.text.replace(written, "", 1)


class Markup(HTMLParser):
    """A text in HTML: its tags, and the changes that are wanted in it.

    Args:
        html: the text.
        names: of the elements whose tags are asked for; else of all.

    `formulas` are the characters that are drawn in the text's formulas.
    """

    def __init__(self, html: str, names: Container[str] | None = None) -> None:
        super().__init__()
        self.html = html
        self.tags: list[StartTag] = []
        self.formulas: set[str] = set()
        self._names = names
        self._changes: list[tuple[int, int, str]] = []
        self._depth_in_box = 0
        self._line_starts = [0]
        for line in html.split("\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self.feed(html)
        self.close()

    def handle_starttag(
        self, tag: str, attrs: list[tuple[str, str | None]]
    ) -> None:
        if self._depth_in_box and tag == "span":
            self._depth_in_box += 1
        elif ("class", BOX) in attrs:
            self._depth_in_box = 1
        if self._names is None or tag in self._names:
            line, column = self.getpos()
            attributes = {key: value or "" for key, value in attrs}
            start = self._line_starts[line - 1] + column
            text = self.get_starttag_text() or ""
            self.tags.append(StartTag(tag, attributes, start, text))

    def handle_endtag(self, tag: str) -> None:
        if self._depth_in_box and tag == "span":
            self._depth_in_box -= 1

    def handle_data(self, data: str) -> None:
        if self._depth_in_box:
            self.formulas.update(data)

    def replace(self, start: int, end: int, text: str) -> None:
        """Put another text in the place of a part; no two may overlap."""
        self._changes.append((start, end, text))

    def changed(self) -> str:
        """The text with all that was replaced in it."""
        kept = []
        done = 0
        for start, end, text in sorted(self._changes):
            kept += [self.html[done:start], text]
            done = end
        return "".join([*kept, self.html[done:]])


class Page(NamedTuple):
    """A page of a built site: its file, and what is in it."""

    path: Path
    markup: Markup

    @classmethod
    def read(cls, path: Path) -> Page:
        """A page, and those of its tags that the press may change."""
        names = {"a", "article", "h2", "img", "link", "p", "script"}
        return cls(path, Markup(path.read_text("utf-8"), names))

    def tags(self, name: str) -> list[StartTag]:
        """The tags of this name, in their order on the page."""
        return [tag for tag in self.markup.tags if tag.name == name]

    def write(self) -> None:
        """Write the page with its changes, its lines ending as they did."""
        self.path.write_text(self.markup.changed(), "utf-8", newline="\n")
