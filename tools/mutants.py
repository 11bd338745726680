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
import ast
import datetime
import importlib
import importlib.abc
import importlib.util
import inspect
import json
import multiprocessing
import os
import random
import re
import resource
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from mutations import mutations
from notebooks import CHAPTERS, ROOT, read

EQUIVALENT = ROOT / "tools" / "equivalent.toml"
STORED = CHAPTERS / "attnbook" / "data" / "mutants.json"
TESTS = ROOT / "tests" / "attnbook"
#: Rooms whose tests stand in another's file.
GUARDED_BY = {"norms": "layers", "feed_forward": "layers"}
#: What tests import; it stays the same whatever room is mutated.
OTHERS = {
    *("torch", "numpy", "scipy", "transformers", "tokenizers", "safetensors"),
    *("hypothesis", "IPython", "matplotlib", "nbformat", "tqdm", "_pytest"),
}
FORK = multiprocessing.get_context("fork")
SECONDS, BYTES, WORKERS = 30, 6 * 2**30, 2


class Senseless(Exception):
    """A change that nothing can be changed by: the sign of a text."""


@dataclass(frozen=True)
class Mutant:
    """A wrong program: whose, what was changed, and in which line."""

    function: str
    change: str
    line: str = ""
    make: Callable[[], Any] | None = None  # the function
    plant: Callable[[], Any] | None = None  # or the tree of a room
    tests: tuple[str, ...] = ()  # that reach the line; the fastest first

    @property
    def name(self) -> str:
        return self.change + (f" in {self.line}" if self.line else "")


# Processes that may hang


def judged(
    ask: Callable, things: list, seconds: float = SECONDS, batch: int = 1
) -> Iterator[tuple[Any, Any]]:
    """Pairs of a thing and what `ask` says of it in another process.

    One that hangs or dies is answered by "ended", and what was to come after
    it is asked in the next process.
    """
    waiting = [things[n : n + batch] for n in range(0, len(things), batch)]
    running: dict[Any, list] = {}
    while waiting or running:
        while waiting and len(running) < WORKERS:
            ours, theirs = FORK.Pipe(duplex=False)
            some = waiting.pop()
            process = FORK.Process(target=_answer, args=(ask, some, theirs))
            process.start()
            theirs.close()
            running[ours] = [process, some, time.monotonic() + seconds]
        end = min(end for *_, end in running.values())
        wait(running, max(end - time.monotonic(), 0))
        for pipe, state in list(running.items()):
            process, some, end = state
            if not pipe.poll() and time.monotonic() < end:
                continue
            answer, ended = "ended", True
            with suppress(EOFError, OSError):
                if pipe.poll():
                    answer, ended = pipe.recv(), False
            yield some[0], answer
            state[1:] = some[1:], time.monotonic() + seconds
            if ended or not state[1]:
                process.kill()
                process.join()
                pipe.close()
                del running[pipe]
                waiting += [state[1]] if state[1] else []


