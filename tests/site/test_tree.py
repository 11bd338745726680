"""What is looked for in a built page is there, or an error says it is not."""

import pytest

from press.tree import around, classes, fragment, one, value

PAGE = fragment(
    ' <section id="a"><p class="one two" hidden>x <b>y</b></p>'
    "<p>z</p></section>"
)


def test_what_is_there_is_found():
    assert PAGE.name == "section"
    assert one(PAGE, "p").get_text() == "x y"
    assert around(one(PAGE, "b"), "section") is PAGE
    assert value(PAGE, "id") == "a"
    assert classes(one(PAGE, "p")) == ["one", "two"]


def test_what_is_not_there_is_empty_or_an_error():
    assert value(PAGE, "title") == value(one(PAGE, "p"), "hidden") == ""
    assert classes(PAGE) == []
    with pytest.raises(ValueError, match="in <section> there is no h1; run"):
        one(PAGE, "h1")
    with pytest.raises(ValueError, match="no <table> is around 'y'"):
        around(one(PAGE, "b"), "table")
    with pytest.raises(ValueError, match="there is no"):
        fragment("words alone")
