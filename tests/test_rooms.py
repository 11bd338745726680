"""`teach` and `run` import the library, nothing imports them, and inside
`teach` imports run one way too: check <- page <- catalogue. There is no
circle, not even one that an import inside a function would hide."""

import ast
import functools
import graphlib
import re

import pytest
from imports import imported
from notebooks import CHAPTERS

TEACH = "attnbook.teach"

#: What the rooms of `teach` may import of each other. `teach` itself makes
#: the book known to the engine, and the door of the pages stands above all.
ALLOWED = {
    "check": {"check"},
    "page": {"check", "page"},
    "catalogue": {"check", "page", "catalogue"},
    "exercises": {"check"},
    "": {"check", "catalogue"},
}


@functools.cache
def arrows() -> dict[str, set[str]]:
    """What each module of the package imports of it, in functions too."""
    files = {
        ".".join(p.relative_to(CHAPTERS).with_suffix("").parts): p
        for p in (CHAPTERS / "attnbook").rglob("*.py")
    }
    rooms = {n.removesuffix(".__init__"): p for n, p in files.items()}
    return {
        room: imported(path.read_text("utf-8"), set(rooms)) - {room}
        for room, path in rooms.items()
    }


def floor(room: str) -> str:
    part = room.split(".")[1:2]
    return part[0] if part in (["teach"], ["run"]) else "library"


def test_imports_run_one_way():
    rooms = dict(arrows())
    rooms.pop("attnbook.__main__")
    upwards = [
        f"{room} imports {other}"
        for room, others in rooms.items()
        for other in others
        if floor(other) not in ("library", floor(room))
    ]
    assert upwards == []
    [*graphlib.TopologicalSorter(rooms).static_order()]  # else a CycleError


def wing(room: str) -> str | None:
    """The part of `teach` that a room is in; None for the library."""
    if room != TEACH and not room.startswith(f"{TEACH}."):
        return None
    return room.removeprefix(TEACH).lstrip(".").split(".")[0]


def test_inside_of_teach_imports_run_one_way():
    found = [
        f"{room} imports {other}"
        for room, others in arrows().items()
        if wing(room) is not None
        for other in others
        if wing(other) is not None and wing(other) not in ALLOWED[wing(room)]
    ]
    assert found == []


def test_the_engine_knows_no_book():
    """It imports nothing of the library, and no text in it names the book."""
    engine = f"{TEACH}.check"
    found = [
        f"{room} imports {other}"
        for room, others in arrows().items()
        if room.startswith(engine)
        for other in others
        if not other.startswith(engine)
    ]
    for path in (CHAPTERS / "attnbook" / "teach" / "check").rglob("*.py"):
        found += [
            f"{path.name}, line {line}: {text}"
            for line, text in texts(path.read_text("utf-8"))
            if names_a_book(text)
        ]
    assert found == []


def texts(source: str) -> list[tuple[int, str]]:
    """The texts in a source that are no docstrings, with their lines."""
    tree = ast.parse(source)
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in told
    ]


def names_a_book(text: str) -> bool:
    """Whether a text names the book's package, or one of its chapters."""
    return bool(re.search(r"(?i)attnbook|\bc\d\d_|my_$", text))


@pytest.mark.parametrize(
    "text", ["attnbook.", "ATTNBOOK_OFFLINE", "c04_scaling", "my_"]
)
def test_a_text_that_names_the_book_would_be_found(text):
    (found,) = texts(f'"""attnbook."""\nx = {text!r}')
    assert found == (2, text) and names_a_book(text)


def test_an_import_inside_a_function_is_seen():
    source = "def f():\n    from attnbook.teach.check import judge\n"
    rooms = {"attnbook.teach.check", "attnbook.teach.check.judge"}
    assert imported(source, rooms) == {"attnbook.teach.check.judge"}
