"""What the pages lose on their way: rules and glyphs."""

import io

import pytest
import tinycss2
from fontTools.ttLib import TTFont
from styled_site import soup, write_site

from press import styles
from press.markup import Page
from press.places import SITE


@pytest.fixture
def warnings(monkeypatch):
    """What the extension warns of."""
    said = []
    monkeypatch.setattr(
        styles.logger, "warning", lambda *text: said.append(text)
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


def lighten(site):
    pages = [Page.read(path) for path in sorted(site.glob("*.html"))]
    styles.lighten(pages, site)
    for page in pages:
        page.write()


def test_style_sheets_become_one(warnings, tmp_path):
    site = write_site(tmp_path / "site")
    lighten(site)
    (link,) = soup(site).select("link[rel=stylesheet]")
    assert (site / link["href"]).read_text("utf-8").splitlines() == [
        "i{a:url(parts/b.png)}",
        "p{a:url(parts/c.png)}",
        '@media print{b{a:url("data:x;(y)")}}',
    ]
    assert warnings == []
    (site / "other.html").write_text("<p></p>", "utf-8")
    lighten(site)
    assert len(warnings) == 1, "a page links another list of style sheets"
