"""The built book in a real browser: one Chromium, one server, many pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from browser import open_chromium, serve
from views import SITE, WIDE


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of the built book, with a slash at its end."""
    assert (SITE / "index.html").is_file(), "build the book: make book"
    with serve(SITE) as address:
        yield address


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with open_chromium() as browser:
        yield browser


@pytest.fixture
def visit(chromium: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """`visit("04_scaled…", theme="dark", viewport=PHONE)` opens a page.

    At the end of the test nothing may have gone wrong in the console, and
    nothing may have been asked of another host.
    """
    contexts, faults = [], []

    def open_page(
        name: str,
        *,
        theme: str = "light",
        viewport: ViewportSize = WIDE,
        **options: object,
    ) -> Page:
        context = chromium.new_context(
            viewport=viewport, color_scheme=theme, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: faults.append(message.text)
                if message.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.append(
            f"asked another host: {request.url}")
            if not request.url.startswith((address, "data:", "blob:"))
            else None)
        page.goto(f"{address}{name}.html")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults, "\n".join(faults)
