"""The tool that serves the book and finds a browser, without a browser."""

import gzip
import re
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from browser import serve


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    (folder / "a").mkdir(parents=True)
    (folder / "index.html").write_text("<p>first</p>")
    (folder / "a" / "index.html").write_text("<p>in a folder</p>")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "secret.txt").write_text("not part of the site")
    return folder


def get(address):
    """Status, headers and text of an answer."""
    try:
        answer = urlopen(Request(address))
    except HTTPError as error:
        answer = error
    with answer:
        body = answer.read()
    if answer.headers["Content-Encoding"] == "gzip":
        body = gzip.decompress(body)
    return answer.status, answer.headers, body


@pytest.mark.parametrize("prefix", ["/", "/book/"])
def test_pages_are_sent_as_a_web_host_sends_them(site, prefix):
    with serve(site, prefix) as address:
        assert re.fullmatch(rf"http://127.0.0.1:\d+{prefix}", address)
        for path in ("", "index.html", "index.html?q=a", "a/"):
            status, headers, body = get(address + path)
            assert status == 200
            assert (b"first", b"in a folder")[path == "a/"] in body
            assert headers["Content-Encoding"] == "gzip"
            assert headers["Content-Type"].startswith("text/html")
        status, headers, body = get(address + "picture.png")
        assert status == 200 and body == b"\x89PNG"
        assert headers["Content-Type"] == "image/png"
        assert headers["Content-Encoding"] is None


def test_what_is_not_there_is_said_by_the_sites_own_page(site):
    with serve(site) as address:
        assert get(address + "gone.html")[0] == 404
        assert get(address + "gone.html")[2] == b""
        (site / "404.html").write_text("<p>nothing here</p>")
        for path in ("gone.html", "../secret.txt", "%2e%2e/secret.txt"):
            status, _, body = get(address + path)
            assert (status, body) == (404, b"<p>nothing here</p>"), path
    with serve(site, "/book/") as address:
        assert get(address.removesuffix("book/") + "index.html")[0] == 404
