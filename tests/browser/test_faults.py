"""The checks of faults.js, and axe's, find the faults that they are for."""

from __future__ import annotations

from playwright.sync_api import Browser
from views import violations, visits

SPOILED = {
    "widthFaults()": '<p style="width: 200vw">a</p>',
    "codeFaults()": f"<pre style='font-size: 1rem'>{'a' * 79}",
    "pictureFaults()": '<img src="data:image/png;base64,AA==">',
    "colourFaults()": '<p class="cell_output"><img src="_static/favicon.svg"'
    ' style="filter: grayscale(1)">',
    "formulaFaults()": '<p class="katex"><b class="katex-html">'
    '<span style="color: red">x',
    "focusFaults()": '<button autofocus style="outline: none">a</button>',
    "color-contrast": '<pre><b style="color: #999; background: #fff">pale',
    "button-name": "<button></button>",
    "scrollable-region-focusable": '<p style="width: 9em; overflow: auto;'
    f' white-space: pre">{"word " * 60}',
    "heading-order": "<h1>a second title</h1><h4>and a step left out</h4>",
}


def test_each_fault_is_found(chromium: Browser, address: str) -> None:
    with visits(chromium, address) as visit:
        page = visit("index", reduced_motion="reduce")
        for check, html in SPOILED.items():
            page.evaluate(
                "html => document.querySelector('article').insertAdjacentHTML("
                "'afterbegin', `<div id='spoiled'>${html}</div>`)",
                html,
            )
            page.evaluate("document.querySelector('[autofocus]')?.focus()")
            found = (
                page.evaluate(check)
                if "(" in check
                else [f for f in violations(page) if f.startswith(check)]
            )
            assert found, check
            page.evaluate("document.querySelector('#spoiled').remove()")
            if "(" in check and "focus" not in check:
                assert page.evaluate(check) == [], check


def test_what_moves_is_found(visit):
    page = visit("index")
    assert page.evaluate("movementFaults(0.01)") == []
    page.evaluate(
        "document.querySelector('article h1').style.height = '20rem'"
    )
    assert page.evaluate("movementFaults(0.01)")
