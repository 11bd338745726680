"""The known mistakes that a page can notice, and every page run with its own.

A page is run once for two rooms of tests, which ask whether it runs on a card
and whether it notices its mistakes.
"""

import functools
from pathlib import Path

from book import Ran, Wrong, chapter_file, defined, lesson, run_whole

from attnbook.teach.catalogue import all_mistakes
from attnbook.teach.check.registry import the_book


def on_its_page(mistake) -> bool:
    """Whether its task has a function in the package or on the page; the
    others are exercises alone, which their check looks after."""
    task = mistake.task
    return task.home or task.name in defined(
        lesson(chapter_file(task.chapter))
    )


MISTAKES = [m for m in all_mistakes().values() if on_its_page(m)]


def as_wrong(mistake) -> Wrong:
    task = mistake.task
    ours = the_book().own_function(task) if task.home else None
    return Wrong(mistake.name, task.name, ours, mistake.wrong)


@functools.cache
def ran(path: Path) -> Ran:
    """What came of a page and of its mistakes."""
    here = [m for m in MISTAKES if chapter_file(m.chapter) == path]
    return run_whole(path, [as_wrong(m) for m in here])
