"""The checks of faults.js, and axe's, find the faults that they are for.

One page is spoiled in one way after the other, and mended again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from views import violations, visits

WORDS = "word " * 60


@pytest.fixture(scope="module")
def page(chromium: Browser, address: str) -> Iterator[Page]:
    with visits(chromium, address) as visit:
        yield visit("index", reduced_motion="reduce")


@pytest.fixture
def spoil(page: Page):
    """Put HTML into the page's article for the time of a test."""

    def put(html: str) -> None:
        page.evaluate(
            "html => document.querySelector('article').insertAdjacentHTML("
            "'afterbegin', `<div id='spoiled'>${html}</div>`)",
            html,
        )

    yield put
    page.evaluate("document.querySelector('#spoiled').remove()")


@pytest.mark.parametrize(
    "check, html, words",
    [
        ("widthFaults()", '<p style="width: 200vw">a</p>', "the page is"),
        (
            "widthFaults()",
            '<p style="width: calc(100% + 3rem)">a</p>',
            "sticks out",
        ),
        (
            "codeFaults()",
            f"<pre style='font-size: 1rem'>{'a' * 79}",
            "scrolls",
        ),
        (
            "pictureFaults()",
            '<img src="data:image/png;base64,AA==">',
            "not shown",
        ),
        (
            "colourFaults()",
            '<p class="cell_output"><img style="filter: grayscale(1)" alt="A map"'
            ' src="_static/favicon.svg">',
            "A map",
        ),
        (
            "formulaFaults()",
            '<i class="katex" style="display: block"></i>',
            "has no size",
        ),
        (
            "formulaFaults()",
            '<p class="katex"><b class="katex-html"><span style="color: red">x',
            "is not of the colour",
        ),
    ],
)
def test_faults_are_found(page, spoil, check, html, words):
    assert page.evaluate(check) == []
    spoil(html)
    assert any(words in fault for fault in page.evaluate(check))


def test_fonts_that_do_not_come_are_found(visit):
    page = visit("notation")
    assert page.evaluate("formulaFaults()") == []
    page.evaluate(
        "Object.defineProperty(document, 'fonts', {value: [{"
        "family: 'KaTeX_Main', status: 'error'}]})"
    )
    assert page.evaluate("formulaFaults()") == [
        "no font of KaTeX's",
        "no font KaTeX_Main",
    ]


def test_unreadably_long_lines_are_found(page, spoil):
    spoil(f'<section><p style="width: 80rem">{WORDS}</p></section>')
    assert max(page.evaluate("lettersOfLines()")) > 120


@pytest.mark.parametrize(
    "style, words",
    [
        ("outline: none; box-shadow: none", "shows no focus"),
        ("position: fixed; top: -99px", "not in sight"),
        ("display: block; outline: 3px solid red; width: 100%", "is cut off"),
    ],
)
def test_an_unseen_focus_is_found(page, spoil, style, words):
    spoil(
        '<div style="overflow: hidden"><a href="#" style="'
        f'{style}">a</a></div>'
    )
    page.evaluate("document.querySelector('#spoiled a').focus()")
    (fault,) = page.evaluate("focusFaults()")
    assert words in fault


def test_what_moves_is_found(visit):
    page = visit("index")
    assert page.evaluate("movementFaults(0.01)") == []
    page.evaluate(
        "document.querySelector('article h1').style.height = '20rem'"
    )
    (fault,) = page.evaluate("movementFaults(0.01)")
    assert fault.startswith("moved by")


@pytest.mark.parametrize(
    "html, rule",
    [
        (
            '<p style="color: #999; background: #fff">pale</p>',
            "color-contrast",
        ),
        (
            '<pre><span style="color: #999; background: #fff">pale</span></pre>',
            "color-contrast",
        ),
        ("<button></button>", "button-name"),
        (
            '<p style="width: 9em; overflow: auto; white-space: pre">' + WORDS,
            "scrollable-region-focusable",
        ),
        (
            "<h1>a second title</h1><h4>and a step left out</h4>",
            "heading-order",
        ),
    ],
)
def test_what_axe_is_for_is_found(page, spoil, html, rule):
    spoil(html)
    page.evaluate("thinOutCode()")
    assert any(rule in fault for fault in violations(page))


def test_axe_looks_into_a_shadow(page, spoil):
    spoil('<div id="host"></div>')
    page.evaluate(
        "document.querySelector('#host').attachShadow({mode: 'open'})"
        ".innerHTML = '<button></button>'"
    )
    assert any("button-name" in fault for fault in violations(page))
