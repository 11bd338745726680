"""The tools: storing outputs, stamping the address."""

import re

import notebooks as files
import outputs
import pytest
import repository
import yaml
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbformat.validator import NotebookValidationError
from notebooks import ROOT

from attnbook import __version__


@pytest.fixture
def notebook(tmp_path):
    cells = [
        new_markdown_cell("# A title", metadata={"tags": ["badges"]}),
        new_code_cell("x = 1", metadata={"tags": ["setup"]}),
        new_code_cell("x + 1", metadata={"execution": {}, "collapsed": True}),
    ]
    path = tmp_path / "01_chapter.ipynb"
    files.write(path, new_notebook(cells=cells))
    return path


def test_outputs_are_the_same_bytes_each_time(notebook, monkeypatch):
    monkeypatch.setattr(outputs, "notebooks", lambda: [notebook])
    monkeypatch.setenv("ATTNBOOK_OFFLINE", "")
    assert outputs.main(["01"]) == 0
    first = notebook.read_bytes()
    assert outputs.main(["01_chapter"]) == 0
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


@pytest.mark.parametrize("name", ["99", "0", "01_"])
def test_an_unknown_chapter_is_refused(name):
    assert outputs.main([name]) == 2


BOOK = "https://github.com/someone/book"


@pytest.fixture
def tree(tmp_path, notebook, monkeypatch):
    """The real settings, a citation and a notebook, with the placeholder."""
    url = "https://github.com/OWNER/averages-to-attention"
    config = (ROOT / "_config.yml").read_text("utf-8")
    config = config.replace(repository.address()[0], url)
    for name, text in (
        ("_config.yml", config),
        ("CITATION.cff", "title: a book\n"),
    ):
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(repository, "CONFIG", tmp_path / "_config.yml")
    monkeypatch.setattr(repository, "CITATION", tmp_path / "CITATION.cff")
    monkeypatch.setattr(repository, "notebooks", lambda: [notebook])
    return tmp_path


def contents(folder):
    return {p.name: p.read_text("utf-8") for p in folder.iterdir()}


def test_stamping_reaches_every_place(tree, notebook, monkeypatch):
    old = contents(tree)["_config.yml"].splitlines()
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(repository, "write_text", lambda *_: 1 / 0)
        repository.main([BOOK])  # cut short
    assert repository.main([BOOK + ".git", "v9.9.9"]) == 0
    assert repository.address() == (BOOK, "v9.9.9")
    new = contents(tree)["_config.yml"].splitlines()
    assert sum(a != b for a, b in zip(old, new, strict=True)) == 2
    badges, setup, other = files.read(notebook).cells
    assert (
        "https://colab.research.google.com/github/someone/book/blob/v9.9.9/"
        "chapters/01_chapter.ipynb" in badges.source
    )
    assert f'"git+{BOOK}@v9.9.9"' in setup.source
    assert other.source == "x + 1"
    stamped = contents(tree)
    assert not any("OWNER/averages" in text for text in stamped.values())
    cited = f"title: a book\nrepository-code: {BOOK}\n"
    assert stamped["CITATION.cff"] == cited
    assert repository.main([]) == 0
    assert contents(tree) == stamped
    assert repository.main(["", "v3.0.0"]) == 0
    assert repository.address() == (BOOK, "v3.0.0")


@pytest.mark.parametrize(
    "arguments",
    [
        ["book"],
        ["https://example.org/a/b"],
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


def test_the_citation_says_what_the_book_says():
    cited, config = (
        yaml.safe_load((ROOT / name).read_text("utf-8"))
        for name in ("CITATION.cff", "_config.yml")
    )
    assert cited["title"].startswith(f"{config['title']}: ")
    assert cited["authors"] == [{"name": config["author"]}]
    assert cited["version"] == __version__
    assert set(cited["license"]) == {"MIT", "CC-BY-4.0"}
    assert cited["keywords"] and cited["abstract"] and cited["message"]
    url = config["repository"]["url"]
    assert cited.get("repository-code", url) == url
    assert ("repository-code" in cited) != repository.is_placeholder(url)


def test_publishing_refuses_the_placeholder():
    """The workflow that publishes stamps the address before it builds."""
    workflow = ROOT / ".github" / "workflows" / "pages.yml"
    runs = re.findall(r"run: make (repository|book)", workflow.read_text())
    assert runs[:2] == ["repository", "book"]
