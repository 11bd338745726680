"""The notebooks as text: what must be there, and what must not."""

import ast
import re
from base64 import b64decode
from io import BytesIO

import pytest
from book import CHAPTER_FILES, by_notebook, code_cells, seen, tags
from matplotlib.image import imread
from notebooks import ROOT, notebooks, read
from outputs import normalise
from repository import address, badges_source, models_of, setup_source

UNCOMPARED = {"nbval-ignore-output", "nbval-skip", "skip-execution"}
#: As many lines of a function or class can be read without scrolling.
LINES_AT_ONCE = 30
FORBIDDEN = re.compile(
    r"grad_fn=|device\s?='|cuda:\d|mps:\d| at 0x[0-9a-f]|/home/|/root/|/tmp/"
    r"|\d\.\d+\+cpu"
)


def outputs(path):
    for number, cell in enumerate(code_cells(path)):
        for output in cell.outputs:
            yield number, cell, output


def prose(path):
    cells = seen(path).cells
    return "\n".join(c.source for c in cells if c.cell_type != "code")


@by_notebook()
def test_cells_were_run_in_order(path):
    counts = [c.execution_count for c in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@by_notebook()
def test_what_a_visible_cell_defines_is_short(path):
    too_long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for cell in code_cells(path)
        if not any(tag.startswith("hide") for tag in tags(cell))
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.end_lineno - node.lineno >= LINES_AT_ONCE
    ]
    assert not too_long


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
        data = output.get("data", {}).items()
        texts = [v for kind, v in data if kind.startswith("text/")]
        found = FORBIDDEN.search(f"{output.get('text', '')} {texts}")
        assert not found, f"code cell {number} prints {found}"


@by_notebook()
def test_notebooks_are_in_normal_form(path):
    """As `make outputs` writes them, so that differences mean something."""
    notebook = read(path)
    normalise(notebook)
    assert notebook == seen(path)


@by_notebook()
def test_figures_are_pictures_with_alt_text(path):
    """nbval does not compare them, and would let pass a spoilt one."""
    for number, cell, output in outputs(path):
        if picture := output.get("data", {}).get("image/png"):
            image = cell.metadata.get("mystnb", {}).get("image", {})
            assert len(image.get("alt", "")) >= 40, f"code cell {number}"
            assert cell.source.rstrip().endswith("plt.show()")
            height, width, _ = imread(BytesIO(b64decode(picture))).shape
            assert width >= 400 and height >= 200, f"code cell {number}"


@by_notebook()
def test_each_column_of_a_table_has_a_name_in_words(path):
    """A screen reader says it, and a formula alone is silent."""
    texts = [c.source for c in seen(path).cells if c.cell_type == "markdown"]
    for row in re.findall(r"(?m)^\|(.+)\|\n\|[-: |]+\|$", "\n".join(texts)):
        for name in re.sub(r"\$[^$]*\$", "", row).split("|"):
            assert re.search(r"\w", name), row


@by_notebook()
def test_code_keeps_the_rules(path):
    for cell in code_cells(path):
        for bad in ("import *", "filterwarnings", "% pip", "!pip"):
            assert bad not in cell.source
        assert not cell.source.rstrip().endswith(";")
        assert max(map(len, cell.source.splitlines())) <= 79


def test_hardly_any_output_goes_uncompared():
    cells = [cell for path in notebooks() for cell in code_cells(path)]
    loose = [cell for cell in cells if UNCOMPARED & set(tags(cell))]
    assert len(loose) < 0.03 * len(cells)
    for cell in loose:
        assert len(cell.metadata.get("reason", "")) > 20, cell.source


@by_notebook()
def test_the_set_up_cell_is_the_same_everywhere(path):
    (cell,) = [c for c in code_cells(path) if "setup" in tags(c)]
    assert cell.source == setup_source(*address(), models_of(seen(path)))


@by_notebook(CHAPTER_FILES)
def test_the_badges_are_stamped(path):
    (cell,) = [c for c in seen(path).cells if "badges" in tags(c)]
    assert cell.source == badges_source(*address(), path.name)


def test_the_readme_names_no_address():
    """It would lead nowhere until the book has one; the pages' buttons do."""
    assert address()[0] not in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_what_a_document_links_to_exists(name):
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target


#: Two sections of a chapter, in either order, and those after them.
FIRST = ["Where people go wrong", "In practice"]
LAST = ["Exercises", "Three questions", "What is new here", "Further reading"]


@by_notebook()
def test_a_chapter_has_the_skeleton(path):
    headings = re.findall(r"(?m)^#+ (.+)$", prose(path))
    assert len(headings) == len(set(headings))
    assert seen(path).cells[0].source.startswith("# ")
    if path in CHAPTER_FILES:
        known = [h for h in headings if h in {*FIRST, *LAST, "Summary"}]
        assert sorted(known[:2]) == sorted(FIRST)
        assert known[2:] == LAST


@by_notebook(CHAPTER_FILES)
def test_a_chapter_checks_and_shows_mistakes(path):
    source = "\n".join(c.source for c in code_cells(path))
    assert len(re.findall(r"^ *check(\.equal)?\(", source, re.M)) >= 5
    assert source.count("mistakes.run(") >= 2


@by_notebook(CHAPTER_FILES)
def test_a_call_that_only_shows_is_not_shown(path):
    for cell in code_cells(path):
        if re.search(r"(?m)^(drawing|mistakes\.run)\(", cell.source):
            assert (
                len(cell.source.splitlines()) == 1 or "drawing" in cell.source
            )
            assert {"remove-input", "hide-input"} & {*cell.metadata.tags}
