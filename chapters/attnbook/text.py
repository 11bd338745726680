"""Text for the book: vocabularies, batches of a text, a tokenizer."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnbook import files

#: Where Tiny Shakespeare lies, and what it must be.
SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
    "tinyshakespeare/input.txt"
)
SHAKESPEARE_BYTES = 1_115_394
SHAKESPEARE_SHA256 = (
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
)

#: Set (to anything) it keeps the book off the network, so that outputs are
#: the same on every machine. The book's own targets set it.
OFFLINE = "ATTNBOOK_OFFLINE"


class Vocabulary:
    """The tokens that a model knows, each with its number: its place.

    Made from a list of words, between which a text has spaces, or from a
    list of single characters, which stand side by side. `list(vocabulary)`
    is that list again.

    Raises:
        ValueError: no token, a token twice, a word with a space in it.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = list(tokens)
        self._space = " " if any(len(t) > 1 for t in self._tokens) else ""
        if not self._tokens:
            raise ValueError(
                "these are no tokens; expected at least one; got none"
            )
        self._numbers: dict[str, int] = {}
        for token in self._tokens:
            if (self._space and token.split() != [token]) or not token:
                raise ValueError(
                    "this is no token; expected a character, or a word "
                    f"without spaces; got {token!r}"
                )
            if token in self._numbers:
                raise ValueError(
                    "a token stands in the vocabulary twice; expected each "
                    f"once; got {token!r} again"
                )
            self._numbers[token] = len(self._numbers)

    @classmethod
    def of_characters(cls, text: str) -> Vocabulary:
        """The different characters of a text, in order of their codes."""
        return cls(sorted(set(text)))

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens.

        Raises:
            ValueError: an empty text; a token not in the vocabulary.
        """
        tokens = text.split() if self._space else text
        if not tokens:
            raise ValueError(
                f"the text is empty; expected at least one token; got {text!r}"
            )
        return [self.number(token) for token in tokens]

    def number(self, token: str) -> int:
        """The number of one token."""
        if token not in self._numbers:
            raise ValueError(
                "a token is not in the vocabulary; expected one of its "
                f"{len(self)}; got {token!r}"
            )
        return self._numbers[token]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of a list of numbers.

        Raises:
            ValueError: a number that is no token's.
        """
        numbers = [int(n) for n in numbers]
        for n in numbers:
            if not 0 <= n < len(self):
                raise ValueError(
                    "a number is no token's; expected 0 to "
                    f"{len(self) - 1}; got {n}"
                )
        return self._space.join(self._tokens[n] for n in numbers)

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._numbers

    def __getitem__(self, number: int) -> str:
        return self._tokens[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self._tokens))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens)"


#: Draws a batch: (size, generator) → tokens and targets, on the CPU.
Batches = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


def windows(numbers: Sequence[int] | Tensor, context: int) -> Batches:
    """Batches of pieces of one long text, drawn anywhere in it.

    The result is called with a batch size and a generator, and gives tokens
    (B, context) and, one place later, their targets (B, context), int64.

    Raises:
        ValueError: a context below 1; a text that is not longer than it.
    """
    numbers = torch.as_tensor(numbers, dtype=torch.int64)  # (N,)
    if context < 1 or len(numbers) <= context:
        raise ValueError(
            "the text is too short for the context; expected a context of "
            "at least 1 and a longer text; got a context of "
            f"{context} and a text of {len(numbers)} tokens"
        )

    def draw(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        last = len(numbers) - context
        starts = torch.randint(last, (size, 1), generator=generator)
        pieces = numbers[starts + torch.arange(context + 1)]
        return pieces[:, :-1], pieces[:, 1:]  # (B, context) each

    return draw


def tiny_shakespeare(*, seconds: float = 30) -> str:
    """Tiny Shakespeare, or the book's own text where it cannot be had.

    It is used only if its checksum is right, and kept in the user's cache
    folder. One line says which text it is.

    Args:
        seconds: how long it may take to arrive, all in all.

    Source: Karpathy (2015), github.com/karpathy/char-rnn.
    """
    if OFFLINE not in os.environ:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        kept = Path(cache) / "attnbook" / "tiny_shakespeare.txt"
        for source in (kept.read_bytes, lambda: _fetched(seconds, kept)):
            try:
                data = source()
            except (OSError, http.client.HTTPException):
                continue  # not there
            if hashlib.sha256(data).hexdigest() == SHAKESPEARE_SHA256:
                print("text: Tiny Shakespeare")
                return data.decode("utf-8")
    print("text: the book's own stories")
    return "\n".join(book_text()) + "\n"


def _fetched(seconds, keep_as):
    """What the host sends, no more of it than there should be, and kept."""
    data, end = b"", time.monotonic() + seconds
    with urllib.request.urlopen(SHAKESPEARE, timeout=5) as answer:
        while len(data) <= SHAKESPEARE_BYTES:
            part = answer.read1(SHAKESPEARE_BYTES + 1 - len(data))
            if time.monotonic() > end:
                raise TimeoutError
            if not part:
                break
            data += part
    if hashlib.sha256(data).hexdigest() == SHAKESPEARE_SHA256:
        with contextlib.suppress(OSError):  # then it is fetched again
            keep_as.parent.mkdir(parents=True, exist_ok=True)
            with files.replacing(keep_as) as file:
                file.write(data)
    return data


def book_text() -> list[str]:
    """The short town stories that the book brings along, one a line."""
    file = resources.files("attnbook") / "data" / "town_stories.txt"
    return file.read_text(encoding="utf-8").splitlines()


def train_tokenizer(
    texts: list[str], *, vocab_size: int = 400, padding_side: str = "left"
) -> Any:
    """A byte-pair tokenizer trained on `texts`, in transformers' form.

    Source: Sennrich, Haddow and Birch (2016), arXiv:1508.07909.

    Raises:
        ValueError: if there is no text.
    """
    if not any(text.strip() for text in texts):
        raise ValueError(
            "there is nothing to train on; expected some text; "
            f"got {len(texts)} empty lines"
        )
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from tokenizers.trainers import BpeTrainer

    with warnings.catch_warnings():  # of a Jupyter without widgets
        warnings.filterwarnings("ignore", message="IProgress not found")
        from transformers import PreTrainedTokenizerFast

    byte_pairs = Tokenizer(models.BPE())
    byte_pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    byte_pairs.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    byte_pairs.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_pairs,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side=padding_side,
    )
