"""The built pages: what they load, link to, show and weigh.

Run on ``_build/html``, which ``make book`` makes.
"""

import gzip
import re
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
import sphinxcontrib.katex as sphinx_katex
import yaml
from bs4 import Tag
from pages import (
    built,
    ids,
    is_local,
    pages,
    soup_of,
    target_of,
    urls_of,
)

from press import book_page
from press.contents import contents
from press.places import CHAPTERS, HTML, ROOT
from press.settings import is_placeholder, settings

# Bytes that a page may cost a new reader who reads to its end: a second and a
# half on a slow line (1.6 Mbit/s). Of KaTeX's fonts it takes a third.
PAGE_LIMIT, FONTS_LIMIT = 260_000, 115_000
#: What a search costs besides the page: the index of the sections of all 24
#: chapters, and the words of the trade that lead to them.
INDEX_LIMIT = 300_000

ALT_LENGTH = 25  # letters; fewer cannot say what a figure shows

# What a browser fetches by itself when it shows a page.
LOADED = (
    "[src]:not(a), [srcset], object, "
    "link:not([rel=canonical], [rel=next], [rel=prev], [rel=search], "
    "[rel=alternate])"
)

by_page = pytest.mark.parametrize(
    "page", contents().files(HTML), ids=lambda page: page.stem
)


@by_page
def test_nothing_is_fetched_from_another_host(page):
    urls = urls_of(page, LOADED)
    assert len(urls) > 5
    assert [url for url in urls if urlsplit(url).netloc] == []
    scripts = "".join(s.get_text() for s in soup_of(page).select("script"))
    assert "://" not in scripts


def test_the_style_sheet_names_nothing_elsewhere():
    (sheet,) = {url for page in pages() for url in urls_of(page, SHEET)}
    css = built() / sheet
    for url in re.findall(r"""url\(["']?([^"')]+)""", css.read_text("utf-8")):
        assert url.startswith("data:") or target_of(url, css).is_file(), url


@by_page
def test_every_local_link_names_a_file_and_a_place_in_it(page):
    for url in filter(is_local, urls_of(page)):
        target = target_of(url, page)
        assert target.is_file(), url
        place = unquote(urlsplit(url).fragment)
        if place and target.suffix == ".html":
            assert place in ids(target), url


@by_page
def test_images_say_what_they_show(page):
    for image in soup_of(page).select("img:not(.logo__image)"):
        alt = image.get("alt", "").strip()
        assert alt, image
        assert not re.search(r"\.(png|svg|webp)$|[0-9a-f]{16}", alt), image
        if image.find_parent(class_="cell_output"):
            assert len(alt) >= ALT_LENGTH, image


@by_page
def test_a_drawing_is_a_part_of_the_page(page):
    """In a notebook it is a picture with its data in its address. Such a
    picture would keep its own colours in a dark page."""
    assert soup_of(page).select('img[src^="data:image/svg"]') == []


@pytest.mark.parametrize("owner, there", [("OWNER", False), ("me", True)])
def test_buttons_wait_for_an_address(owner, there):
    options = {
        "repository_url": f"https://github.com/{owner}/book",
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
        "use_repository_button": True,
        "use_issues_button": True,
    }
    config = SimpleNamespace(html_theme_options=options)
    book_page.hide_buttons(None, config)
    assert bool(options["launch_buttons"]) is there
    assert options["use_repository_button"] is there
    assert options["use_issues_button"] is there


def test_a_notebook_opens_in_colab_and_binder_or_nothing_says_so():
    url, branch = settings().url, settings().branch
    if is_placeholder(url):
        for page in pages():
            links = " ".join(urls_of(page, "a[href]")).lower()
            assert not re.search("/owner/|colab\\.research|mybinder", links)
        return
    name = urlsplit(url).path.strip("/")
    starts = {
        "https://colab.research.google.com/": f"github/{name}/blob/{branch}",
        "https://mybinder.org/": f"v2/gh/{name}/{branch}?urlpath=lab/tree",
    }
    for page in pages():
        own = f"{page.stem}.ipynb"
        for host, start in starts.items():
            links = {u for u in urls_of(page, "a[href]") if u.startswith(host)}
            start = f"{host}{start}/chapters/"
            opened = {link.removeprefix(start) for link in links}
            assert all((CHAPTERS / n).is_file() for n in opened), page.name
            assert own in opened or not (CHAPTERS / own).is_file(), page.name


def weight(files):
    """Bytes on the wire: text as gzip sends it, the rest as it is."""
    texts = {".html", ".css", ".js"}
    return sum(
        len(
            gzip.compress(f.read_bytes(), 6)
            if f.suffix in texts
            else f.read_bytes()
        )
        for f in files
    )


@by_page
def test_a_page_weighs_little(page):
    loaded = {target_of(url, page) for url in urls_of(page, LOADED)}
    fonts = set(built().glob("_static/fonts/*"))
    assert weight({page} | loaded - fonts) <= PAGE_LIMIT
    assert weight(fonts) <= FONTS_LIMIT


def test_a_search_weighs_little():
    index = built() / "_static" / "sections-index.js"
    assert weight({index}) <= INDEX_LIMIT


SHEET = "link[rel=stylesheet]"


@by_page
def test_one_style_sheet_alone_keeps_a_page_from_being_drawn(page):
    assert len(urls_of(page, SHEET)) == 1
    assert urls_of(page, "script[src]:not([defer], [type='text/plain'])") == []
    loaded = " ".join(urls_of(page, LOADED)).lower()
    for needless in ("mathjax", "require.js", "thebe", "fontawesome.js"):
        assert needless not in loaded


