"""The press may import the library; nothing imports it but the tools."""

import graphlib

from imports import imported

from press.places import CHAPTERS, ROOT, SITE

MODULES = {f"press.{path.stem}": path for path in SITE.rglob("*.py")}
TOOLS = {
    path.stem
    for folder in ("tools", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
}


def test_the_press_imports_no_tool():
    assert len(MODULES) > 15 and len(TOOLS) > 15
    for name, path in MODULES.items():
        assert not imported(path.read_text("utf-8"), TOOLS), name


def test_the_press_has_no_circle():
    rooms = set(MODULES)
    arrows = {
        name: imported(path.read_text("utf-8"), rooms) - {name}
        for name, path in MODULES.items()
    }
    assert sum(map(len, arrows.values())) > 30
    [*graphlib.TopologicalSorter(arrows).static_order()]  # else a CycleError


def test_the_library_does_not_import_the_press():
    rooms = {"press", *MODULES}
    for path in CHAPTERS.rglob("*.py"):
        assert not imported(path.read_text("utf-8"), rooms), path
