"""Many answers to one task are judged: its reference runs once for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields, replace
from unittest import mock

from attnbook.teach.check.task import Task
from attnbook.teach.check.trial import Trial


@contextlib.contextmanager
def trials_kept() -> Iterator[None]:
    """Here a task's reference and known mistakes run on each case once.

    They run again for each answer otherwise, which is most of what judging
    takes. An answer itself is run each time, also if it is a known mistake,
    so that it is still compared with another run of the same. The trial of
    one task is kept, the latest; a copy of a task that knows other mistakes
    counts as the same task, for all else of it is the same.
    """
    kept: dict[tuple[int, ...], Trial] = {}
    make = Trial.on

    def on(task: Task) -> Trial:
        key = tuple(
            id(getattr(task, field.name))
            for field in fields(task)
            if field.name not in ("known", "slips")
        )
        if key not in kept:
            kept.clear()
            kept[key] = make(task)
        return replace(kept[key], task=task)

    with mock.patch.object(Trial, "on", on):
        yield
