"""Somebody's own code under the checks of the engine, from any project.

`hold` holds a function against a task and says one sentence, or raises;
`cases` gives a task's cases to pytest; `examine` gives what was found as data.
"""

from attnbook.teach.check.own.cases import OwnCase, cases
from attnbook.teach.check.own.report import Report, examine, hold
from attnbook.teach.check.own.ways import Ways, WrongUse

__all__ = [
    "OwnCase",
    "Report",
    "Ways",
    "WrongUse",
    "cases",
    "examine",
    "hold",
]
