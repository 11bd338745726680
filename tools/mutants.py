"""Make thousands of wrong programs, and list those that the checks let pass.

usage: python tools/mutants.py [--sample N] [--seed S] [--store] [WHAT ...]

WHAT is a chapter (04), a room of the package (masks), or a single task of the
catalogue (softmax). A few tasks are called as a room is: such a name means the
room, and task:ring the task. Without any, all chapters and rooms are taken,
which takes hours. With --store the result of each chapter and room is kept.
That of a single task is only printed, as it is a part of its chapter's.

Each mutant is a right program with one thing changed. A task of the catalogue
is asked about the mutants of its reference, of the package's function and of
the exercise's solution; the tests of a room are asked about the mutants of
the room. A mutant that takes too long is ended, and counts as refused. One
that passes is either listed in `mutate/equivalent.toml`, with the reason why
it is right all the same, or it shows that a check lacks a case.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutate.killable import SECONDS, answers_of
from mutate.mutations import Mutant
from mutate.rooms import Room, mutants_of_room, rooms, tested
from mutate.tame import reasons as tame_reasons
from mutate.tasks import (
    mutants_of_task,
    named_in_catalogue,
    passes,
    solutions,
)
from notebooks import CHAPTERS, ROOT

EQUIVALENT = ROOT / "tools" / "mutate" / "equivalent.toml"
STORED = CHAPTERS / "attnbook" / "data" / "mutants.json"
#: What the row of a single task begins with, and no chapter's or room's.
TASK = "task:"

#: The reasons why mutants pass, by function and by the mutant's name.
Reasons = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Result:
    """What came of the mutants of a task, of a chapter or of a room.

    Attributes:
        mutants: how many were tried.
        of: how many there are to try.
        alive: those that passed, each as its function and its name.
    """

    mutants: int = 0
    of: int = 0
    alive: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: Result) -> Result:
        return Result(
            self.mutants + other.mutants,
            self.of + other.of,
            self.alive + other.alive,
        )


def ask_task(name: str, sample: int, seed: int) -> Result:
    """Ask a task of the catalogue about its mutants.

    Args:
        name: the task's name.
        sample: how many mutants are drawn; 0 for all.
        seed: by which they are drawn.
    """
    from attnbook.teach.catalogue import all_tasks

    task = all_tasks()[name]
    solution = solutions(f"{task.chapter:02}").get(name, "")
    every = mutants_of_task(task, solution)
    right = Mutant(task.name, "", make=lambda: task.right)

    def passed(m: Mutant) -> bool | None:
        """Whether the task takes a mutant for right."""
        return passes(m, task)

    return _result(passed, every, sample, f"{seed} {name}", right=right)


def ask_room(room: Room, sample: int, seed: int) -> Result:
    """Ask the tests of a room about its mutants.

    Args:
        room: the room.
        sample: how many mutants are drawn; 0 for all.
        seed: by which they are drawn.
    """
    every = mutants_of_room(room)

    def survives(m: Mutant) -> bool:
        """Whether all tests that reach a mutant's line pass with it."""
        if not m.tests:
            return True  # no test reaches it
        assert m.plant is not None
        return tested(room, m.plant(), m.tests)[0]

    return _result(survives, every, sample, f"{seed} {room.name}", 60)


def _result(
    ask: Callable[[Mutant], bool | None],
    every: list[Mutant],
    sample: int,
    seed: str,
    seconds: float = SECONDS,
    right: Mutant | None = None,
) -> Result:
    """Ask about mutants in other processes, and count the answers.

    With `right`, which is a right answer, twenty mutants share a process, and
    the right answer is asked about after them. If it is refused, one of the
    twenty has spoiled the process for the rest, so all are asked again, each
    in a process of its own.

    Args:
        ask: says whether a mutant passes; None if it changes nothing.
        every: all mutants.
        sample: how many of them are drawn; 0 for all.
        seed: by which they are drawn.
        seconds: how long a question may take of a processor.
        right: a right answer, for mutants that may share a process.
    """
    drawn = every
    if sample:  # a small sample is a part of a larger one of the same seed
        drawn = random.Random(seed).sample(every, len(every))[:sample]
    answers = []
    alone = right is None
    if right is not None:
        some = [drawn[n : n + 20] for n in range(0, len(drawn), 20)]
        things = [m for batch in some for m in [*batch, right]]
        answers = list(answers_of(ask, things, seconds, batch=21))
        alone = any(m is right and ok is not True for m, ok in answers)
    if alone:
        answers = list(answers_of(ask, drawn, seconds))
    tried = [(m, a) for m, a in answers if a is not None and m is not right]
    alive = sorted((m.function, m.name) for m, a in tried if a is True)
    return Result(len(tried), len(every), tuple(alive))


