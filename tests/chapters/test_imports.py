"""Pages and rooms import the parts of libraries that they use.

`matplotlib.pyplot` cannot be used after `import matplotlib` alone, unless
something else has imported it. In the tests' kernels much has been imported
before (see `kernels`), so who leaves out an import is looked for here, in the
text.
"""

import ast
import functools
import importlib.util
import json
import os
import subprocess
import sys

import pytest
from book import CHAPTER_FILES, by_notebook, code_cells, visible_cells
from notebooks import CHAPTERS, notebooks

ROOMS = sorted((CHAPTERS / "attnbook").rglob("*.py"))

#: What a page finds once it has imported a library, and no part of it.
ALONE = """
import importlib, json, sys
def is_there(path):
    first, *rest = path.split(".")
    found = importlib.import_module(first)
    for name in rest:
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True
print(json.dumps([is_there(path) for path in json.loads(sys.argv[1])]))
"""


@functools.cache
def not_imported(sources):
    """The parts of libraries that code uses and has not imported, by the
    paths of their modules: `scipy.stats` for one."""
    bound = {}  # names, and the paths of what they are
    imported = set()
    found = set()
    for source in sources:
        nodes = list(ast.walk(ast.parse(source)))
        for node in nodes:
            if isinstance(node, ast.Import):
                for each in node.names:
                    imported |= with_parents(each.name)
                    first, _, _ = each.name.partition(".")
                    path = each.name if each.asname else first
                    bound[each.asname or first] = path
            elif isinstance(node, ast.ImportFrom):
                for each in node.names:
                    path = f"{node.module}.{each.name}"
                    imported |= with_parents(path)
                    bound[each.asname or each.name] = path
        for node in nodes:
            path = path_of(node, bound)
            if path and path not in imported and is_module(path):
                found.add(path)
    return sorted(found)


def with_parents(path):
    parts = path.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts) + 1)}


def path_of(node, bound):
    """The path of an attribute, if what it is of was imported."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not names or not isinstance(node, ast.Name) or node.id not in bound:
        return None
    return ".".join([bound[node.id], *reversed(names)])


@functools.cache
def is_module(path):
    try:
        return importlib.util.find_spec(path) is not None
    except (ImportError, ValueError):
        return False


def of_page(path):
    return tuple(cell.source for cell in code_cells(path))


def without_folds(path):
    return tuple(cell.source for cell in visible_cells(path))


def of_room(path):
    return (path.read_text(encoding="utf-8"),)


#: Code, and what of it is not there once its library is.
EXAMPLES = {
    "import scipy\nscipy.stats.norm": [],  # SciPy imports its parts itself
    "import matplotlib\nmatplotlib.pyplot.plot()": ["matplotlib.pyplot"],
    "import matplotlib.pyplot\nmatplotlib.pyplot.plot()": [],
    "import matplotlib as m\ndef f():\n    m.pyplot.plot()": [
        "matplotlib.pyplot"
    ],
    "import torch\ntorch.nn.functional.relu": [],
    "from torch import distributed as d\nd.pipelining.Schedule1F1B": [
        "torch.distributed.pipelining"
    ],
}


@pytest.fixture(scope="module")
def absent():
    """Of all that any page or room uses and has not imported: what is not
    there in a process that has imported its library."""
    codes = [
        *map(of_page, notebooks()),
        *map(without_folds, CHAPTER_FILES),
        *map(of_room, ROOMS),
        *((code,) for code in EXAMPLES),
    ]
    paths = sorted(set().union(*map(not_imported, codes)))
    done = subprocess.run(
        [sys.executable, "-c", ALONE, json.dumps(paths)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CHAPTERS)},
    )
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    return {path for path, is_there in zip(paths, there) if not is_there}


@by_notebook()
def test_a_page_imports_what_it_uses(path, absent):
    assert absent.isdisjoint(not_imported(of_page(path)))


@by_notebook(CHAPTER_FILES)
def test_a_page_without_its_folds_does_so_too(path, absent):
    assert absent.isdisjoint(not_imported(without_folds(path)))


def test_a_room_imports_what_it_uses(absent):
    for path in ROOMS:
        assert absent.isdisjoint(not_imported(of_room(path))), path


@pytest.mark.parametrize("code", EXAMPLES)
def test_what_is_found(code, absent):
    found = [path for path in not_imported((code,)) if path in absent]
    assert found == EXAMPLES[code]
