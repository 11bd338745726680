"""An answer out of a notebook: what it needs, what it does, its verdict.

A notebook need not run to be judged: of its statements those are run, in
their order, on which the answer depends. `answered` runs them, in the process
of a stranger. `marked` judges what came of it, in the process that grades.
"""

from __future__ import annotations

import ast
import re
import symtable
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from attnbook.teach.check import guard
from attnbook.teach.check.finding import Kind
from attnbook.teach.check.guard import OutOfTime
from attnbook.teach.check.judge import Verdict, attempted, verdict_on
from attnbook.teach.check.outcomes import packed, unpacked
from attnbook.teach.check.registry import the_book
from attnbook.teach.check.trial import Attempt, Trial

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
LONGEST = 500

#: Calls that can give a value to a name which they do not show.
_HIDDEN = {"exec", "setattr", "globals", "vars", "locals", "delattr"}
#: The name that an answer gets if the notebook gives it another one.
_ANSWER = "_the_answer_"


def answered(
    cells: list[str], name: str, given: str = "", seconds: float | None = None
) -> dict[str, Any]:
    """What an answer does on the cases of its task, as data.

    This runs the answer, so it belongs into a process of its own. What is
    asked for afterwards is at hand before anything of the answer runs.

    Args:
        cells: the code of the notebook.
        name: the task.
        given: the answer, as the notebook gives it to the check of the task;
            if "", it has the name that the exercise asks for.
        seconds: what one call of it may take; if None, as in a notebook.

    Returns:
        ``{"outcomes": …, "changed": …}``: its outcomes (see `outcomes`), and
        what it replaced in the book or in Python, or ""; or ``{"failed":
        [verdict, detail]}``, where it could not be tried.
    """
    mine = _ANSWER if given else BOOK.answer_prefix + name
    if given:
        cells = [*cells, f"{mine} = {given}"]
    if seconds is not None:
        guard.SECONDS = seconds
    task = TASKS[name]
    try_it = attempted
    pack = packed
    before = _owned()
    changed = _changed
    names: dict[str, Any] = {"__name__": "__submission__"}
    try:
        first = _run_statements(needed(cells, mine), names)
        if mine not in names:
            why = f"nothing in it is called {mine}"
            return _failed(first) if first else {"failed": ["not tried", why]}
        tried, _ = try_it(names[mine], task)
        outcomes = [pack(outcome) for outcome in tried.got]
    except BaseException as error:
        return _failed(error)
    return {"outcomes": outcomes, "changed": changed(before)}


def _failed(error: BaseException) -> dict[str, Any]:
    """What is sent in place of outcomes if an answer could not be tried."""
    if isinstance(error, MemoryError):
        return {"failed": ["limit", NO_MEMORY]}
    why = f"{type(error).__name__}: {error}"[:LONGEST]
    return {"failed": ["error", why]}


@cache
def _trial(name: str) -> Trial:
    """A task's cases and right results, computed once in each process."""
    return Trial.on(TASKS[name])


def marked(name: str, sent: Any) -> tuple[str, str]:
    """The verdict on an answer, and its detail (see `grade.Grade`).

    Args:
        name: the task.
        sent: what `answered` returned, or what somebody sent in its place:
            it is compared with the reference here, and nothing in it can say
            that an answer is right.

    Raises:
        ValueError: if it is nothing that `answered` returns.
        ReferenceFailed: if the task's own reference raises an error, whatever
            was sent: no answer is to blame.
    """
    trial = _trial(name)
    match sent:
        case {"failed": [("error" | "limit" | "not tried") as kind, str(why)]}:
            return kind, why[:LONGEST]
        case {"outcomes": [_, *_] as outcomes, "changed": str(changed)}:
            got = [unpacked(outcome) for outcome in outcomes]
        case _:
            raise ValueError("this is no outcome of an answer")
    whole = len(got) == len(trial.cases)
    if not whole and not (len(got) < len(trial.cases) and got[-1].broken_off):
        raise ValueError("there is not an outcome for each case")
    if changed:
        why = f"it changes {changed}, which is not its to change"
        return "error", why[:LONGEST]
    tried = trial.attempt_of(_unseen, got)
    verdict = verdict_on(tried, known=trial.task.known)
    detail = (verdict.mistake or verdict.short)[:LONGEST]
    if verdict.kind in ("wrong", "error"):
        return _refused(tried, verdict, detail)
    return KINDS[verdict.kind], detail


def _refused(tried: Attempt, verdict: Verdict, detail: str) -> tuple[str, str]:
    """The verdict on an answer that is not right, and no known mistake."""
    last = tried.got[-1].error
    error = tried.error
    if isinstance(last, OutOfTime):
        return "limit", str(last)
    if verdict.finding and verdict.finding.kind == Kind.OUT_OF_MEMORY:
        return "limit", NO_MEMORY
    if isinstance(error, NameError):
        detail += "; no statement that could be read gives it a value"
    for words, slip in tried.trial.task.slips.items():
        if tried.is_like(slip.wrong):
            return "not right", words
    return KINDS[verdict.kind], detail


def _unseen(*_: Any, **__: Any) -> None:
    """Stand in for an answer whose code is in another process, and do nothing.

    An `Attempt` has to have a function; here its outcomes are all that is
    known.
    """


def marked_here(
    cells: list[str], name: str, given: str = ""
) -> tuple[str, str]:
    """`answered` and `marked` in one, in this process: not for strangers."""
    return marked(name, answered(cells, name, given))


