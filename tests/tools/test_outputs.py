"""Storing outputs: the same bytes each time, and whole or not at all."""

import notebooks as files
import outputs
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell
from nbformat.validator import NotebookValidationError


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


def test_drawings_alone_are_stored_again(notebook, monkeypatch):
    """The other cells are not run, and keep what they have."""
    changed = files.read(notebook)
    changed.cells.append(new_code_cell("1 / 0"))
    changed.cells.append(new_code_cell('drawing("lora")'))
    files.write(notebook, changed)
    monkeypatch.setattr(outputs, "notebooks", lambda: [notebook])
    monkeypatch.setenv("PYTHONPATH", str(files.CHAPTERS))
    assert outputs.main(["--drawings", "01"]) == 0
    done = files.read(notebook)
    (shown,) = done.cells[-1].outputs
    assert shown.data["text/html"].startswith('<div class="drawing">')
    assert done.cells[-2].outputs == []
    assert done.cells[-1].execution_count == 4
