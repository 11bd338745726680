"""The tools: storing outputs, stamping the address, building."""

import re
import shutil
import subprocess

import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbformat.validator import NotebookValidationError

import build
import notebooks as files
import outputs
import repository
from notebooks import ROOT


@pytest.fixture
def notebook(tmp_path):
    cells = [
        new_markdown_cell("# A title", metadata={"tags": ["badges"]}),
        new_code_cell("x = 1", metadata={"tags": ["setup"]}),
        new_code_cell("x + 1"),
    ]
    path = tmp_path / "01_chapter.ipynb"
    files.write(path, new_notebook(cells=cells))
    return path


def test_outputs_are_the_same_bytes_each_time(notebook):
    files.write(notebook, outputs.execute(notebook))
    first = notebook.read_bytes()
    files.write(notebook, outputs.execute(notebook))
    assert notebook.read_bytes() == first
    done = files.read(notebook)
    assert [c.get("execution_count") for c in done.cells] == [None, 1, 2]
    assert done.cells[2].outputs[0].data["text/plain"] == "2"


def test_a_failing_cell_leaves_the_file_as_it_was(notebook):
    broken = files.read(notebook)
    broken.cells.append(new_code_cell("1 / 0"))
    files.write(notebook, broken)
    before = notebook.read_bytes()
    with pytest.raises(CellExecutionError):
        files.write(notebook, outputs.execute(notebook))
    assert notebook.read_bytes() == before
    assert [p.name for p in notebook.parent.iterdir()] == [notebook.name]


def test_a_failed_write_leaves_the_file_as_it_was(notebook, monkeypatch):
    before = notebook.read_bytes()

    def fails(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr(files.os, "replace", fails)
    with pytest.raises(OSError, match="the disk is full"):
        files.write_text(notebook, "half")
    assert notebook.read_bytes() == before
    assert [p.name for p in notebook.parent.iterdir()] == [notebook.name]


def test_an_unknown_chapter_is_refused(capsys):
    assert outputs.main(["99"]) == 2
    error = capsys.readouterr().err
    assert "there is no chapter '99'; expected the beginning of" in error


@pytest.fixture
def tree(tmp_path, notebook, monkeypatch):
    (tmp_path / "_config.yml").write_text(
        "# comment\nrepository:\n"
        "  url: https://github.com/OWNER/averages-to-attention\n"
        "  path_to_book: chapters\n"
        "  branch: v0.1.0\n"
        "launch_buttons:\n  colab_url: https://colab.research.google.com\n"
    )
    (tmp_path / "README.md").write_text(
        "see https://github.com/OWNER/averages-to-attention/issues\n"
    )
    monkeypatch.setattr(repository, "CONFIG", tmp_path / "_config.yml")
    monkeypatch.setattr(repository, "README", tmp_path / "README.md")
    monkeypatch.setattr(repository, "notebooks", lambda: [notebook])
    return tmp_path


def test_stamping_reaches_every_place(tree, notebook, capsys):
    url = "https://github.com/someone/book"
    assert repository.main([url + ".git", "v2.0.0"]) == 0
    assert capsys.readouterr().out == f"stamped {url} at v2.0.0\n"
    assert repository.address() == (url, "v2.0.0")
    config = (tree / "_config.yml").read_text()
    assert "path_to_book: chapters" in config and "# comment" in config
    assert "colab_url: https://colab.research.google.com" in config
    badges, setup, other = files.read(notebook).cells
    assert (
        "https://colab.research.google.com/github/someone/book/blob/v2.0.0/"
        "chapters/01_chapter.ipynb" in badges.source
    )
    assert f'"git+{url}@v2.0.0"' in setup.source
    assert other.source == "x + 1"
    for path in (tree / "README.md", notebook, tree / "_config.yml"):
        assert "OWNER/averages" not in path.read_text()
    assert "someone/book/issues" in (tree / "README.md").read_text()


def test_stamping_twice_changes_nothing(tree, notebook):
    repository.main(["https://github.com/someone/book"])
    before = {p: p.read_bytes() for p in tree.iterdir()}
    repository.main([])
    assert {p: p.read_bytes() for p in tree.iterdir()} == before


@pytest.mark.parametrize("url", ["book", "https://example.org/a/b", "git@x:y"])
def test_what_is_no_address_is_refused(tree, url, capsys):
    before = {p: p.read_bytes() for p in tree.iterdir()}
    assert repository.main([url]) == 2
    assert "expected https://github.com/OWNER/NAME; got" in (
        capsys.readouterr().err
    )
    assert {p: p.read_bytes() for p in tree.iterdir()} == before


def test_the_real_config_can_be_stamped(tree):
    shutil.copy(ROOT / "_config.yml", tree / "_config.yml")
    url = "https://github.com/someone/book"
    repository.main([url, "v9.9.9"])
    old = (ROOT / "_config.yml").read_text().splitlines()
    new = (tree / "_config.yml").read_text().splitlines()
    changed = [b for a, b in zip(old, new) if a != b]
    assert len(old) == len(new) and len(changed) == 2
    assert repository.address() == (url, "v9.9.9")


@pytest.mark.parametrize("version", ["2.0.0", "0.15.1", "20.1"])
def test_another_jupyter_book_is_refused(version):
    wanted = f"expected version 1.x; got {version}"
    with pytest.raises(RuntimeError, match=wanted):
        build.check_version(version)


def test_the_right_jupyter_book_is_taken():
    build.check_version("1.0.4.post1")


TOC = {
    "root": "index",
    "parts": [
        {"caption": "One", "chapters": [{"file": "a"}]},
        {"chapters": [{"file": "b", "sections": [{"file": "c"}]}]},
    ],
}


def test_every_page_of_the_table_of_contents_is_looked_for(tmp_path):
    for page in ("index", "a", "c"):
        (tmp_path / f"{page}.html").touch()
    assert build.pages(TOC) == ["index", "a", "b", "c"]
    assert build.missing_pages(tmp_path, TOC) == ["b.html"]


def test_make_lists_its_targets():
    text = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT,
        capture_output=True, text=True, check=True,
    ).stdout
    listed = re.findall(r"(?m)^make (\w+) ", text)
    assert listed == [
        "help", "install", "book", "test", "outputs", "repository", "clean",
    ]


def test_an_old_python_is_refused(tmp_path):
    """The installation looks at the version before it makes anything."""
    for name in ("Makefile", "requirements.txt", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\nshift\n"
        'exec python3 -c "import sys; sys.version_info = (3, 9); $1"\n'
    )
    fake.chmod(0o755)
    done = subprocess.run(
        ["make", "install", f"PYTHON={fake}"], cwd=tmp_path,
        capture_output=True, text=True,
    )
    assert done.returncode != 0
    assert "the book needs Python 3.10 or newer; got 3.9" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_every_requirement_is_constrained():
    names = [
        re.match(r"[\w-]+", line).group().lower()
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    pins = (ROOT / "constraints.txt").read_text().lower()
    for name in names:
        assert re.search(rf"(?m)^{name}==", pins), name


def test_written_notebooks_are_valid():
    broken = new_notebook(cells=[new_code_cell("x")])
    broken.cells[0].metadata.tags = "not a list"
    with pytest.raises(NotebookValidationError):
        files.write(ROOT / "never.ipynb", broken)
    assert not (ROOT / "never.ipynb").exists()
