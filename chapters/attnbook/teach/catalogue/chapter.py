"""The tasks of one chapter, with what is told of them elsewhere.

A task knows its chapter and the questions that ``questions.toml`` has for it
from the moment at which it is made, so nothing is added to it later.
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
    text = Path(__file__).with_name("questions.toml").read_text("utf-8")
    return tomllib.loads(text)


def questions() -> dict[str, dict[str, str]]:
    """The questions by task, and there by the label of a case."""
    return {
        task: {label: q for label, q in written.items() if label != "found"}
        for task, written in _written().items()
    }


def asked() -> dict[str, list[Asked]]:
    """The questions that hang on what was found, by task."""
    return {
        task: [_asked(**each) for each in written.get("found", [])]
        for task, written in _written().items()
    }


def _asked(kind: str = "", **fields: Any) -> Asked:
    return Asked(kind=Kind[kind] if kind else None, **fields)


def tasks_of(chapter: int) -> Callable[..., Callable[[Callable], Task]]:
    """The decorator `task` for the tasks of one chapter."""

    def task_of_the_chapter(
        cases: Cases, **options: Any
    ) -> Callable[[Callable], Task]:
        def register(right: Callable) -> Task:
            name = right.__name__
            make = task(
                cases,
                chapter=chapter,
                questions=questions().get(name),
                asked=asked().get(name, ()),
                **options,
            )
            return make(right)

        return register

    return task_of_the_chapter
