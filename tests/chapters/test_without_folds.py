"""A page runs without its folds: what a reader sees is enough to run it.

The visible code cells of a chapter, in order and nothing else, run in a fresh
kernel, in an empty folder, with torch and the book's package; they print what
the page shows. The stubs of exercises are left out, which print that nobody
has attempted them.
"""

import json
import os
from unittest import mock

import pytest
from book import (
    CHAPTER_FILES,
    SETTINGS,
    by_notebook,
    tags,
    visible_cells,
)
from comparison import agree
from kernels import forked_kernels
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output
from notebooks import CHAPTERS


def texts(cell: NotebookNode) -> list[str]:
    """What a cell shows: its texts, and the kinds of its pictures.

    Warnings of libraries are left out, which the set-up cell switches off.
    """
    found = []
    for output in cell.outputs:
        if output.output_type == "stream":
            if output.name != "stderr":
                found.append(output.text)
        elif output.output_type == "error":
            found.append(f"error: {output.ename}")
        else:
            for kind, data in sorted(output.data.items()):
                is_text = kind.startswith("text/")
                found.append(f"{kind}: {data if is_text else 'a picture'}")
    return found


def faults(cells: list[NotebookNode], folder) -> list[str]:
    """What is wrong when cells alone run: an error, or another output."""
    alone = new_notebook(
        cells=[
            new_code_cell(c.source, metadata={"tags": tags(c)}) for c in cells
        ]
    )
    path = os.pathsep.join([str(CHAPTERS), os.environ.get("PYTHONPATH", "")])
    settings = mock.patch.dict(os.environ, {**SETTINGS, "PYTHONPATH": path})
    with settings, forked_kernels():
        client = NotebookClient(
            alone,
            timeout=900,
            kernel_name="python3",
            coalesce_streams=True,
            extra_arguments=["--log-level=40"],
            resources={"metadata": {"path": str(folder)}},
        )
        try:
            client.execute()
        except CellExecutionError as error:
            return [f"the visible cells alone do not run: {error}"]
    found = []
    for here, stored in zip(alone.cells, cells, strict=True):
        got, expected = texts(here), texts(stored)
        if len(got) != len(expected) or not all(map(agree, got, expected)):
            found.append(
                f"the visible cells alone print something else than the page. "
                f"Cell:\n{stored.source}\nexpected {expected}\ngot {got}"
            )
    return found


@by_notebook(CHAPTER_FILES)
def test_the_visible_cells_alone_print_what_the_page_shows(path, tmp_path):
    assert faults(visible_cells(path), tmp_path) == []


def cell(source: str, printed: str) -> NotebookNode:
    return new_code_cell(
        source,
        outputs=[new_output("stream", name="stdout", text=printed)],
    )


@pytest.mark.parametrize(
    "source, printed, said",
    [
        ("print(1 + 1)", "2\n", None),
        ("print(folded)", "2\n", "NameError"),
        ("print(1 + 1)", "3\n", "something else"),
        ("print('0.770 ± 0.01')", "0.775 ± 0.01\n", None),
        ("1 + 1", "", "something else"),
    ],
)
def test_what_is_found(source, printed, said, tmp_path):
    found = faults([cell(source, printed)], tmp_path)
    assert (said in json.dumps(found)) if said else found == []


def test_a_kernel_has_no_names_and_nothing_of_the_book_or_the_tests(tmp_path):
    """Libraries it has: `test_imports` sees to what a page imports."""
    cells = [
        cell("print('torch' in globals(), 'plt' in globals())", "False False"),
        cell("import sys\nprint('attnbook' in sys.modules)", "False"),
        cell("import kernels", ""),
    ]
    (found,) = faults(cells, tmp_path)
    assert "No module named 'kernels'" in found


def test_a_kernel_that_dies_is_noticed(tmp_path):
    with pytest.raises(DeadKernelError):
        faults([cell("import os\nos._exit(3)", "")], tmp_path)
