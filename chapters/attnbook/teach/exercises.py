"""The `check` of every page.

``check(softmax)`` checks a function of the page by the task of its name, and
``check.softmax(mine)`` checks a reader's own.
"""

from __future__ import annotations

import contextlib
import difflib
import sysconfig
import traceback
from collections.abc import Callable

from attnbook.teach.check.judge import judge
from attnbook.teach.check.proof import Disagreement, agrees
from attnbook.teach.check.registry import the_book
from attnbook.teach.check.task import Task
from attnbook.teach.check.telling import agreement
from attnbook.teach.check.words import plain_repr, say


class _Check:
    """Checks on the cases of a task, or of two things on the page.

    ``check(softmax)`` tries the page's function on the cases of the task of
    its name. ``check.softmax(my_softmax)`` judges a reader's function on the
    same cases. ``check.equal(a, b)`` compares two results, or with `cases`
    two functions.
    """

    equal = staticmethod(agrees)

    def __call__(self, fn: Callable, name: str = "") -> None:
        """Print one sentence, by `fn`'s name, if a function does its task.

        Args:
            fn: a function or class of the page.
            name: the task, where it is not called as `fn` is.

        Raises:
            Disagreement: saying on which case it fails, and how.
            TypeError: if `fn` cannot be called.
            AttributeError: if there is no such task.
        """
        if not callable(fn):
            raise TypeError(
                "check needs a function of the page, as in check(softmax); "
                f"expected something to call; got {plain_repr(fn)[:60]}"
            )
        given = getattr(fn, "__name__", type(fn).__name__)
        name = name or given
        known = the_book().mistakes
        task = known[name].task if name in known else _task(name)
        verdict = judge(fn, task)
        if verdict.kind != "right":
            raise Disagreement(verdict.message) from verdict.error
        cases = len(task.cases())
        say(agreement(given, task.against, cases, task.gradients))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """The check of an exercise: it says what came of it.

        An exception of the reader's own code is reported with its line and
        then raised again. A function that raises NotImplementedError counts
        as not attempted. On each case the function runs up to three times,
        so what it prints or draws comes as often.
        """
        task = _task(name)

        def check(*answers: Callable) -> None:
            if len(answers) != 1:
                mine = the_book().answer_prefix + name
                raise TypeError(
                    f"check.{name} judges one function, as in "
                    f"check.{name}({mine}); expected one; got "
                    f"{len(answers) or 'none'}"
                )
            verdict = judge(answers[0], task)
            say(verdict.message)
            if verdict.error:
                raise _shown_shortly(verdict.error)

        check.__name__ = name
        check.__doc__ = f"Wanted: {task.wanted}"
        return check

    def __dir__(self) -> list[str]:
        return ["equal", *the_book().tasks]


def _shown_shortly(error: BaseException) -> BaseException:
    """The error, of which Jupyter will show the reader's own lines alone.

    The verdict has said what happened and where. Jupyter would add some 30
    lines, most of them of this package, and thousands where a function calls
    itself without an end.
    """
    book = the_book()
    others = [str(book.folder / book.package)]
    others += map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))
    frames = [
        f"  line {frame.lineno}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(tuple(others))
    ]
    if len(frames) > 4:
        frames = [*frames[:2], "  …", *frames[-2:]]
    said = traceback.format_exception_only(error)

    def rendered() -> list[str]:
        return [*frames, "".join(said).rstrip()]

    with contextlib.suppress(AttributeError):  # it takes no attributes
        # IPython asks an exception for this before it writes a traceback.
        error._render_traceback_ = rendered  # type: ignore[attr-defined]
    return error


def _task(name: str) -> Task:
    """The book's task of a name.

    Raises:
        AttributeError: there is none; a name that is spelled much alike is
            suggested.
    """
    tasks = the_book().tasks
    if name not in tasks:
        near = difflib.get_close_matches(name, tasks, 1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise AttributeError(f"there is no check named {name!r}{guess}")
    return tasks[name]


check = _Check()
