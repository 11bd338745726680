"""Light and dark: as the reader's system says, until the reader says."""

from __future__ import annotations

#: Takes down the page's colour and theme each time that a frame is painted.
WATCH = """
window.seen = [];
(function look() {
  if (document.body) {
    const { theme } = document.documentElement.dataset;
    seen.push(`${theme} ${getComputedStyle(document.body).backgroundColor}`);
  }
  requestAnimationFrame(look);
})();
"""


def looks(page) -> set[str]:
    """All the themes and colours that a page has had since it was opened."""
    page.wait_for_function(
        "document.readyState === 'complete' && seen.length > 1"
    )
    return set(page.evaluate("seen"))


def test_a_page_is_dark_from_its_first_frame(visit):
    page = visit("index", theme="dark")
    page.context.add_init_script(WATCH)
    page.reload()
    (look,) = looks(page)
    assert look.startswith("dark ")
    page.emulate_media(color_scheme="light")
    page.reload()
    (other,) = looks(page)
    assert other.startswith("light ") and other.split()[1] != look.split()[1]


def test_the_switch_is_remembered(visit):
    page = visit("index", theme="dark")
    page.context.add_init_script(WATCH)
    page.get_by_role("button", name="Color mode").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(
        "document.documentElement.dataset.theme === 'light'"
    )
    # The next page has it, and the keyboard has not lost its place.
    assert page.evaluate("focusFaults()") == []
    page.get_by_role("link", name="5. Masking").first.click()
    page.wait_for_url("**/05_masking.html")
    (look,) = looks(page)
    assert look.startswith("light ")
