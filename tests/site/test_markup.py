"""A page keeps each byte that nobody asked to change."""

from hypothesis import given
from hypothesis import strategies as some

from press.markup import Markup, Page

HTML = (
    "<!DOCTYPE html>\n<p  class=a>&amp; \u00e9\n<IMG src='x.png'/><br />"
    "<script>if (a < b) '<p>'</script><!-- <p> -->"
    '<span class="katex-html" aria-hidden="true">'
    "<span>x\u2212&lt;</span></span>"
    "<p hidden>after</p>"
)


def test_tags_stand_where_they_say():
    markup = Markup(HTML)
    for tag in markup.tags:
        assert HTML[tag.start : tag.end] == tag.text
    assert [tag.name for tag in markup.tags] == [
        "p",
        "img",
        "br",
        "script",
        "span",
        "span",
        "p",
    ]
    assert markup.tags[0].attributes == {"class": "a"}
    assert markup.tags[-1].attributes == {"hidden": ""}
    assert [tag.name for tag in Markup(HTML, {"br"}).tags] == ["br"]


def test_the_characters_of_formulas_are_those_in_their_boxes():
    assert Markup(HTML).formulas == {"x", "\u2212", "<"}


def test_what_is_replaced_changes_and_nothing_else():
    markup = Markup(HTML)
    assert markup.changed() == HTML
    last = markup.tags[-1]
    first = markup.tags[1]
    markup.replace(last.start, last.end, "<p>")
    markup.replace(first.start, first.end, first.having({"width": "2"}))
    assert markup.changed() == HTML.replace("<p hidden>", "<p>").replace(
        "<IMG src", '<IMG width="2" src'
    )


PARTS = ["<p>", "\n", "\r\n", "a<b", "\u2028", "&"]


@given(some.lists(some.sampled_from(PARTS)))
def test_tags_stand_where_they_say_whatever_ends_a_line(parts):
    html = "".join([*parts, "<b>"])
    for tag in Markup(html).tags:
        assert html[tag.start : tag.end] == tag.text


def test_a_page_is_written_as_it_was_read(tmp_path):
    path = tmp_path / "a.html"
    path.write_bytes(HTML.encode())
    Page.read(path).write()
    assert path.read_bytes() == HTML.encode()
