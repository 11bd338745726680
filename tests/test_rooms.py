"""`teach` and `run` import the library, nothing imports them, and there is no
circle."""

import ast
import graphlib
from pathlib import Path

import pytest
from notebooks import CHAPTERS


def faults(root: Path) -> list[str]:
    """The arrows between a package's modules that may not be, and a circle.
    Imports inside functions count."""
    files = {
        ".".join(p.relative_to(root.parent).with_suffix("").parts): p
        for p in root.rglob("*.py")
    }
    rooms = {n.removesuffix(".__init__"): p for n, p in files.items()}
    arrows: dict[str, set[str]] = {}
    for room, path in rooms.items():
        names = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                whole = {f"{node.module}.{a.name}" for a in node.names}
                names |= whole & set(rooms) or {node.module}
        arrows[room] = names & set(rooms) - {room}
    found = [
        f"{room} imports {other}"
        for room, others in arrows.items()
        for other in others
        if floor(other) not in ("library", floor(room))
        and room != f"{root.name}.__main__"
    ]
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        found.append(" → ".join(error.args[1]))
    return found


def floor(room: str) -> str:
    part = room.split(".")[1:2]
    return part[0] if part in (["teach"], ["run"]) else "library"


def test_imports_run_one_way():
    assert faults(CHAPTERS / "attnbook") == []


@pytest.mark.parametrize(
    "room, line",
    [
        ("gpt", "from attnbook.teach import proof"),
        ("gpt", "import attnbook.run.loop"),
        ("teach/proof", "from attnbook.run import loop"),
        ("layers", "def f():\n    from attnbook import gpt"),
    ],
)
def test_an_arrow_up_or_a_circle_is_found(room, line, tmp_path):
    package = tmp_path / "attnbook"
    code = {
        "layers": "",
        "gpt": "from attnbook.layers import Block",
        "run/loop": "from attnbook import gpt",
        "teach/proof": "import attnbook.gpt",
        "__main__": "from attnbook.run import loop",
    }
    for name, text in code.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text(text)
    assert faults(package) == []
    (package / f"{room}.py").write_text(f"{code[room]}\n{line}\n")
    assert faults(package) != []