def other_answers(cells: Sequence[str]) -> dict[str, str]:
    """What the notebook gives to the check of each task, task by task.

    Only what is not called as the exercise asks, such as ``my_mask`` in
    ``check.causal_mask(my_mask)``; of several the last.
    """
    found = {}
    for statement in _statements(cells):
        for node in ast.walk(statement):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("check"), attr=task),
                    args=[answer, *_],
                ) if task in TASKS:
                    given = ast.unparse(answer)
                    if given != BOOK.answer_prefix + task:
                        found[task] = given
    return found


def unreadable(cells: Sequence[str]) -> list[int]:
    """The numbers, from 1 on, of those cells that are not valid Python."""
    return [n for n, cell in enumerate(cells, 1) if _parsed(cell) is None]


def needed(cells: Sequence[str], name: str) -> list[ast.stmt]:
    """The statements of a notebook on which a name depends, in their order.

    What merely prints, draws or trains is left out.

    Raises:
        SyntaxError: in the cell that defines the name.
    """
    defines = rf"(?m)^\s*((async\s+)?def|class)\s+{name}\b"
    statements = list(_statements(cells))
    if not any(name in _bound(statement, ()) for statement in statements):
        defines += rf"|^\s*{name}\s*=[^=]"
    for cell in cells:
        if re.search(defines, cell) and _parsed(cell) is None:
            ast.parse(
                _without_magic(cell)
            )  # its SyntaxError says what is wrong
    imported = _imported(statements)
    bound = [_bound(statement, imported) for statement in statements]
    wanted = {name, "*"}
    size = 0
    while size < len(wanted):
        size = len(wanted)
        for statement, names in zip(statements, bound):
            wanted |= _used(statement) if names & wanted else set()
    return [s for s, names in zip(statements, bound) if names & wanted]


def _statements(cells: Sequence[str]) -> Iterator[ast.stmt]:
    """The statements of those cells that are Python; the others are left
    out."""
    for cell in cells:
        yield from _parsed(cell) or ()


def _parsed(cell: str) -> list[ast.stmt] | None:
    """The statements of a cell, or None if it is no Python."""
    # Tried as it is first, because a line of Python may begin with %, too.
    for text in (cell, _without_magic(cell)):
        try:
            return ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _without_magic(cell: str) -> str:
    """A cell without the lines that only IPython understands (%, ! and ?).

    A cell of another language, such as ``%%bash``, becomes empty.
    """
    whole = re.match(r"\s*%%(\w+)", cell)
    if whole and whole[1] not in ("time", "timeit", "capture", "prun"):
        return ""  # in another language, or a file to be written
    cell = re.sub(r"(?m)^(\s*)([%!?].*|[\w.]+\?+\s*)$", r"\1pass", cell)
    return re.sub(r"(?m)^(\s*[\w, ]+=\s*)[%!].*", r"\1None", cell)


def _imported(statements: Sequence[ast.stmt]) -> set[str]:
    """The names under which a notebook has modules and what is in them."""
    return {
        (alias.asname or alias.name).split(".")[0]
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def _used(statement: ast.stmt) -> set[str]:
    """The names of the notebook that a statement looks up, now or later."""
    found = _used_in_text(statement)
    try:
        top = symtable.symtable(ast.unparse(statement), "a cell", "exec")
    except SyntaxError:  # such as a return outside of a function
        names = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
        return found | {name.id for name in names}
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            # `global calls; calls += 1` reads the name, but counts as a
            # declaration.
            looked_up = symbol.is_referenced() or symbol.is_declared_global()
            # The lines of a class may look up names of the notebook, too.
            open_ = table is top or table.get_type() == "class"
            if looked_up and (open_ or symbol.is_global()):
                found.add(symbol.get_name())
    return found


def _used_in_text(statement: ast.stmt) -> set[str]:
    """The names that code uses which a statement gives to `exec` as text."""
    found = set()
    for node in ast.walk(statement):
        match node:
            case ast.Call(
                func=ast.Name("exec" | "eval"),
                args=[ast.Constant(str(text)), *_],
            ):
                for inner in _parsed(text) or ():
                    found |= _used(inner)
    return found


def _bound(statement: ast.stmt, imported: Collection[str]) -> set[str]:
    """The names that a statement gives a value, or changes a part of.

    "*" stands for any name: `from … import *`, `exec`, `setattr`.
    """
    if isinstance(
        statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    ):
        return {statement.name}
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            found |= _root(node)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):  # helpers.append(one)
                found |= _root(node.func) - set(imported)
            elif _root(node.func) & _HIDDEN:
                found.add("*")
    return found


def _root(node: ast.AST) -> set[str]:
    """The name at the beginning of ``name.part[0].more``, as a set.

    The set is empty where no name is at the beginning, as in ``f().part``.
    """
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _run_statements(
    statements: Sequence[ast.stmt], names: dict[str, Any]
) -> BaseException | None:
    """Run the statements that an answer needs, and go on after an error.

    Returns:
        the first error, or None. The answer is tried all the same, since it
        may not need what has failed.
    """
    first = None
    for statement in statements:
        try:
            module = ast.Module([statement], type_ignores=[])
            exec(compile(module, "the notebook", "exec"), names)
        except BaseException as error:
            first = first or error
    return first


def _owned() -> list[tuple[Any, dict[str, Any]]]:
    """The names of the book's modules, of their classes and of Python.

    They are noted before an answer runs, so that `_changed` can say what it
    has replaced.
    """
    owners: list[Any] = [
        module
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in (BOOK.package, "builtins")
    ]
    for module in list(owners):
        owners += [c for c in vars(module).values() if isinstance(c, type)]
    return [(owner, dict(vars(owner))) for owner in owners]


def _changed(before: list[tuple[Any, dict[str, Any]]]) -> str:
    """The first name that no longer means what `_owned` has noted, or ""."""
    for owner, names in before:
        for key, value in names.items():
            if vars(owner).get(key, before) is not value:
                return f"{owner.__name__}.{key}"
    return ""
