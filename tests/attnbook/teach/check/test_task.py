"""A mistake is written in one place, with all that is known of it."""

import pytest

from attnbook.teach.check.task import task, threads_in


@task({"one": (1,), "two": (2,)}, against="+")
def twice(x):
    """twice x"""
    return x + x


def squares(x):
    """Right for 2.

    cause: It multiplies.
    fix: Add.
    hint: What is 3 times 3?
    """
    return x * x


def test_a_mistake_has_its_headings_and_its_threads():
    seen = "a/b #1, #2, c/d #3"
    register = twice.mistake(seen, symptom="Sums", not_looked_up="c/d #3")
    assert register(squares) is squares
    found = twice.known.pop("squares")
    assert found.headings == ("Sums",)
    assert found.not_looked_up == {"c/d #3"} and found.seen == seen
    assert (found.cause, found.fix) == ("It multiplies.", "Add.")
    assert found.source().startswith("def squares(x):\n    return")


def test_threads_are_counted_one_by_one():
    assert threads_in("a/b #1, #2, c/d #3") == ["a/b #1", "a/b #2", "c/d #3"]


def test_a_thread_that_is_not_cited_cannot_be_unopened():
    with pytest.raises(ValueError, match="has to be one of those seen"):
        twice.mistake("a/b #1", not_looked_up="c/d #3")
