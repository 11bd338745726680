"""The notebooks as the tests see them: cells, exercises, code in a process."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import gc
import inspect
import io
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple
from unittest import mock

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
from notebooks import CHAPTERS, notebooks, read
from pretend import CARD, Pretended, names_a_card
from warm import loaded_before, running, warm

from attnbook.teach.page import notebook

#: Off the network, and without progress bars.
SETTINGS = {"ATTNBOOK_OFFLINE": "1", "ATTNBOOK_QUIET": "1"}

CHAPTER_FILES = [p for p in notebooks() if p.name[0].isdigit()]

#: What a page folds or leaves out of the code that it shows.
FOLDED_CODE = {"hide-input", "remove-input", "hide-cell", "remove-cell"}


def visible_cells(path: Path) -> list[nbformat.NotebookNode]:
    """The code cells that a page shows, without the stubs of exercises."""
    return [
        cell
        for cell in code_cells(path)
        if not FOLDED_CODE & set(tags(cell)) and not is_stub(cell)
    ]


def chapter_file(number: int) -> Path:
    (found,) = [p for p in CHAPTER_FILES if int(p.name[:2]) == number]
    return found


def without_make() -> dict[str, str]:
    """The environment without what an outer make has put into it."""
    ours = ("MAKE", "MFLAGS", "CONSTRAINTS", "PYTHON", "ATTNBOOK", "CHAPTER")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)}


def by_notebook(paths: list[Path] | None = None) -> pytest.MarkDecorator:
    """A decorator: the test runs once for every notebook."""
    paths = notebooks() if paths is None else paths
    return pytest.mark.parametrize("path", paths, ids=lambda p: p.stem)


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def seen(path: Path) -> nbformat.NotebookNode:
    """A notebook for those who only look at it: it is read once for all."""
    stat = path.stat()
    return _seen(path, stat.st_mtime_ns, stat.st_size)


@functools.cache
def _seen(path: Path, *file: int) -> nbformat.NotebookNode:
    """A notebook, as long as its file has the same time and size."""
    return read(path)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [c for c in seen(path).cells if c.cell_type == "code"]


def is_stub(cell: nbformat.NotebookNode) -> bool:
    return cell.cell_type == "code" and "NotImplementedError" in cell.source


def lesson(path: Path) -> str:
    """The code of a notebook without its exercises."""
    return "\n".join(c.source for c in code_cells(path) if not is_stub(c))


class Exercise(NamedTuple):
    task: str
    stub: str
    solution: str


def exercises(path: Path) -> list[Exercise]:
    """Each stub cell of a chapter with the folded solution that follows."""
    found = []
    stub = ""
    for cell in seen(path).cells:
        if is_stub(cell):
            assert not stub, f"{path.name}: an exercise has no solution"
            stub = cell.source
        elif "solution" in tags(cell):
            (task,) = re.findall(r"^check\.(\w+)\(", stub, re.M)
            parts = re.findall(r"```python\n(.*?)```", cell.source, re.S)
            found.append(Exercise(task, stub, "\n".join(parts)))
            stub = ""
    assert not stub, f"{path.name}: the last exercise has no solution"
    return found


def defined(source: str) -> set[str]:
    """The functions and classes that code defines at its top."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {n.name for n in ast.parse(source).body if isinstance(n, kinds)}


