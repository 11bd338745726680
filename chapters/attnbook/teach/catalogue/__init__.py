"""The tasks and known mistakes of the book, one module a chapter.

``cNN_….py`` has the tasks of a chapter and the known mistakes that people
make in them. ``slips/sNN.py`` has the smaller mistakes that the chapter's
exercises recognise.

Some wrong answers are none of these. ``questions.toml`` has a question for
them, for each case of each exercise: a reader is asked the question of the
first case that goes wrong, so it must fit everything that can go wrong there.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache

from attnbook.teach.catalogue.symptoms import HEADINGS
from attnbook.teach.check.task import Mistake, Task

#: The modules of the chapters in their order. A chapter that is added here
#: needs its module of slips too.
CHAPTERS = (
    "c01_averages",
    "c02_self_attention",
    "c03_queries_keys_values",
    "c04_scaling",
    "c05_masking",
    "c06_multi_head",
    "c07_norms",
    "c08_feed_forward",
    "c09_positions",
    "c10_block",
    "c11_language_model",
    "c12_real_text",
    "c13_encoder_decoder",
    "c14_cache",
    "c15_generating",
    "c16_real_model",
    "c17_merging",
    "c18_fewer_keys",
    "c19_server",
    "c20_guessing",
    "c21_states",
    "c22_bits",
    "c23_taught",
    "c24_hands",
)


@cache
def _loaded() -> dict[str, Task]:
    """Import the chapters' modules, once, and collect their tasks by name.

    Raises:
        ValueError: two tasks have one name, or two known mistakes.
    """
    found: dict[str, Task] = {}
    for name in CHAPTERS:
        module = importlib.import_module(f"{__name__}.{name}")
        # A module of slips adds them to the tasks as it is imported.
        importlib.import_module(f"{__name__}.slips.s{name[1:3]}")
        for task in vars(module).values():
            if not isinstance(task, Task):
                continue
            if task.right.__module__ != module.__name__:
                continue  # the module has it from another chapter
            if task.name in found:
                raise ValueError(
                    f"two tasks are named {task.name}; expected a name for "
                    f"each; got it again in {name}"
                )
            found[task.name] = task
    _check_names(found.values())
    return found


def _check_names(tasks: Iterable[Task]) -> None:
    """Raise an error if two known mistakes have one name, since pages, links
    and tests find them by it."""
    owner: dict[str, str] = {}
    for task in tasks:
        for name in task.known:
            if name in owner:
                raise ValueError(
                    f"two known mistakes are named {name}; expected a name "
                    f"for each; got it at {owner[name]} and at {task.name}"
                )
            owner[name] = task.name


def all_tasks() -> dict[str, Task]:
    """Every task of the book by name, in the order of the chapters."""
    return dict(_loaded())


def all_mistakes(
    *, chapter: int | None = None, task: str | None = None
) -> dict[str, Mistake]:
    """The known mistakes by name.

    Args:
        chapter: the number of a chapter, if only its mistakes are wanted.
        task: the name of a task, if only its mistakes are wanted.
    """
    return {
        name: mistake
        for each in all_tasks().values()
        if chapter in (None, each.chapter) and task in (None, each.name)
        for name, mistake in each.known.items()
    }


def mistakes_by_symptom() -> dict[str, list[str]]:
    """For each heading of `symptoms`, the names of the mistakes below it.

    A mistake is under what one sees of it; some are under several headings.
    """
    known = all_mistakes().values()
    return {
        heading: [m.name for m in known if heading in m.headings]
        for heading in HEADINGS
    }
