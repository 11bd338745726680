"""A Chromium, and a web server on this machine that sends it the book.

The PDF, the screenshots, the scores and the tests in a browser use both.
"""

from __future__ import annotations

import gzip
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

#: The names that the browser may have on a system, Chromium's first.
NAMES = ("chromium", "chromium-browser", "google-chrome")

#: The endings of files that are sent compressed, as a web host does.
PACKED = {".html", ".css", ".js", ".svg", ".json", ".txt", ".xml"}


def find_chromium(playwright: Playwright) -> str:
    """Path of the system's Chromium, else of Playwright's own.

    Raises:
        RuntimeError: there is neither.
    """
    for name in NAMES:
        if found := shutil.which(name):
            return found
    own = playwright.chromium.executable_path
    if Path(own).is_file():
        return own
    raise RuntimeError(
        "there is no Chromium to show the pages in; expected one of "
        f"{', '.join(NAMES)} on the path, or Playwright's own. Get it by:\n"
        "    .venv/bin/python -m playwright install --with-deps chromium\n"
        "or, on Debian, the system's with:\n"
        "    sudo apt-get install chromium"
    )


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """A headless Chromium that asks no other host for anything."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(playwright),
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
        )
        try:
            yield browser
        finally:
            browser.close()


def read_whole(page: Page, url: str) -> None:
    """Open a page of the book, and wait until all of it is laid out.

    A page lays out only its beginning at first. A scroll event makes
    static/book.js lay out the rest.
    """
    page.goto(url)
    page.evaluate("dispatchEvent(new Event('scroll'))")
    page.locator(":root:not([data-first-view])").wait_for(state="attached")


@cache
def _packed(path: Path) -> bytes:
    """The content of a file, compressed by gzip; each file only once."""
    return gzip.compress(path.read_bytes(), 6, mtime=0)


class Pages(http.server.SimpleHTTPRequestHandler):
    """Answers requests for the files of a folder, as a web host would.

    Texts are sent compressed, and a missing file is answered by the site's own
    page 404. The pages lie under `prefix`, as they do on a host on which they
    share a name with other sites.
    """

    prefix = "/"
    protocol_version = "HTTP/1.1"

    def translate_path(self, path: str) -> str:
        """The file for an address; a missing one outside of the prefix."""
        if not path.startswith(self.prefix):
            return str(Path(self.directory) / "no such file")
        return super().translate_path("/" + path[len(self.prefix) :])

    def do_GET(self) -> None:
        """Send the file that is asked for, or the page 404."""
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            path = path / "index.html"
        status = HTTPStatus.OK
        if not path.is_file():
            status = HTTPStatus.NOT_FOUND
            path = Path(self.directory) / "404.html"
        packed = path.suffix in PACKED
        body = (
            b""
            if not path.is_file()
            else (_packed(path) if packed else path.read_bytes())
        )
        self.send_response(status)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Length", str(len(body)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.send(body)

    def send(self, body: bytes) -> None:
        """Send the body of an answer; a test replaces this by a slower way."""
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Print nothing about a request; a test says what went wrong."""


@contextmanager
def serve(
    folder: Path, prefix: str = "/", pages: type[Pages] = Pages
) -> Iterator[str]:
    """Serve a folder on this machine while the block runs.

    Args:
        folder: the folder of the built pages.
        prefix: what the path of every address begins with.
        pages: what answers the requests.

    Yields:
        the address of the first page.
    """
    handler = partial(
        type("Handler", (pages,), {"prefix": prefix}), directory=str(folder)
    )

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
