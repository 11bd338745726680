"""The reasons why mutants pass: each is about a line that there is.

A reason is kept under the function, the change and its line. When the line is
written anew, its reason no longer belongs to any mutant, and the same change
counts as a survivor. So every key must be a change that is still made.
"""

import ast
from functools import cache

import pytest
from mutants import reasons
from mutate.mutations import mutations
from mutate.rooms import rooms
from mutate.tasks import solutions, sources_of

from attnbook.teach.catalogue import all_tasks

#: Changes around a function, which have no line (see `mutate.tasks`).
AROUND = {
    "the first number is NaN",
    "a result of one axis more",
    "spoils its first tensor",
    "remembers its first result",
    "returns None",
    "returns its first argument",
    "half the digits",
    "is detached",
}


@cache
def changes():
    """The changes that are made of each function, and their lines."""
    made = {}

    def add(function, changed):
        names = made.setdefault(function, set())
        names.add(f"{changed.change} in {changed.line}")
        names.add(f"* in {changed.line}")

    for room in rooms().values():
        tree = ast.parse(room.path.read_bytes())
        for changed in mutations(tree, guards=True):
            add(".".join((room.name, *changed.where)), changed)
    solved = {}
    for task in all_tasks().values():
        chapter = f"{task.chapter:02}"
        if chapter not in solved:
            solved[chapter] = solutions(chapter)
        for source in sources_of(task, solved[chapter].get(task.name, "")):
            made.setdefault(source.function, set()).update(AROUND)
            for changed in mutations(source.tree):
                add(source.function, changed)
    return made


def keys():
    """All keys, but for those of tame cases: test_tame holds them."""
    return [
        (function, name)
        for known in reasons().values()
        for function, names in known.items()
        for name in names
        if not name.startswith("tame in ")
    ]


def dead(pairs):
    """Those of some keys that no change answers to."""
    made = changes()
    return [
        f"{function}: {name}"
        for function, name in pairs
        if name not in made.get(function, ())
    ]


def test_every_reason_is_about_a_line_that_there_is():
    assert dead(keys()) == []


@pytest.mark.parametrize("function", ["softmax", "masks.causal_mask", "none"])
def test_a_reason_about_a_line_that_is_gone_is_found(function):
    assert len(dead([(function, "1 → 2 in return 1")])) == 1
