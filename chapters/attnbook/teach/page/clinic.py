"""The clinic: from what somebody sees to what it may come from.

A book that has a clinic names its file when it registers. The file lists
symptoms, and under each the causes: a plain sentence, a test of one line, what
to write instead, and where it is explained. The page "Something is wrong" is
made of it, and `mistakes.find` searches it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from attnbook.teach.check.registry import the_book
from attnbook.teach.check.task import Mistake
from attnbook.teach.page.learning import learn
from attnbook.teach.page.ranking import make_index, rank

#: Causes that a symptom lists at most.
MOST_CAUSES = 6

#: How much a word counts, by where it stands.
FIELDS = {
    "says": 3.0,
    "words": 4.0,
    "said": 2.0,
    "mend": 1.0,
    "symptom": 1.0,
    "known": 1.5,
    "reported": 2.0,
}


@dataclass(frozen=True)
class Cause:
    """What a symptom may come from.

    Attributes:
        id: its name in links, such as "sees_the_next_word".
        says: the cause in one plain sentence.
        test: one line of Python that is true where all is well.
        on: the task whose answer `mine` stands for in the test; empty where
            the test is about a program of one's own.
        mend: what to write instead.
        at: the section that explains it, as "page#anchor".
        mistakes: the names of the known mistakes with this cause.
        words: what people type who have it.
        said: how people have put it who had it, a phrase each.
        wrong: a wrong answer to the task, where no known mistake is one.
        gives: what `mine` returns, where the task's own words do not do.
    """

    id: str
    says: str
    test: str
    on: str
    mend: str
    at: str
    mistakes: tuple[str, ...]
    words: str
    said: tuple[str, ...] = ()
    wrong: str = ""
    gives: str = ""


@dataclass(frozen=True)
class Symptom:
    """What somebody sees, and the causes that it may have.

    The first `n_own` causes are explained here, the others under another
    symptom.
    """

    title: str
    words: str
    causes: tuple[Cause, ...]
    n_own: int


@dataclass(frozen=True)
class Clinic:
    """All symptoms and causes of a book.

    Attributes:
        tests: tests of one line for mistakes that the test of their cause
            does not tell from a right answer.
        elsewhere: the known mistakes that have no cause here, and why.
    """

    symptoms: tuple[Symptom, ...]
    causes: Mapping[str, Cause]
    tests: Mapping[str, str]
    elsewhere: Mapping[str, str]

    def cause_of(self, mistake: str) -> Cause | None:
        """The cause of a known mistake, or None if it is listed nowhere."""
        for cause in self.causes.values():
            if mistake in cause.mistakes:
                return cause
        return None

    def test_of(self, mistake: Mistake) -> str:
        """A line that is true of a right answer and not of the mistake.

        Where nobody has written one it is the check of the task.
        """
        if mistake.name in self.tests:
            return self.tests[mistake.name]
        cause = self.cause_of(mistake.name)
        if cause and cause.on == mistake.task.name:
            return cause.test
        return f"check.{mistake.task.name}(mine)"


def read_clinic(path: Path) -> Clinic:
    """Read a clinic's file.

    Raises:
        ValueError: if two causes have one name, or if a symptom lists none,
            more than six, or one that does not exist.
    """
    data = tomllib.loads(path.read_text("utf-8"))
    causes: dict[str, Cause] = {}
    for symptom in data["symptom"]:
        for given in symptom.get("cause", []):
            if given["id"] in causes:
                raise ValueError(
                    f"two causes in {path.name} are called {given['id']!r}; "
                    "expected a name for each"
                )
            lists = {
                field: tuple(given.get(field, ()))
                for field in ("mistakes", "said")
            }
            causes[given["id"]] = Cause(**{**given, **lists})
    symptoms = [_symptom(given, causes, path) for given in data["symptom"]]
    return Clinic(tuple(symptoms), causes, data["tests"], data["elsewhere"])


def _symptom(
    given: Mapping[str, Any], causes: Mapping[str, Cause], path: Path
) -> Symptom:
    """Make a `Symptom` of what the file says under one heading.

    Args:
        given: that part of the file.
        causes: all causes by their names.
        path: the file, for the message.

    Raises:
        ValueError: a cause that does not exist, none, or more than six.
    """
    own = [cause["id"] for cause in given.get("cause", [])]
    names = own + given.get("also", [])
    if unknown := set(names) - set(causes):
        raise ValueError(
            f"a symptom in {path.name} lists a cause that does not exist; "
            f"expected causes of the file under {given['title']!r}; got "
            f"{', '.join(sorted(unknown))}"
        )
    if not 1 <= len(names) <= MOST_CAUSES:
        raise ValueError(
            f"a symptom in {path.name} lists too many causes to choose from, "
            f"or none; expected 1 to {MOST_CAUSES} under {given['title']!r}; "
            f"got {len(names)}"
        )
    return Symptom(
        given["title"],
        given["words"],
        tuple(causes[name] for name in names),
        len(own),
    )


def weigh(
    clinic: Clinic,
    known: Mapping[str, Mistake],
    synonyms: Iterable[Sequence[str]],
    reports: Iterable[tuple[str, Sequence[str]]] = (),
) -> dict[str, Any]:
    """The index of a clinic's causes, in the order of the file.

    Its weights are fitted to the ways in which each cause is told: the file's
    own, and those of reports.

    Args:
        known: the known mistakes by name, whose words count too.
        synonyms: groups of words of the trade that mean the same.
        reports: what people have reported, each with the names of the causes
            that it may come from.
    """
    entries = []
    examples: list[tuple[str, int]] = []
    reported: dict[str, list[str]] = {name: [] for name in clinic.causes}
    for words, causes in reports:
        for name in causes:
            reported[name].append(words)
    for number, cause in enumerate(clinic.causes.values()):
        under = [s for s in clinic.symptoms if cause in s.causes]
        mistakes = [known[name] for name in cause.mistakes]
        entries.append(
            {
                "says": cause.says,
                "words": cause.words,
                "said": ". ".join(cause.said),
                "mend": cause.mend,
                "symptom": ". ".join(f"{s.title}. {s.words}" for s in under),
                "known": " ".join(
                    f"{m.name}. {m.symptom} {m.cause} {m.fix}"
                    for m in mistakes
                ),
                "reported": ". ".join(reported[cause.id]),
            }
        )
        ways = [cause.says, cause.mend, *cause.said, *cause.words.split(",")]
        examples += [(way, number) for way in ways + reported[cause.id]]
    return learn(make_index(entries, FIELDS, synonyms), examples)


@cache
def the_clinic() -> Clinic:
    """The clinic of the book that was registered.

    Raises:
        LookupError: if the book has none.
    """
    path = the_book().clinic
    if path is None:
        raise LookupError(
            "the book has no clinic; expected registry.Book(clinic=…) to name "
            "its file; got None"
        )
    return read_clinic(path)


@cache
def _stored_index() -> dict[str, Any]:
    """The index of the registered book's clinic, read from its file once."""
    the_clinic()  # raises if there is none
    path = the_book().clinic
    assert path is not None
    return json.loads(index_path(path).read_text("utf-8"))


def index_path(clinic: Path) -> Path:
    """The path at which the index of a clinic's file is stored."""
    return clinic.with_name(f"{clinic.stem}_index.json")


def find_causes(words: str, most: int = 3) -> list[Cause]:
    """The causes that fit what somebody types, the best first.

    Args:
        words: what one sees, in one's own words or in those of the trade.
        most: how many causes are given at most.

    Raises:
        ValueError: if there are no words.
    """
    if not words.strip():
        raise ValueError(
            "there is nothing to search for; expected what you see in a few "
            "words, such as 'loss halves with padding mask'; got no word"
        )
    causes = list(the_clinic().causes.values())
    return [causes[n] for n, _ in rank(_stored_index(), words)[:most]]