def used(source: str) -> set[str]:
    """The names and attributes that code uses."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    return names | {n.attr for n in nodes if isinstance(n, ast.Attribute)}


class Page:
    """A notebook's code, run in this process cell by cell."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells = code_cells(path)
        self.names: dict = {"__name__": "__page__"}  # what the cells bind
        self.taken: list[str] = []  # what a stub has bound anew
        self.wrong: tuple[str, Callable] | None = None

    def run(self, start: int = 0, last: int | None = None) -> Exception | None:
        """Run the cells from `start` on, to the page's last one or to `last`;
        the first error, or None."""
        end = len(self.cells) if last is None else last + 1
        for number in range(start, end):
            if error := self.run_cell(number):
                return error
        return None

    def run_cell(self, number: int) -> Exception | None:
        cell = self.cells[number]
        tree = ast.parse(cell.source)
        if self.wrong:
            name, self.names["__wrong__"] = self.wrong
            rebound = ast.parse(f"{name} = __wrong__").body
            for n, statement in reversed([*enumerate(tree.body, start=1)]):
                if getattr(statement, "name", None) == name:
                    tree.body[n:n] = rebound
        place = f"{self.path.name}, code cell {number}"
        before = dict(self.names) if is_stub(cell) else {}
        code = compile(tree, place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        try:
            if awaited := eval(code, self.names):  # as Jupyter does it
                asyncio.run(awaited)
        except Exception as error:
            return None if "raises-exception" in tags(cell) else error
        finally:
            plt.close("all")
        self.taken += [n for n, v in before.items() if self.names[n] is not v]
        return None


@contextlib.contextmanager
def as_a_page() -> Iterator[None]:
    """The settings of a page, whose prints nobody sees."""
    plt.switch_backend("agg")
    with (
        mock.patch.dict(os.environ, SETTINGS),
        mock.patch.object(sys, "path", [str(CHAPTERS), *sys.path]),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        yield


@contextlib.contextmanager
def in_an_empty_folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


@contextlib.contextmanager
def on_a_card() -> Iterator[None]:
    """A page computes on a card, pretended where there is none."""
    with mock.patch.object(notebook, "DEVICE", CARD), Pretended():
        yield


class Wrong(NamedTuple):
    """A wrong function that takes the place of a right one."""

    name: str  # of the mistake
    task: str  # the name of the right function on the page
    ours: Callable | None  # the package's own, if it has one
    fn: Callable


class Noticed(NamedTuple):
    """An error of a page, as it comes from another process."""

    kinds: tuple[str, ...]
    message: str


def noticed(error: Exception | None) -> Noticed | None:
    if error is None:
        return None
    kinds = tuple(kind.__name__ for kind in type(error).__mro__)
    return Noticed(kinds, f"{kinds[0]}: {error}")


class Ran(NamedTuple):
    """What came of a page, and of its copies with a mistake."""

    error: Noticed | None  # of the page itself
    taken: list[str]  # what its stubs have bound anew
    mistakes: dict[str, Noticed | None]  # by the mistake's name


def checked(cell: nbformat.NotebookNode) -> set[str]:
    """The names in a cell that hands functions to the book's check."""
    return used(cell.source) if "check(" in cell.source else set()


def run_whole(path: Path, wrongs: Iterable[Wrong] = ()) -> Ran:
    """A page from its first cell to its last, and again with each mistake.

    The page is run once, in an empty folder and on a card, pretended where
    there is none, if it can compute on one: no cell finds what it left there
    the last time. Its copies with a mistake leave the card before they go on,
    since there a mistake could be noticed for nothing but a tensor that is
    made on the CPU.

    A mistake begins in the cell in which the function is first defined, named
    or called. Where a later cell has the function checked, the mistake is
    first put in its place there, or in a cell shortly before: so the cells
    between, some of which take many seconds, run once and not for each
    mistake. If no check notices it, or there is none, all of the page goes on
    with the mistake from the cell in which it begins, or from one shortly
    before.
    """
    return forked(partial(_run_and_branch, path, wrongs), lesson(path))


def forked(work: Callable[[], Any], source: str) -> Any:
    """What `work` returns, done by a copy of this process that is warm for
    a source."""
    warm(source)
    return _in_a_copy(partial(_alone, work))


def _alone(work: Callable[[], Any]) -> Any:
    torch.set_num_threads(1)  # a forked process has one
    return work()


#: A copy of the page's process is made anew once the cells since the last one
#: have taken so many seconds of a processor. Each mistake runs them again; a
#: copy takes about as long.
AGAIN = 0.1


def _run_and_branch(path: Path, wrongs: Iterable[Wrong]) -> Ran:
    page = Page(path)
    checks = [checked(cell) for cell in page.cells]
    by_name = {wrong.name: wrong for wrong in wrongs}
    waiting = dict(by_name)  # to begin
    begun: dict[str, tuple[Wrong, _Copy]] = {}  # to be checked by a cell
    found: dict[str, Noticed | None] = {}
    with contextlib.ExitStack() as here, contextlib.ExitStack() as card:
        here.enter_context(as_a_page())
        here.enter_context(in_an_empty_folder())
        here.enter_context(loaded_before())
        if names_a_card(page.cells):
            card.enter_context(on_a_card())
        copy = None
        made = 0.0  # the seconds of this process at that time
        for number, cell in enumerate(page.cells):
            names = checks[number] | defined(cell.source)
            left = [*waiting, *begun]
            possible = any(by_name[name].task in names for name in left)
            possible = possible or any(w.ours for w in waiting.values())
            old = time.process_time() - made > AGAIN
            if left and (copy is None or (possible and old)):
                go_on = partial(_branch, page, number, by_name, card.close)
                copy = _Copy(go_on)
                here.callback(copy.end)
                made = time.process_time()
            with _calls(waiting.values()) as called:
                error = noticed(page.run_cell(number))
            if error:
                return Ran(error, page.taken, found)
            later = set().union(*checks[number + 1 :])
            for wrong, first in list(begun.values()):
                if wrong.task in checks[number]:
                    told = copy.ask(wrong.name, number)
                    if told is None and wrong.task not in later:
                        told = first.ask(wrong.name)
                    if told or wrong.task not in later:
                        del begun[wrong.name]
                        found[wrong.name] = told
            for wrong in _begun(waiting.values(), cell, called):
                del waiting[wrong.name]
                if wrong.task in later:
                    begun[wrong.name] = wrong, copy
                else:
                    found[wrong.name] = copy.ask(wrong.name)
    return Ran(None, page.taken, dict.fromkeys([*waiting, *begun]) | found)


def _begun(
    wrongs: Iterable[Wrong], cell: nbformat.NotebookNode, called: set[CodeType]
) -> list[Wrong]:
    """The mistakes whose function a cell defines, names or has called."""
    here = defined(cell.source)
    names = used(cell.source)
    return [
        wrong
        for wrong in wrongs
        if wrong.task in here
        or (wrong.ours and wrong.task in names)
        or called & _codes(wrong.ours)
    ]


class _Copy:
    """This process as it is now, kept by a copy that waits to be asked.

    `ask` calls `work` there, as often as one likes, until `end`.
    """

    def __init__(self, work: Callable) -> None:
        forked = multiprocessing.get_context("fork")  # not on Windows
        self.pipe, theirs = forked.Pipe()

        def wait():
            self.pipe.close()  # so that it is seen if the other dies
            # No collection of garbage looks through what is there already:
            # it would have all of that memory copied.
            gc.freeze()
            with contextlib.suppress(EOFError):  # the other has died
                while (arguments := theirs.recv()) is not None:
                    theirs.send(work(*arguments))

        self.process = forked.Process(target=wait)
        self.process.start()
        theirs.close()

    def ask(self, *arguments):
        """What `work` returns there.

        Raises:
            RuntimeError: the copy has died of it.
        """
        self.pipe.send(arguments)
        try:
            return self.pipe.recv()
        except EOFError:
            raise RuntimeError("the copy of the process has died") from None

    def end(self) -> None:
        """Let the copy end."""
        with contextlib.suppress(OSError):  # it has died
            self.pipe.send(None)
        self.pipe.close()
        self.process.join()


def _in_a_copy(work: Callable, *arguments: Any) -> Any:
    """What `work` returns, done by a copy that ends then."""
    copy = _Copy(work)
    try:
        return copy.ask(*arguments)
    finally:
        copy.end()


def _branch(
    page: Page,
    number: int,
    wrongs: dict[str, Wrong],
    leave_card: Callable[[], None],
    name: str,
    last: int | None = None,
) -> Noticed | None:
    """As `_go_on` with one of the mistakes, by a copy: the page of this
    process stays right."""
    go_on = partial(_go_on, page, number, wrongs[name], leave_card, last)
    return _in_a_copy(go_on)


def _go_on(
    page: Page,
    number: int,
    wrong: Wrong,
    leave_card: Callable[[], None],
    last: int | None = None,
) -> Noticed | None:
    """The error of a page with a mistake, from one cell on to a last one."""
    leave_card()
    package = re.compile(r"attnbook(\.|$)")
    modules = [m for n, m in sys.modules.items() if package.match(n)]
    for names in (*map(vars, modules), page.names):
        for name, value in list(names.items()):
            if value is wrong.ours and value is not None:
                names[name] = wrong.fn
            elif value is CARD:
                names[name] = notebook.DEVICE
    if any(wrong.task in defined(c.source) for c in page.cells[:number]):
        page.names[wrong.task] = wrong.fn
    page.wrong = wrong.task, wrong.fn
    with loaded_before(wrong.ours):
        return noticed(page.run(number, last))


def _codes(fn: Callable | None) -> set[CodeType]:
    """A function's code, or that of a class's methods."""
    parts = vars(fn).values() if inspect.isclass(fn) else [fn]
    parts = [inspect.unwrap(p) for p in parts if callable(p)]
    return {p.__code__ for p in parts if hasattr(p, "__code__")}


@contextlib.contextmanager
def _calls(wrongs: Iterable[Wrong]) -> Iterator[set[CodeType]]:
    """Which of the right functions are called in here, as `_codes`."""
    looked_for = set().union(*(_codes(wrong.ours) for wrong in wrongs))
    called: set[CodeType] = set()
    if not looked_for:
        yield called
        return
    with running() as ran:
        yield called
    called |= ran & looked_for
