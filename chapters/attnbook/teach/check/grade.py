"""Grade notebooks: ``python -m attnbook grade FOLDER``.

Each answer is taken out of its notebook, with what it needs and nothing else,
and runs alone (see `confine`). What it returns is compared with the reference
here, where it cannot reach (see `outcomes`). What the notebook prints, or
calls `check`, counts for nothing; whatever it does, costs it alone.

An answer that looks for the reference in the book's package finds it. For
marks that count, read the code too, and grade as a user who has nothing to
lose.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from attnbook.teach.check.answers import (
    LONGEST,
    answered,
    marked,
    other_answers,
    unreadable,
)
from attnbook.teach.check.confine import (
    KILLED,
    alone,
    bare_environment,
    standing,
)
from attnbook.teach.check.registry import the_book
from attnbook.teach.check.saving import replacing
from attnbook.teach.check.task import Task
from attnbook.teach.check.words import listed, say

SECONDS, MEMORY = 20, 2000  # for one answer; MB beyond what it starts with
MOST_SECONDS, MOST_MEMORY = 24 * 3600, 10**6
MOST = 2**25  # bytes of a notebook
_UNREAD = r"code cell .* could not be read"


class Grade(NamedTuple):
    """One line of the table.

    `verdict` is "right", "not right", "not tried", "error" or "limit";
    `detail` names the mistake, where it is a known one, or says what differs.
    """

    submission: str
    exercise: str
    verdict: str
    detail: str = ""


def asked(chapter: int) -> list[Task]:
    """The tasks of a chapter that are exercises: each of their cases has a
    question of its own."""
    return [
        task
        for task in the_book().tasks.values()
        if task.chapter == chapter and task.questions
    ]


def grade(
    folder: Path,
    *,
    seconds: float = SECONDS,
    memory: int = MEMORY,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Grade]:
    """The verdicts on all notebooks below a folder, by name.

    All are read before the first is tried, and one that has changed them on
    the disk is told so; they are set back.

    Args:
        seconds: of computing that one answer may take.
        memory: megabytes that an answer may take.
        tell: is told of each notebook when it is done.
    """
    places = _notebooks(folder)
    kept = {path: _read(path) for path in places.values()}
    watched = {path: data for path, data in kept.items() if data is not None}
    found: list[Grade] = []
    with bare_environment():
        for name, path in sorted(places.items()):
            rows = list(_graded(name, kept[path], seconds, memory))
            if _set_back(watched):
                why = "it changed files beside it; they have been set back"
                rows = [r._replace(verdict="error", detail=why) for r in rows]
            found += rows
            tell(f"{_cell(name)}: {_counted(rows)}")
    return found


def _notebooks(folder: Path) -> dict[str, Path]:
    """The notebooks in a folder and in folders below it, by their names.

    A name has no ending; hidden files and folders are left out.
    """
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in folder.rglob("*.ipynb")
        if not re.search(r"(^|/)\.", path.relative_to(folder).as_posix())
    }


def _counted(rows: Sequence[Grade]) -> str:
    """One line on a notebook: how many answers it has, and how many right."""
    rows_ = [row for row in rows if row.exercise]
    if not rows_:
        return rows[0].detail
    answers = sum(row.verdict != "not tried" for row in rows_)
    right = sum(row.verdict == "right" for row in rows_)
    words = f"{answers} of {len(rows_)} exercises answered, {right} right"
    unread = {n for row in rows_ for n in re.findall(_UNREAD, row.detail)}
    return "; ".join([words, *sorted(unread)])


def table(grades: Sequence[Grade]) -> bytes:
    """The grades as CSV; no cell of it is taken for a formula."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(Grade._fields)
    writer.writerows([_cell(part) for part in row] for row in grades)
    return text.getvalue().encode("utf-8-sig")  # spreadsheets ask for the mark


def _cell(text: str) -> str:
    """Text on one line that no spreadsheet computes and no terminal obeys."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = " ".join(
        "".join(c if c.isprintable() else " " for c in text).split()
    )
    text = text if len(text) <= 200 else f"{text[:199]}…"
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _read(path: Path) -> bytes | None:
    """What is in a file; None for a link, a device, a folder, too much."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        with open(path, "rb") as file:
            data = file.read(MOST + 1)
    except OSError:
        return None
    return data if len(data) <= MOST else None


def _set_back(watched: dict[Path, bytes]) -> bool:
    """Write those notebooks again that an answer has changed on the disk.

    Args:
        watched: the content that each file had at first.

    Returns:
        whether there was any.
    """
    changed = [p for p, d in watched.items() if d != _read(p)]
    for path in changed:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(watched[path])
        except OSError:  # a folder, say, stands in its place
            del watched[path]  # else the next answer would be blamed for it
    return bool(changed)


def _graded(
    name: str, data: bytes | None, seconds: float, memory: int
) -> Iterator[Grade]:
    """The verdict on each exercise of the chapters that a notebook is of."""
    try:
        cells = _code(data)
    except (ValueError, TypeError, LookupError, RecursionError):
        yield Grade(name, "", "error", "this is no notebook that can be read")
        return
    book = the_book()
    text = "\n".join(cells)
    tasks = book.tasks
    answer = rf"\b{re.escape(book.answer_prefix)}(\w+)"
    others = other_answers(cells)
    mine = [n for n in re.findall(answer, text) if n in tasks]
    chapters = {tasks[n].chapter for n in [*mine, *others]}
    wanted = [task for chapter in sorted(chapters) for task in asked(chapter)]
    if not wanted:
        yield Grade(name, "", "error", "no exercise of the book is in it")
    unread = unread_words(cells)
    for task in wanted:
        limits = seconds, memory
        verdict, detail = "not tried", ""
        if task.name in mine:
            verdict, detail = _tried(cells, task.name, "", *limits)
        if verdict == "not tried" and task.name in others:
            # The author of the notebook has chosen another name, and gives it
            # to the check of the task.
            given = others[task.name]
            verdict, detail = _tried(cells, task.name, given, *limits)
            told = f"taken from check.{task.name}({given})"
            detail = f"{told}; {detail}" if detail else told
        if verdict in ("not tried", "error") and unread:
            detail = f"{detail}; {unread}" if detail else unread
        yield Grade(name, task.name, verdict, detail)


