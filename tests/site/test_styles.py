"""What the pages lose on their way: rules, glyphs, bytes of pictures."""

import io
from types import SimpleNamespace

import pytest
import tinycss2
from bs4 import BeautifulSoup
from docutils import nodes
from fontTools.ttLib import TTFont
from PIL import Image

from press import book_page, pictures, styles
from press.places import SITE


@pytest.fixture
def warnings(monkeypatch):
    """What the extensions warn of."""
    said = []
    for module in (book_page, styles):
        monkeypatch.setattr(
            module.logger,
            "warning",
            lambda *text, **place: said.append((*text, place)),
        )
    return said


@pytest.mark.parametrize(
    "css, kept",
    [
        (".cell,.gone{a:b}", ".cell{a:b}"),
        (".cell .gone{a:b}", ""),
        ("#top{a:b} #gone{a:b}", "#top{a:b}"),
        ("p{a:b} video{a:b}", "p{a:b}"),
        ("p:hover::before{a:b}", "p:hover::before{a:b}"),
        ("p:not(.gone, .lost){a:b}", "p:not(.gone, .lost){a:b}"),
        ("p[data-any=one]{a:b}", "p[data-any=one]{a:b}"),
        ("@media print{p{a:b} .gone{a:b}}", "@media print{p{a:b}}"),
        ("@keyframes go{from{a:b}}", "@keyframes go{from{a:b}}"),
        ("/*! A licence. */ /* A word. */", "/*! A licence. */"),
        (".cell--x:hover{a:b}", ""),
    ],
)
def test_a_style_sheet_keeps_what_is_used(warnings, css, kept):
    words = {"cell", "p", "top"}
    assert styles.purged(tinycss2.parse_stylesheet(css), words) == kept
    assert warnings == []


def test_a_font_keeps_the_glyphs_that_are_shown():
    font = SITE / "vendor/katex/fonts/KaTeX_Math-Italic.woff2"
    small = styles.subset_font(font, {"x", "y"})
    assert len(small) < font.stat().st_size / 3
    assert set(TTFont(io.BytesIO(small)).getBestCmap()) == {ord("x"), ord("y")}
    assert small == styles.subset_font(font, {"y", "x"})


def write_site(site):
    """A page with three style sheets, one for print, and three pictures."""
    (site / "_static" / "parts").mkdir(parents=True)
    (site / "_images").mkdir()
    for name, css in {
        "a.css": 'i{a:url("parts/b.png")}',
        "parts/b.css": '@import "../a.css";p{a:url(c.png)}.gone{a:b}',
        "print.css": "b{a:url('data:x;(y)')}",
    }.items():
        (site / "_static" / name).write_text(css, "utf-8")
    Image.effect_noise((40, 20), 50).convert("RGBA").save(
        site / "_images" / "a.png"
    )
    (site / "_images" / "b.svg").write_text('<svg viewBox="0 0 30 10"/>')
    (site / "index.html").write_text(
        '<link rel="stylesheet" href="_static/parts/b.css?v=1" />'
        '<link href="_static/print.css" rel="stylesheet" media="print">'
        '<article><img src="_images/a.png" /><h2>More</h2><i></i><b></b><p>'
        '<img src="_images/a.png" /><img src="_images/b.svg"></p></article>',
        "utf-8",
    )
    return site


def soup(site):
    text = (site / "index.html").read_text("utf-8")
    return BeautifulSoup(text, "html.parser")


def test_style_sheets_become_one(warnings, tmp_path):
    site = write_site(tmp_path / "site")
    styles.lighten(site)
    (link,) = soup(site).select("link[rel=stylesheet]")
    assert (site / link["href"]).read_text("utf-8").splitlines() == [
        "i{a:url(parts/b.png)}",
        "p{a:url(parts/c.png)}",
        '@media print{b{a:url("data:x;(y)")}}',
    ]
    assert warnings == []
    (site / "other.html").write_text("<p></p>", "utf-8")
    styles.lighten(site)
    assert len(warnings) == 1, "a page links another list of style sheets"


def test_pictures_are_packed_sized_and_wait(tmp_path):
    site = write_site(tmp_path / "site")
    with Image.open(site / "_images/a.png") as before:
        pixels = before.tobytes()
    pictures.settle(site)
    first, second, drawn = soup(site).find_all("img")
    assert first["src"] == second["src"] == "_images/a.webp"
    with Image.open(site / "_images/a.webp") as after:
        assert after.convert("RGBA").tobytes() == pixels
    assert not (site / "_images/a.png").exists()
    assert (second["width"], second["height"]) == ("40", "20")
    assert (drawn["width"], drawn["height"]) == ("30", "10")
    assert first.get("loading") is None  # in the first view
    assert second["loading"] == drawn["loading"] == "lazy"


@pytest.mark.parametrize("known", [True, False])
def test_another_script_of_the_theme_fails_the_build(
    warnings, tmp_path, known
):
    script = tmp_path / book_page.THEME_SCRIPT
    script.parent.mkdir(parents=True)
    measures = (
        ".forEach(e=>{e.tabIndex=e.scrollWidth>e.clientWidth"
        "||e.scrollHeight>e.clientHeight?0:-1})"
    )
    script.write_text(f"all(){measures * known};go()")
    book_page.mend_theme_script(tmp_path)
    assert script.read_text() == "all();go()"
    assert len(warnings) == (not known)


def test_a_wrong_formula_is_a_warning_at_its_place(warnings, monkeypatch):
    monkeypatch.setattr(book_page.katex, "render_latex", None)
    right, wrong = nodes.math("", "x^2"), nodes.math_block("", r"\frac")
    env = SimpleNamespace(found_docs={"a"})
    env.get_doctree = lambda name: nodes.section("", right, wrong)
    book_page.render_formulas(None, env)
    assert "</math>" in book_page.katex.render_latex("x^2")
    ((_, error, place),) = warnings
    assert "end of input" in error and place == {"location": wrong}


def test_a_sentence_of_an_output_breaks_where_it_must_and_a_table_does_not():
    long = " ".join(["word"] * 15)
    said = f"short.\n{long} &lt;\n  carried on.\n"
    table = "heads\n  one 1\n  two 2\n\n[[1 0]\n [1 1]]\n"
    start = '<div class="output stream x"><pre><span></span>'
    body = f"{start}{said}{table}</pre>"
    soup = BeautifulSoup(
        book_page.STREAM.sub(book_page.unfilled, body), "html.parser"
    )
    sentences = [s.extract().text for s in soup.select(".said")]
    assert sentences == [f"{long} <\n  carried on.\n".replace("\n  ", " ")]
    assert soup.pre.text == f"short.\n{table}"
