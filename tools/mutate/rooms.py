"""Mutants of the library's rooms, and their own tests asked about them.

A room is a module of the package. Of the tests that guard it only those are
run that reach the changed line, and the fastest goes first.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from notebooks import CHAPTERS, ROOT

from mutate.killable import ENDED, Lines, answers_of
from mutate.mutations import Mutant, mutations

TESTS = ROOT / "tests" / "attnbook"
#: Rooms whose tests are not in a file of the room's own name.
GUARDED_BY = {
    "norms": ("test_norms", "test_layers"),
    "feed_forward": ("test_feed_forward", "test_layers"),
    "cache": ("test_cache", "test_window"),
    "pages": ("test_pages", "test_server"),
    "command": ("run/test_command",),
    "hands": ("run/test_hands",),
    "options": ("run/test_options", "run/test_command"),
    "places": ("run/test_command",),
}
#: The catalogue's test of each task. It guards a room if the task names a
#: function of the room, `room.function`, as its home.
TASKS = TESTS / "teach" / "catalogue" / "test_catalogue.py"
OWN = f"{TASKS}::test_the_right_answer_and_the_packages_own_pass"
#: Seconds for which a rank waits for another one while mutants are asked.
PATIENCE = 10.0
#: What tests import beside the package. It is the same whatever is mutated, so
#: it is imported once, before processes are forked.
OTHERS = {
    "IPython",
    "_pytest",
    "hypothesis",
    "matplotlib",
    "nbformat",
    "numpy",
    "safetensors",
    "scipy",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
}


class Room(NamedTuple):
    """A module of the package, its file, and the tests that guard it."""

    name: str
    path: Path
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        """The name by which the room is imported."""
        inside = "run." if self.path.parent.name == "run" else ""
        return f"attnbook.{inside}{self.path.stem}"


def rooms() -> dict[str, Room]:
    """The rooms of the library that have tests, and can be tested here.

    Of `run/` only those are taken that are tested in this process. The others
    run in processes of their own, which would import the right file.
    """
    found = {}
    house = CHAPTERS / "attnbook"
    for path in sorted([*house.glob("[a-z]*.py"), *house.glob("run/*.py")]):
        room = path.stem
        names = GUARDED_BY.get(room, (f"test_{room}",))
        tests = [TESTS / f"{name}.py" for name in names]
        if room == "kernel" and not importlib.util.find_spec("triton"):
            continue  # its tests would be skipped
        if all(test.exists() for test in tests):
            own = (OWN,) if _is_home(room) else ()
            found[room] = Room(room, path, (*map(str, tests), *own))
    return found


def _is_home(room: str) -> bool:
    """Whether a task of the catalogue names a function of a room as its home.

    The catalogue is read as text, because to import it takes seconds.
    """
    folder = CHAPTERS / "attnbook" / "teach" / "catalogue"
    texts = (path.read_text("utf-8") for path in folder.glob("*.py"))
    return any(f'home="{room}.' in text for text in texts)


class Planted(importlib.abc.MetaPathFinder):
    """Lets a room be imported from a syntax tree instead of its file."""

    def __init__(self, room: Room, tree: ast.Module) -> None:
        self.room = room
        self.tree = tree

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        """How the room is imported; None for all other modules."""
        if fullname != self.room.module:
            return None
        loader = _FromTree(fullname, str(self.room.path), self.tree)
        return importlib.util.spec_from_loader(fullname, loader)


class _FromTree(SourceFileLoader):
    """Loads a module from a tree, under the name of its file."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self.tree = tree

    def get_code(self, fullname: str) -> CodeType:
        """The code of the module, made of the tree."""
        return compile(self.tree, self.path, "exec")


#: For each test how many seconds it takes, and which lines it reaches.
Reached = dict[str, tuple[float, set[int]]]


