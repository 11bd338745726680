"""Mutants of right answers, and the tasks of the catalogue asked about them.

A task is asked about mutants of its reference, of the package's function that
it names as its home, and of the solution that the chapter prints.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from notebooks import CHAPTERS, read
from torch.utils._pytree import tree_flatten, tree_unflatten

from mutate.killable import Lines
from mutate.mutations import Mutant, mutations
from mutate.tame import mutants_of_tameness


class Senseless(Exception):
    """A change that changes nothing here: a whole number cannot become NaN."""


def mutants_of_task(task: Any, solution: str = "") -> list[Mutant]:
    """The mutants that a task is asked about.

    Args:
        task: a task of the catalogue.
        solution: the source of the exercise's solution, if there is one.
    """
    found = []
    for function, name, names, tree in sources_of(task, solution):
        make = _maker(partial(_same, tree), name, names)
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
            found += _wrapped(function, make, task)
    return found + list(mutants_of_tameness(task))


class Source(NamedTuple):
    """A right answer of which mutants are made.

    Attributes:
        function: what the mutants are listed under: the task's name for its
            reference, "room.function" for the package's own function, "my_"
            and the task's name for a solution.
        name: the name of the function or class in the tree.
        names: the names of its module, which it may use.
        tree: its source, with what it calls of the same source.
    """

    function: str
    name: str
    names: dict[str, Any]
    tree: ast.Module


def sources_of(task: Any, solution: str = "") -> list[Source]:
    """The right answers of a task.

    They are its reference, the package's own function, if the task names one,
    and the exercise's solution, if its source is given.
    """
    from attnbook.teach.check.registry import the_book

    sources: list[tuple[str, Any, str]] = [(task.name, task.right, "")]
    if task.home:
        sources.append((task.home, the_book().own_function(task), ""))
    if solution:
        sources.append((f"my_{task.name}", None, solution))
    found = []
    for function, right, source in sources:
        names = vars(sys.modules[right.__module__]) if right else {}
        source = source or _bare_source(right)
        name = right.__name__ if right else function
        names = names or {"torch": torch}
        tree = _needed(ast.parse(source), name)
        found.append(Source(function, name, names, tree))
    return found


def _same(tree: ast.Module) -> ast.Module:
    """The tree itself: the answer without any change."""
    return tree


def _bare_source(thing: Any) -> str:
    """The source of a function or class, without its decorators."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    definition = tree.body[0]
    assert isinstance(definition, (ast.FunctionDef, ast.ClassDef))
    definition.decorator_list = []
    return ast.unparse(tree)


def _needed(tree: ast.Module, name: str) -> ast.Module:
    """A source with no other functions than `name` and those that it needs."""
    defined = {n.name: n for n in tree.body if hasattr(n, "name")}
    kept: set[str] = set()
    new = {name}
    while new:
        kept |= new
        used = [n for k in new for n in ast.walk(defined[k])]
        new = {getattr(n, "id", "") for n in used} & set(defined) - kept
    rest = [n for n in tree.body if getattr(n, "name", name) in kept]
    return ast.Module(rest, [])


def _maker(
    tree: Callable[[], ast.Module], name: str, names: dict[str, Any]
) -> Callable[[], Any]:
    """A function that runs a tree, and returns what has the name `name` in it.

    Args:
        tree: makes the tree.
        name: of a function or class in the tree.
        names: the names that the tree may use.
    """

    def make() -> Any:
        space = dict(names)
        exec(compile(tree(), "<mutant>", "exec"), space)
        return space[name]

    return make


def _lines_run(task: Any, make: Callable) -> set[int]:
    """The lines of the package's function that the task's cases reach.

    The function may do more than the task asks for. That is left to the tests
    of its room.
    """
    lines = Lines("<mutant>")
    with lines:
        passes(Mutant("", "", make=make), task)
    return lines.seen


