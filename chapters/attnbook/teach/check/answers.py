"""An answer out of a notebook: what it needs, and what the check says of it.

A notebook need not run to be judged: of its statements those are run, in
their order, on which the answer depends.
"""

from __future__ import annotations

import ast
import re
import symtable
import sys
from collections.abc import Sequence
from typing import Any

from attnbook.teach.check.judge import judge
from attnbook.teach.check.registry import the_book

#: Read here, before any answer runs, and once for all processes to come.
BOOK = the_book()
TASKS = BOOK.tasks

KINDS = {
    "right": "right",
    "not attempted": "not tried",
    "known mistake": "not right",
    "wrong": "not right",
    "error": "error",
}
NO_MEMORY = "more memory than the limit"


def judged(cells: list[str], name: str) -> tuple[str, str]:
    """The verdict on an answer, and its detail (see `grade.Grade`).

    What is asked for afterwards is at hand before anything of it runs.
    """
    task, mine, judge_it = TASKS[name], BOOK.answer_prefix + name, judge
    before, changed = _owned(), _changed
    names: dict[str, Any] = {"__name__": "__submission__"}
    try:
        first = _run(needed(cells, mine), names)
        if mine not in names:
            raise first or NameError(mine)
        verdict = judge_it(names[mine], task)
    except BaseException as error:
        limit = isinstance(error, MemoryError)
        why = f"{type(error).__name__}: {error}"[:500]
        return ("limit", NO_MEMORY) if limit else ("error", why)
    if found := changed(before):
        return "error", f"it changes {found}, which is not its to change"
    detail = (verdict.mistake or verdict.short)[:500]
    if isinstance(verdict.error, MemoryError) or "t allocate mem" in detail:
        return "limit", NO_MEMORY
    if "no result after" in detail:
        return "limit", detail
    return KINDS[verdict.kind], detail


def needed(cells: Sequence[str], name: str) -> list[ast.stmt]:
    """The statements of a notebook on which a name depends, in their order.

    What merely prints, draws or trains is left out.

    Raises:
        SyntaxError: in the cell that defines the name.
    """
    statements: list[ast.stmt] = []
    for cell in cells:
        try:
            statements += ast.parse(re.sub(r"(?m)^[%!].*", "", cell)).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            if re.search(rf"(?m)^\s*(def|class)\s+{name}\b", cell):
                raise
    bound = [_bound(statement) for statement in statements]
    wanted, size = {name, "*"}, 0
    while size < len(wanted):
        size = len(wanted)
        for statement, names in zip(statements, bound):
            wanted |= _used(statement) if names & wanted else set()
    return [s for s, names in zip(statements, bound) if names & wanted]


def _used(statement: ast.stmt) -> set[str]:
    """The names of the notebook that a statement looks up, now or later."""
    top = symtable.symtable(ast.unparse(statement), "a cell", "exec")
    found, tables = set(), [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (table is top or symbol.is_global())
        }
    return found


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value, or changes a part of."""
    if isinstance(
        statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    ):
        return {statement.name}
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            while isinstance(node, (ast.Attribute, ast.Subscript)):
                node = node.value
            found |= {node.id} if isinstance(node, ast.Name) else set()
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


def _run(
    statements: Sequence[ast.stmt], names: dict[str, Any]
) -> BaseException | None:
    """Run what an answer needs; the first error, which may not matter."""
    first = None
    for statement in statements:
        try:
            module = ast.Module([statement], type_ignores=[])
            exec(compile(module, "the notebook", "exec"), names)
        except BaseException as error:
            first = first or error
    return first


def _owned() -> list[tuple[Any, dict[str, Any]]]:
    """What the book's modules, their classes and Python's own names are."""
    owners: list[Any] = [
        module
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in (BOOK.package, "builtins")
    ]
    for module in list(owners):
        owners += [c for c in vars(module).values() if isinstance(c, type)]
    return [(owner, dict(vars(owner))) for owner in owners]


def _changed(before: list[tuple[Any, dict[str, Any]]]) -> str:
    """The first of them that is another now, or ""."""
    for owner, names in before:
        for key, value in names.items():
            if vars(owner).get(key, before) is not value:
                return f"{owner.__name__}.{key}"
    return ""
