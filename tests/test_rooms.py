"""The rooms of the house and what they import: `teach` and `run` import the
library, nothing imports them, and there is no circle."""

import ast
import graphlib
from pathlib import Path

import pytest
from notebooks import CHAPTERS


def arrows(root: Path) -> dict[str, set[str]]:
    """Which modules of a package each imports, inside functions too."""
    rooms = {
        ".".join(p.relative_to(root.parent).with_suffix("").parts): p
        for p in root.rglob("*.py")
    }
    rooms = {n.removesuffix(".__init__"): p for n, p in rooms.items()}
    found = {}
    for room, path in rooms.items():
        names = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{room} imports by dots"
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    names.add(inner if inner in rooms else node.module)
        found[room] = (names & set(rooms)) - {room}
    return found


def floor(room: str) -> str:
    """The part of the house: teach, run, library, or the door to run."""
    name = room.partition(".")[2]
    first = name.partition(".")[0]
    door = {"__main__": "door"}
    return first if first in ("teach", "run") else door.get(name, "library")


def faults(found: dict[str, set[str]]) -> list[str]:
    may = {"door": {"run", "library"}}
    for part in ("teach", "run", "library"):
        may[part] = {part, "library"}
    wrong = [
        f"{room} imports {other}"
        for room, others in found.items()
        for other in others
        if floor(other) not in may[floor(room)]
    ]
    try:
        graphlib.TopologicalSorter(found).prepare()
    except graphlib.CycleError as error:
        wrong.append(" → ".join(error.args[1]))
    return wrong


def test_imports_run_one_way():
    found = arrows(CHAPTERS / "attnbook")
    assert len(found) > 30 and sum(map(len, found.values())) > 60
    assert faults(found) == []


@pytest.mark.parametrize(
    "room, line",
    [
        ("gpt", "from attnbook.teach import proof"),
        ("gpt", "import attnbook.run.loop"),
        ("run/loop", "from attnbook.teach.proof import check"),
        ("teach/proof", "from attnbook.run import loop"),
        ("layers", "def f():\n    from attnbook import gpt"),
        ("teach/proof", "from attnbook.teach import other"),
    ],
)
def test_an_arrow_up_or_a_circle_is_found(room, line, tmp_path):
    package = tmp_path / "attnbook"
    code = {
        "layers": "",
        "gpt": "from attnbook.layers import Block",
        "run/loop": "from attnbook import gpt",
        "teach/proof": "",
        "teach/other": "from attnbook.teach.proof import check",
        "__main__": "from attnbook.run import loop",
    }
    for name, text in code.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text(text)
    assert faults(arrows(package)) == []
    (package / f"{room}.py").write_text(f"{code[room]}\n{line}\n")
    assert faults(arrows(package)) != []
