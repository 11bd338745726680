"""Run chapters and store their outputs, the same bytes every time.

usage: python tools/outputs.py [--drawings] [CHAPTER ...]

A chapter is named as 04 or mistakes; without a name all are run. With
--drawings only the cells that show a drawing are run, which takes seconds: for
a drawing that was changed, or another way of showing them.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from notebooks import chosen, notebooks, read, write

METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
#: A line that shows a drawing.
DRAWN = re.compile(r"(?m)^drawing\(")
#: The metadata by which JupyterLab and Colab hide a cell's code.
HIDDEN = {"jupyter": {"source_hidden": True}, "cellView": "form"}
#: The metadata by which JupyterLab folds what is below a heading.
COLLAPSED = {"jp-MarkdownHeadingCollapsed": True}


def execute(path: Path) -> NotebookNode:
    """Run a notebook, and return it with its new outputs, in normal form.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails that is not tagged
            `raises-exception`; the file on disk stays as it is.
    """
    notebook = read(path)
    run_cells(notebook, path.parent)
    normalise(notebook)
    return notebook


def draw_again(path: Path) -> NotebookNode:
    """Run only the cells of a notebook that show a drawing.

    Such a cell needs nothing of the cells before it besides the name
    `drawing`.

    Returns:
        the whole notebook with new drawings, in normal form.

    Raises:
        nbclient.exceptions.CellExecutionError: see `execute`.
    """
    notebook = read(path)
    drawn = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and DRAWN.search(cell.source)
    ]
    if drawn:
        imported = "from attnbook.teach.page.drawings import drawing"
        cells = [new_code_cell(imported), *drawn]
        run_cells(new_notebook(cells=cells), path.parent)
    normalise(notebook)
    return notebook


def run_cells(notebook: NotebookNode, folder: Path) -> None:
    """Run the cells of a notebook in a folder; their outputs become new.

    Raises:
        nbclient.exceptions.CellExecutionError: see `execute`.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
            cell.execution_count = None
    NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=40"],
        resources={"metadata": {"path": str(folder)}},
    ).execute()


def normalise(notebook: NotebookNode) -> None:
    """Bring a notebook into the one form in which it is stored.

    Everything is dropped that differs from run to run, or from editor to
    editor. Jupyter and Colab are told to hide the code that the page folds.

    Of the notebook's metadata only its list of ideas is kept. In a chapter
    that has one, JupyterLab is told to fold each exercise below its heading,
    as the page does.
    """
    ideas = notebook.metadata.get("ideas")
    notebook.metadata = NotebookNode(METADATA)
    if ideas is not None:
        notebook.metadata["ideas"] = ideas
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for name in ("collapsed", "scrolled", "editable", "slideshow"):
            cell.metadata.pop(name, None)
        if {"hide-input", "remove-input"} & {*cell.metadata.get("tags", ())}:
            cell.metadata |= HIDDEN
        if ideas is not None and cell.source.startswith("### Exercise "):
            cell.metadata |= COLLAPSED
    code = [c for c in notebook.cells if c.cell_type == "code"]
    for count, cell in enumerate(code, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count


def main(wanted: list[str]) -> int:
    """Run the chapters that are asked for, or all; return an exit status."""
    renewed = draw_again if "--drawings" in wanted else execute
    wanted = [name for name in wanted if name != "--drawings"]
    try:
        paths = chosen(wanted, notebooks())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    os.environ |= {"ATTNBOOK_OFFLINE": "1", "ATTNBOOK_QUIET": "1"}
    for path in paths:
        write(path, renewed(path))
        print(f"stored {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
