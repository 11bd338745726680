"""Texts to train on: one that is fetched, and one that the book brings."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import time
import urllib.request
from importlib import resources
from pathlib import Path

from attnbook import files

#: Where Tiny Shakespeare is fetched from, and the length and checksum by which
#: it is known.
SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
    "tinyshakespeare/input.txt"
)
SHAKESPEARE_BYTES = 1_115_394
SHAKESPEARE_SHA256 = (
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
)

#: An environment variable: if it is set, to anything, the book does not use
#: the network.
OFFLINE = "ATTNBOOK_OFFLINE"


def tiny_shakespeare(*, seconds: float = 30) -> str:
    """Get Tiny Shakespeare, or the book's own stories where it cannot be had.

    It is fetched once and kept in the user's cache folder. A text with
    another checksum is not used. Which of the two texts it is gets printed.

    Args:
        seconds: how long the fetching may take.

    Source: Karpathy (2015), github.com/karpathy/char-rnn.
    """
    if OFFLINE not in os.environ:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        kept = Path(cache) / "attnbook" / "tiny_shakespeare.txt"
        for is_kept in (True, False):
            try:
                data = kept.read_bytes() if is_kept else _fetched(seconds)
            except (OSError, http.client.HTTPException):
                continue  # not there
            if hashlib.sha256(data).hexdigest() != SHAKESPEARE_SHA256:
                continue  # spoilt, or another text
            print("text: Tiny Shakespeare")
            with contextlib.suppress(OSError):  # then it is fetched again
                kept.parent.mkdir(parents=True, exist_ok=True)
                if not is_kept:
                    with files.replacing(kept) as file:
                        file.write(data)
            return data.decode("utf-8")
    print("text: the book's own stories")
    return "\n".join(book_text()) + "\n"


def _fetched(seconds: float) -> bytes:
    """What the host sends, but no more than there should be, and a byte.

    Raises:
        OSError, http.client.HTTPException: the host, or the network.
        TimeoutError: it takes longer than so many seconds.
    """
    data = b""
    end = time.monotonic() + seconds
    with urllib.request.urlopen(SHAKESPEARE, timeout=5) as answer:
        while part := answer.read1(SHAKESPEARE_BYTES + 1 - len(data)):
            data += part
            if time.monotonic() > end:
                raise TimeoutError
    return data


def book_text() -> list[str]:
    """The short town stories that the book brings along, one a line."""
    file = resources.files("attnbook") / "data" / "town_stories.txt"
    return file.read_text(encoding="utf-8").splitlines()
