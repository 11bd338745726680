"""What the pages' extension does to formulas, code, folds and bodies."""

from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from pygments import highlight
from pygments.lexers import PythonLexer

from attnbook.teach.page import drawings
from press import book_page


def test_a_wrong_formula_is_a_warning_at_its_place(monkeypatch):
    warnings = []
    monkeypatch.setattr(
        book_page.logger,
        "warning",
        lambda *text, **place: warnings.append((*text, place)),
    )
    monkeypatch.setattr(book_page.katex, "render_latex", None)
    right, wrong = nodes.math("", "x^2"), nodes.math_block("", r"\frac")
    env = SimpleNamespace(found_docs={"a"})
    env.get_doctree = lambda name: nodes.section("", right, wrong)
    book_page.render_formulas(None, env)
    assert "</math>" in book_page.katex.render_latex("x^2")
    ((_, error, place),) = warnings
    assert "end of input" in error and place == {"location": wrong}


def test_code_has_elements_for_what_has_a_colour_alone():
    html = highlight(
        "def f(x): return x", PythonLexer(), book_page.FewerElements()
    )
    soup = BeautifulSoup(html, "html.parser")
    assert soup.get_text().strip() == "def f(x): return x"
    classes = {span["class"][0] for span in soup.select("span[class]")}
    assert classes == {"k", "nf"}


def test_a_drawing_becomes_a_part_of_its_page(monkeypatch):
    shown = []
    monkeypatch.setattr(drawings, "display", lambda x, raw: shown.append(x))
    drawings.drawing("lora")
    picture = shown[0]["text/html"]
    other = "<p>A figure that moves.</p>"
    tree = nodes.section(
        "", *(nodes.raw("", h, format="html") for h in (picture, other))
    )
    book_page.put_drawings_in(None, tree)
    assert tree[0].astext().startswith('<div class="drawing">\n<svg')
    assert tree[0]["format"] == "html"
    assert tree[1].astext() == other


def cell(*parts):
    """A cell of code: "fold" hides its input, "code" shows it."""
    made = nodes.container(nb_element="cell_code")
    for part in parts:
        inner = nodes.paragraph("", part)
        fold = HideCodeCellNode("", inner, classes=["above-input"])
        made += fold if part.startswith("fold") else inner
    return made


def shape(tree):
    """The texts of each cell, those of a fold in a list of their own."""
    return [
        [
            [inner.astext() for inner in part]
            if isinstance(part, HideCodeCellNode)
            else part.astext()
            for part in one
        ]
        for one in tree
    ]


@pytest.mark.parametrize(
    "cells, joined",
    [
        ([["fold a"], ["fold b"]], [[["fold a", "fold b"]]]),
        (
            [["fold a"], ["fold b", "output"], ["fold c"]],
            [[["fold a", "fold b"], "output"], [["fold c"]]],
        ),
        ([["fold a"], ["code"]], [[["fold a"]], ["code"]]),
        ([["code"], ["fold a"]], [["code"], [["fold a"]]]),
        (
            [["fold a"], ["fold b"], ["fold c"]],
            [[["fold a", "fold b", "fold c"]]],
        ),
    ],
)
def test_folds_that_follow_each_other_are_one(cells, joined):
    tree = nodes.section("", *(cell(*parts) for parts in cells))
    book_page.join_folds(None, tree, "")
    assert shape(tree) == joined


def test_a_word_between_two_folds_keeps_them_apart():
    word = nodes.paragraph("", "word")
    tree = nodes.section("", cell("fold a"), word, cell("fold b"))
    book_page.join_folds(None, tree, "")
    assert len(tree) == 3


def test_a_sentence_of_an_output_breaks_where_it_must_and_a_table_does_not():
    long = " ".join(["word"] * 15)
    said = f"short.\n{long} &lt;\n  carried on.\n"
    table = "heads\n  one 1\n  two 2\n\n[[1 0]\n [1 1]]\n"
    start = '<div class="output stream x"><pre><span></span>'
    body, _ = book_page.mended(f"{start}{said}{table}</pre></div>")
    soup = BeautifulSoup(body, "html.parser")
    sentences = [s.extract().text for s in soup.select(".said")]
    assert sentences == [f"{long} <\n  carried on.\n".replace("\n  ", " ")]
    assert soup.pre.text == f"short.\n{table}"


def test_code_is_no_output():
    long = " ".join(["word"] * 15)
    body = f"<pre><span></span>{long} {long}\n  more\n</pre>"
    assert book_page.mended(body) == (body, False)


@pytest.mark.parametrize("follows, marked", [(8000, True), (7999, False)])
def test_the_second_section_ends_the_first_view(follows, marked):
    second = "<h2>Two</h2>"
    rest = "x" * (follows - len(second) + len("<h2"))
    body, found = book_page.mended(f"<h1>A</h1><h2>One</h2>{second}{rest}")
    assert found is marked
    ids = [h.get("id") for h in BeautifulSoup(body, "html.parser")("h2")]
    assert ids == [None, "first-view-ends" if marked else None]


def test_what_reads_badly_is_left_out_and_nothing_else():
    body = (
        '<summary aria-label="Toggle hidden content">Show</summary>'
        '<div id="a" role="list">x</div><div role="note">y</div>'
        "<pre>role=&quot;list&quot;</pre>"
    )
    mended, _ = book_page.mended(body)
    assert mended == (
        '<summary>Show</summary><div id="a">x</div>'
        '<div role="note">y</div><pre>role=&quot;list&quot;</pre>'
    )