class Chosen:
    """A plugin of pytest that runs some of a room's tests, in a given order.

    With `names` it runs these tests, in their order. Without, it runs all,
    and `reached` has for each how many seconds it took and which lines of the
    room it reached. Of the catalogue's tasks it runs those whose home is the
    room.
    """

    def __init__(self, names: Iterable[str] | None, path: Path) -> None:
        self.names = None if names is None else list(names)
        self.path = path
        self.reached: Reached = {}

    def _is_guard(self, item: Any) -> bool:
        """Whether a test guards the room.

        The catalogue's test of a task does so only if the task's home is
        there.
        """
        if item.path != TASKS:
            return True
        home = item.callspec.params["task"].home or ""
        return home.startswith(f"{self.path.stem}.")

    def pytest_collection_modifyitems(self, items: list) -> None:
        """Choose tests and put them in order; called by pytest."""
        items[:] = filter(self._is_guard, items)
        if self.names is not None:
            place = {name: n for n, name in enumerate(self.names)}
            items[:] = [i for i in items if i.nodeid in place]
            items.sort(key=lambda item: place[item.nodeid])

    def pytest_collection_finish(self) -> None:
        """Let ranks that are threads wait for a few seconds only, not for a
        minute; called by pytest. With many mutants a rank waits for a tensor
        that nobody sends."""
        on_threads = getattr(sys.modules.get("attnbook.wire"), "on_threads", 0)
        defaults = getattr(on_threads, "__kwdefaults__", None) or {}
        if "patience" in defaults:
            defaults["patience"] = PATIENCE

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        """Run a test and keep its time and lines; called by pytest."""
        if self.names is not None:
            return None
        from _pytest.runner import runtestprotocol

        lines = Lines(str(self.path))
        start = time.monotonic()
        with lines:
            runtestprotocol(item, nextitem=nextitem, log=False)
        self.reached[item.nodeid] = (time.monotonic() - start, lines.seen)
        return True


def tested(
    room: Room, tree: ast.Module, names: Iterable[str] | None
) -> tuple[bool, Chosen]:
    """Whether the tests of a room pass with a changed room in its place.

    This has to be called in a process of its own, because the package is
    imported anew.

    Args:
        room: the room.
        tree: the syntax tree that is imported instead of the room's file.
        names: the tests to run, in this order; all tests of the room if None.

    Returns:
        whether all of them pass, and the plugin that has run them.
    """
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed
    _forget_package()
    sys.meta_path.insert(0, Planted(room, tree))
    names = None if names is None else list(names)
    plugin = Chosen(names, room.path)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    files = tuple({name.partition("::")[0] for name in names or ()})
    asked = [t for t in room.tests if t.partition("::")[0].endswith(files)]
    code = pytest.main([*options, *(asked or room.tests)], [plugin])
    return code == 0, plugin


def _forget_package() -> None:
    """Remove the package from memory, so that it is imported anew."""
    for name in [*sys.modules]:
        if name.split(".")[0] == "attnbook":
            del sys.modules[name]


def survey(room: Room) -> tuple[Reached, set[int], set[int]]:
    """Find out which lines of a room its tests reach, with nothing changed.

    Returns:
        for each test how many seconds it takes and which lines it reaches; the
        lines that run when the room is imported; and the further lines that
        run when its tests are collected.

    Raises:
        RuntimeError: the tests fail although nothing was changed.
    """

    def look(_: Any) -> Any:
        """Import the room and run its tests, in a process of its own."""
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

    ((_, answer),) = answers_of(look, [None], 300)
    if answer == ENDED or not answer[0]:
        raise RuntimeError(
            f"the tests of {room.name} fail although nothing was changed; "
            "expected them to pass before mutants are made. Run them alone: "
            f"pytest {' '.join(test for test in room.tests if test != OWN)}"
        )
    passed, reached, imported, collected, modules = answer
    for name in modules:  # once, instead of in every process
        if name.split(".")[0] in OTHERS:
            # transformers keeps modules under old names that are in no file.
            with suppress(ModuleNotFoundError):
                importlib.import_module(name)
    return reached, imported, collected


def mutants_of_room(room: Room) -> list[Mutant]:
    """The mutants of a room, each with the tests that reach its line."""
    reached, imported, collected = survey(room)
    fastest = sorted(reached, key=lambda name: reached[name][0])
    found = []
    for changed in mutations(ast.parse(room.path.read_bytes()), guards=True):
        lines = set(changed.lines)
        tests = [t for t in fastest if lines & reached[t][1]]
        # The line of a constant, or of a field of a class, runs when the room
        # is imported, so no single test reaches it: all of them are asked.
        if lines & (collected if tests else collected | imported):
            tests += [t for t in fastest if t not in tests]
        function = ".".join((room.name, *changed.where))
        mutant = Mutant(function, changed.change, changed.line)
        found.append(replace(mutant, plant=changed.tree, tests=tuple(tests)))
    return found
