"""The tasks and known mistakes of the book, one module a chapter.

For an answer in which nothing is recognised ``questions.toml`` has a question,
under the first case that goes wrong: it must fit all that can go wrong there.
"""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from functools import cache
from pathlib import Path

from attnbook.teach.check.tasks import Mistake, Task


@cache
def questions() -> dict[str, dict[str, str]]:
    """The questions by task, and there by the label of a case."""
    text = Path(__file__).with_name("questions.toml").read_text("utf-8")
    return tomllib.loads(text)


def all_tasks() -> dict[str, Task]:
    """Every task of the book by name, in the order of the chapters."""
    found: dict[str, Task] = {}
    for name in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        for task in vars(module).values():
            # Not what the module has from another.
            if (
                isinstance(task, Task)
                and task.right.__module__ == module.__name__
            ):
                if task.name in found:
                    raise ValueError(f"two tasks are named {task.name}")
                found[task.name] = task
                task.questions.update(questions().get(task.name, {}))
    return found


def all_mistakes(
    *, chapter: int | None = None, task: str | None = None
) -> dict[str, Mistake]:
    """The known mistakes by name: all, of a chapter, or of a task."""
    return {
        name: mistake
        for each in all_tasks().values()
        if chapter in (None, each.chapter) and task in (None, each.name)
        for name, mistake in each.known.items()
    }
