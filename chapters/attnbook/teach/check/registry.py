"""The book that the engine works for, as far as the engine has to know it.

The engine judges answers to tasks and knows no book. A book makes itself
known once, by `register`, when its package is imported. What the engine then
needs of it (which tasks there are, where the book's own functions lie, what a
submission calls its answers) it asks `the_book` for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a book is registered before torch is imported
    from attnbook.teach.check.own.form import Form
    from attnbook.teach.check.task import Mistake, Task


@dataclass(frozen=True)
class Book:
    """What the engine has to know of a book.

    Attributes:
        package: the name of the book's package. Its modules are what a
            submission may import and must leave as they are, and
            `Task.home` is looked up in it.
        load: makes the tasks by name, in the order in which the book brings
            them. It is called at the first use and not before, because the
            references import large libraries.
        answer_prefix: what stands before a task's name in the name that a
            submission gives its answer, such as ``my_softmax``.
        environment: variables that are set while a submission is tried,
            for example one that keeps the package off the network.
        clinic: the file with the book's symptoms and their causes, if it
            has one.
        load_forms: makes what is known of the forms in which other people
            write a task's function, by the task's name (see `own.form`).
    """

    package: str
    load: Callable[[], Mapping[str, Task]]
    answer_prefix: str
    environment: Mapping[str, str] = field(default_factory=dict)
    clinic: Path | None = None
    load_forms: Callable[[], Mapping[str, Form]] = dict

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """All tasks of the book by their names, loaded at the first use."""
        return self.load()

    @cached_property
    def forms(self) -> Mapping[str, Form]:
        """The forms that a task's function may have, by the task's name."""
        return self.load_forms()

    @cached_property
    def mistakes(self) -> Mapping[str, Mistake]:
        """All known mistakes of the book by their names, task by task."""
        return {
            name: mistake
            for task in self.tasks.values()
            for name, mistake in task.known.items()
        }

    @property
    def folder(self) -> Path:
        """The folder that has the book's package in it, for Python's path.

        Raises:
            LookupError: the package has no file of its own.
        """
        where = importlib.import_module(self.package).__file__
        if where is None:
            raise LookupError(
                f"the package {self.package} is not one folder; expected a "
                "package with an __init__.py; got one without"
            )
        return Path(where).parents[1]

    def own_function(self, task: Task) -> Callable:
        """The book's own function (or class) for a task that has one.

        Raises:
            LookupError: if the task names no `home`.
        """
        if not task.home:
            raise LookupError(
                f"the book has no function of its own for {task.name}; "
                "expected a task with a home; got one without"
            )
        module, _, function = task.home.rpartition(".")
        room = importlib.import_module(f"{self.package}.{module}")
        return getattr(room, function)


_registered: list[Book] = []


def register(book: Book) -> None:
    """Make a book known to the engine. Each process works for one book.

    Raises:
        ValueError: if a book of another package has been registered.
    """
    if _registered and _registered[0].package != book.package:
        raise ValueError(
            "the engine works for one book in a process; expected "
            f"{_registered[0].package}, which is registered; got "
            f"{book.package}"
        )
    _registered[:] = [book]


def the_book() -> Book:
    """The book that has registered itself.

    Raises:
        LookupError: none has, because no package of a book was imported.
    """
    if not _registered:
        raise LookupError(
            "no book is registered; expected its package to call "
            "registry.register when it is imported; got no call"
        )
    return _registered[0]