def _answer(ask: Callable, things: list, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    nowhere = open(os.devnull, "w")
    os.dup2(nowhere.fileno(), 1)
    os.dup2(nowhere.fileno(), 2)
    sys.stdout = sys.stderr = nowhere
    for thing in things:
        pipe.send(ask(thing))


# Tasks


def mutants_of_task(task: Any, solution: str = "") -> list[Mutant]:
    """Those of its reference, of the package's function, of the solution."""
    import torch

    sources = [(task.name, task.right, None)]
    if task.home:
        sources.append((task.home, task.ours(), None))
    if solution:
        sources.append((f"my_{task.name}", None, solution))
    found = []
    for function, right, source in sources:
        names = vars(sys.modules[right.__module__]) if right else {}
        source = source or _bare_source(right)
        name = right.__name__ if right else function
        names = names or {"torch": torch}
        tree = _needed(ast.parse(source), name)
        make = _maker(lambda tree=tree: tree, name, names)
        asked = _lines_run(task, make) if function == task.home else None
        for changed in mutations(tree):
            if asked is None or asked & set(changed.lines):
                found.append(
                    Mutant(
                        function,
                        changed.change,
                        changed.line,
                        _maker(changed.tree, name, names),
                    )
                )
        if inspect.isfunction(make()):
            found += _wrapped(function, make, task.gradients)
    return found


def _bare_source(thing: Any) -> str:
    """The source of a function or class, without its decorators."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    tree.body[0].decorator_list = []
    return ast.unparse(tree)


def _needed(tree: ast.Module, name: str) -> ast.Module:
    """A source without the functions that `name` does not call."""
    defined = {n.name: n for n in tree.body if hasattr(n, "name")}
    kept: set[str] = set()
    new = {name}
    while new:
        kept |= new
        used = [n for k in new for n in ast.walk(defined[k])]
        new = {getattr(n, "id", "") for n in used} & set(defined) - kept
    rest = [n for n in tree.body if getattr(n, "name", name) in kept]
    return ast.Module(rest, [])


def _maker(tree: Callable, name: str, names: dict) -> Callable[[], Any]:
    def make() -> Any:
        space = dict(names)
        exec(compile(tree(), "<mutant>", "exec"), space)
        return space[name]

    return make


def _lines_run(task: Any, make: Callable) -> set[int]:
    """The lines that the cases reach: a task asks for no more of them."""
    lines = Lines("<mutant>")
    with lines:
        passes(Mutant("", "", make=make), task)
    return lines.seen


def _wrapped(function: str, make: Callable, gradients: bool) -> list[Mutant]:
    """What can go wrong with a result, or between two calls."""

    def after(change: Callable) -> Callable:
        def wrong(*args, **kwargs):
            return _first_changed(make()(*args, **kwargs), change)

        return lambda: wrong

    def spoiling():
        def wrong(*args, **kwargs):
            result = make()(*args, **kwargs)
            _first_changed(args, lambda x: x.detach().add_(1))
            return result

        return wrong

    def remembering():
        kept: list = []

        def wrong(*args, **kwargs):
            kept.extend([] if kept else [make()(*args, **kwargs)])
            return kept[0]

        return wrong

    wrongs = {
        "the first number is NaN": after(_nan),
        "a result of one axis more": after(lambda x: x[None]),
        "half the digits": after(_rounded),
        "spoils its first tensor": spoiling,
        "remembers its first result": remembering,
        "returns None": lambda: lambda *args, **kwargs: None,
        "returns its first argument": lambda: lambda *args, **kw: args[0],
    }
    if gradients:
        wrongs["is detached"] = after(lambda x: x.detach())
    return [Mutant(function, name, make=m) for name, m in wrongs.items()]


def _first_changed(result: Any, change: Callable) -> Any:
    """A result whose first tensor is another one."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, form = tree_flatten(result)
    for n, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaves[n] = change(leaf)
            return tree_unflatten(leaves, form)
    raise Senseless


def _nan(x: Any) -> Any:
    if not x.is_floating_point():
        raise Senseless
    x = x.clone()
    x.view(-1)[0] = float("nan")
    return x


def _rounded(x: Any) -> Any:
    if x.dtype != _float64():
        raise Senseless
    return x.float().to(x.dtype)


def _float64() -> Any:
    import torch

    return torch.float64


def passes(mutant: Mutant, task: Any) -> bool | None:
    """Whether a task takes a mutant for right; None if it makes no sense."""
    from attnbook.teach.tasks import judge

    given = task.given() if callable(task.given) else task.given
    label = next(iter(given))
    first = replace(task, given={label: given[label]}, known={})
    try:
        for asked in (first, task):  # most are refused by the first case
            verdict = judge(mutant.make(), asked, known={})
            if isinstance(verdict.error, Senseless):
                return None
            if verdict.kind != "right":
                return False
    except (Exception, SystemExit):
        return False  # it is no program; a reader would see the error
    return True


def solutions(chapter: str) -> dict[str, str]:
    """The exercises' solutions of a chapter, by task."""
    found, task = {}, ""
    for path in CHAPTERS.glob(f"{chapter}_*.ipynb"):
        for cell in read(path).cells:
            if stub := re.search(r"^check\.(\w+)\(my_", cell.source, re.M):
                task = stub[1]
            elif "solution" in cell.metadata.get("tags", []):
                parts = re.findall(r"(?s)```python\n(.*?)```", cell.source)
                found[task] = "\n".join(parts)
    return found


# Rooms


class Lines:
    """The lines of one file that run while this is entered."""

    def __init__(self, filename: str) -> None:
        self.filename, self.seen = filename, set()

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != self.filename:
            return None
        self.seen.add(frame.f_lineno)
        return self._trace

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self.before)


class Room(NamedTuple):
    """A module, and what guards it."""

    name: str
    path: Path
    tests: tuple[Path, ...]

    @property
    def module(self) -> str:
        return f"attnbook.{self.path.stem}"


def rooms() -> dict[str, Room]:
    """The rooms of the library that have tests."""
    found = {}
    for path in sorted((CHAPTERS / "attnbook").glob("[a-z]*.py")):
        room = path.stem
        tests = TESTS / f"test_{GUARDED_BY.get(room, room)}.py"
        if tests.exists():
            found[room] = Room(room, path, (tests,))
    return found


class Planted(importlib.abc.MetaPathFinder):
    """Lets a module be imported from a tree."""

    def __init__(self, room: Room, tree: ast.Module) -> None:
        self.room, self.tree = room, tree

    def find_spec(self, name: str, *_: Any) -> Any:
        if name != self.room.module:
            return None
        loader = SourceFileLoader(name, str(self.room.path))
        loader.get_code = lambda _: compile(
            self.tree, str(self.room.path), "exec"
        )
        return importlib.util.spec_from_loader(name, loader)


class Chosen:
    """A plugin of pytest: runs some tests in an order of ours, and takes down
    how long each takes and which lines it reaches."""

    def __init__(self, names: Iterable[str] | None, path: Path) -> None:
        self.names = None if names is None else list(names)
        self.path, self.reached = path, {}

    def pytest_collection_modifyitems(self, items: list) -> None:
        if self.names is not None:
            place = {name: n for n, name in enumerate(self.names)}
            items[:] = [i for i in items if i.nodeid in place]
            items.sort(key=lambda item: place[item.nodeid])

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        if self.names is not None:
            return None
        from _pytest.runner import runtestprotocol

        lines, start = Lines(str(self.path)), time.monotonic()
        with lines:
            runtestprotocol(item, nextitem=nextitem, log=False)
        self.reached[item.nodeid] = time.monotonic() - start, lines.seen
        return True


