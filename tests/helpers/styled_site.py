"""A built page that links three style sheets and shows three pictures."""

from bs4 import BeautifulSoup
from PIL import Image


def write_site(site):
    """Put the page, its style sheets and its pictures into a folder."""
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