def reasons(path: Path = EQUIVALENT) -> dict[str, Reasons]:
    """The stored reasons why mutants pass.

    Returns:
        under "equivalent" the reasons of mutants that are right all the same,
        under "passes" the reasons why the checks let wrong ones pass; each by
        function and by the mutant's name.
    """
    text = tomllib.loads(path.read_text("utf-8"))
    found = {kind: text.get(kind, {}) for kind in ("equivalent", "passes")}
    if path == EQUIVALENT:
        for task, why in tame_reasons().items():
            found["passes"][task] = found["passes"].get(task, {}) | why
    return found


def reason(known: Reasons, mutant: tuple[str, str]) -> str:
    """Why a mutant passes, or "" if no reason is known.

    A reason is given for the mutant by its name, or for every change of its
    line (`* in return x`).
    """
    function, name = mutant
    said = known.get(function, {})
    return said.get(name) or said.get("* in " + name.partition(" in ")[2], "")


def sorted_out(
    result: Result, known: dict[str, Reasons], room: bool
) -> dict[str, Any]:
    """A result as it is stored: numbers, and survivors with their reasons.

    A mutant of the package's function, `room.name`, that a task lets pass is
    left to the tests of the room, because a task does not ask for all that
    the function does.
    """
    left = [m for m in result.alive if "." in m[0] and not room]
    rest = [m for m in result.alive if m not in left]
    same = [m for m in rest if reason(known["equivalent"], m)]

    def why(kind: str, mutants: list) -> dict[str, str]:
        return {": ".join(m): reason(known[kind], m) for m in mutants}

    return {
        "mutants": result.mutants,
        "of": result.of,
        "equivalent": why("equivalent", same),
        "left": len(left),
        "survivors": why("passes", [m for m in rest if m not in same]),
    }