def tested(room: Room, tree: ast.Module, names: Any) -> tuple[bool, Chosen]:
    """Whether a room's tests pass with a tree in its place. To be asked in a
    process of its own: what the package has been is forgotten."""
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed
    _forget_package()
    sys.meta_path.insert(0, Planted(room, tree))
    plugin = Chosen(names, room.path)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    code = pytest.main([*options, *map(str, room.tests)], [plugin])
    return code == 0, plugin


def _forget_package() -> None:
    for name in [*sys.modules]:
        if name.split(".")[0] == "attnbook":
            del sys.modules[name]


def survey(room: Room) -> tuple[dict[str, tuple[float, set]], set[int]]:
    """The tests of a room: how long each takes, which lines it reaches; and
    the lines that run when the room is imported."""

    def look(_: Any) -> Any:
        _forget_package()
        sys.path.insert(0, str(room.path.parent.parent))
        importing = Lines(str(room.path))
        with importing:
            importlib.import_module(room.module)
        passed, plugin = tested(room, ast.parse(room.path.read_bytes()), None)
        return passed, plugin.reached, importing.seen, [*sys.modules]

    ((_, answer),) = judged(look, [None], 900)
    if answer == "ended" or not answer[0]:
        raise RuntimeError(f"the tests of {room.name} fail as they are")
    passed, reached, imported, modules = answer
    for name in modules:  # once, instead of in every process
        if name.split(".")[0] in OTHERS:
            importlib.import_module(name)
    return reached, imported


def mutants_of_room(room: Room) -> list[Mutant]:
    """Each with the tests that reach its line, the fastest first."""
    reached, imported = survey(room)
    fastest = sorted(reached, key=lambda name: reached[name][0])
    found = []
    for changed in mutations(ast.parse(room.path.read_bytes()), guards=True):
        lines = set(changed.lines)
        everywhere = lines & imported and not changed.where
        tests = [t for t in fastest if everywhere or lines & reached[t][1]]
        function = ".".join((room.name, *changed.where))
        mutant = Mutant(function, changed.change, changed.line)
        found.append(replace(mutant, plant=changed.tree, tests=tuple(tests)))
    return found


# What came of it


class Result(NamedTuple):
    """Of a task or a room."""

    mutants: int = 0  # tried
    of: int = 0  # that could be tried
    alive: tuple[tuple[str, str], ...] = ()  # function and name


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

    return _result(survives, every, sample, f"{seed} {room.name}", 240)


def _result(ask, every, sample, seed, seconds=SECONDS, right=None) -> Result:
    drawn = every
    if sample and sample < len(every):
        drawn = random.Random(seed).sample(every, sample)
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


def sorted_out(result: Result, known: dict, room: bool) -> dict[str, Any]:
    """A result as it is stored: numbers, and survivors with their reasons.

    What a task lets pass of the package's function, `room.name`, is left to
    the tests of the room: a task does not ask for all that a function does.
    """

    def reason(kind: str, function: str, name: str) -> str:
        return known[kind].get(function, {}).get(name, "")

    left = [m for m in result.alive if "." in m[0] and not room]
    same = [m for m in result.alive if reason("equivalent", *m)]
    alive = [m for m in result.alive if m not in (*left, *same)]
    why = {f"{f}: {n}": reason("passes", f, n) for f, n in alive}
    return {
        "mutants": result.mutants,
        "of": result.of,
        "equivalent": len(same),
        "left": len(left),
        "survivors": why,
    }


def unused(alive: Iterable[tuple[str, str]], known: dict) -> list[str]:
    """The entries of `equivalent.toml` that no survivor answers to."""
    found = set(alive)
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
    options = parser.parse_args(arguments)
    all_rooms, known = rooms(), reasons()
    chosen = [r for r in all_rooms if not options.what or r in options.what]
    if options.sample:
        print(f"{options.sample} mutants each, seed {options.seed}")
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    import pytest  # noqa: F401  what every process needs is imported once
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    found: dict[str, dict] = {}
    alive: list[tuple[str, str]] = []

    def add(row: str, result: Result) -> None:
        alive.extend(result.alive)
        new = sorted_out(result, known, row in all_rooms)
        old = found.get(row)
        for key in new if old else ():
            new[key] = (
                old[key] | new[key]
                if key == "survivors"
                else (old[key] + new[key])
            )
        found[row] = new

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
    wrong = row["mutants"] - row["equivalent"] - row["left"]
    survivors = len(row["survivors"])
    share = 1 - survivors / max(wrong, 1)
    print(
        f"{name:>14} {row['mutants']:>6} of {row['of']:>6} mutants, "
        f"{row['equivalent']:>4} equivalent, {row['left']:>3} left to rooms, "
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
    ordered = dict(sorted(stored.items()))
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    STORED.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
