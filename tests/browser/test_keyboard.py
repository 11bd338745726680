"""Reading with the keyboard alone: all is reached, and seen when it is."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page
from views import PHONE

CHAPTER = "05_masking"

#: What the keyboard must come by, as a selector each.
STOPS = {
    "skip link": "#pst-skip-link a",
    "search": ".search-button-field",
    "another chapter": ".bd-sidebar-primary .toctree-l1 a",
    "sidebar's button": ".primary-toggle",
    "menus": ".article-header-buttons .dropdown-toggle",
    "theme switch": ".theme-switch-button",
    "hidden code": "details.hide > summary",
    "copy button": ".copybtn",
    "solution": "details:not([class]) > summary",
    "link in the text": "article p a.internal",
    "next chapter": ".prev-next-area a",
    "contents of the page": "#pst-page-toc-nav a",
}


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def focused(page: Page, selector: str) -> bool:
    return page.evaluate(
        "selector => document.activeElement.matches(selector)", selector
    )


def is_open(page: Page, dialog: str) -> bool:
    return page.locator(f"dialog{dialog}").evaluate("dialog => dialog.open")


def test_all_is_reached_and_seen(visit):
    page = visit(CHAPTER, reduced_motion="reduce")
    reached = set()
    faults = []
    for _ in range(400):
        press(page, "Tab")
        here, found = page.evaluate(
            "async (stops) => [Object.keys(stops).filter((name) =>"
            " document.activeElement.matches(stops[name])),"
            " await focusFaults()]",
            STOPS,
        )
        if found == ["nothing has the focus"]:
            break
        reached.update(here)
        faults += found
    assert faults == []
    assert set(STOPS) - reached == set()


@pytest.mark.parametrize("path", [CHAPTER, "index", "glossary"])
def test_the_first_stop_skips_to_the_text(visit, path):
    """It is seen, it gives the text the focus, and the text comes next."""
    page = visit(path, reduced_motion="reduce")
    press(page, "Tab")
    assert focused(page, STOPS["skip link"])
    assert page.evaluate("focusFaults()") == []
    left, top = page.evaluate(
        "(({ left, top }) => [left, top])"
        "(document.activeElement.getBoundingClientRect())"
    )
    assert left >= 0 and top >= 0
    press(page, "Enter")
    assert focused(page, "article.bd-article")
    press(page, "Tab")
    assert focused(page, "article.bd-article *")


def test_the_second_stop_skips_to_the_questions(visit):
    """They are at a chapter's end, more than a hundred stops further on."""
    page = visit(CHAPTER, reduced_motion="reduce")
    press(page, "Tab", "Tab")
    assert focused(page, "#pst-skip-link a[href='#three-questions']")
    assert page.evaluate("focusFaults()") == []
    press(page, "Enter", "Tab")
    assert focused(page, "#three-questions details.choice > summary")


def test_where_nothing_is_asked_no_link_leads_to_questions(visit):
    page = visit("glossary")
    assert page.locator(STOPS["skip link"]).count() == 1


def test_a_link_to_a_side_road_opens_it(visit):
    page = visit(CHAPTER, reduced_motion="reduce")
    link = page.locator("#pst-page-toc-nav a[href^='#side-road']").nth(1)
    place = link.get_attribute("href")
    is_open = f"() => document.querySelector('{place} > details').open"
    for way in "a link", "the same again", "another page":
        assert not page.evaluate(is_open), way
        if way == "another page":
            address = page.url
            page.goto("about:blank")
            page.goto(address)
        else:
            link.press("Enter")
        page.wait_for_function(is_open)
        press(page, "Tab")
        assert focused(page, f"{place} > details > summary"), way
        press(page, "Enter")


#: Keeps the classes that a button gets: its sign that the code was copied is
#: gone again after a moment.
WATCH_CLASSES = """
(button) => {
  window.classes = [];
  new MutationObserver(() => classes.push(...button.classList))
    .observe(button, { attributes: true });
}"""


def test_code_is_copied(visit):
    page = visit(CHAPTER, permissions=["clipboard-read", "clipboard-write"])
    cell = page.locator(".cell:not(.tag_hide-input) .cell_input").nth(1)
    button = cell.locator(".copybtn")
    button.evaluate(WATCH_CLASSES)
    button.press("Enter")
    page.wait_for_function("classes.includes('success')")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == cell.locator("pre").text_content().strip() != ""


def test_a_menu_opens_and_closes(visit):
    page = visit(CHAPTER)
    button = page.get_by_role("button", name="Download this page")
    button.press("Enter")
    page.locator(".dropdown-menu.show").wait_for()
    press(page, "ArrowDown")
    assert focused(page, ".dropdown-menu a")
    assert not page.evaluate("focusFaults()")
    press(page, "Escape")
    assert focused(page, ".dropdown-toggle")
    assert button.get_attribute("aria-expanded") == "false"


@pytest.mark.parametrize(
    "button, dialog",
    [
        (".primary-toggle", "#pst-primary-sidebar-modal"),
        (".secondary-toggle", "#pst-secondary-sidebar-modal"),
        (".article-header-buttons .search-button", "#pst-search-dialog"),
    ],
)
def test_a_sidebar_is_a_dialog_on_a_phone(visit, button, dialog):
    page = visit(CHAPTER, viewport=PHONE, reduced_motion="reduce")
    assert not is_open(page, dialog)
    page.locator(button).press("Enter")
    assert is_open(page, dialog)
    # Around: inside all the time, or on the browser's own buttons.
    inside = f"{dialog}, {dialog} *"
    for _ in range(40):
        assert focused(page, f"{inside}, body"), "the focus has left"
        press(page, "Tab")
    if not focused(page, inside):
        press(page, "Tab")
    press(page, "Escape")
    page.locator(f"dialog{dialog}:not([open])").wait_for(state="attached")
    page.locator(f"{button}:focus").wait_for()
