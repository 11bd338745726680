"""The tools: storing outputs, stamping the address, building."""

import shutil
import subprocess

import build
import notebooks as files
import outputs
import pytest
import repository
import yaml
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


@pytest.mark.parametrize("fault", ["cell", "disk", "form"])
def test_a_failure_leaves_the_file_as_it_was(notebook, monkeypatch, fault):
    changed = files.read(notebook)
    if fault == "cell":
        changed.cells.append(new_code_cell("1 / 0"))
        files.write(notebook, changed)
    if fault == "disk":
        monkeypatch.setattr("os.replace", lambda *_: 1 / 0)
    if fault == "form":
        monkeypatch.setitem(outputs.METADATA, "kernelspec", "no table")
    before = notebook.read_bytes()
    errors = CellExecutionError, ZeroDivisionError, NotebookValidationError
    with pytest.raises(errors):
        files.write(notebook, outputs.execute(notebook))
    assert notebook.read_bytes() == before
    assert [p.name for p in notebook.parent.iterdir()] == [notebook.name]


def test_an_unknown_chapter_is_refused(capsys):
    for name in ("99", "0", "01_"):
        assert outputs.main([name]) == 2
        assert repr(name) in capsys.readouterr().err


def test_a_chapter_is_chosen_by_its_number(notebook, monkeypatch):
    monkeypatch.setattr(outputs, "notebooks", lambda: [notebook])
    monkeypatch.setenv("ATTNBOOK_OFFLINE", "")
    assert outputs.main(["01"]) == 0
    assert files.read(notebook).cells[2].outputs


BOOK = "https://github.com/someone/book"


@pytest.fixture
def tree(tmp_path, notebook, monkeypatch):
    shutil.copy(ROOT / "_config.yml", tmp_path)
    repository_url = "https://github.com/OWNER/averages-to-attention"
    (tmp_path / "README.md").write_text(f"see {repository_url}/issues\n")
    monkeypatch.setattr(repository, "CONFIG", tmp_path / "_config.yml")
    monkeypatch.setattr(repository, "README", tmp_path / "README.md")
    monkeypatch.setattr(repository, "notebooks", lambda: [notebook])
    return tmp_path


def contents(folder):
    return {p.name: p.read_text("utf-8") for p in folder.iterdir()}


def test_stamping_reaches_every_place(tree, notebook):
    old = (tree / "_config.yml").read_text("utf-8").splitlines()
    assert repository.main([BOOK + ".git", "v9.9.9"]) == 0
    assert repository.address() == (BOOK, "v9.9.9")
    new = (tree / "_config.yml").read_text("utf-8").splitlines()
    changed = [b for a, b in zip(old, new, strict=True) if a != b]
    assert len(changed) == 2
    badges, setup, other = files.read(notebook).cells
    assert (
        "https://colab.research.google.com/github/someone/book/blob/v9.9.9/"
        "chapters/01_chapter.ipynb" in badges.source
    )
    assert f'"git+{BOOK}@v9.9.9"' in setup.source
    assert other.source == "x + 1"
    stamped = contents(tree)
    assert not any("OWNER/averages" in text for text in stamped.values())
    assert "someone/book/issues" in stamped["README.md"]
    assert repository.main([]) == 0
    assert contents(tree) == stamped
    assert repository.main(["", "v3.0.0"]) == 0
    assert repository.address() == (BOOK, "v3.0.0")


def test_a_stamping_that_was_cut_short_can_be_done_again(tree, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(repository, "write_text", lambda *_: 1 / 0)
        repository.main([BOOK])
    assert repository.main([BOOK]) == 0
    assert not any("OWNER/averages" in t for t in contents(tree).values())


@pytest.mark.parametrize(
    "arguments",
    [
        ["book"],
        ["https://example.org/a/b"],
        ["git@x:y"],
        [BOOK, "1.10"],
        [BOOK, "v1 # no"],
        [],  # the placeholder
        ["https://github.com/OWNER/book", "v1.0.0"],
        ["https://github.com/owner/book"],
    ],
)
def test_what_is_no_address_is_refused(tree, arguments, capsys):
    before = contents(tree)
    assert repository.main(arguments) == 2
    assert "; got " in capsys.readouterr().err
    assert contents(tree) == before


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


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """A build in a folder of its own; the commands that it would run."""
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "HTML", tmp_path / "_build" / "html")
    (tmp_path / "_toc.yml").write_text("root: index\n")
    (tmp_path / "_build").mkdir()
    commands, returns = [], [0]

    def run(command, cwd):
        commands.append(command)
        return subprocess.CompletedProcess(command, returns[0])

    monkeypatch.setattr(build.subprocess, "run", run)
    return tmp_path / "_build", commands, returns


@pytest.mark.parametrize("version", ["2.0.0", "0.15.1", "20.1"])
def test_a_wrong_jupyter_book_stops_the_build(builds, monkeypatch, version):
    folder, commands, _ = builds
    monkeypatch.setattr(build.metadata, "version", lambda name: version)
    assert build.main() == 1
    assert commands == [] and folder.exists()


def test_a_failed_build_fails(builds, capsys):
    folder, commands, returns = builds
    returns[0] = 7
    assert build.main() == 7
    assert "-W" in commands[0] and not folder.exists()
    returns[0] = 0  # and so does one that wrote nothing
    assert build.main() == 1
    assert "index.html" in capsys.readouterr().err


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
