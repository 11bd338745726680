"""A deck in the browser: nothing is cut off, and keys go through it."""

import pytest
from views import PATIENCE

from press import slides
from press.places import HTML


@pytest.fixture
def show(chromium):
    """Shows a chapter's deck as a file, which is how decks are used."""
    with chromium.new_context(
        viewport={"width": 1280, "height": 720}
    ) as context:

        def show(page):
            slides.FOLDER.mkdir(exist_ok=True)
            path = slides.FOLDER / f"{page}.html"
            html = (HTML / f"{page}.html").read_text("utf-8")
            path.write_text(slides.deck(page, html), "utf-8")
            tab = context.new_page()
            tab.set_default_timeout(PATIENCE)
            tab.goto(path.as_uri())
            return tab

        yield show


@pytest.mark.parametrize(
    "page", ["04_scaled_dot_product_attention", "14_kv_cache"]
)
def test_each_slide_has_room_for_what_it_shows(show, page):
    cut = show(page).evaluate(
        """() => [...document.querySelectorAll(".slide")].flatMap((s, i) => {
          const shown = s.querySelector(".shown");
          const title = s.querySelector("h2").getBoundingClientRect();
          const top = Math.min(...[...shown.children].map(
            (child) => child.getBoundingClientRect().top));
          const wide = [...shown.querySelectorAll("pre")].some(
            (pre) => pre.scrollWidth > pre.clientWidth + 1);
          return s.scrollHeight > s.clientHeight + 1
            || shown.children.length && i > 0 && top < title.bottom - 1
            || wide ? [i] : [];
        })"""
    )
    assert cut == []


def test_arrows_go_on_and_n_shows_the_notes(show):
    """Each slide then fills the window, from its top."""
    tab = show("14_kv_cache")
    assert tab.get_by_text("N shows the notes").is_visible()
    notes = tab.locator(".slide").nth(1).locator(".notes")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function("scrollY > innerHeight / 2")
    for n, key in (1, None), (2, "PageDown"), (3, "ArrowDown"), (2, "ArrowUp"):
        if key:
            tab.keyboard.press(key)
        tab.wait_for_function(
            """(n) => Math.abs(document.querySelectorAll(".slide")[n]
                .getBoundingClientRect().top) <= 2""",
            arg=n,
        )
    tab.keyboard.press("ArrowLeft")
    assert not notes.is_visible()
    tab.keyboard.press("n")
    assert notes.is_visible()
