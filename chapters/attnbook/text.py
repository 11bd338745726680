"""Text for the book: vocabularies, and batches of a text."""

import contextlib
import hashlib
import http.client
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from attnbook import files
from attnbook.config import whole, wrong

#: Where Tiny Shakespeare lies, and what it must be.
SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
    "tinyshakespeare/input.txt"
)
SHAKESPEARE_BYTES = 1_115_394
SHAKESPEARE_SHA256 = (
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
)

#: Set (to anything) it keeps the book off the network.
OFFLINE = "ATTNBOOK_OFFLINE"


class Vocabulary:
    """The tokens that a model knows, each with its number: its place.

    Made from a list of words, between which a text has spaces, or of single
    characters, which stand side by side; `list(vocabulary)` is it again. No
    token, one twice, or a word with a space in it is a ValueError.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = list(tokens)
        self._space = " " if any(len(t) > 1 for t in self._tokens) else ""
        whole("number of tokens", len(self._tokens), at_least=1)
        self._numbers: dict[str, int] = {}
        for token in self._tokens:
            spaced = self._space and token.split() != [token]
            if spaced or not token or token in self._numbers:
                words = "characters, or words without spaces, each once"
                raise wrong(ValueError, "a token", token, words)
            self._numbers[token] = len(self._numbers)

    @classmethod
    def of_characters(cls, text: str) -> "Vocabulary":
        """The different characters of a text, in order of their codes."""
        return cls(sorted(set(text)))

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens; a ValueError if it has none."""
        tokens = text.split() if self._space else text
        whole("length of the text", len(tokens), at_least=1)
        return [self.number(token) for token in tokens]

    def number(self, token: str) -> int:
        """The number of one token; a ValueError for an unknown one."""
        if token not in self._numbers:
            raise wrong(ValueError, "a token", token, f"one of {len(self)}")
        return self._numbers[token]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of a list of numbers; a ValueError for one of no token."""
        for n in numbers:
            whole("a token's number", n, at_least=0, below=len(self))
        return self._space.join(self._tokens[n] for n in numbers)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, number: int) -> str:
        return self._tokens[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokens)


#: Draws a batch: (size, generator) → tokens and targets, on the CPU.
Batches = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


def windows(numbers: Sequence[int] | Tensor, context: int) -> Batches:
    """Batches of pieces of one text, longer than `context`, drawn anywhere.

    Shapes: tokens and, one place later, their targets (B, context), int64.
    """
    numbers = torch.as_tensor(numbers, dtype=torch.int64)  # (N,)
    whole("context", context, at_least=1)
    whole("length of the text", len(numbers), above=context)

    def draw(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        last = len(numbers) - context
        starts = torch.randint(last, (size, 1), generator=generator)
        pieces = numbers[starts + torch.arange(context + 1)]
        return pieces[:, :-1], pieces[:, 1:]  # (B, context) each

    return draw


def tiny_shakespeare(*, seconds: float = 30) -> str:
    """Tiny Shakespeare, or the book's own text where it cannot be had.

    It is used only if its checksum is right and it arrives in so many
    seconds; kept in the user's cache folder. A line says which text it is.

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
                continue
            print("text: Tiny Shakespeare")
            with contextlib.suppress(OSError):  # then it is fetched again
                kept.parent.mkdir(parents=True, exist_ok=True)
                if not is_kept:
                    with files.replacing(kept) as file:
                        file.write(data)
            return data.decode("utf-8")
    print("text: the book's own stories")
    return "\n".join(book_text()) + "\n"


def _fetched(seconds):
    """What the host sends, no more of it than there should be."""
    data, end = b"", time.monotonic() + seconds
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
