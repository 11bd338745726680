"""A notebook alone, as in Colab: an empty folder, and no helper package.

git is told to find an address in a copy of this working tree.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from book import SETTINGS, chapter_file, code_cells, tags
from comparison import agree
from notebooks import ROOT, read
from repository import address, setup_source

from press.package import build_wheel

URL, TAG = "https://github.com/someone/book", "v9.9.9"

#: Runs a notebook, and stores it without `notebooks.write`, which would need
#: PyTorch in this process, too.
RUN = """
import sys
from pathlib import Path
import nbformat
from outputs import execute
path = Path(sys.argv[1])
nbformat.write(execute(path), path)
"""


def git(*arguments, cwd):
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(
        ["git", *who, *arguments], cwd=cwd, check=True, capture_output=True
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with this working tree."""
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
    for tag in (TAG, address()[1]):
        git("tag", tag, cwd=tree)
    return tree


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python that borrows the installed packages, but not the helper."""
    return environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def fresh_python(tmp_path_factory):
    """One more, for a single test."""
    return environment(tmp_path_factory.mktemp("environment"))


def environment(home):
    """Make an environment with all packages but the helper in a folder, and
    return the path of its Python. Its pip is borrowed like the others, since
    to install one takes seconds."""
    making = [sys.executable, "-m", "venv", "--without-pip", home]
    subprocess.run(making, check=True)
    (inside,) = home.glob("lib/python*/site-packages")
    borrowed = sysconfig.get_path("purelib")
    (inside / "borrowed.pth").write_text(f"{borrowed}\n")
    kernels = Path(borrowed).parents[2] / "share" / "jupyter"
    (home / "share").mkdir(exist_ok=True)
    (home / "share" / "jupyter").symlink_to(kernels)
    return home / "bin" / "python"


def alone(command, folder, remote):
    """Run a command in an empty folder; URL leads to `remote`."""
    settings = SETTINGS | {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{remote.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": URL,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        # No network for pip: what a build needs is borrowed. The value 0
        # switches isolation off.
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        # Not all of the package, which takes seconds: Python compiles what
        # it imports.
        "PIP_NO_COMPILE": "1",
        "PYTHONPATH": str(ROOT / "tools"),
    }
    inherited = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTHON", "PIP_"))
    }
    return subprocess.run(
        command,
        cwd=folder,
        env={**inherited, **settings},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("owner", ["OWNER", "owner", "someone"])
def test_from_a_placeholder_nothing_is_fetched(owner, python, tmp_path):
    """Somebody may have its name, and a repository there. The pip here only
    tells that it was called."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text(
        "import sys; print('pip', *sys.argv[1:], file=sys.stderr); sys.exit(1)"
    )
    cell = setup_source(f"https://github.com/{owner}/book", TAG)
    fake = f"import os; os.environ['PYTHONPATH'] = {str(tmp_path)!r}\n"
    done = alone([python, "-c", fake + cell], tmp_path, tmp_path)
    assert done.returncode and "ModuleNotFoundError" in done.stderr
    assert "whole `chapters` folder" in " ".join(done.stderr.split())
    reached = f"git+https://github.com/{owner}/book@{TAG}" in done.stderr
    assert reached == (owner == "someone")


def test_a_chapter_alone_fetches_the_helper_and_gives_its_numbers(
    python, repository, tmp_path
):
    """The set-up cell is the same everywhere, as test_notebooks sees to."""
    path = chapter_file(6)
    notebook = read(path)
    for cell in notebook.cells:
        if "setup" in tags(cell):
            cell.source = setup_source(URL, TAG)
    copy = tmp_path / path.name
    nbformat.write(notebook, copy)
    done = alone([python, "-c", RUN, copy], tmp_path, repository)
    assert done.returncode == 0, done.stderr[-3000:]
    both = zip(texts(copy), texts(path), strict=True)
    assert [(a, b) for a, b in both if not agree(a, b)] == []
    (installed,) = python.parents[1].glob("lib/*/site-packages/attnbook")
    assert files(installed) == files(ROOT / "chapters" / "attnbook")


def test_a_chapter_runs_with_the_two_files_of_the_site(fresh_python, tmp_path):
    """As the page *Run a page* says: the wheel, the notebook, a folder that
    is otherwise empty, and no network."""
    path = chapter_file(3)
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    refused = alone([fresh_python, "-c", RUN, copy], tmp_path, tmp_path)
    assert refused.returncode and "*Run a page* has it" in refused.stderr
    shutil.copy(path, copy)
    wheel = build_wheel(tmp_path)
    pip = [fresh_python, "-m", "pip", "install", "--quiet", wheel]
    installed = alone(pip, tmp_path, tmp_path)
    assert installed.returncode == 0, installed.stderr
    done = alone([fresh_python, "-c", RUN, copy], tmp_path, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    both = zip(texts(copy), texts(path), strict=True)
    assert [(a, b) for a, b in both if not agree(a, b)] == []


def test_a_python_without_torch_is_told_so(tmp_path):
    """The helper is beside the notebook; PyTorch is not installed."""
    (tmp_path / "attnbook").mkdir()
    cell = setup_source(URL, TAG)
    done = subprocess.run(
        [sys.executable, "-S", "-c", cell],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert done.returncode
    said = done.stderr.splitlines()[-1]
    assert said.endswith(
        "This Python has no torch, no numpy, no scipy. "
        "Type in a cell: %pip install torch numpy scipy"
    )


def texts(path):
    """What each code cell printed, the set-up cell's aside."""
    return [
        "".join(str(output.get("text", "")) for output in cell.outputs)
        for cell in code_cells(path)
        if "setup" not in tags(cell)
    ]


def files(folder):
    """What the package consists of: no chapter misses a text or a script."""
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {p for p in found if "__pycache__" not in p.parts}
