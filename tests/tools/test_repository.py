"""Stamping the repository's address into all places that name it."""

import re

import notebooks as files
import pytest
import repository
import yaml
from notebooks import ROOT

from attnbook import __version__

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
