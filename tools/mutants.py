"""Wrong programs, made by the thousand: which do our checks let pass?

usage: python tools/mutants.py [--sample N] [--seed S] [--store] [WHAT ...]

WHAT is a chapter, 04, or a room of the package, masks; without any it is all.

A task is asked about the mutants of its reference, of the package's function
and of the exercise's solution; the tests of a room about those of the room.
Each mutant is judged in a process of its own, which is ended when it takes too
long. A mutant that passes stands in `equivalent.toml`, with the reason why it
is right all the same, or is a fault of the check.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from killable import SECONDS, judged
from mutated_rooms import Room, mutants_of_room, rooms, tested
from mutated_tasks import mutants_of_task, passes, solutions
from mutations import Mutant
from notebooks import CHAPTERS, ROOT

EQUIVALENT = ROOT / "tools" / "equivalent.toml"
STORED = CHAPTERS / "attnbook" / "data" / "mutants.json"


class Result(NamedTuple):
    """Of a task or a room."""

    mutants: int = 0  # tried
    of: int = 0  # that could be tried
    alive: tuple[tuple[str, str], ...] = ()  # function and name

    def __add__(self, other: Result) -> Result:
        return Result(*(a + b for a, b in zip(self, other)))


def ask_task(name: str, sample: int, seed: int) -> Result:
    from attnbook.teach.catalogue import all_tasks

    task = all_tasks()[name]
    every = mutants_of_task(task, solutions(f"{task.chapter:02}").get(name))
    right = Mutant(task.name, "", make=lambda: task.right)

    def passed(m: Mutant) -> bool | None:
        return passes(m, task)

    return _result(passed, every, sample, f"{seed} {name}", right=right)


def ask_room(room: Room, sample: int, seed: int) -> Result:
    every = mutants_of_room(room)

    def survives(m: Mutant) -> bool:
        return not m.tests or tested(room, m.plant(), m.tests)[0]

    return _result(survives, every, sample, f"{seed} {room.name}", 60)


def _result(ask, every, sample, seed, seconds=SECONDS, right=None) -> Result:
    drawn = every
    if sample:  # a smaller one is a part of a larger one
        drawn = random.Random(seed).sample(every, len(every))[:sample]
    if right:  # twenty in one process, and none may spoil it for the next
        some = [drawn[n : n + 20] for n in range(0, len(drawn), 20)]
        things = [m for batch in some for m in [*batch, right]]
        answers = [*judged(ask, things, seconds, batch=21)]
        if any(m is right and passed is not True for m, passed in answers):
            answers = [*judged(ask, drawn, seconds)]
    else:
        answers = [*judged(ask, drawn, seconds)]
    tried = [(m, a) for m, a in answers if a is not None and m is not right]
    alive = sorted((m.function, m.name) for m, a in tried if a is True)
    return Result(len(tried), len(every), tuple(alive))


def reasons(path: Path = EQUIVALENT) -> dict[str, dict]:
    """Why mutants pass: "equivalent" ones are right, and what "passes" is
    wrong and is let pass; by function and name."""
    text = tomllib.loads(path.read_text("utf-8"))
    return {kind: text.get(kind, {}) for kind in ("equivalent", "passes")}


def reason(known: dict[str, dict], mutant: tuple[str, str]) -> str:
    """Why a mutant passes: what is said of it, or of any change in its line
    (`* in return x`); "" if nothing is."""
    function, name = mutant
    said = known.get(function, {})
    return said.get(name) or said.get("* in " + name.partition(" in ")[2], "")


def sorted_out(result: Result, known: dict, room: bool) -> dict[str, Any]:
    """A result as it is stored: numbers, and survivors with their reasons.

    What a task lets pass of the package's function, `room.name`, is left to
    the tests of the room: a task does not ask for all that a function does.
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


def unused(alive: Iterable[tuple[str, str]], known: dict) -> list[str]:
    """The entries of `equivalent.toml` that no survivor answers to."""
    found = {(f, n) for f, n in alive}
    found |= {(f, "* in " + n.partition(" in ")[2]) for f, n in alive}
    return [
        f"{function}: {name}"
        for kind in known.values()
        for function, names in kind.items()
        for name in names
        if (function, name) not in found
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", metavar="WHAT", help="04, masks")
    parser.add_argument("--sample", type=int, default=0, help="of each")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--store", action="store_true", help="in data/")
    parser.add_argument("--explain", action="store_true", help="stored ones")
    options = parser.parse_args(arguments)
    if options.explain:
        return _explain()
    all_rooms, known = rooms(), reasons()
    chosen = [r for r in all_rooms if not options.what or r in options.what]
    if options.sample:
        print(f"{options.sample} mutants each, seed {options.seed}")
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    import pytest  # noqa: F401  what every process needs is imported once
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    results: dict[str, Result] = {}
    found: dict[str, dict] = {}
    alive: list[tuple[str, str]] = []

    def add(row: str, result: Result) -> None:
        alive.extend(result.alive)
        results[row] = results.get(row, Result()) + result
        found[row] = sorted_out(results[row], known, row in all_rooms)

    for room in chosen:  # first, while the package is not imported
        add(room, ask_room(all_rooms[room], options.sample, options.seed))
        _print_row(room, found[room])
    from attnbook.teach.catalogue import all_tasks

    for task in all_tasks().values():
        chapter = f"{task.chapter:02}"
        if not options.what or {chapter, task.name} & set(options.what):
            add(chapter, ask_task(task.name, options.sample, options.seed))
    for row in found:
        _print_row(row, found[row])
    wrong = [
        f"passes: {name}"
        for row in found.values()
        for name, why in row["survivors"].items()
        if not why
    ]
    if not options.sample and not options.what:
        wrong += [f"does not pass: {n}" for n in unused(alive, known)]
    print(*wrong, sep="\n")
    if options.store:
        _store(found, options)
    return bool(wrong)


def _print_row(name: str, row: dict) -> None:
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
    """Keeps what was measured now beside what was measured before."""
    stored = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    today = datetime.date.today().isoformat()
    seed = {"seed": options.seed} if options.sample else {}
    for name, row in found.items():
        stored[name] = {"date": today, **seed, **row}
    _write(stored)


def _write(stored: dict[str, dict]) -> None:
    ordered = dict(sorted(stored.items()))
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    STORED.write_text(text + "\n", "utf-8")


def _explain() -> int:
    """Gives what is stored the reasons that have been written since."""
    known, stored = reasons(), json.loads(STORED.read_text("utf-8"))
    alive = []
    for name, row in stored.items():
        names = [*row["equivalent"], *row["survivors"]]
        mutants = tuple(tuple(n.split(": ", 1)) for n in sorted(names))
        result = Result(row["mutants"], row["of"], mutants)
        new = sorted_out(result, known, room=not name.isdigit())
        stored[name] = row | new | {"left": row["left"]}
        _print_row(name, stored[name])
        alive += mutants
    _write(stored)
    print(*(f"does not pass: {n}" for n in unused(alive, known)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
