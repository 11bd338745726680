"""A task's cases for pytest, a test each: `cases` and `OwnCase`."""

from __future__ import annotations

import unittest
from dataclasses import replace
from typing import Any

from attnbook.teach.check.own.report import (
    examined,
    form_of,
    task_of,
)
from attnbook.teach.check.own.ways import (
    Ways,
    WrongUse,
    drawn,
    ways_of,
)
from attnbook.teach.check.proof import Disagreement


class OwnCase:
    """One case of a task, on which a function is tried.

    pytest names the test by `__name__`, which is the case's label.
    """

    def __init__(self, name: str, label: str, ways: Ways) -> None:
        self.name, self.label, self.ways = name, label, ways
        self.__name__ = label

    def __repr__(self) -> str:
        return f"{self.name}: {self.label}"

    def check(self, target: Any) -> None:
        """Try a function, a module or a class of modules on this case.

        Raises:
            Disagreement: if it is wrong here. Where all cases together show
                that it makes a known mistake, the message says so.
            unittest.SkipTest: if it cannot be called with this case, or does
                here what some right programs do, which pytest counts as
                skipped.
            WrongUse: if it cannot be called with any.
        """
        task, form = task_of(self.name), form_of(self.name)
        cases = [*task.cases(), *drawn(form, self.ways)]
        mine = [case for case in cases if case.label == self.label]
        alone = replace(task, given={self.label: mine[0]})
        ways = replace(self.ways, sizes={}, only=(), skip=())
        strict = ways.strict or self.label not in form.among
        # Without the case of a usual size, which is drawn for each call.
        one = replace(ways, strict=strict, only=(self.label,))
        try:
            found = examined(target, alone, form, one)
        except WrongUse as why:
            # Perhaps it can be called with other cases, so all are tried.
            examined(target, task, form, ways)
            raise unittest.SkipTest(str(why)) from why
        if found.right:
            return
        whole = examined(target, task, form, ways)
        told = whole if whole.verdict.mistake else found
        raise Disagreement(told.message) from told.verdict.error


def cases(name: str, **options: Any) -> tuple[str, list[OwnCase]]:
    """The cases of a task, as `pytest.mark.parametrize` takes them.

    ::

        @pytest.mark.parametrize(*cases("scaled_dot_product_attention"))
        def test_attention(case):
            case.check(my_attention)

    Args:
        name: the task.
        options: how the function is called and compared, see `Ways`.

    Raises:
        WrongUse: if there is no such task, or no such way.
    """
    task, form, ways = task_of(name), form_of(name), ways_of(options)
    labels = [case.label for case in (*task.cases(), *drawn(form, ways))]
    chosen = [
        label
        for label in labels
        if (ways.strict or label not in form.free or label in form.among)
        and (not ways.only or any(word in label for word in ways.only))
        and not any(word in label for word in ways.skip)
    ]
    if not chosen:
        raise WrongUse(
            f"no case of {name} is left; expected words of labels, such as "
            f"{labels[0]!r}"
        )
    return "case", [OwnCase(name, label, ways) for label in chosen]
