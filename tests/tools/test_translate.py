"""A translation changes prose, and nothing else unnoticed."""

import copy

import pytest
import translate
from book import chapter_file
from notebooks import read, write

ORIGINAL = read(chapter_file(1))
CODE = next(
    n for n, c in enumerate(ORIGINAL.cells) if c.get("outputs") and c.source
)
TEXT = next(n for n, c in enumerate(ORIGINAL.cells) if "$" in c.source[:2000])


def in_german(notebook):
    """Words outside of what is kept, all in capitals: prose that differs."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts, end = [], 0
            for match in translate.KEPT.finditer(cell.source):
                parts += [cell.source[end : match.start()].upper(), match[0]]
                end = match.end()
            cell.source = "".join(parts) + cell.source[end:].upper()
    return notebook


def test_prose_may_differ(tmp_path, capsys):
    paths = tmp_path / "a.ipynb", tmp_path / "b.ipynb"
    write(paths[0], ORIGINAL)
    write(paths[1], in_german(copy.deepcopy(ORIGINAL)))
    assert paths[0].read_text("utf-8") != paths[1].read_text("utf-8")
    assert translate.main(["--check", *map(str, paths)]) == 0
    assert capsys.readouterr().out == "only prose differs\n"
    assert translate.main([str(paths[0])]) == 2


def spoil(cell, part, value):
    cell[part] = value


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda cells: cells.pop(), "expected"),
        (lambda cells: cells.reverse(), "another cell_type"),
        (lambda c: spoil(c[CODE], "source", c[CODE].source + " "), "code"),
        (lambda c: spoil(c[CODE], "outputs", []), "another outputs"),
        (lambda c: spoil(c[CODE], "id", "other"), "another id"),
        (lambda c: c[CODE].metadata.update(tags=["hide-cell"]), "other tags"),
        (
            lambda c: spoil(
                c[TEXT], "source", c[TEXT].source.replace("$", "$1", 1)
            ),
            "is in one alone",
        ),
        (
            lambda c: spoil(c[TEXT], "source", c[TEXT].source + " [a](b.md)"),
            "'b.md' is in one alone",
        ),
    ],
)
def test_what_is_no_prose_may_not(change, words, tmp_path, capsys):
    paths = tmp_path / "a.ipynb", tmp_path / "b.ipynb"
    other = copy.deepcopy(ORIGINAL)
    change(other.cells)
    write(paths[0], ORIGINAL)
    write(paths[1], other)
    assert translate.main(["--check", *map(str, paths)]) == 1
    assert words in capsys.readouterr().out
