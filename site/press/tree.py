"""Trees of elements: Beautiful Soup, with the types that the press needs.

Beautiful Soup answers `None` for an element that is not there, and a list for
an attribute with several values. The pages that are read here were built by
the same press, so what is looked for is there, or something is wrong with the
build; these functions say so.
"""

from __future__ import annotations

from bs4 import BeautifulSoup, Tag


def parse(html: str) -> BeautifulSoup:
    """The tree of a text in HTML."""
    return BeautifulSoup(html, "html.parser")


def fragment(html: str) -> Tag:
    """The first element of a text in HTML, as a tree of its own."""
    return one(parse(html), "*")


def one(tag: Tag, css: str) -> Tag:
    """The first element in `tag` that a selector finds.

    Raises:
        ValueError: there is none.
    """
    found = tag.select_one(css)
    if found is None:
        raise ValueError(
            f"a built page is not as expected: in <{tag.name}> there is no "
            f"{css}; run: make book"
        )
    return found


def around(tag: Tag, name: str) -> Tag:
    """The nearest element of this name around `tag`.

    Raises:
        ValueError: there is none.
    """
    found = tag.find_parent(name)
    if found is None:
        raise ValueError(
            f"a built page is not as expected: no <{name}> is around "
            f"{tag.get_text()[:40]!r}; run: make book"
        )
    return found


def value(tag: Tag, attribute: str) -> str:
    """An attribute of an element, empty if it has none of that name.

    >>> value(fragment('<p class="a b" id="c"></p>'), "class")
    'a b'
    """
    found = tag.get(attribute, "") or ""
    return found if isinstance(found, str) else " ".join(found)


def classes(tag: Tag) -> list[str]:
    """The classes of an element."""
    return value(tag, "class").split()
