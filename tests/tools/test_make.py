"""The Makefile: installs once, again when it must, and after a failure.

A stand-in for Python takes down what it was called with.
"""

import os
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
from book import without_make
from notebooks import ROOT

PYTHON = """#!/bin/sh
echo "$(basename $0) $@ [$ATEN_CPU_CAPABILITY $ATTNBOOK_OFFLINE \
$MPLCONFIGDIR]" >> "$LOG"
case "$FAILING" in "") ;; *) case "$(basename $0) $*" in
  *$FAILING*) exit 1 ;;
esac ;; esac
case "$*" in
  *tools/install.py*)
    mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/ruff
    [ ! -e "$BROKEN" ] ;;
  *tools/build.py*)
    rm -rf _build && [ ! -e "$BROKEN" ] && mkdir -p _build/html ;;
esac
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in (
        "Makefile",
        "requirements.txt",
        "constraints.txt",
        "models.txt",
    ):
        shutil.copy(ROOT / name, tmp_path)
    for name in (
        "_config.yml",
        "_toc.yml",
        "references.bib",
        "CHANGELOG.md",
        "tools/build.py",
        "tools/notebooks.py",
        "chapters/attnbook/data/town.safetensors",
        "chapters/attnbook/town.py",
        "site/page.py",
        "images/a.svg",
        "chapters/index.md",
        "chapters/04_scaled.ipynb",
        "chapters/attnbook/teach/catalogue/c04_scaling.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    python = tmp_path / "fake-python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("BROKEN", str(tmp_path / "broken"))
    return tmp_path


INSTALL, BUILD = "tools/install.py", "tools/build.py"


def make(folder, *arguments, failing=""):
    """Run make; whether it passed, and what it called."""
    return made(folder, *arguments, failing=failing)[:2]


def made(folder, *arguments, failing=""):
    """Run make; whether it passed, what it called, and its errors."""
    log = folder / "log"
    log.unlink(missing_ok=True)
    done = subprocess.run(
        ["make", *arguments, "PYTHON=./fake-python"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**without_make(), "FAILING": failing},
    )
    calls = log.read_text().splitlines() if log.exists() else []
    return done.returncode == 0, calls, done.stderr


def steps(folder, *arguments):
    """Whether make passed, and whether it installed and built."""
    passed, calls = make(folder, *arguments)
    called = " ".join(calls)
    return passed, [word for word in (INSTALL, BUILD) if word in called]


def newer(path):
    """Make a file newer than everything that make has written."""
    stamp = path.stat().st_mtime + 10
    os.utime(path, (stamp, stamp))


@pytest.mark.parametrize(
    "name, step",
    [
        ("constraints.txt", INSTALL),
        ("requirements.txt", INSTALL),
        ("models.txt", INSTALL),
        ("chapters/index.md", BUILD),
        ("site/page.py", BUILD),
    ],
)
def test_what_has_changed_is_done_again_and_no_more(folder, name, step):
    goal = "install" if step == INSTALL else "book"
    make(folder, "book")
    assert steps(folder, goal) == (True, [])
    newer(folder / name)
    assert steps(folder, goal) == (True, [step])


@pytest.mark.parametrize("failed", [INSTALL, BUILD])
def test_what_has_failed_is_taken_up_again(folder, failed):
    if failed == BUILD:
        make(folder, "install")
    (folder / "broken").touch()
    assert steps(folder, "book") == (False, [failed])
    assert steps(folder, "book") == (False, [failed])
    (folder / "broken").unlink()
    rest = [INSTALL, BUILD] if failed == INSTALL else [BUILD]
    assert steps(folder, "book") == (True, rest)


def test_the_newest_versions_can_be_tried(folder):
    for setting, wanted in (["CONSTRAINTS="], False), ([], True):
        _, calls = make(folder, "clean", "install", *setting)
        assert any("constraints.txt" in call for call in calls) == wanted


#: What each command runs; that it fails when one of them does.
RUNS = [
    ("install", "-c import matplotlib.font_manager"),
    ("check", "--doctest-modules"),
    ("check CHAPTER=04", "ruff format --check chapters/04_scaled.ipynb"),
    ("check CHAPTER=04", "--nbval*chapters/04_scaled.ipynb"),
    ("check CHAPTER=04", "-k 04_scaled or 04- tests/chapters"),
    ("check CHAPTER=04", "tools/mutants.py --sample 4 --seed 1 04"),
    ("test", "--nbval*chapters/04_scaled.ipynb"),
    ("test", "--nbval*--ignore=chapters/04_scaled.ipynb chapters"),
    (
        "test",
        "pytest tests/chapters/test_whole_pages.py "
        "tests/chapters/test_mistakes_on_pages.py",
    ),
    ("test", "pytest tests/chapters/test_without_folds.py"),
    ("test", "pytest tests/attnbook/teach"),
    ("test", "pytest --ignore=tests/attnbook/teach tests/attnbook"),
    ("test", "--ignore=tests/browser tests"),
]


@pytest.mark.parametrize("command, run", RUNS)
def test_every_run_counts(folder, command, run):
    (folder / "notes.py").write_text(">>> 1\n")
    passed, calls = make(folder, *command.split())
    assert passed and any(fnmatch(call, f"*{run}*") for call in calls)
    assert not make(folder, "clean", *command.split(), failing=run)[0]


def test_every_test_is_in_one_part(folder):
    """What a part names is left out of the part that has all around it, and
    nothing else is."""
    _, calls = make(folder, "test")
    given = [call.split(" [")[0].split() for call in calls]
    runs = {
        word: {w.removeprefix("--ignore=") for w in words if "=" in w}
        for words in given
        for word in words
        if word.startswith("tests/") or word == "tests"
    }
    around = {name: set() for name in runs}
    for name in runs.keys() - {"tests"}:
        outer = [str(p) for p in Path(name).parents if str(p) in runs]
        around[outer[0]].add(name)
    around["tests"].add("tests/browser")
    for name, left_out in runs.items():
        tests = {w for w in left_out if w.startswith("tests/")}
        assert tests == around[name], name
    assert len(runs) == 6
    assert all((ROOT / path).exists() for path in runs)


def test_one_part_that_fails_holds_up_no_other(folder):
    make(folder, "book")
    passed, calls = make(folder, "test", "JOBS=1", failing="--nbval")
    assert not passed
    assert sum("pytest" in call for call in calls) == 7


@pytest.mark.parametrize(
    "command, late",
    [(["test"], "avx2"), (["test", "OLDEST=1"], "default")],
)
def test_the_outputs_are_compared_offline_as_on_another_cpu(
    folder, command, late
):
    _, calls = make(folder, *command)
    fonts = folder.resolve() / ".venv/matplotlib"
    for start in (
        f" chapters [{late}",
        " chapters/04_scaled.ipynb [default",
        " tests [",
    ):
        assert any(call.endswith(f"{start} 1 {fonts}]") for call in calls)


@pytest.mark.parametrize("command", ["check", "slides"])
@pytest.mark.parametrize("chapter", ["99", "4", "0", "*"])
def test_an_unknown_chapter_is_refused(folder, command, chapter):
    passed, calls, said = made(folder, command, f"CHAPTER={chapter}")
    assert not passed and calls == []
    assert f"there is no chapter {chapter}; expected two digits" in said
    assert "04_scaled" in said


def test_a_page_without_a_number_is_checked_by_its_name(folder):
    (folder / "chapters" / "how_fast.ipynb").touch()
    passed, calls = make(folder, "check", "CHAPTER=how_fast")
    assert passed and not any("mutants" in call for call in calls)
    assert any("--nbval" in c and "how_fast.ipynb" in c for c in calls)


def test_options_are_handed_to_jupyterlab_as_three_places_say(folder):
    line = 'OPTIONS="--no-browser --port=8899"'
    _, calls = make(folder, "lab", line.replace('"', ""))
    assert any("lab.py --no-browser --port=8899 [" in call for call in calls)
    told = subprocess.run(
        ["make", "help"], cwd=folder, capture_output=True, text=True
    )
    assert line in told.stdout
    for name in ("README.md", "chapters/run_a_page.md"):
        text = (ROOT / name).read_text("utf-8")
        assert f"make lab {line}" in text and "`--allow-root`" in text


def test_the_deck_of_one_chapter_can_be_made(folder):
    _, calls = make(folder, "slides", "CHAPTER=04")
    assert any(f"{BUILD} slides 04 [" in call for call in calls)


def test_cards_are_in_one_file_so_no_chapter_is_taken(folder):
    passed, calls, said = made(folder, "cards", "CHAPTER=04")
    assert not passed and calls == []
    assert "expected no CHAPTER, got 04" in said and "tag" in said
    assert make(folder, "cards")[0]
