"""Pages by themselves: their names, who holds them, and which is taken next.

What is read from them, by many requests at once, is in test_server.py.
"""

import pytest
from models import random_model

from attnbook.gpt import GPTConfig
from attnbook.pages import Pages, page_names


def small():
    sizes = dict(vocab_size=12, context=32, d_model=4, n_heads=1, n_layers=1)
    return random_model(GPTConfig(**sizes))


def test_a_name_hangs_on_the_tokens_and_all_before():
    assert page_names([1, 2, 3, 4], 2)[:1] == page_names([1, 2, 7], 2)
    first, second = (page_names([n, 2, 3, 4], 2)[1] for n in (1, 5))
    assert first != second
    assert page_names([1], 2) == []
    # Tokens of one digit and of two do not run into one another.
    assert page_names([1, 12], 2) != page_names([11, 2], 2)


@pytest.mark.parametrize("sizes", [(0, 2), (2, 0)])
def test_a_pool_needs_pages_with_room(sizes):
    with pytest.raises(ValueError, match="at least 1; got 0"):
        Pages(*sizes, small())


def test_the_oldest_page_is_taken_first_and_an_end_before_its_beginning():
    pages = Pages(4, 1, small())
    old, new = [], []
    assert pages.reserve(old, 0, 2) and pages.reserve(new, 0, 1)
    (a, b), (c,) = old, new
    pages.remember(old, [5, 6])
    pages.remember(new, [8])
    pages.cut(old, 0)
    pages.cut(new, 0)
    assert list(pages.free) == [3, b, a, c]  # what has no name, then by age
    table = []
    assert pages.reserve(table, 0, 2)
    assert table == [3, b]
    assert pages.find([5, 6]) == [a]
    assert pages.find([8]) == [c]
    # What is found is no longer free, and nothing is taken if it is short.
    shared = pages.share([c])
    assert not pages.reserve(shared, 1, 3) and shared == [c]
    assert list(pages.free) == [a]
    pages.cut(table, 0)  # without names: before what can be found
    assert list(pages.free) == [3, b, a]


def test_a_page_behind_an_unknown_one_is_not_found():
    """Two read one prompt side by side, so the first one's pages have the
    names. These are taken, while the second one's third page stays known:
    but a text cannot be read from its third page on."""
    pages = Pages(5, 2, small())
    one = []
    two = []
    three = []
    assert pages.reserve(one, 0, 4) and pages.reserve(two, 0, 6)
    pages.remember(one, [1, 2, 3, 4])
    pages.remember(two, [1, 2, 3, 4, 5, 6])
    assert len(pages.find([1, 2, 3, 4, 5, 6])) == 3
    pages.cut(one, 0)
    assert pages.reserve(three, 0, 4)
    assert len(pages.page_of) == 1
    assert pages.find([1, 2, 3, 4, 5, 6, 7]) == []


def test_a_page_that_can_be_found_is_forgotten_before_it_changes():
    """A text that is taken back, and goes on differently on its page."""
    pages = Pages(2, 2, small())
    table = []
    assert pages.reserve(table, 0, 4)
    pages.remember(table, [1, 2, 3, 4])
    pages.remember(table, [5, 6, 7, 8])  # a page has one name
    assert not pages.find([5, 6])
    pages.cut(table, 3)
    assert pages.reserve(table, 3, 4)
    assert len(pages.find([1, 2, 3, 4])) == 1
