"""The mutants of the library's rooms, and their own tests asked about them."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

from killable import Lines, judged
from mutations import Mutant, mutations
from notebooks import CHAPTERS, ROOT

TESTS = ROOT / "tests" / "attnbook"
#: Rooms whose tests stand in others' files.
GUARDED_BY = {
    "norms": ("test_layers",),
    "feed_forward": ("test_layers",),
    "cache": ("test_cache", "test_window"),
    "pages": ("test_server",),
    **dict.fromkeys(("command", "places"), ("run/test_command",)),
}
#: The tasks guard the functions that they call their home.
TASKS = TESTS / "teach" / "catalogue" / "test_catalogue.py"
OWN = f"{TASKS}::test_the_right_answer_and_the_packages_own_pass"
#: What tests import; it stays the same whatever room is mutated.
OTHERS = {
    *("torch", "numpy", "scipy", "transformers", "tokenizers", "safetensors"),
    *("hypothesis", "IPython", "matplotlib", "nbformat", "tqdm", "_pytest"),
}


class Room(NamedTuple):
    """A module, and what guards it."""

    name: str
    path: Path
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        inside = "run." if self.path.parent.name == "run" else ""
        return f"attnbook.{inside}{self.path.stem}"


def rooms() -> dict[str, Room]:
    """The rooms of the library that have tests, and can be tested here.

    Of `run/` those that work where they are tested: the others are at work
    in other processes, which import what lies on the disk.
    """
    found, house = {}, CHAPTERS / "attnbook"
    for path in sorted([*house.glob("[a-z]*.py"), *house.glob("run/*.py")]):
        room = path.stem
        names = GUARDED_BY.get(room, (f"test_{room}",))
        tests = [TESTS / f"{name}.py" for name in names]
        if room == "kernel" and not importlib.util.find_spec("triton"):
            continue  # its tests would be skipped
        if all(test.exists() for test in tests):
            found[room] = Room(room, path, (*map(str, tests), OWN))
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
    how long each takes and which lines it reaches. Of the tasks it runs those
    of the room."""

    def __init__(self, names: Iterable[str] | None, path: Path) -> None:
        self.names = None if names is None else list(names)
        self.path, self.reached = path, {}

    def _is_guard(self, item: Any) -> bool:
        if item.path != TASKS:
            return True
        home = item.callspec.params["task"].home or ""
        return home.startswith(f"{self.path.stem}.")

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = filter(self._is_guard, items)
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
    files = tuple({name.partition("::")[0] for name in names or ()})
    asked = [t for t in room.tests if t.partition("::")[0].endswith(files)]
    code = pytest.main([*options, *(asked or room.tests)], [plugin])
    return code == 0, plugin


def _forget_package() -> None:
    for name in [*sys.modules]:
        if name.split(".")[0] == "attnbook":
            del sys.modules[name]


def survey(room: Room) -> tuple[dict[str, tuple[float, set]], set, set]:
    """The tests of a room: how long each takes, which lines it reaches; the
    lines that run when the room is imported, and when its tests are."""

    def look(_: Any) -> Any:
        _forget_package()
        depth = room.module.count(".")
        sys.path.insert(0, str(room.path.parents[depth]))
        importing = Lines(str(room.path))
        with importing:
            importlib.import_module(room.module)
        collecting = Lines(str(room.path))  # each test has its own
        with collecting:
            right = ast.parse(room.path.read_bytes())
            passed, plugin = tested(room, right, None)
        seen = importing.seen, collecting.seen - importing.seen
        return passed, plugin.reached, *seen, [*sys.modules]

    ((_, answer),) = judged(look, [None], 300)
    if answer == "ended" or not answer[0]:
        raise RuntimeError(f"the tests of {room.name} fail as they are")
    passed, reached, imported, collected, modules = answer
    for name in modules:  # once, instead of in every process
        if name.split(".")[0] in OTHERS:
            importlib.import_module(name)
    return reached, imported, collected


def mutants_of_room(room: Room) -> list[Mutant]:
    """Each with the tests that reach its line, the fastest first."""
    reached, imported, collected = survey(room)
    fastest = sorted(reached, key=lambda name: reached[name][0])
    found = []
    for changed in mutations(ast.parse(room.path.read_bytes()), guards=True):
        lines = set(changed.lines)
        tests = [t for t in fastest if lines & reached[t][1]]
        # A constant, a field of a class; what the tests stand on.
        if lines & (collected if tests else collected | imported):
            tests += [t for t in fastest if t not in tests]
        function = ".".join((room.name, *changed.where))
        mutant = Mutant(function, changed.change, changed.line)
        found.append(replace(mutant, plant=changed.tree, tests=tuple(tests)))
    return found
