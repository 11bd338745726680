"""The notebooks as the tests see them: cells, exercises, code in a process."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import matplotlib.pyplot as plt
import nbformat
import pytest
from notebooks import CHAPTERS, ROOT, notebooks, read

#: Off the network, and without progress bars.
SETTINGS = {"ATTNBOOK_OFFLINE": "1", "ATTNBOOK_QUIET": "1"}

CHAPTER_FILES = [p for p in notebooks() if p.name[0].isdigit()]


def _comparison():
    """The root's conftest.py, which a `conftest` imported by name need not
    be: tests/browser has one too."""
    spec = importlib.util.spec_from_file_location(
        "comparison", ROOT / "conftest.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: How nbval compares the outputs.
COMPARISON = _comparison()


def extension(name: str):
    """A module of site/, which Sphinx alone has on its path."""
    with mock.patch.object(sys, "path", [str(ROOT / "site"), *sys.path]):
        return importlib.import_module(name)


def chapter_file(number: int) -> Path:
    (found,) = [p for p in CHAPTER_FILES if int(p.name[:2]) == number]
    return found


def without_make() -> dict[str, str]:
    """The environment without what an outer make has put into it."""
    ours = ("MAKE", "MFLAGS", "CONSTRAINTS", "PYTHON", "ATTNBOOK", "CHAPTER")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)}


def by_notebook(paths=None):
    """A decorator: the test runs once for every notebook."""
    return pytest.mark.parametrize(
        "path", notebooks() if paths is None else paths, ids=lambda p: p.stem
    )


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [c for c in read(path).cells if c.cell_type == "code"]


@dataclass(frozen=True)
class Exercise:
    """An exercise of a chapter: its stub cell, its solution's code."""

    task: str
    stub: str
    solution: str


def exercises(path: Path) -> list[Exercise]:
    """Each stub cell of a chapter with the folded solution that follows."""
    found, stub = [], ""
    for cell in read(path).cells:
        if cell.cell_type == "code" and "NotImplementedError" in cell.source:
            assert not stub, f"{path.name}: an exercise has no solution"
            stub = cell.source
        elif "solution" in tags(cell):
            assert stub, f"{path.name}: a solution follows no exercise"
            (task,) = re.findall(r"^check\.(\w+)\(", stub, re.M)
            code = "\n".join(
                re.findall(r"```python\n(.*?)```", cell.source, re.S)
            )
            found.append(Exercise(task, stub, code))
            stub = ""
    assert not stub, f"{path.name}: the last exercise has no solution"
    return found


def defined(path: Path) -> set[str]:
    """The functions that a chapter defines, exercise stubs aside."""
    return {
        node.name
        for cell in code_cells(path)
        if "NotImplementedError" not in cell.source
        for node in ast.parse(cell.source).body
        if isinstance(node, ast.FunctionDef)
    }


class _Injector(ast.NodeTransformer):
    """After each `def name`, put `name = __injected__` for a given name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Module(self, node: ast.Module) -> ast.Module:
        body = []
        for statement in node.body:
            body.append(statement)
            if getattr(statement, "name", None) == self.name:
                line = f"{self.name} = __injected__"
                body += ast.parse(line).body
        node.body = body
        return ast.fix_missing_locations(node)


def run_in_process(path: Path, name: str = "", wrong: Callable | None = None):
    """Run a notebook's code here; the exception that it raises, or None.

    With `name`, every function of that name which the page defines is
    replaced by `wrong` at once.
    """
    namespace = {"__name__": "__page__", "__injected__": wrong}
    plt.switch_backend("agg")
    with (
        mock.patch.dict(os.environ, SETTINGS),
        mock.patch.object(sys, "path", [str(CHAPTERS), *sys.path]),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        for number, cell in enumerate(code_cells(path)):
            tree = ast.parse(cell.source)
            if name:
                tree = _Injector(name).visit(tree)
            place = f"{path.name}, code cell {number}"
            try:
                exec(compile(tree, place, "exec"), namespace)
            except Exception as error:
                if "raises-exception" not in tags(cell):
                    return error
            finally:
                plt.close("all")
    return None
