"""The notebooks as text: what must be there, and what must not."""

import ast
import re
from base64 import b64decode
from io import BytesIO

import pytest
from book import (
    CHAPTER_FILES,
    by_notebook,
    code_cells,
    tags,
)
from matplotlib.image import imread
from notebooks import ROOT, notebooks, read
from outputs import METADATA, normalise
from repository import address, badges_source, setup_source

UNCOMPARED = {"nbval-ignore-output", "nbval-skip", "skip-execution"}
FORBIDDEN = re.compile(
    r"grad_fn=|device\s?='|cuda:\d|mps:\d| at 0x[0-9a-f]|/home/|/root/|/tmp/"
    r"|\d\.\d+\+cpu"
)


def outputs(path):
    for number, cell in enumerate(code_cells(path)):
        for output in cell.outputs:
            yield number, cell, output


def prose(path):
    cells = read(path).cells
    return "\n".join(c.source for c in cells if c.cell_type != "code")


@by_notebook()
def test_cells_were_run_in_order(path):
    counts = [c.execution_count for c in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@by_notebook()
def test_a_cell_that_shows_something_has_its_output(path):
    """A cleared cell with a count would be compared with nothing."""
    for cell in code_cells(path):
        last = ast.parse(cell.source).body[-1:]
        shows = last and isinstance(last[0], ast.Expr)
        if shows and not ({"setup"} & set(tags(cell))):
            assert cell.outputs, f"no output is stored for:\n{cell.source}"


@by_notebook()
def test_no_stderr_and_no_untagged_error(path):
    for number, cell, output in outputs(path):
        assert output.get("name") != "stderr", f"stderr in code cell {number}"
        if output.output_type == "error":
            assert "raises-exception" in tags(cell), f"error in cell {number}"


@by_notebook()
def test_outputs_are_the_same_on_every_machine(path):
    for number, _, output in outputs(path):
        text = str(output.get("text", "")) + "".join(
            str(v)
            for k, v in output.get("data", {}).items()
            if k.startswith("text/")
        )
        found = FORBIDDEN.search(text)
        assert not found, f"code cell {number} prints {found}"


@by_notebook()
def test_notebooks_are_in_normal_form(path):
    """As `make outputs` writes them, so that differences mean something."""
    notebook, again = read(path), read(path)
    normalise(again)
    assert notebook == again
    assert notebook.metadata == METADATA


@by_notebook()
def test_figures_have_alt_text(path):
    for number, cell, output in outputs(path):
        if "image/png" in output.get("data", {}):
            image = cell.metadata.get("mystnb", {}).get("image", {})
            alt = image.get("alt", "")
            assert len(alt) >= 40, f"code cell {number} has alt text {alt!r}"
            assert cell.source.rstrip().endswith("plt.show()")


@by_notebook()
def test_figures_are_pictures(path):
    """nbval does not compare them, and would let pass a spoilt one."""
    for number, _, output in outputs(path):
        picture = output.get("data", {}).get("image/png")
        if picture:
            height, width, _ = imread(BytesIO(b64decode(picture))).shape
            assert width >= 400 and height >= 200, f"code cell {number}"


@by_notebook()
def test_no_line_of_code_is_too_long(path):
    for cell in code_cells(path):
        for line in cell.source.splitlines():
            assert len(line) <= 79, line


@by_notebook()
def test_code_keeps_the_rules(path):
    for cell in code_cells(path):
        for bad in ("import *", "filterwarnings", "% pip", "!pip"):
            assert bad not in cell.source
        assert not cell.source.rstrip().endswith(";")


def uncompared(paths):
    cells = [c for path in paths for c in code_cells(path)]
    return [c for c in cells if UNCOMPARED & set(tags(c))], cells


def test_hardly_any_output_goes_uncompared():
    loose, cells = uncompared(notebooks())
    assert len(loose) < 0.03 * len(cells)
    for cell in loose:
        assert len(cell.metadata.get("reason", "")) > 20, cell.source


@by_notebook()
def test_the_set_up_cell_is_the_same_everywhere(path):
    (cell,) = [c for c in code_cells(path) if "setup" in tags(c)]
    assert cell.source == setup_source(*address())


@by_notebook(CHAPTER_FILES)
def test_the_badges_are_stamped(path):
    (cell,) = [c for c in read(path).cells if "badges" in tags(c)]
    assert cell.source == badges_source(*address(), path.name)


def test_the_readme_names_the_same_address():
    url, _ = address()
    text = (ROOT / "README.md").read_text()
    found = set(re.findall(r"https://github\.com/[\w.-]+/[\w-]+", text))
    assert found == {url}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_what_a_document_links_to_exists(name):
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target


SECTIONS = ["Where people go wrong", "Exercises", "Summary", "Further reading"]


@by_notebook(CHAPTER_FILES)
def test_a_chapter_has_the_skeleton(path):
    headings = re.findall(r"(?m)^## (.+)$", prose(path))
    assert [h for h in headings if h in SECTIONS] == SECTIONS
    assert read(path).cells[0].source.startswith("# ")


@by_notebook(CHAPTER_FILES)
def test_a_chapter_checks_and_shows_mistakes(path):
    source = "\n".join(c.source for c in code_cells(path))
    assert len(re.findall(r"^ *check(\.equal)?\(", source, re.M)) >= 5
    assert source.count("mistakes.run(") >= 2


@by_notebook()
def test_every_heading_is_used_once(path):
    headings = re.findall(r"(?m)^#+ (.+)$", prose(path))
    assert len(headings) == len(set(headings))
