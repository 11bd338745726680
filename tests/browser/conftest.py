"""The built book in a real browser: one Chromium, one server, many pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect
from views import PATIENCE, Visit, visits

from press.browser import open_chromium, serve
from press.places import HTML as SITE

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of the built book, with a slash at its end."""
    assert (SITE / "index.html").is_file(), "build the book: make book"
    with serve(SITE) as address:
        yield address


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with ExitStack() as stack:
        try:
            browser = stack.enter_context(open_chromium())
        except RuntimeError as error:  # said once, not for each test
            pytest.exit(str(error), returncode=1)
        yield browser


@pytest.fixture
def visit(chromium: Browser, address: str) -> Iterator[Visit]:
    """`visit("04_scaled…", theme="dark", viewport=PHONE)` opens a page.

    At the end of the test nothing may have gone wrong in the console, and
    nothing may have been asked of another host. The functions of faults.js
    are there to be called: `page.evaluate("widthFaults()")`.
    """
    with visits(chromium, address) as visit:
        yield visit
