"""Every known mistake, put in the place of the right function on its page."""

import functools

import pytest
from book import Wrong, branches, chapter_file, defined, lesson

from attnbook.teach.catalogue import all_mistakes, all_tasks
from attnbook.teach.check.registry import the_book

#: Errors that have nothing to do with what a function computes.
BESIDE_THE_POINT = set(
    "NameError ImportError SyntaxError AttributeError TypeError".split()
)


def as_wrong(mistake):
    task = mistake.task
    ours = the_book().own_function(task) if task.home else None
    return Wrong(mistake.name, task.name, ours, mistake.wrong)


def on_its_page(mistake):
    """Whether its task has a function in the package or on the page; the
    others are exercises alone, which their check looks after."""
    task = mistake.task
    return task.home or task.name in defined(
        lesson(chapter_file(task.chapter))
    )


MISTAKES = [m for m in all_mistakes().values() if on_its_page(m)]


@functools.cache
def found(path):
    here = [m for m in MISTAKES if chapter_file(m.chapter) == path]
    return branches(path, [as_wrong(m) for m in here])


@pytest.mark.parametrize(
    "mistake", MISTAKES, ids=lambda m: f"{m.chapter:02}-{m.name}"
)
def test_the_page_notices_the_mistake(mistake):
    noticed = found(chapter_file(mistake.chapter))
    assert noticed[""] is None, "the page fails as it is"
    error = noticed[mistake.name]
    assert error, f"no cell of the chapter notices {mistake.name}"
    assert not BESIDE_THE_POINT & set(error.kinds), error.message


def test_a_right_function_in_its_own_place_is_not_noticed():
    """So it is the mistake that a page notices, not the exchange."""
    task = all_tasks()["softmax"]
    right = Wrong(
        "right", task.name, the_book().own_function(task), task.right
    )
    page = chapter_file(task.chapter)
    assert branches(page, [right]) == {"": None, "right": None}