def unused(
    alive: Iterable[tuple[str, str]], known: dict[str, Reasons]
) -> list[str]:
    """The reasons in `equivalent.toml` for mutants that do not pass."""
    found = {(f, n) for f, n in alive}
    found |= {(f, "* in " + n.partition(" in ")[2]) for f, n in alive}
    return [
        f"{function}: {name}"
        for kind in known.values()
        for function, names in kind.items()
        for name in names
        if (function, name) not in found
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    """What the command line asks for."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("what", nargs="*", metavar="WHAT", help="04, masks")
    parser.add_argument(
        "--sample", type=int, default=0, help="so many of each room and task"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--store", action="store_true", help="keep the result in data/"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="only give the stored result the reasons written since",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Ask about the mutants, print a table, and return an exit status.

    It is 1 if a mutant passes without a reason, or a reason is not needed,
    and 2 if there is nothing of a name that was given.
    """
    options = _options(arguments)
    if options.explain:
        return _explain()
    if options.sample:
        print(f"{options.sample} mutants each, seed {options.seed}")
    try:
        options.what = _rows(options.what)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    _import_once()
    known = reasons()
    alive: list[tuple[str, str]] = []
    found: dict[str, dict] = {}
    for row, result, is_room in _results(options):
        alive.extend(result.alive)
        found[row] = sorted_out(result, known, is_room)
        if is_room:
            _print_row(row, found[row])
        if options.store and not row.startswith(TASK):
            _store({row: found[row]}, options)  # at once: all take hours
    for row, numbers in found.items():
        _print_row(row, numbers)
    wrong = [
        f"passes: {name}"
        for numbers in found.values()
        for name, why in numbers["survivors"].items()
        if not why
    ]
    if not options.sample and not options.what:
        wrong += [f"does not pass: {n}" for n in unused(alive, known)]
    print(*wrong, sep="\n")
    return int(bool(wrong))


def _rows(what: list[str]) -> set[str]:
    """The names of the rows that are asked for.

    Args:
        what: names of chapters, of rooms and of tasks. One that a room and a
            task have means the room.

    Raises:
        ValueError: there are no mutants of a name.
    """
    chapters, tasks = named_in_catalogue()
    named = set(what)
    rows = named & (chapters | rooms().keys())
    others = named - rows
    single = {name for name in others if name.removeprefix(TASK) in tasks}
    if unknown := others - single:
        raise ValueError(
            f"there are no mutants of {', '.join(sorted(unknown))}; expected "
            f"a chapter such as 04 (up to {max(chapters)}), a task such as "
            f"softmax, or a room: {', '.join(rooms())}"
        )
    return rows | {TASK + name.removeprefix(TASK) for name in single}


def _import_once() -> None:
    """Import what all processes need, so that each is forked with it."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    import pytest  # noqa: F401
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)


def _results(
    options: argparse.Namespace,
) -> Iterator[tuple[str, Result, bool]]:
    """The results that were asked for, one after another.

    `options.what` has the names of their rows; if there are none, all chapters
    and rooms are taken.
    Each comes with the name of its row, and with whether it is a room's. Rooms
    go first, while the package is not imported yet: a room's mutant takes the
    place of the module at its next import.
    """
    for name, room in rooms().items():
        if not options.what or name in options.what:
            yield name, ask_room(room, options.sample, options.seed), True
    from attnbook.teach.catalogue import all_tasks

    found: dict[str, Result] = {}
    for task in all_tasks().values():
        row = f"{task.chapter:02}"
        if options.what and row not in options.what:
            row = TASK + task.name
        if not options.what or row in options.what:
            result = ask_task(task.name, options.sample, options.seed)
            found[row] = found.get(row, Result()) + result
    for row, result in found.items():
        yield row, result, False


def _print_row(name: str, row: dict[str, Any]) -> None:
    """Print one line about a task, chapter or room: how many mutants were
    tried, are equivalent, are left to rooms, survived and were refused."""
    same = len(row["equivalent"])
    wrong = row["mutants"] - same - row["left"]
    survivors = len(row["survivors"])
    share = 1 - survivors / max(wrong, 1)
    print(
        f"{name:>14} {row['mutants']:>6} of {row['of']:>6} mutants, "
        f"{same:>4} equivalent, {row['left']:>3} left to rooms, "
        f"{survivors:>4} survive, "
        f"{share:.1%} refused",
        flush=True,
    )


def _store(found: dict[str, dict], options: argparse.Namespace) -> None:
    """Put what was measured now into the stored file, and keep the rest."""
    stored = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    today = datetime.date.today().isoformat()
    seed = {"seed": options.seed} if options.sample else {}
    for name, row in found.items():
        stored[name] = {"date": today, **seed, **row}
    _write(stored)


def _write(stored: dict[str, dict]) -> None:
    """Write the stored file, its rows sorted by name."""
    ordered = dict(sorted(stored.items()))
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    STORED.write_text(text + "\n", "utf-8")


def _explain() -> int:
    """Give the stored result the reasons that have been written since.

    Nothing is measured anew.
    """
    known = reasons()
    stored = json.loads(STORED.read_text("utf-8"))
    alive: list[tuple[str, str]] = []
    for name, row in stored.items():
        names = [*row["equivalent"], *row["survivors"]]
        mutants = [_split(name) for name in sorted(names)]
        result = Result(row["mutants"], row["of"], tuple(mutants))
        new = sorted_out(result, known, room=not name.isdigit())
        stored[name] = row | new | {"left": row["left"]}
        _print_row(name, stored[name])
        alive += mutants
    _write(stored)
    print(*(f"does not pass: {n}" for n in unused(alive, known)), sep="\n")
    return 0


def _split(name: str) -> tuple[str, str]:
    """The function and the change of a stored name, `function: change`."""
    function, _, change = name.partition(": ")
    return function, change


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