def unread_words(cells: Sequence[str]) -> str:
    """In words, which cells of a notebook are no Python, or ""."""
    numbers = unreadable(cells)
    if not numbers:
        return ""
    which = listed(map(str, numbers))
    return f"code cell {which} could not be read"


def _code(data: bytes | None) -> list[str]:
    """The code cells of a notebook.

    Raises:
        ValueError, TypeError, LookupError, RecursionError: it is none.
    """
    cells = json.loads(data or b"")["cells"]
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    return ["".join(source) for source in code]


def _tried(
    cells: list[str], name: str, given: str, seconds: float, memory: int
) -> tuple[str, str]:
    """Run one answer in a process of its own, and judge what it did there:
    the verdict, and its detail."""
    ended = alone(
        answered,
        cells,
        name,
        given,
        seconds,
        seconds=seconds,
        memory=memory,
        prepared=answered.__module__,
    )
    if ended.late:
        return "limit", f"no result after {seconds:g} seconds"
    if ended.odd:
        return "error", f"its process {ended.odd}"
    if ended.exit_code == -KILLED:
        return "limit", "the system ended its process, probably for its memory"
    if ended.exit_code != 0 or ended.result is None:
        return "error", f"its process ended early, with {ended.exit_code}"
    try:
        return marked(name, ended.result)
    except ValueError:
        return "error", "its process sent something else than a result"
    except (
        Exception
    ) as error:  # a fault of this program; other verdicts are kept
        why = f"the check itself failed on it: {type(error).__name__}: {error}"
        return "error", why[:LONGEST]


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, without a list of options."""

    def error(self, message: str) -> NoReturn:
        """Say in one sentence what is wrong, without the list of options."""
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    """The parser of the command's options, with the help for each of them."""
    parser = _Parser(
        prog=f"python -m {the_book().package} grade",
        description="Grade the exercises in a folder of notebooks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("folder", type=Path, help="the notebooks, in folders or not")
    add(
        "--out",
        type=Path,
        default=Path("grades.csv"),
        help="where the table is written",
    )
    add("--overwrite", action="store_true", help="replace a table")
    add(
        "--seconds",
        type=float,
        default=SECONDS,
        help="of computing that one answer may take",
    )
    add(
        "--memory",
        type=int,
        default=MEMORY,
        help="megabytes that one answer may take",
    )
    return parser


def _objection(options: argparse.Namespace) -> str:
    """What is wrong with the options, before anything is graded, or ""."""
    folder, out = options.folder, options.out
    if not folder.is_dir():
        return f"expected a folder of notebooks; got {folder}, which is none"
    if not _notebooks(folder):
        return (
            f"there is no notebook in {folder}; expected files that end in "
            ".ipynb, there or in folders below; got none"
        )
    if out.is_dir():
        return f"--out is a file for the table; got {out}, which is a folder"
    if not out.parent.is_dir():
        return (
            f"--out is a file for the table; expected a folder that is there; "
            f"got {out}, and there is no {out.parent}"
        )
    if out.exists() and not options.overwrite:
        return (
            f"{out} exists; expected a new name for the table, or --overwrite "
            "to replace it"
        )
    if not os.access(out.parent, os.W_OK | os.X_OK):
        return f"--out needs leave to write in {out.parent}; there is none"
    if not 0 < options.seconds <= MOST_SECONDS:  # NaN is neither
        return (
            "--seconds is the time for one answer; expected more than 0 and "
            f"at most {MOST_SECONDS}; got {options.seconds:g}"
        )
    if not 0 < options.memory <= MOST_MEMORY:
        return (
            "--memory is in megabytes, for one answer; expected at least 1 "
            f"and at most {MOST_MEMORY}; got {options.memory}"
        )
    return ""


def walls_in_words(found: dict[str, bool]) -> str:
    """One sentence on what this system keeps an answer from doing.

    Args:
        found: what `confine.standing` has found out.
    """
    held = [what for what, stands in found.items() if stands]
    open_ = [what for what, stands in found.items() if not stands]
    if not held:
        return (
            "This system keeps answers from nothing by itself; only Python "
            "does, for code that asks it."
        )
    words = f"This system keeps answers from {listed(held, len(held))}."
    if open_:
        words += (
            f" It does not keep them from {listed(open_, len(open_))}; there "
            "only Python does, for code that asks it."
        )
    return words


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit code: 0, or 2 for what the user must mend."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if objection := _objection(options):
        parser.error(objection)
    with bare_environment():
        found = standing(prepared=answered.__module__)
    say(walls_in_words(found))
    limits = {"seconds": options.seconds, "memory": options.memory}
    try:
        written = table(grade(options.folder, **limits, tell=say))
    except KeyboardInterrupt:
        say("stopped; no table was written")
        return 130
    try:
        with replacing(options.out) as file:
            file.write(written)
    except OSError as error:  # the disk is full: the verdicts are not lost
        say(str(error))
        say("this is the table:")
        print(written.decode("utf-8-sig"))
        return 1
    say(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    # Imported by its full name, under which other processes find it.
    from attnbook.teach.check import grade as room

    sys.exit(room.main())
