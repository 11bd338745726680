"""Every notebook alone: an empty folder, a fresh kernel, no network.

As in Colab the helper package is not there and comes from the repository, at
the reference that the committed set-up cell names. git is told to find the
repository's address in a copy of this working tree; the cell is untouched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from book import COMPARISON, by_notebook, code_cells, tags
from notebooks import ROOT, notebooks
from repository import address

RUN = """
import sys
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
path = sys.argv[1]
notebook = nbformat.read(path, as_version=4)
client = NotebookClient(notebook, timeout=300, kernel_name="python3",
                        extra_arguments=["--log-level=40"])
try:
    client.execute()
finally:
    nbformat.write(notebook, path)
"""


def git(*arguments: str, cwd: Path) -> None:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(
        ["git", *who, *arguments], cwd=cwd, check=True, capture_output=True
    )


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Path:
    """A repository with this working tree, tagged with the reference."""
    tree = tmp_path_factory.mktemp("remote") / "book"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(
        ROOT / "chapters" / "attnbook",
        tree / "chapters" / "attnbook",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    git("init", "--quiet", cwd=tree)
    git("add", ".", cwd=tree)
    git("commit", "--quiet", "-m", "as it is", cwd=tree)
    git("tag", address()[1], cwd=tree)
    return tree


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> Path:
    """A Python that borrows the installed packages, but not the helper."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    inside = subprocess.run(
        [
            home / "bin" / "python",
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    borrowed = sysconfig.get_path("purelib")
    Path(inside, "borrowed.pth").write_text(f"{borrowed}\n")
    kernels = Path(borrowed).parents[2] / "share" / "jupyter"
    (home / "share").mkdir(exist_ok=True)
    (home / "share" / "jupyter").symlink_to(kernels)
    return home / "bin" / "python"


def run_alone(python: Path, notebook: Path, folder: Path, remote: str):
    """Run a copy of a notebook in an empty folder; what the process did."""
    copy = folder / notebook.name
    shutil.copy(notebook, copy)
    url, _ = address()
    settings = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{remote}.insteadOf",
        "GIT_CONFIG_VALUE_0": url,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        # No network for pip: what a build needs is borrowed. The value 0
        # of the last one switches isolation off.
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_FORCE_REINSTALL": "1",
        "ATTNBOOK_OFFLINE": "1",
        "ATTNBOOK_QUIET": "1",
    }
    inherited = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTHON", "PIP_"))
    }
    done = subprocess.run(
        [python, "-c", RUN, copy],
        cwd=folder,
        env={**inherited, **settings},
        capture_output=True,
        text=True,
    )
    return done, copy


def texts(path: Path) -> list[str]:
    """What each code cell printed, the set-up cell's aside."""
    return [
        "".join(str(output.get("text", "")) for output in cell.outputs)
        for cell in code_cells(path)
        if "setup" not in tags(cell)
    ]


@by_notebook()
def test_a_notebook_runs_alone(path, repository, environment, tmp_path):
    done, copy = run_alone(environment, path, tmp_path, repository.as_uri())
    assert done.returncode == 0, done.stderr[-3000:]
    both = zip(texts(copy), texts(path), strict=True)
    assert [(a, b) for a, b in both if not COMPARISON.close(a, b)] == []


def test_without_a_repository_it_says_what_to_do(environment, tmp_path):
    """Whatever an earlier test has installed is taken away first."""
    subprocess.run(
        [environment, "-m", "pip", "uninstall", "-q", "-y", "attnbook"],
        capture_output=True,
    )
    done, _ = run_alone(
        environment, notebooks()[0], tmp_path, (tmp_path / "none").as_uri()
    )
    assert done.returncode != 0
    said = re.sub(r"\x1b\[[\d;]*m", "", done.stderr)  # without colours
    url, reference = address()
    assert (
        f"ModuleNotFoundError: attnbook is not beside this notebook, and "
        f"git+{url}@{reference} could not be installed. Download the book's "
        "whole `chapters` folder and open the notebook in it."
    ) in said
    assert "has not been given its repository yet" in said
