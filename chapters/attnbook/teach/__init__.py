"""What teaches: the pages' checks, what a page needs, the book's tasks.

Importing anything in here makes this book known to the engine in `check/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attnbook.teach.check.registry import Book, register

if TYPE_CHECKING:
    from attnbook.teach.check.own.form import Form
    from attnbook.teach.check.task import Task


def _tasks() -> Mapping[str, Task]:
    """The tasks, whose references import large libraries: at first use."""
    from attnbook.teach.catalogue import all_tasks

    return all_tasks()


def _forms() -> Mapping[str, Form]:
    """The forms in which other people write what a task asks for."""
    from attnbook.teach.catalogue.forms import all_forms

    return all_forms()


register(
    Book(
        package="attnbook",
        load=_tasks,
        answer_prefix="my_",
        environment={"ATTNBOOK_OFFLINE": "1"},
        clinic=Path(__file__).parent / "catalogue" / "clinic.toml",
        load_forms=_forms,
    )
)
