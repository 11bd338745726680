"""What the browser tests look at, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, ViewportSize

from press.browser import read_whole

FAULTS = Path(__file__).with_name("faults.js")

WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 360, "height": 740}

#: Milliseconds after which what is waited for will not come any more. A
#: machine that does other work may need long for a page.
PATIENCE = 120_000

#: What the colours of a page decide: it takes long, and the rest is the same
#: in both themes.
OF_COLOURS = ["color-contrast", "link-in-text-block"]

Visit = Callable[..., Page]


@contextmanager
def visits(chromium: Browser, address: str) -> Iterator[Visit]:
    """Give a function that opens pages; see the fixture `visit`."""
    contexts, faults = [], []

    def open_page(
        name: str,
        *,
        theme: str = "light",
        viewport: ViewportSize = WIDE,
        **options: object,
    ) -> Page:
        # To wait for a condition the tests evaluate a string, which the pages'
        # policy forbids; test_policy.py leaves it in force.
        context = chromium.new_context(
            viewport=viewport, color_scheme=theme, bypass_csp=True, **options
        )
        contexts.append(context)
        context.add_init_script(path=FAULTS)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on(
            "console",
            lambda message: (
                faults.append(message.text)
                if message.type in {"error", "warning"}
                else None
            ),
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request",
            lambda request: (
                faults.append(f"asked another host: {request.url}")
                if not request.url.startswith((address, "data:", "blob:"))
                else None
            ),
        )
        read_whole(page, f"{address}{name}.html")
        return page

    try:
        yield open_page
    finally:
        for context in contexts:
            context.close()
    assert not faults, "\n".join(faults)


def show_in(page: Page, theme: str) -> None:
    """Let the reader's system ask for light or dark, and the page follow."""
    page.emulate_media(color_scheme=theme)
    page.wait_for_function(
        "theme => document.documentElement.dataset.theme === theme", arg=theme
    )
    settle(page)


def settle(page: Page) -> None:
    """Wait until nothing fades or slides any more."""
    page.wait_for_function(
        "document.getAnimations().every(a => a.playState !== 'running')"
    )


def violations(page: Page, *kinds: str) -> list[str]:
    """What axe-core finds on a page, a sentence for each fault.

    Kinds are "structure" and "colours"; both if none is named. Colours are
    looked at once for each look that a text has. The parts of a formula are
    left out, thousands of spans that have no meaning but by their MathML;
    that they have the colour of the text around them, `formulaFaults()`
    makes sure.
    """
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT + "; 0")
    off = {rule: {"enabled": False} for rule in OF_COLOURS}
    what = {
        "structure": ("document", {"rules": off}),
        "colours": ("looks()", {"runOnly": OF_COLOURS}),
    }
    found = []
    for kind in kinds or what:
        where, options = what[kind]
        found += page.evaluate(
            f"options => axe.run({{include: {where}, "
            "exclude: ['.katex-html']}, options)"
            ".then(({violations}) => violations)",
            options | {"resultTypes": ["violations"], "preload": False},
        )
    return [
        f"{fault['id']}: {fault['help']}, {len(fault['nodes'])} times, as in "
        f"{fault['nodes'][0]['html'][:200]}: "
        f"{fault['nodes'][0]['failureSummary']}"
        for fault in found
    ]
