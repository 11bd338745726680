"""Dependencies: what is asked for, what is locked, what is made of both, and
what is imported."""

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import dependencies
import pytest
from notebooks import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))


def requirements(lines):
    """Requirements by their names, however these are written."""
    found = {}
    for line in lines:
        asked = Requirement(line)
        found.setdefault(canonicalize_name(asked.name), []).append(asked)
    return found


def lines(text):
    return [line for line in text.splitlines() if not line.startswith("#")]


BOOK = requirements(dependencies.bounds())
PACKAGE = requirements(dependencies.project()["project"]["dependencies"])


@pytest.mark.parametrize("name", dependencies.FILES)
def test_what_is_made_of_the_dependencies_is_up_to_date(name):
    """If not: .venv/bin/python tools/dependencies.py"""
    assert (ROOT / name).read_text("utf-8") == dependencies.FILES[name]()


def test_the_lock_has_what_pyproject_asks_for():
    """If not: .venv/bin/python tools/dependencies.py"""
    (own,) = (p for p in LOCK["package"] if p["name"] == "attnbook")
    asked = own["metadata"]["requires-dev"]
    assert dependencies.project()["dependency-groups"].keys() >= asked.keys()
    for group, locked in asked.items():
        wanted = requirements(dependencies.bounds(group))
        assert {entry["name"] for entry in locked} == set(wanted)
        for entry in locked:
            (known,) = wanted[entry["name"]]
            bounds = Requirement(f"x{entry.get('specifier', '')}").specifier
            assert known.specifier == bounds, entry


def test_all_that_is_asked_for_has_one_exact_version_for_a_python():
    text = (ROOT / "constraints.txt").read_text("utf-8")
    pinned = requirements(lines(text))
    assert set(BOOK) <= set(pinned) and set(PACKAGE) <= set(BOOK)
    locked = {(p["name"], p.get("version")) for p in LOCK["package"]}
    for name, pins in pinned.items():
        for pin in pins:
            (exact,) = pin.specifier
            assert exact.operator == "==" and (name, exact.version) in locked
        for python in ("3.11.0", "3.11.9", "3.13.1"):
            here = {"python_full_version": python}
            count = sum(not p.marker or p.marker.evaluate(here) for p in pins)
            assert count <= 1, pins


#: What is imported where it is there, and asked for nowhere: Triton comes with
#: PyTorch where there are cards, `model` is nanoGPT's, of a folder given. The
#: two engines, and the 8 bits of torchao, are measured beside the book where
#: somebody has installed them.
OPTIONAL = {"triton", "model", "ctranslate2", "xllamacpp", "torchao"}

#: A namespace that many distributions share.
SHARED = {"sphinxcontrib": "sphinxcontrib.katex"}


def imported(folder):
    """The modules that the code of a folder imports from elsewhere."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module)
    tops = {name.partition(".")[0] for name in found}
    return tops - set(sys.stdlib_module_names) - OPTIONAL - own_modules()


def own_modules():
    """What the house's own folders offer for import."""
    found = {"attnbook"}
    for folder in ("tools", "site", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= {path.stem, path.parent.name}
    return found


#: The distributions of each module that is installed. To list them takes half
#: a second, so they are listed once.
distributions = functools.cache(packages_distributions)


def distributions_of(module):
    if module in SHARED:
        return {canonicalize_name(SHARED[module])}
    return set(map(canonicalize_name, distributions()[module]))


@pytest.mark.parametrize(
    "folder, declared",
    [
        ("chapters/attnbook", PACKAGE),
        ("tools", BOOK),
        ("site", BOOK),
        ("benchmarks", BOOK),
        ("tests", BOOK),
    ],
)
def test_what_is_imported_is_declared(folder, declared):
    """By itself, and not because something else brings it along."""
    undeclared = {
        module
        for module in imported(folder)
        if not distributions_of(module) & set(declared)
    }
    assert undeclared == set()


def test_the_package_asks_for_nothing_that_it_does_not_import():
    used = set()
    for module in imported("chapters/attnbook"):
        used |= distributions_of(module)
    assert set(PACKAGE) - used == set()


def test_the_lock_names_public_hosts_alone():
    text = (ROOT / "uv.lock").read_text()
    hosts = set(re.findall(r'"[a-z]+://([^/"]+)', text))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


def test_an_installed_version_is_pinned_without_its_builds_mark(monkeypatch):
    class Installed:
        def __init__(self, name, version):
            self.name = name
            self.version = version

    some = [Installed("torch", "2.13.0+cpu"), Installed("pip", "25.0")]
    monkeypatch.setattr(dependencies, "distributions", lambda: some)
    assert dependencies.installed() == ["torch==2.13.0"]