def _wrapped(function: str, make: Callable, task: Any) -> list[Mutant]:
    """Mutants that spoil what goes into a right function or comes out of it.

    Args:
        function: what the mutants are listed under.
        make: makes the right function.
        task: the task. It decides whether precision and gradients matter.
    """

    def after(change: Callable) -> Callable:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            return _first_changed(make()(*args, **kwargs), change)

        return lambda: wrong

    def spoiling() -> Callable:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            result = make()(*args, **kwargs)
            _first_changed(args, lambda x: x.detach().add_(1))
            return result

        return wrong

    def remembering() -> Callable:
        kept: list[Any] = []

        def wrong(*args: Any, **kwargs: Any) -> Any:
            if not kept:
                kept.append(make()(*args, **kwargs))
            return kept[0]

        return wrong

    wrongs: dict[str, Callable[[], Callable]] = {
        "the first number is NaN": after(_nan),
        "a result of one axis more": after(lambda x: x[None]),
        "spoils its first tensor": spoiling,
        "remembers its first result": remembering,
        "returns None": lambda: lambda *args, **kwargs: None,
        "returns its first argument": lambda: lambda *args, **kw: args[0],
    }
    if task.within < 1e-7:
        wrongs["half the digits"] = after(_rounded)
    if task.gradients:
        wrongs["is detached"] = after(lambda x: x.detach())
    return [Mutant(function, name, make=m) for name, m in wrongs.items()]


def _first_changed(result: Any, change: Callable) -> Any:
    """A result with its first tensor changed.

    Raises:
        Senseless: there is no tensor in it.
    """
    leaves, structure = tree_flatten(result)
    for n, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaves[n] = change(leaf)
            return tree_unflatten(leaves, structure)
    raise Senseless


def _nan(x: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor whose first number is NaN.

    Raises:
        Senseless: its numbers cannot be NaN.
    """
    if not x.is_floating_point():
        raise Senseless
    x = x.clone()
    x.view(-1)[0] = float("nan")
    return x


def _rounded(x: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor of float64, with the digits that float32 keeps.

    Raises:
        Senseless: it is of another type.
    """
    if x.dtype != torch.float64:
        raise Senseless
    return x.float().to(x.dtype)


def passes(mutant: Mutant, task: Any) -> bool | None:
    """Whether a task takes a mutant for right.

    Returns:
        None if the mutant changes nothing here, so that there is no answer.
    """
    from attnbook.teach.check.judge import judge

    given = task.given() if callable(task.given) else task.given
    label = next(iter(given))
    first = replace(task, given={label: given[label]}, known={})
    try:
        for asked in (first, task):  # most are refused by the first case
            assert mutant.make is not None
            verdict = judge(mutant.make(), asked, known={})
            if isinstance(verdict.error, Senseless):
                return None
            if verdict.kind != "right":
                return False
    except (Exception, SystemExit):
        return False  # it is no program; a reader would see the error
    return True


def named_in_catalogue() -> tuple[set[str], set[str]]:
    """The chapters of the catalogue, by their two digits, and its tasks.

    The catalogue is read as text: once it is imported, no mutant can take
    the place of a room that it imports.
    """
    folder = CHAPTERS / "attnbook" / "teach" / "catalogue"
    files = sorted(folder.glob("c[0-9][0-9]_*.py"))
    tasks = {
        node.name
        for path in files
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and any(
            isinstance(by, ast.Call)
            and isinstance(by.func, ast.Name)
            and by.func.id == "task"
            for by in node.decorator_list
        )
    }
    return {path.name[1:3] for path in files}, tasks


def solutions(chapter: str) -> dict[str, str]:
    """The sources of the solutions in a chapter, by the names of the tasks."""
    found = {}
    task = ""
    for path in CHAPTERS.glob(f"{chapter}_*.ipynb"):
        for cell in read(path).cells:
            if stub := re.search(r"^check\.(\w+)\(my_", cell.source, re.M):
                task = stub[1]
            elif "solution" in cell.metadata.get("tags", []):
                parts = re.findall(r"(?s)```python\n(.*?)```", cell.source)
                found[task] = "\n".join(parts)
    return found
