"""Checks that answer back: ``check.softmax(my_softmax)``."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from attnbook.teach.mistakes import all_mistakes
from attnbook.teach.tasks import all_tasks, judge


class _Checks:
    """One method a task; each tries the reader's function and says what
    came of it. Nothing is returned.

    An exception of the reader's own code is reported with its line and then
    raised again. A function that raises NotImplementedError counts as not
    attempted.
    """

    def __getattr__(self, name: str) -> Callable[[Callable], None]:
        tasks = all_tasks()
        if name not in tasks:
            near = difflib.get_close_matches(name, tasks, 1)
            guess = f"; did you mean {near[0]}?" if near else ""
            raise AttributeError(f"there is no check named {name!r}{guess}")

        def check(fn: Callable) -> None:
            verdict = judge(fn, tasks[name], all_mistakes(task=name))
            print(verdict.message)
            if verdict.error:
                raise verdict.error

        check.__name__ = name
        check.__doc__ = f"Wanted: {tasks[name].wanted}"
        return check

    def __dir__(self) -> list[str]:
        return list(all_tasks())


check = _Checks()
