"""The book as one document, up to where a Chromium prints it."""

import pytest
import small_site
from pikepdf import Pdf
from small_site import CONTENTS, SETTINGS

from press import pdf


@pytest.fixture
def site(tmp_path):
    return small_site.write(tmp_path)


@pytest.fixture
def document(site):
    return pdf.assemble(site, SETTINGS, CONTENTS)


def test_the_chapters_stand_in_the_order_of_the_book(document):
    titles = [title.get_text() for title in document.select("h1")]
    assert titles[1:] == ["About this book", "1. Bees", "Ants", "Solutions"]
    assert document.title.get_text() == "A book & more"
    sheets = [link["href"] for link in document.select("link")]
    assert sheets == [f"_static/{name}.css" for name in ("index", "b", "a")]


def test_solutions_stand_at_the_end(document):
    assert "Done." not in document.find(id="b").get_text()
    assert "Done." in document.find(id="solutions").get_text()
    assert document.select_one('#b a[href="#solution--b--try"]')
    assert document.select_one('#solutions a[href="#b--try"]')


def test_answers_stand_at_the_end(document):
    quiz, end = document.find(id="b--quiz"), document.find(id="solutions")
    assert quiz.ol.li.get_text() == "Why?"
    assert "So." not in quiz.get_text()
    assert [item.get_text() for item in end.ol("li")] == ["So.", "Thus."]
    assert quiz.select_one('a[href="#solution--b--quiz"]')
    assert end.select_one('#solution--b--quiz a[href="#b--quiz"]')


def test_what_paper_cannot_use_is_left_out(document):
    text = document.body.get_text()
    assert not document.select("script, .headerlink, details, nav")
    assert "plt.show" not in text and "alert" not in text
    assert "x^2" not in text
    assert document.select_one(".katex")["aria-label"] == "x^2"


@pytest.mark.parametrize(
    "old, new, lost",
    [
        ('href="#wings"', 'href="#feet"', "b--feet"),
        ('href="a.html#top"', 'href="a.html#end"', "a--end"),
        ('id="try"', 'id="wings"', "b--wings"),
    ],
)
def test_lost_links_and_doubled_ids_are_found(site, old, new, lost):
    for page in site.glob("*.html"):
        page.write_text(page.read_text("utf-8").replace(old, new), "utf-8")
    with pytest.raises(ValueError, match=f"got {lost}$"):
        pdf.assemble(site, SETTINGS, CONTENTS)


def test_it_is_written_whole_without_the_hour(tmp_path):
    book = Pdf.new()
    book.add_blank_page()
    for hour in ("2026", "2027"):
        book.docinfo["/CreationDate"] = book.docinfo["/ModDate"] = f"D:{hour}"
        pdf.save(book, tmp_path / hour, "A book", "its authors")
    one, two = sorted(tmp_path.iterdir())
    assert one.read_bytes() == two.read_bytes()
    with Pdf.open(one) as written:
        assert set(written.docinfo.keys()) == {"/Title", "/Author"}
        assert str(written.docinfo["/Title"]) == "A book"
