"""What comes beside the built pages: plain texts, feed, sitemap; and the book
as one file. On a small book."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as xml

import pytest
import small_site
from small_site import CONTENTS, SETTINGS, TOC
from sphinx_external_toc.parsing import parse_toc_data

from press import changes, finish, theme_script
from press.markup import Page
from press.plain import twin, write_twins

CHANGELOG = """\
# Changes

## Second edition, 2026-02-03

- Bees & *wasps*.

## First edition, 2026-01-02

- Ants.
"""
REAL = "https://someone.github.io/a-book/"
ATOM = {"a": changes.ATOM}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The small book, finished, without an address."""
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, "utf-8")
    monkeypatch.setattr(changes, "CHANGELOG", tmp_path / "CHANGELOG.md")
    site = tmp_path / "html"
    site.mkdir()
    small_site.write(site)
    pages = [Page.read(path) for path in CONTENTS.files(site)]
    names = set(CONTENTS.documents)
    texts = {
        page.path.stem: twin(
            page.path.stem, page.markup, names, SETTINGS.title
        )
        for page in pages
        if page.path.stem in names
    }
    write_twins(texts, site, SETTINGS.title, CONTENTS)
    finish.write_feed(site, SETTINGS.title, SETTINGS.author, "")
    finish.write_sitemap(site, CONTENTS, "")
    return site


@pytest.mark.parametrize(
    "made", [[], ["pdf"], ["epub"], ["epub", "pdf"], ["pdf", "pdf", "epub"]]
)
def test_a_page_offers_the_files_that_are_there_and_no_other(site, made):
    def offered():
        html = (site / "b.html").read_text("utf-8")
        (line,) = re.findall('<p class="formats">.*?</p>', html)
        return re.findall('href="([^"]*)"', line)

    assert offered() == ["b.txt", "feed.xml"]
    for ending in made:
        file = site.parent / f"averages-to-attention.{ending}"
        file.write_bytes(b"a book")
        finish.put_on_site(file, site, CONTENTS)
        assert (site / file.name).read_bytes() == b"a book"
    order = [ending for ending in ("pdf", "epub") if ending in made]
    books = [f"averages-to-attention.{ending}" for ending in order]
    assert offered() == ["b.txt", *books, "feed.xml"]


def test_without_an_address_there_is_no_sitemap(site):
    assert not list(site.glob("sitemap.xml")) + list(site.glob("robots.txt"))


def test_with_an_address_the_sitemap_names_the_pages(site):
    finish.write_sitemap(site, CONTENTS, REAL)
    urls = xml.parse(site / "sitemap.xml").getroot()
    assert [url[0].text for url in urls] == [
        f"{REAL}a.html",
        f"{REAL}b.html",
        REAL,
    ]
    robots = (site / "robots.txt").read_text("utf-8")
    assert f"Sitemap: {REAL}sitemap.xml\n" in robots


@pytest.mark.parametrize("address", ["", REAL])
def test_the_feed_is_an_atom_feed(address):
    """What RFC 4287 requires of a feed and its entries."""
    found = changes.editions(CHANGELOG)
    root = xml.fromstring(
        changes.feed("A book", "its authors", found, address)
    )
    assert root.tag == f"{{{changes.ATOM}}}feed"
    assert root.findtext("a:author/a:name", None, ATOM) == "its authors"
    entries = root.findall("a:entry", ATOM)
    ids = set()
    for element in (root, *entries):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"a:{name}", ATOM)) == 1
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
            element.findtext("a:updated", None, ATOM),
        )
        ids.add(element.findtext("a:id", None, ATOM))
        assert element.find("a:link", ATOM).get("href").startswith(address)
    assert len(ids) == 3 and all(i.startswith("urn:uuid:") for i in ids)
    own = [link.get("href") for link in root.findall("a:link[@rel]", ATOM)]
    assert own == ([f"{address}feed.xml"] if address else [])
    assert [e.findtext("a:title", None, ATOM) for e in entries] == [
        "Second edition",
        "First edition",
    ]
    content = entries[0].find("a:content", ATOM)
    assert content.get("type") == "html"
    assert "<li>Bees &amp; <em>wasps</em>.</li>" in content.text


