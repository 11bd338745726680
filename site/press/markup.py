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

    `boxes` are the places of the elements in which KaTeX draws formulas, and
    `formulas` the characters in them. `colours` are the places of the tags
    that give code its colours. A place is a start and an end.
    """

    def __init__(self, html: str, names: Container[str] | None = None) -> None:
        super().__init__()
        self.html = html
        self.tags: list[StartTag] = []
        self.formulas: set[str] = set()
        self.boxes: list[tuple[int, int]] = []
        self.colours: list[tuple[int, int]] = []
        self._names = names
        self._changes: list[tuple[int, int, str]] = []
        self._depth_in_box = 0
        self._box_start = 0
        self._in_code = False
        self._line_starts = [0]
        for line in html.split("\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self.feed(html)
        self.close()

    def handle_starttag(
        self, tag: str, attrs: list[tuple[str, str | None]]
    ) -> None:
        """Keep a tag that begins an element; called by the parser."""
        text = self.get_starttag_text() or ""
        start = self._place()
        if tag == "pre":
            self._in_code = True
        elif tag == "span":
            self._begin_span(start, start + len(text), ("class", BOX) in attrs)
        if self._names is None or tag in self._names:
            attributes = {key: value or "" for key, value in attrs}
            self.tags.append(StartTag(tag, attributes, start, text))

    def handle_endtag(self, tag: str) -> None:
        """Notice the end of code or of a span; called by the parser."""
        if tag == "pre":
            self._in_code = False
        elif tag == "span":
            start = self._place()
            self._end_span(start, self.html.index(">", start) + 1)

    def _place(self) -> int:
        """Where in the text the parser is."""
        line, column = self.getpos()
        return self._line_starts[line - 1] + column

    def _begin_span(self, start: int, end: int, is_box: bool) -> None:
        """Notice a span: of a formula's drawing, inside one, or in code.

        Args:
            start, end: the place of its tag in the text.
            is_box: whether KaTeX draws a formula in it.
        """
        if self._depth_in_box:
            self._depth_in_box += 1
        elif is_box:
            self._depth_in_box = 1
            self._box_start = start
        elif self._in_code:
            self.colours.append((start, end))

    def _end_span(self, start: int, end: int) -> None:
        """Notice the end of a span, whose tag is from start to end."""
        if self._depth_in_box:
            self._depth_in_box -= 1
            if not self._depth_in_box:
                self.boxes.append((self._box_start, end))
        elif self._in_code:
            self.colours.append((start, end))

    def handle_data(self, data: str) -> None:
        """Keep the characters that formulas show; called by the parser."""
        if self._depth_in_box:
            self.formulas.update(data)

    def without(self, places: list[tuple[int, int]]) -> str:
        """The text without the parts at some places, which do not overlap."""
        kept = []
        done = 0
        for start, end in sorted(places):
            kept.append(self.html[done:start])
            done = end
        return "".join([*kept, self.html[done:]])

    def replace(self, start: int, end: int, text: str) -> None:
        """Ask for another text in the place of a part of this one.

        `changed` makes the change. The parts must not overlap.
        """
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
