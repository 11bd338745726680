"""A built book of three small pages, for what is made of built pages."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from press.contents import BESIDE, Contents
from press.settings import Settings

URL = "https://github.com/someone/a-book"
SETTINGS = Settings(
    title="A book & more",
    author="its authors",
    url=URL,
    branch="v1.2.0",
    licence="CC BY 4.0",
)
TOC = {
    "format": "jb-book",
    "root": "index",
    "parts": [
        {"caption": "First part", "chapters": [{"file": "b"}]},
        {"caption": "Appendix", "chapters": [{"file": "a"}]},
    ],
}
CONTENTS = Contents.read(TOC)
PAGE = """
<html><head><link rel="stylesheet" href="_static/{style}.css?v=1"></head>
<body><nav>sidebar</nav><article class="bd-article">{article}</article>
<p class="formats">Also: <a href="{style}.txt">this page as plain text</a>, \
<a href="feed.xml">a feed of changes</a></p>
<div class="extra_footer">CC BY 4.0</div></body></html>"""
ARTICLES = {
    "index": '<section id="top"><h1>A book</h1><p><em>A motto.</em></p>'
    '<a href="a.html#top">a</a><div class="toctree-wrapper">x</div>'
    "</section>",
    "b": '<section id="top"><h1>1. Bees<a class="headerlink" href="#top">#'
    '</a></h1><section id="wings"><h2>Wings</h2>'
    '<span class="katex"><span class="katex-mathml"><math '
    'xmlns="http://www.w3.org/1998/Math/MathML"><semantics><msub><mi>x</mi>'
    "<mi>max</mi><mo>\N{FUNCTION APPLICATION}</mo></msub><mi>cos</mi>"
    "<mo>\N{FUNCTION APPLICATION}</mo><mi>b</mi><annotation>"
    'x^2</annotation></semantics></math></span><span class="katex-html">x2'
    "</span></span><script>alert()</script><button>Press</button>"
    '<svg aria-hidden="true"></svg><pre>6</pre>'
    '<details class="hide"><summary>Show</summary>plt.show()</details>'
    '<div class="highlight-myst-ansi"><pre><span></span>4 &lt; 5\n</pre></div>'
    '<img loading="lazy" src="_images/wing.webp" alt="Two wings.">'
    '<a href="https://example.org/a.html">far</a>'
    '<a href="#wings">near</a></section>'
    '<section class="exercise" id="try"><h3>Exercise 1.1</h3><p>Try.</p>'
    "<details><summary>Solution</summary><p>Done.</p></details>"
    '</section><section id="quiz"><h2>Two questions</h2><ol><li>Why?</li></ol>'
    "<details><summary>Answer</summary><p>So.</p></details>"
    '<ol start="2"><li>How?</li></ol>'
    "<details><summary>Answer</summary><p>Thus.</p></details>"
    "</section></section>",
    "a": '<section id="top"><h1>Ants</h1><a href="b.html">b</a></section>',
}


def write(site: Path) -> Path:
    """Put the pages, and the picture that they show, into a folder."""
    for name, article in ARTICLES.items():
        (site / f"{name}.html").write_text(
            PAGE.format(style=name, article=article), "utf-8"
        )
    for name in BESIDE:
        foot = '<p class="formats">Also: <a href="feed.xml">a feed</a></p>'
        (site / f"{name}.html").write_text(f"<html>{foot}</html>", "utf-8")
    for folder in ("_images", "_static"):
        (site / folder).mkdir()
    Image.new("RGB", (2, 2)).save(site / "_images" / "wing.webp")
    logo = '<svg xmlns="http://www.w3.org/2000/svg" width="2" height="2"/>'
    (site / "_static" / "logo-light.svg").write_text(logo, "utf-8")
    return site
