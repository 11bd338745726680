"""The decorator by which a chapter's module makes its tasks.

It gives each task its chapter, and the questions that ``questions.toml`` has
for it. A task is complete when it is made; nothing is added to it later.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from attnbook.teach.check.finding import Kind
from attnbook.teach.check.task import Asked, Cases, Task, task


@cache
def _written() -> dict[str, dict[str, Any]]:
    """The content of ``questions.toml``, which has a table for each task."""
    text = Path(__file__).with_name("questions.toml").read_text("utf-8")
    return tomllib.loads(text)


def questions() -> dict[str, dict[str, str]]:
    """For each task the question that is asked where a case is the first to
    go wrong, by the label of that case."""
    return {
        task: {label: q for label, q in written.items() if label != "found"}
        for task, written in _written().items()
        if task != "otherwise"
    }


def otherwise() -> dict[str, str]:
    """The one question of each task that has none by the case."""
    return _written()["otherwise"]


def asked() -> dict[str, list[Asked]]:
    """For each task the questions that are asked where a certain kind of
    thing was found out about an answer. They are under "found" in the file."""
    return {
        task: [_asked(**each) for each in written.get("found", [])]
        for task, written in _written().items()
    }


def _asked(kind: str = "", **fields: Any) -> Asked:
    """A question of the file; `kind` is the name of a `Kind`, or "" for all
    kinds, and `fields` are those of `Asked`."""
    return Asked(kind=Kind[kind] if kind else None, **fields)


def tasks_of(chapter: int) -> Callable[..., Callable[[Callable], Task]]:
    """A decorator like `check.task.task`, for the tasks of one chapter.

    A chapter's module makes it once, ``task = tasks_of(4)``, and decorates
    each of its references with it, ``@task({…}, against="torch.softmax")``.
    """

    def task_of_the_chapter(
        cases: Cases, **options: Any
    ) -> Callable[[Callable], Task]:
        def register(right: Callable) -> Task:
            name = right.__name__
            make = task(
                cases,
                chapter=chapter,
                questions=questions().get(name),
                otherwise=otherwise().get(name, ""),
                asked=asked().get(name, ()),
                **options,
            )
            return make(right)

        return register

    return task_of_the_chapter
