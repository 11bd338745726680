"""The tools: storing outputs, stamping the address, building."""

import re
import shutil
import subprocess

import build
import notebooks as files
import outputs
import pytest
import repository
import yaml
from book import without_make
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbformat.validator import NotebookValidationError
from notebooks import ROOT


@pytest.fixture
def notebook(tmp_path):
    cells = [
        new_markdown_cell("# A title", metadata={"tags": ["badges"]}),
        new_code_cell("x = 1", metadata={"tags": ["setup"]}),
        new_code_cell(
            "x + 1",
            metadata={"execution": {}, "collapsed": True},
            execution_count=9,
        ),
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
    assert done.cells[2].outputs[0].execution_count == 2
    assert done.cells[2].metadata == {}


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

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="the disk is full"):
        files.write_text(notebook, "half")
    assert notebook.read_bytes() == before
    assert [p.name for p in notebook.parent.iterdir()] == [notebook.name]


def test_an_unknown_chapter_is_refused(capsys):
    for name in ("99", "0", "01_"):
        assert outputs.main([name]) == 2
        error = capsys.readouterr().err
        assert f"there is no chapter {name!r}; expected a number" in error


def test_a_chapter_is_chosen_by_its_number(notebook, monkeypatch, capsys):
    monkeypatch.setattr(outputs, "notebooks", lambda: [notebook])
    monkeypatch.setenv("ATTNBOOK_OFFLINE", "")
    assert outputs.main(["01"]) == 0
    assert capsys.readouterr().out == "stored 01_chapter.ipynb\n"
    assert files.read(notebook).cells[2].outputs


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


BOOK = "https://github.com/someone/book"


def test_a_reference_alone_keeps_the_address(tree):
    repository.main([BOOK])
    assert repository.main(["", "v3.0.0"]) == 0
    assert repository.address() == (BOOK, "v3.0.0")


def test_a_stamping_that_was_cut_short_can_be_done_again(tree, monkeypatch):
    def fails(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(repository, "write_text", fails)
        repository.main([BOOK])
    assert repository.main([BOOK]) == 0
    for path in tree.iterdir():
        assert "OWNER/averages" not in path.read_text()


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        (["book"], "no repository address"),
        (["https://example.org/a/b"], "no repository address"),
        (["git@x:y"], "no repository address"),
        ([BOOK, "1.10"], "no reference"),
        ([BOOK, "v1 # no"], "no reference"),
        ([], "placeholder"),
        (["https://github.com/OWNER/book", "v1.0.0"], "placeholder"),
        (["https://github.com/owner/book"], "placeholder"),
    ],
)
def test_what_is_no_address_is_refused(tree, arguments, wanted, capsys):
    before = {p: p.read_bytes() for p in tree.iterdir()}
    assert repository.main(arguments) == 2
    error = capsys.readouterr().err
    assert wanted in error and "; got " in error
    assert {p: p.read_bytes() for p in tree.iterdir()} == before


def test_publishing_refuses_the_placeholder():
    """The workflow that publishes stamps the address before it builds."""
    workflow = ROOT / ".github" / "workflows" / "pages.yml"
    steps = yaml.safe_load(workflow.read_text())["jobs"]["publish"]["steps"]
    runs = [step["run"] for step in steps if "run" in step]
    assert runs.index("make repository") < runs.index("make book")


def test_the_set_up_cell_names_no_pip_for_a_placeholder():
    assert "pip" in repository.setup_source(BOOK, "v1")
    for owner in ("OWNER", "owner"):
        url = f"https://github.com/{owner}/book"
        assert "pip" not in repository.setup_source(url, "v1")


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


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """A build in a folder of its own; the commands that it would run."""
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "HTML", tmp_path / "_build" / "html")
    (tmp_path / "_toc.yml").write_text("root: index\n")
    (tmp_path / "_build").mkdir()
    (tmp_path / "_build" / "old").touch()
    commands = []

    def run(command, cwd):
        commands.append(command)
        return subprocess.CompletedProcess(command, run.returns)

    run.returns = 0
    monkeypatch.setattr(build.subprocess, "run", run)
    return tmp_path, commands, run


def test_a_wrong_jupyter_book_stops_the_build(builds, monkeypatch, capsys):
    folder, commands, _ = builds
    monkeypatch.setattr(build.metadata, "version", lambda name: "2.0.0")
    assert build.main() == 1
    assert commands == [] and (folder / "_build" / "old").exists()
    assert "expected version 1.x; got 2.0.0" in capsys.readouterr().err


def test_a_failed_build_fails(builds):
    folder, commands, run = builds
    run.returns = 7
    assert build.main() == 7
    assert "-W" in commands[0] and not (folder / "_build").exists()


def test_a_build_that_wrote_nothing_fails(builds, capsys):
    assert build.main() == 1
    assert "the build left out index.html" in capsys.readouterr().err


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
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=without_make(),
    ).stdout
    listed = re.findall(r"(?m)^make ([\w-]+) ", text)
    assert {"book", "check", "test", "test-site", "outputs"} <= set(listed)


def test_written_notebooks_are_valid():
    broken = new_notebook(cells=[new_code_cell("x")])
    broken.cells[0].metadata.tags = "not a list"
    with pytest.raises(NotebookValidationError):
        files.write(ROOT / "never.ipynb", broken)
    assert not (ROOT / "never.ipynb").exists()
