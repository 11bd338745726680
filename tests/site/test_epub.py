"""The EPUB of a small book; tests/site/test_epub.py looks at the real one."""

import re
from zipfile import ZipFile

import pytest
import small_site
from small_site import CONTENTS, SETTINGS, URL

from press import epub


@pytest.fixture
def site(tmp_path):
    return small_site.write(tmp_path)


@pytest.fixture
def files(site):
    found = epub.package(site, SETTINGS, CONTENTS, "2026-01-02")
    return {
        name: content.decode("utf-8", "replace")
        for name, content in found.items()
    }


def test_a_formula_is_mathml_put_right(files):
    page = files["b.xhtml"]
    assert 'alttext="x^2"' in page and "katex" not in page
    space = '<mspace width="0.1667em"></mspace>'
    assert (
        f"<msub><mi>x</mi><mi>max</mi></msub>{space}<mi>cos</mi>"
        f"<mo>\N{FUNCTION APPLICATION}</mo>{space}<mi>b</mi>"
    ) in page
    assert (
        '<svg aria-hidden="true" xmlns="http://www.w3.org/2000/svg">' in page
    )


def test_what_a_book_cannot_use_is_left_out(files):
    assert not re.search(
        "alert|plt.show|Press|loading=|sidebar", files["b.xhtml"]
    )
    assert "Done." not in files["b.xhtml"]
    assert files["images/wing.png"][1:4] == "PNG"


def test_it_says_what_it_is(files):
    for line in (
        "<dc:title>A book &amp; more</dc:title>",
        f"<dc:source>{URL}</dc:source>",
        "<dc:description>A motto.</dc:description>",
        '<meta property="dcterms:modified">2026-01-02T00:00:00Z</meta>',
        'href="contents.xhtml" media-type="application/xhtml+xml" '
        'properties="nav"',
        'href="b.xhtml" media-type="application/xhtml+xml" '
        'properties="mathml svg"',
    ):
        assert line in files["package.opf"]


def test_it_is_written_the_same_each_time(site, tmp_path):
    for name in ("one", "two"):
        epub.save(
            epub.package(site, SETTINGS, CONTENTS, "2026-01-02"),
            tmp_path / name,
        )
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with ZipFile(tmp_path / "one") as book:
        first = book.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", 0)
