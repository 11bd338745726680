"""What a chapter asks of a reader: minutes, ideas, folds."""

import re

import pytest
from book import CHAPTER_FILES, by_notebook, seen
from measures import (
    FIRST,
    list_of_ideas,
    measure,
    relinked,
    road_address,
    stamped,
    ways,
)
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
)
from notebooks import read
from pages import built, soup_of

from press.headings import jupyter_address


@by_notebook(CHAPTER_FILES)
def test_a_chapter_says_its_minutes(path):
    assert seen(path) == stamped(read(path))


@by_notebook(CHAPTER_FILES)
def test_a_chapter_shows_its_ideas_and_no_more_than_twelve(path):
    notebook = seen(path)
    (cell,) = [
        c for c in notebook.cells if "ideas" in c.metadata.get("tags", [])
    ]
    assert cell.source == list_of_ideas(notebook)


@by_notebook(CHAPTER_FILES)
def test_a_chapter_has_a_drawing_and_three_questions(path):
    source = "\n".join(cell.source for cell in seen(path).cells)
    assert re.search(r"(?m)^drawing\(", source)
    (quiz,) = re.findall(r"(?s)\n## Three questions\n(.*?)\n## ", source)
    answers = re.findall(r"(?s)<summary>Answer</summary>(.*?)</details>", quiz)
    assert len(answers) == 3 and all("](#" in a for a in answers)


CHOICE = re.compile(
    r'(?s)<details class="choice( right)?">\n<summary>(.*?)</summary>\n\n'
    r"(.*?)\n\n</details>"
)


@by_notebook(CHAPTER_FILES)
def test_each_question_has_choices_that_say_what_is_wrong_with_them(path):
    """One of three or more is right; each says so first, and then why."""
    (quiz,) = [
        cell.source
        for cell in seen(path).cells
        if cell.source.startswith("## Three questions")
    ]
    questions = re.split(r"(?m)^\d\. ", quiz)[1:]
    assert len(questions) == 3
    places = set()
    for question in questions:
        before, _ = question.split("<summary>Answer</summary>")
        choices = CHOICE.findall(before)
        assert before.count("<details") == len(choices) + 1
        assert len(choices) >= 3
        rights = [bool(right) for right, _, _ in choices]
        assert rights.count(True) == 1
        places.add(rights.index(True))
        for right, text, said in choices:
            assert said.startswith("Yes." if right else "No."), text
            assert len(said.split()) > 5, text
    assert len(places) > 1, "the right choice is always at the same place"


@by_notebook(CHAPTER_FILES)
def test_its_side_roads_are_folded_and_nothing_else_is(path):
    page = soup_of(built() / f"{path.stem}.html")
    folds = [
        summary.parent
        for summary in page.select("summary:has(h2, h3)")
        if not summary.find_parent("section", class_="exercise")
    ]
    titles = [fold.find(["h2", "h3"]).get_text() for fold in folds]
    roads = [p for p in measure(seen(path)).parts if p.kind == "side road"]
    assert len(titles) == len(roads)
    assert all(title.startswith("Side road: ") for title in titles)
    for fold in folds:
        assert not fold.select("h2 ~ section > h2"), "a section too many"
        assert fold.parent.name == "section" and fold.parent["id"]


@by_notebook(CHAPTER_FILES)
def test_each_exercise_is_a_line_that_unfolds(path):
    """To its text, its stub and its solution, and to nothing else."""
    page = soup_of(built() / f"{path.stem}.html")
    exercises = page.select("section.exercise")
    assert [*measure(seen(path)).each] == [
        re.search(r"Exercise (\d+\.\d+):", exercise.h3.get_text())[1]
        for exercise in exercises
    ]
    for exercise in exercises:
        (fold,) = exercise.find_all("details", recursive=False)
        assert fold.summary.h3 and not fold.has_attr("open")
        alone = exercise.find_all(recursive=False)
        assert [tag.name for tag in alone] in (
            ["details"],
            ["span", "details"],
        )
        assert "NotImplementedError" in fold.get_text()
        assert "Solution" in [s.get_text() for s in fold.select("summary")]


@by_notebook(CHAPTER_FILES)
def test_an_exercise_is_folded_in_jupyter_too(path):
    """JupyterLab folds what is below a cell that has the heading alone."""
    cells = seen(path).cells
    heads = [c for c in cells if "### Exercise " in c.source]
    assert len(heads) == len(measure(seen(path)).each)
    for head in heads:
        assert len(head.source.splitlines()) == 1, head.source
        assert head.metadata["jp-MarkdownHeadingCollapsed"] is True


@by_notebook(CHAPTER_FILES)
def test_gathered_side_roads_stand_before_the_exercises(path):
    cells = seen(path).cells
    text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    before, _, _ = text.partition("\n## Exercises\n")
    way, gathered, roads = before.partition("\n## Side roads\n")
    if gathered:
        assert "# Side road: " not in way
        titles = re.findall(r"(?m)^#+ .+", roads)
        assert titles and all(t.startswith("### Side road: ") for t in titles)


