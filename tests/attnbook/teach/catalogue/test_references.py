"""A reference is never the book's own code: else an error in it would be in
both, and the check would pass."""

import ast
import importlib
import inspect

from attnbook.teach.catalogue import CHAPTERS, all_tasks
from attnbook.teach.catalogue import __name__ as CATALOGUE

#: What a reference may make: what its result is an instance of. These hold
#: values and compute nothing.
HOLDERS = {"GPTConfig", "Partial"}


class Module:
    """The functions of a chapter's module, and where its names come from."""

    def __init__(self, source: str) -> None:
        self.functions: dict[str, ast.FunctionDef | ast.ClassDef] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    name = alias.asname or alias.name
                    self.imported[name] = node.module, alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    name = (alias.asname or alias.name).split(".")[0]
                    self.imported[name] = alias.name, ""


def used(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """The names in a function's body: not its decorators, which have the
    inputs, and may give it the book's models."""
    names = (x for part in node.body for x in ast.walk(part))
    return {x.id for x in names if isinstance(x, ast.Name)}


def books_code(
    name: str, function: str, modules: dict[str, Module]
) -> set[str]:
    """What of the book a function calls, itself or by way of helpers."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    left = [(name, function)]
    while left:
        at = left.pop()
        module = modules[at[0]]
        if at in seen or at[1] not in module.functions:
            continue
        seen.add(at)
        for each in used(module.functions[at[1]]):
            if each in module.functions:
                left.append((at[0], each))
                continue
            home, original = module.imported.get(each, ("", ""))
            if home in modules:
                left.append((home, original))
            elif home.split(".")[0] == "attnbook" and (
                not home.startswith("attnbook.teach.check")
            ):
                found.add(f"{home}.{original}")
    return {one for one in found if one.rpartition(".")[2] not in HOLDERS}


def modules() -> dict[str, Module]:
    found = {}
    for chapter in CHAPTERS:
        name = f"{CATALOGUE}.{chapter}"
        found[name] = Module(inspect.getsource(importlib.import_module(name)))
    return found


def test_no_reference_calls_the_books_own_code():
    rooms = modules()
    found = {
        task.name: books_code(task.right.__module__, task.name, rooms)
        for task in all_tasks().values()
    }
    assert {name: code for name, code in found.items() if code} == {}


def test_a_helper_that_calls_it_would_be_found():
    source = """
from attnbook.masks import causal_mask
from attnbook.partial import Partial
def _mask(T):
    return causal_mask(T)
def reference(T):
    return Partial(_mask(T))
"""
    rooms = {"m": Module(source)}
    assert books_code("m", "reference", rooms) == {
        "attnbook.masks.causal_mask"
    }