@by_page
def test_the_theme_is_as_the_templates_expect_it(page):
    """What site/templates and book_page.py change has been changed."""
    soup = soup_of(page)
    for css, count in {
        "link[rel=expect][href='#first-view-ends']": 1,
        "#first-view-ends": 1,
        "meta[name=viewport]": 1,
        "[role=complementary][aria-label=Book] .search-button-field": 1,
        ".search-button-field[aria-label]": 0,
        ".theme-switch[title]": 0,
        "[aria-label='Toggle hidden content']": 0,
        "[role=doc-biblioentry]": 0,
        "link[as=script]": 0,
        ".highlight pre span.n": 0,
        ".cell:has(> details.hide:last-child) + .cell > details.hide": 0,
        "#search-results": len(soup.select("script[src*=searchindex]")[:1]),
    }.items():
        assert len(soup.select(css)) == count, css
    assert len(soup.select(".theme-switch[aria-hidden]")) >= 3
    assert "root.firstView" in str(soup.head)


def said(tag):
    """The texts in an element, without those of code and of formulas."""
    for part in tag.children:
        if not isinstance(part, Tag):
            yield part
        elif part.name not in ("script", "style", "pre", "code"):
            if "katex" not in part.get("class", ()):
                yield from said(part)


@by_page
def test_no_formula_is_left_as_text(page):
    article = soup_of(page).select_one("article")
    text = " ".join(said(article) if article else ())
    raw = r"\\[(\[]|\$\$|\$[^$\n]*[\\_^][^$\n]*\$|\\begin\{"
    assert not re.search(raw, text)
    assert not soup_of(page).select(".katex-error")
    if re.match(r"\d\d_", page.stem):  # a chapter
        assert len(article.select(".katex")) > 10


@by_page
def test_displayed_formulas_are_numbered_in_order(page):
    numbers = [
        block.select_one(".eqno").get_text("", strip=True).rstrip("#")
        for block in soup_of(page).select("div.math")
    ]
    chapter = page.name[:2].lstrip("0")
    assert numbers == [f"({chapter}.{n})" for n in range(1, len(numbers) + 1)]


# Commands that KaTeX knows and the MathJax of notebooks does not: \argmax
# would stand there in red. \operatorname{argmax} is read by both.
KATEX_ONLY = re.compile(
    r"\\(argmax|argmin|plim|R|N|Z|P|Reals|reals|natnums|bm|bra|ket|braket|Set"
    r"|set|coloneqq|vcentcolon|llbracket|rrbracket|mathclap|mathllap|mathrlap"
    r"|degree)(?![A-Za-z])"
)


@by_page
def test_a_notebook_can_set_the_formulas(page):
    for source in soup_of(page).select(".katex annotation"):
        tex = source.get_text()
        assert not KATEX_ONLY.search(tex), tex
        # Outside of these, MathJax loses a line break.
        assert r"\\" not in tex or re.search(r"\\begin|\\substack", tex), tex


def test_katex_is_of_one_version_and_there_is_a_book():
    css = (ROOT / "site/vendor/katex/katex.min.css").read_text("utf-8")
    assert f'content:"{sphinx_katex.katex_version}"' in css
    assert len(pages()) > 15


def plain(formula):
    return re.sub(r"\\math(rm|sf)\b|[{}\s]", "", formula.get_text())


def test_each_symbol_of_the_notation_is_in_a_formula_of_a_chapter():
    def formulas(page, css):
        return {plain(f) for f in soup_of(page).select(f"{css} annotation")}

    notation = built() / "notation.html"
    others = set(pages()) - {notation}
    used = set().union(*(formulas(page, "article") for page in others))
    cells = formulas(notation, "article tbody td:first-child")
    symbols = {symbol for cell in cells for symbol in cell.split(",")}
    assert len(symbols) > 25
    for symbol in symbols:
        # A command of TeX begins with its backslash, whatever is before it.
        before = "" if symbol.startswith("\\") else r"(?<![\\A-Za-z])"
        whole = re.compile(rf"{before}{re.escape(symbol)}(?![A-Za-z])")
        assert any(map(whole.search, used)), symbol


# "Vaswani et al. (2017)", "(Vaswani and others, 2017)", "Vaswani's 2017"
AUTHOR_YEAR = re.compile(
    r"([^\W\d_][\w-]+)(?:['’]s)?(?: et al\.| and others)?,? \(?"
    r"((?:1[89]|20)\d\d)"
)


def test_every_work_of_the_bibliography_is_cited():
    pages = {path.stem: path for path in built().glob("*.html")}
    works = soup_of(pages.pop("bibliography")).select(".citation[id]")
    text = "".join(path.read_text("utf-8") for path in pages.values())
    uncited = [w["id"] for w in works if f"phy.html#{w['id']}" not in text]
    assert works and not uncited


@by_page
def test_where_a_work_is_cited_the_text_names_author_and_year(page):
    entries = soup_of(built() / "bibliography.html")
    for link in soup_of(page).select('a[href*="bibliography.html#"]'):
        entry = entries.find(id=urlsplit(link["href"]).fragment)
        if "citation" not in entry.get("class", []):
            continue  # a heading
        block = link.find_parent(["p", "li", "td", "dd"]) or link.parent
        text = ""
        for part in block.find_all(string=True):  # to the link's own end
            text += part
            if link in part.parents:
                break
        text = re.sub(r"\s+", " ", text)[-160:]
        work = entry.get_text()
        named = AUTHOR_YEAR.findall(text)
        assert any(who in work and year in work for who, year in named), text


def test_an_old_address_leads_to_the_new_page():
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    redirects = config["sphinx"]["config"]["redirects"]
    assert len(redirects) >= 4
    for old, new in redirects.items():
        text = (built() / f"{old}.html").read_text("utf-8")
        assert f'var target = "{new}"' in text and "location.hash" in text
        assert built() / new in pages()
