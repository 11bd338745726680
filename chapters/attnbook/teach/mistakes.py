"""Known mistakes on a page: ``mistakes.run("forgets_the_scale")``."""

from __future__ import annotations

import re

from attnbook.teach.catalogue import all_mistakes
from attnbook.teach.notebook import show_code
from attnbook.teach.tasks import Mistake
from attnbook.teach.words import say

_THREAD = re.compile(r"([\w.-]+/[\w.-]+) ((?:#\d+(?:, )?)+)")


def get(name: str) -> Mistake:
    """One known mistake by its name.

    Raises:
        ValueError: if there is none of that name.
    """
    known = all_mistakes()
    if name not in known:
        raise ValueError(
            f"there is no known mistake {name!r}; expected one of "
            f"{', '.join(known)}"
        )
    return known[name]


def run(name: str) -> None:
    """Run a known mistake: its code, its symptom, and what catches it."""
    found = get(name)
    show_code(found.source())
    say(f"what happens: {found.symptom}")
    say(f"cause: {found.cause}")
    say(f"fix: {found.fix}")
    if found.seen:
        say(f"seen in: {', '.join(links(found.seen).values())}")
    say(f"caught by check.{found.task.name}: {found.verdict().short}")


def links(seen: str) -> dict[str, str]:
    """The threads named in a text, and the address of each."""
    return {
        f"{repository} #{number}": (
            f"https://github.com/{repository}/issues/{number}"
        )
        for repository, numbers in _THREAD.findall(seen)
        for number in re.findall(r"\d+", numbers)
    }