def test_the_ways_through_the_book_take_what_the_first_page_says():
    first = "".join(c.source for c in seen(FIRST).cells)
    assert ways(first) == first
    elsewhere = re.sub(r"\d+ minutes", "1 minutes", first)
    assert ways(elsewhere) == first != elsewhere


def shown(text):
    return new_output("stream", name="stdout", text=text)


def test_minutes_are_words_lines_and_figures():
    notebook = new_notebook(
        cells=[
            new_markdown_cell(
                "# Title\n**Time:** 1 minutes, side roads 1 more, exercises 1."
            ),
            new_markdown_cell("word " * 225 + "\n\n![A picture](a.svg)"),
            new_code_cell("x = 1\n" * 14, outputs=[shown("1"), shown("2")]),
            new_code_cell("y = 1\n" * 99, metadata={"tags": ["hide-input"]}),
            new_code_cell(
                "setup()", outputs=[shown("1")], metadata={"tags": ["setup"]}
            ),
            new_markdown_cell(
                "## Side roads\n### Side road: more (1 minute)\n" + "w " * 230
            ),
            new_code_cell(
                "plot()",
                outputs=[shown("1")] * 3,
                metadata={"tags": ["hide-input"]},
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
    assert (found.core, found.side_roads, found.exercises) == (5, 4, 5)
    core = found.parts[0]
    assert (core.lines, core.figures) == (14, 3)
    cells = stamped(notebook).cells
    assert cells[0].source.endswith(
        "5 minutes, side roads 4 more, exercises 5."
    )
    assert "more (3 minutes)" in cells[5].source
    assert "less (1 minute)" in cells[7].source


def test_code_in_a_text_is_lines_and_no_words():
    code = "```python\na = 1\n\nb = 2\n```"
    text = f"one\n\n{code}\n\ntwo\n\n<details>\n{code}\n</details>"
    found = measure(new_notebook(cells=[new_markdown_cell(text)]))
    (core,) = found.parts
    assert (core.words, core.lines) == (2, 2)


def test_the_address_of_a_link_is_no_words():
    text = "two [words](#Side-road:-more-(or-less)-to-read), and ([two](a.md))"
    found = measure(new_notebook(cells=[new_markdown_cell(text)]))
    assert found.parts[0].words == 4


def test_code_that_is_shown_counts_unless_it_is_folded():
    code = "```python\na = 1\nb = 2\n```"
    more = [code, f"<details>\n<summary>More</summary>\n\n{code}\n</details>"]
    cell = new_code_cell("show()")
    cell.outputs = [
        new_output("display_data", {"text/markdown": text}) for text in more
    ]
    (core,) = measure(new_notebook(cells=[cell])).parts
    assert core.lines == 3


def test_ideas_are_written_before_further_reading():
    notebook = new_notebook(
        metadata={"ideas": ["One is one.", "Two is two."]},
        cells=[
            new_markdown_cell("# A"),
            new_markdown_cell("## Further reading"),
        ],
    )
    written = "## What is new here\n\n- One is one.\n- Two is two."
    for _ in range(2):  # written again, it stays the same
        stamped(notebook)
        assert [c.source for c in notebook.cells][1:2] == [written]
        assert len(notebook.cells) == 3
    notebook.metadata["ideas"] = ["One is one."]
    stamped(notebook)
    assert notebook.cells[1].source == "## What is new here\n\n- One is one."


@pytest.mark.parametrize(
    "ideas", [[], ["a"] * 13, "one", [1], ["a\nb"], [" "], None]
)
def test_a_list_of_ideas_that_is_refused(ideas):
    notebook = new_notebook(metadata={"ideas": ideas})
    with pytest.raises(ValueError, match="expected 1 to 12 texts of one line"):
        stamped(notebook)


def test_links_to_side_roads_follow_their_minutes():
    heading = "Side road: is “it” fair, and to whom? (2 minutes)"
    road = road_address(heading)
    assert road == "side-road-is-it-fair-and-to-whom"
    roads = {("b", road): 1, ("a", road): 7}
    text = f"[here](#{road}-2-minutes), [there](b.ipynb#{road}-12-minutes), "
    text += "[none](#side-road-x-3-minutes)"
    assert relinked(text, "a", roads) == (
        f"[here](#{road}-7-minutes), [there](b.ipynb#{road}-1-minute), "
        "[none](#side-road-x-3-minutes)"
    )
    jupyter = jupyter_address(heading)
    text = f"[here](#{jupyter}), [there](b.ipynb#{jupyter})"
    assert relinked(text, "a", roads) == (
        f"[here](#{jupyter.replace('2-minutes', '7-minutes')}), "
        f"[there](b.ipynb#{jupyter.replace('2-minutes', '1-minute')})"
    )
