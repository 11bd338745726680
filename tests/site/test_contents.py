"""The one answer to which pages there are."""

import pytest
from sphinx_external_toc.parsing import MalformedError

from press.contents import Contents, contents
from press.places import CHAPTERS

TOC = {
    "format": "jb-book",
    "root": "index",
    "parts": [
        {"caption": "First", "chapters": [{"file": "a"}]},
        {"chapters": [{"file": "b", "sections": [{"file": "c"}]}]},
    ],
}


def test_pages_come_in_their_order_with_what_is_below_them():
    found = Contents.read(TOC)
    assert found.parts == [
        ("", ["index"]),
        ("First", ["a"]),
        ("", ["b", "c"]),
    ]
    assert found.documents == ["index", "a", "b", "c"]


def test_every_page_is_looked_for(tmp_path):
    for page in ("index", "a", "c", "search", "old"):
        (tmp_path / f"{page}.html").touch()
    found = Contents.read(TOC)
    assert found.missing(tmp_path) == ["404.html", "b.html"]
    assert [file.stem for file in found.files(tmp_path)] == [
        "404",
        "a",
        "b",
        "c",
        "index",
        "search",
    ]


def test_contents_that_cannot_be_read_are_refused():
    with pytest.raises(MalformedError):
        Contents.read({"format": "jb-book", "parts": []})


def test_every_page_of_the_book_has_a_source():
    sources = {path.stem for path in CHAPTERS.iterdir() if path.is_file()}
    assert len(contents().documents) > 30
    assert set(contents().documents) <= sources
