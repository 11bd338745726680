"""The Makefile: installs once, again when it must, and after a failure.

A stand-in for Python takes down what it was called with.
"""

import os
import shutil
import subprocess

import pytest
from book import without_make
from notebooks import ROOT

PYTHON = """#!/bin/sh
echo "$@ [$ATEN_CPU_CAPABILITY $ATTNBOOK_OFFLINE]" >> "$LOG"
case "$*" in
  *"-m venv --clear .venv"*)
    rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *"pip install"*) [ ! -e "$BROKEN" ] ;;
  *tools/build.py*)
    rm -rf _build && [ ! -e "$BROKEN" ] && mkdir -p _build/html ;;
esac
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("Makefile", "requirements.txt", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("_config.yml", "_toc.yml", "references.bib"):
        (tmp_path / name).touch()
    for name in ("site", "chapters", "images", "tools"):
        (tmp_path / name).mkdir()
    (tmp_path / "tools" / "build.py").touch()
    (tmp_path / "chapters" / "index.md").touch()
    python = tmp_path / "fake-python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("BROKEN", str(tmp_path / "broken"))
    return tmp_path


def make(folder, *arguments):
    """Run make; whether it passed, and the interesting calls it made."""
    log = folder / "log"
    log.unlink(missing_ok=True)
    done = subprocess.run(
        ["make", *arguments, "PYTHON=./fake-python"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=without_make(),
    )
    calls = log.read_text() if log.exists() else ""
    words = ("-m venv", "pip install", "tools/build.py")
    return done.returncode == 0, [w for w in words if w in calls]


def newer(path):
    """Make a file newer than everything that make has written."""
    stamp = path.stat().st_mtime + 10
    os.utime(path, (stamp, stamp))


def test_the_second_time_nothing_is_done(folder):
    whole = ["-m venv", "pip install", "tools/build.py"]
    assert make(folder, "book") == (True, whole)
    assert make(folder, "book") == (True, [])


@pytest.mark.parametrize("name", ["constraints.txt", "requirements.txt"])
def test_changed_versions_are_installed(folder, name):
    make(folder, "install")
    newer(folder / name)
    assert make(folder, "install") == (True, ["pip install"])


def test_a_changed_chapter_is_built_without_an_installation(folder):
    make(folder, "book")
    newer(folder / "chapters" / "index.md")
    assert make(folder, "book") == (True, ["tools/build.py"])


def test_a_broken_installation_is_taken_up_again(folder):
    (folder / "broken").touch()
    assert make(folder, "book") == (False, ["-m venv", "pip install"])
    assert make(folder, "book") == (False, ["pip install"])
    (folder / "broken").unlink()
    assert make(folder, "book") == (True, ["pip install", "tools/build.py"])


def test_a_half_made_environment_is_made_anew(folder):
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").touch()  # not even executable
    assert make(folder, "install") == (True, ["-m venv", "pip install"])


def test_a_failed_build_is_done_again(folder):
    make(folder, "book")
    newer(folder / "chapters" / "index.md")
    (folder / "broken").touch()
    assert make(folder, "book") == (False, ["tools/build.py"])
    assert make(folder, "book") == (False, ["tools/build.py"])
    (folder / "broken").unlink()
    assert make(folder, "book") == (True, ["tools/build.py"])


def test_the_newest_versions_can_be_tried(folder):
    assert make(folder, "install", "CONSTRAINTS=")[0]
    assert "-c constraints.txt" not in (folder / "log").read_text()
    make(folder, "clean")
    assert make(folder, "install")[0]
    assert "-c constraints.txt" in (folder / "log").read_text()


def test_everything_is_run_offline_and_once_more_as_on_another_cpu(folder):
    assert make(folder, "test")[0]
    runs = [
        line
        for line in (folder / "log").read_text().splitlines()
        if line.startswith("-m pytest")
    ]
    notebooks = [run for run in runs if "--nbval" in run]
    (tests,) = [run for run in runs if run not in notebooks]
    other, here = notebooks
    assert other.endswith(" chapters [default 1]")
    assert here.endswith(" chapters [ 1]") and tests.endswith(" tests [ 1]")


@pytest.mark.parametrize(
    "failing", ["[default 1]", " chapters [ 1]", " tests [ 1]"]
)
def test_every_run_of_the_tests_counts(folder, failing):
    assert make(folder, "test")[0]
    python = folder / ".venv" / "bin" / "python"
    python.write_text(
        python.read_text()
        + f'case "$* [$ATEN_CPU_CAPABILITY $ATTNBOOK_OFFLINE]" in\n'
        f'  *"pytest"*"{failing}") exit 1 ;;\nesac\n'
    )
    assert not make(folder, "test")[0]


def test_a_changed_theme_is_built(folder):
    (folder / "site" / "book_page.py").touch()
    make(folder, "book")
    newer(folder / "site" / "book_page.py")
    assert make(folder, "book") == (True, ["tools/build.py"])