@pytest.mark.parametrize(
    "changelog, message",
    [
        ("## Second edition\n", "expected a heading such as"),
        ("## B, 2026-01-01\n## A, 2026-01-02\n", "expected the newest first"),
        ("# Changes\n", "expected the newest first"),
    ],
)
def test_a_changelog_that_cannot_be_read_is_refused(changelog, message):
    with pytest.raises(ValueError, match=message):
        changes.editions(changelog)


def test_a_twin_says_what_the_page_says(site):
    head, text = (site / "b.txt").read_text("utf-8").split("\n\n", 1)
    assert "the page b.html" in head
    assert text == (
        "# 1. Bees\n\n## Wings\n\n$x^2$\n\n```\n6\n```\n\n"
        "```output\n4 < 5\n```\n\n"
        "[Figure: Two wings.]\n\n[far](https://example.org/a.html)near\n\n"
        "### Exercise 1.1\n\nTry.\n\n## Two questions\n\n1. Why?\n\n"
        "2. How?\n\n## Solutions\n\n### Exercise 1.1\n\n"
        "Done.\n\n### Two questions\n\n1. So.\n2. Thus.\n"
    )
    assert "[b](b.txt)" in (site / "a.txt").read_text("utf-8")


def test_a_page_is_read_and_written_once(site, monkeypatch):
    """By all that happens once Sphinx has written the pages."""
    files = CONTENTS.files(site)
    sheet = '<link rel="stylesheet" href="_static/a.css">'
    for file in files:
        html = re.sub("<link [^>]*>", "", file.read_text("utf-8"))
        file.write_text(html.replace("<html>", f"<html>{sheet}"), "utf-8")
    (site / "_static" / "a.css").write_text("p{a:b}", "utf-8")
    script = site / theme_script.THEME_SCRIPT
    script.parent.mkdir()
    script.write_text("", "utf-8")
    monkeypatch.setattr(theme_script.logger, "warning", lambda *_: None)
    # In this process, where the calls are counted.
    monkeypatch.setattr(finish, "ProcessPoolExecutor", ThreadPoolExecutor)
    counts = Counter()

    def counted(name):
        method = getattr(Path, name)

        def call(path, *arguments, **named):
            if path in files:
                counts[path.name, name] += 1
            return method(path, *arguments, **named)

        return call

    for name in ("read_text", "write_text", "read_bytes", "write_bytes"):
        monkeypatch.setattr(Path, name, counted(name))
    app = SimpleNamespace(
        builder=SimpleNamespace(name="html"),
        outdir=str(site),
        config=SimpleNamespace(
            external_site_map=parse_toc_data(TOC),
            html_title="A book",
            author="its authors",
            html_baseurl=REAL,
        ),
    )
    finish.finish(app, None)
    once = [(f.name, do) for f in files for do in ("read_text", "write_text")]
    assert counts == dict.fromkeys(once, 1)
    for file in files:
        assert "book." in file.read_text("utf-8")
    assert (site / "sitemap.xml").is_file() and (site / "b.txt").is_file()


def test_the_skip_link_leads_to_the_text_where_there_is_one(tmp_path):
    link = '<a href="#main-content">Skip</a>'
    text = '<article class="bd-article"><a href="#end">End</a></article>'
    for name, html in {"with": link + text, "without": link}.items():
        (tmp_path / name).write_text(html, "utf-8")
        page = Page.read(tmp_path / name)
        finish.skip_to_text(page)
        page.write()
    assert (tmp_path / "with").read_text("utf-8") == (
        '<a href="#page-text">Skip</a>'
        '<article id="page-text" tabindex="-1" class="bd-article">'
        '<a href="#end">End</a></article>'
    )
    assert (tmp_path / "without").read_text("utf-8") == link
