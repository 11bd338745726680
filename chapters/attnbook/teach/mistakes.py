"""The catalogue of known mistakes: real bugs as small runnable functions.

Each is a wrong variant of a task's function, with the same signature. The
chapters show them, `exercises.check` recognises them in a reader's answer,
and the tests put each one in the place of the right function and require
that the book's own checks notice. The entries are in `catalogue`, one module
a chapter.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from attnbook.teach.notebook import show_code
from attnbook.teach.tasks import Verdict, all_tasks, fill, judge


@dataclass(frozen=True)
class Mistake:
    """One known mistake.

    Attributes:
        name: as in ``mistakes.run(name)``.
        task: the name of the task that it gets wrong.
        symptom: what one sees, in a sentence.
        cause: why it happens.
        fix: what to write instead.
        hint: what a reader who made it is told; it does not give the answer.
        seen: where it was seen: rows such as S2.4, a place in the public
            notebooks that the book grew out of, or public threads.
        wrong: the wrong function.
    """

    name: str
    task: str
    symptom: str
    cause: str
    fix: str
    hint: str
    seen: str
    wrong: Callable

    @property
    def chapter(self) -> int:
        return all_tasks()[self.task].chapter

    def verdict(self) -> Verdict:
        """What the check of its task says of it, as of a stranger's code."""
        return judge(self.wrong, all_tasks()[self.task])

    def seen_in(self) -> str:
        """Where it was seen, in words."""
        return re.sub(r"\bS\d\.\d+\b", r"a public notebook (\g<0>)", self.seen)

    def source(self) -> str:
        """The wrong function as it would stand in a reader's notebook."""
        source = textwrap.dedent(inspect.getsource(self.wrong))
        return source[source.index("def ") :].rstrip()


_MISTAKES: dict[str, Mistake] = {}


def mistake(
    *, task: Callable, symptom: str, cause: str, fix: str, hint: str, seen: str
) -> Callable[[Callable], Callable]:
    """Register the decorated function as a known mistake.

    `task` is the right answer of the task, the decorated function's right
    twin.
    """

    def register(wrong: Callable) -> Callable:
        name = wrong.__name__
        if name in _MISTAKES:
            raise ValueError(f"there are two mistakes named {name}")
        _MISTAKES[name] = Mistake(
            name, task.__name__, symptom, cause, fix, hint, seen, wrong
        )
        return wrong

    return register


def all_mistakes(
    *, chapter: int | None = None, task: str | None = None
) -> dict[str, Mistake]:
    """The known mistakes by name: all, of a chapter, or of a task."""
    importlib.import_module("attnbook.teach.catalogue")
    return {
        name: found
        for name, found in sorted(
            _MISTAKES.items(), key=lambda item: item[1].chapter
        )
        if chapter in (None, found.chapter) and task in (None, found.task)
    }


def get(name: str) -> Mistake:
    """One known mistake by its name.

    Raises:
        ValueError: if there is none of that name.
    """
    known = all_mistakes()
    if name not in known:
        raise ValueError(
            f"there is no known mistake {name!r}; expected one of "
            f"{', '.join(known)}"
        )
    return known[name]


def run(name: str) -> None:
    """Run a known mistake: its code, its symptom, and what catches it."""
    found = get(name)
    show_code(found.source())
    for label, text in {
        "what happens": found.symptom,
        "cause": found.cause,
        "fix": found.fix,
        "seen in": found.seen_in(),
    }.items():
        print(fill(f"{label}: {text}"))
    print(f"caught by check.{found.task}:")
    print("\n".join(found.verdict().message.splitlines()[1:]))
