"""Grade notebooks: ``python -m attnbook grade FOLDER``.

Each answer is taken out of its notebook, with what it needs and nothing else,
and tried by the book's own check, alone (see `confine`). What the notebook
prints, or calls `check`, counts for nothing; whatever it does, costs it alone.

An answer that looks for the reference finds it, and one that rewrites the
check at the right place passes. For marks that count, read the code too, and
grade as a user who has nothing to lose.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from attnbook.teach.check.answers import judged
from attnbook.teach.check.confine import alone, bare_environment
from attnbook.teach.check.registry import the_book
from attnbook.teach.check.saving import replacing
from attnbook.teach.check.task import Task
from attnbook.teach.check.words import say

SECONDS, MEMORY = 20, 2000  # for one answer; MB beyond what it starts with
MOST = 2**25  # bytes of a notebook


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
    """The tasks of a chapter that are exercises: they have hints to give."""
    return [
        task
        for task in the_book().tasks.values()
        if task.chapter == chapter
        and (task.slips or any(m.hint for m in task.known.values()))
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
    places = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in folder.rglob("*.ipynb")
        if not re.search(r"(^|/)\.", path.relative_to(folder).as_posix())
    }
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
            right = sum(row.verdict == "right" for row in rows)
            tell(f"{_cell(name)}: {right} of {len(rows)} right")
    return found


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
    """Whether files had changed; they are what they were again."""
    changed = [p for p, d in watched.items() if d != _read(p)]
    for path in changed:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(watched[path])
        except OSError:  # a folder, say, stands in its place
            del watched[path]  # so that no other is blamed for it
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
    book, text = the_book(), "\n".join(cells)
    tasks, answer = book.tasks, rf"\b{re.escape(book.answer_prefix)}(\w+)"
    mine = [n for n in re.findall(answer, text) if n in tasks]
    chapters = {tasks[n].chapter for n in mine}
    wanted = [task for chapter in sorted(chapters) for task in asked(chapter)]
    if not wanted:
        yield Grade(name, "", "error", "no exercise of the book is in it")
    for task in wanted:
        if task.name in mine:
            yield Grade(name, task.name, *_tried(cells, task, seconds, memory))
        else:
            yield Grade(name, task.name, "not tried")


def _code(data: bytes | None) -> list[str]:
    """The code cells of a notebook.

    Raises:
        ValueError, TypeError, LookupError, RecursionError: it is none.
    """
    cells = json.loads(data or b"")["cells"]
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    return ["".join(source) for source in code]


def _tried(
    cells: list[str], task: Task, seconds: float, memory: int
) -> tuple[str, str]:
    """The verdict and its detail on one answer."""
    ended = alone(
        judged,
        *(cells, task.name),
        seconds=seconds,
        memory=memory,
        prepared=judged.__module__,
    )
    if ended.late:
        return "limit", f"no result after {seconds:g} seconds"
    match ended.result:
        case [str(kind), str(detail)]:
            return kind, detail
    return "error", f"its process ended early, with {ended.exit_code}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {the_book().package} grade",
        description="Grade the exercises in a folder of notebooks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("folder", type=Path, help="the notebooks, in folders or not")
    add("--out", type=Path, default=Path("grades.csv"), help="the table")
    add("--overwrite", action="store_true", help="replace a table")
    add(
        "--seconds",
        type=float,
        default=SECONDS,
        help="of computing, for one answer",
    )
    add("--memory", type=int, default=MEMORY, help="megabytes, for one")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"expected a folder of notebooks; got {options.folder}")
    if options.out.exists() and not options.overwrite:
        parser.error(
            f"{options.out} exists; expected a new name or --overwrite"
        )
    limits = {"seconds": options.seconds, "memory": options.memory}
    found = grade(options.folder, **limits, tell=say)
    with replacing(options.out) as file:
        file.write(table(found))
    say(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    # By its name, under which processes find it.
    from attnbook.teach.check import grade as room

    sys.exit(room.main())
