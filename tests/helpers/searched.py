"""The site's search as the tests see it: made once for all of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from press.contents import contents
from press.sections import Section, all_sections, search_index


@cache
def searched() -> tuple[list[Section], dict[str, Any]]:
    """The sections of the book, and the index by which they are found.

    Its weights are learned, which takes seconds.
    """
    sections = all_sections(contents().documents)
    return sections, search_index(sections)
