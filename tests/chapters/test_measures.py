"""What a chapter asks of a reader: minutes, lines, folds."""

import re

from book import CHAPTER_FILES, by_notebook
from bs4 import BeautifulSoup
from measures import FIRST, measure, stamped, ways
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
)
from notebooks import ROOT, read

AGAIN = [p for p in CHAPTER_FILES if "**Time:**" in str(read(p).cells)]


@by_notebook(AGAIN)
def test_a_chapter_keeps_its_measures(path):
    found = measure(read(path))
    assert found.lines <= 250 and 6 * found.checks <= found.lesson, found
    assert found.core <= 20 and found.core + found.side_roads <= 30, found


@by_notebook(AGAIN)
def test_a_chapter_says_its_minutes(path):
    assert read(path) == stamped(read(path))


@by_notebook(AGAIN)
def test_a_chapter_has_a_drawing_and_three_questions(path):
    source = "\n".join(cell.source for cell in read(path).cells)
    assert re.search(r"(?m)^drawing\(", source)
    (quiz,) = re.findall(r"(?s)\n## Three questions\n(.*?)\n## ", source)
    answers = re.findall(r"(?s)<summary>Answer</summary>(.*?)</details>", quiz)
    assert len(answers) == 3 and all("](#" in a for a in answers)


@by_notebook(AGAIN)
def test_its_side_roads_are_folded_and_nothing_else_is(path):
    html = (ROOT / "_build" / "html" / f"{path.stem}.html").read_text()
    page = BeautifulSoup(html, "html.parser")
    folds = [s.parent for s in page.select("summary:has(h2, h3)")]
    titles = [fold.find(["h2", "h3"]).get_text() for fold in folds]
    roads = [p for p in measure(read(path)).parts if p.kind == "side road"]
    assert len(titles) == len(roads)
    assert all(title.startswith("Side road: ") for title in titles)
    for fold in folds:
        assert not fold.select("h2 ~ section > h2"), "a section too many"
        assert fold.parent.name == "section" and fold.parent["id"]


@by_notebook(AGAIN)
def test_gathered_side_roads_stand_before_the_exercises(path):
    cells = read(path).cells
    text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    before, _, _ = text.partition("\n## Exercises\n")
    way, gathered, roads = before.partition("\n## Side roads\n")
    if gathered:
        assert "# Side road: " not in way
        titles = re.findall(r"(?m)^#+ .+", roads)
        assert titles and all(t.startswith("### Side road: ") for t in titles)


def test_the_ways_through_the_book_take_what_the_first_page_says():
    assert sum(measure(read(path)).core for path in CHAPTER_FILES[:6]) < 120
    first = "".join(c.source for c in read(FIRST).cells)
    assert ways(first) == first
    elsewhere = re.sub(r"\d+ minutes", "1 minutes", first)
    assert ways(elsewhere) == first != elsewhere


def test_minutes_are_words_and_lines():
    notebook = new_notebook(
        cells=[
            new_markdown_cell(
                "# Title\n**Time:** 1 minutes, side roads 1 more, exercises 1."
            ),
            new_markdown_cell("word " * 595),
            new_code_cell("x = 1\n" * 24),
            new_code_cell("y = 1\n" * 99, metadata={"tags": ["hide-input"]}),
            new_markdown_cell(
                "## Side roads\n### Side road: more (1 minute)\n" + "w " * 400
            ),
            new_markdown_cell("### Side road: less (2 minutes)\n"),
            new_code_cell("check(f)\n\nassert x\n"),
            new_markdown_cell(
                "## Exercises\n### Exercise 1.1: a (easy, 5 minutes)"
            ),
            new_code_cell("check.f(my_f)"),
        ]
    )
    found = measure(notebook)
    assert (found.core, found.side_roads, found.exercises) == (5, 3, 5)
    assert (found.lines, found.lesson, found.checks) == (27, 26, 2)
    cells = stamped(notebook).cells
    assert cells[0].source.endswith(
        "5 minutes, side roads 3 more, exercises 5."
    )
    assert "more (2 minutes)" in cells[4].source
    assert "less (1 minute)" in cells[5].source


def test_code_in_a_text_is_lines_and_no_words():
    code = "```python\na = 1\n\nb = 2\n```"
    text = f"one\n\n{code}\n\ntwo\n\n<details>\n{code}\n</details>"
    found = measure(new_notebook(cells=[new_markdown_cell(text)]))
    (core,) = found.parts
    assert (core.words, core.lines, found.lines) == (2, 2, 2)


def test_code_that_is_shown_counts_unless_it_is_folded():
    code = "```python\na = 1\nb = 2\n```"
    shown = [code, f"<details>\n<summary>More</summary>\n\n{code}\n</details>"]
    cell = new_code_cell("show()")
    cell.outputs = [
        new_output("display_data", {"text/markdown": text}) for text in shown
    ]
    assert measure(new_notebook(cells=[cell])).lines == 3
