"""A notebook of three cells, as the tools have to do with."""

import notebooks
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook


@pytest.fixture
def notebook(tmp_path):
    cells = [
        new_markdown_cell("# A title", metadata={"tags": ["badges"]}),
        new_code_cell("x = 1", metadata={"tags": ["setup"]}),
        new_code_cell("x + 1", metadata={"execution": {}, "collapsed": True}),
    ]
    path = tmp_path / "01_chapter.ipynb"
    notebooks.write(path, new_notebook(cells=cells))
    return path
