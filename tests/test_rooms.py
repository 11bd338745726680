"""`teach` and `run` import the library, nothing imports them, and there is no
circle."""

import ast
import graphlib

from notebooks import CHAPTERS


def arrows() -> dict[str, set[str]]:
    """What each module of the package imports of it, in functions too."""
    files = {
        ".".join(p.relative_to(CHAPTERS).with_suffix("").parts): p
        for p in (CHAPTERS / "attnbook").rglob("*.py")
    }
    rooms = {n.removesuffix(".__init__"): p for n, p in files.items()}
    found: dict[str, set[str]] = {}
    for room, path in rooms.items():
        names = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                whole = {f"{node.module}.{a.name}" for a in node.names}
                names |= whole & set(rooms) or {node.module}
        found[room] = names & set(rooms) - {room}
    return found


def floor(room: str) -> str:
    part = room.split(".")[1:2]
    return part[0] if part in (["teach"], ["run"]) else "library"


def test_imports_run_one_way():
    rooms = arrows()
    rooms.pop("attnbook.__main__")
    upwards = [
        f"{room} imports {other}"
        for room, others in rooms.items()
        for other in others
        if floor(other) not in ("library", floor(room))
    ]
    assert upwards == []
    [*graphlib.TopologicalSorter(rooms).static_order()]  # else a CycleError
