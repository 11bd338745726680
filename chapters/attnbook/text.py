"""Text for the book: vocabularies, batches of a text, tokenizers.

What can be fetched is fetched if the network answers at once; the book's
own text stands in for it everywhere else.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import threading
import urllib.request
import warnings
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor

HUB = ("huggingface.co", 443)
TOKENIZER = "mistralai/Mistral-7B-v0.1"

#: Where Tiny Shakespeare lies, and what it must be: 1,115,394 bytes.
SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
    "tinyshakespeare/input.txt"
)
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
    is that list again, for a checkpoint.

    Raises:
        ValueError: no token, a token twice, a word with a space in it.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        tokens = list(tokens)
        if not tokens or not all(isinstance(t, str) and t for t in tokens):
            raise ValueError(
                "these are no tokens; expected words or characters, at "
                f"least one; got {tokens[:5]!r}"
            )
        self._numbers = {token: n for n, token in enumerate(tokens)}
        if len(self._numbers) < len(tokens):
            twice = next(t for t in tokens if tokens.count(t) > 1)
            raise ValueError(
                "a token stands in the vocabulary twice; expected each "
                f"once; got {twice!r} {tokens.count(twice)} times"
            )
        self._tokens = tokens
        self._space = " " if any(len(t) > 1 for t in tokens) else ""
        if self._space:
            for token in tokens:
                if token.split() != [token]:
                    raise ValueError(
                        "a word has a space in it; expected words without; "
                        f"got {token!r}"
                    )

    @classmethod
    def of_characters(cls, text: str) -> Vocabulary:
        """The different characters of a text, in order of their codes.

        Raises:
            ValueError: if the text is empty.
        """
        if not text:
            raise ValueError(
                "the text is empty; expected at least one character; got ''"
            )
        return cls(sorted(set(text)))

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens.

        Raises:
            ValueError: an empty text; a token that is not in the
                vocabulary, with its place.
        """
        tokens = text.split() if self._space else text
        if not tokens:
            raise ValueError(
                f"the text is empty; expected at least one token; got {text!r}"
            )
        return [self.number(t, place=n) for n, t in enumerate(tokens)]

    def number(self, token: str, *, place: int = 0) -> int:
        """The number of one token; `place` is for the message."""
        if token not in self._numbers:
            kind = "word" if self._space else "character"
            raise ValueError(
                f"a {kind} is not in the vocabulary; expected one of its "
                f"{len(self)} {kind}s; got {token!r}, {kind} {place} of the "
                "text (counted from 0)"
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

    def __getitem__(self, number: int) -> str:
        return self._tokens[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and list(self) == list(other)

    __hash__ = None

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


def tiny_shakespeare() -> str:
    """Tiny Shakespeare, or the book's own text where it cannot be had.

    It is fetched if its host answers within one and a half seconds, used
    only if its checksum is right, and kept in the user's cache folder. One
    line says which text it is.

    Source: Karpathy (2015), github.com/karpathy/char-rnn.
    """
    if OFFLINE not in os.environ:
        kept = _cache() / "tiny_shakespeare.txt"
        text = _genuine(kept.read_bytes()) if kept.is_file() else None
        text = text or _shakespeare_from_its_host(kept)
        if text:
            print("text: Tiny Shakespeare")
            return text
    print("text: the book's own stories")
    return "\n".join(book_text()) + "\n"


def _shakespeare_from_its_host(keep_as):
    """The text, kept for the next time, or None."""
    host = urlsplit(SHAKESPEARE)
    port = host.port or {"http": 80, "https": 443}[host.scheme]
    if not _reachable((host.hostname, port)):
        return None
    try:
        with urllib.request.urlopen(SHAKESPEARE, timeout=30) as answer:
            data = answer.read()
    except OSError:  # not there after all
        return None
    text = _genuine(data)
    if text is None:
        warnings.warn(
            "what was fetched is not Tiny Shakespeare and is not used; "
            f"expected sha256 {SHAKESPEARE_SHA256}; got "
            f"{hashlib.sha256(data).hexdigest()} from {SHAKESPEARE}",
            stacklevel=3,
        )
    else:
        _keep(keep_as, data)
    return text


def _genuine(data):
    """The text of these bytes if they are Tiny Shakespeare's, else None."""
    if hashlib.sha256(data).hexdigest() == SHAKESPEARE_SHA256:
        return data.decode("utf-8")
    return None


def _cache():
    """The book's own folder among the user's caches."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "attnbook"


def _keep(path, data):
    """Write a file whole or not at all; a full or closed disk is no error,
    as the next time the text is fetched again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)


def book_text() -> list[str]:
    """The short town stories that the book brings along, one a line."""
    file = resources.files("attnbook") / "data" / "town_stories.txt"
    return file.read_text(encoding="utf-8").splitlines()


def load_tokenizer(name: str = TOKENIZER, *, padding_side: str = "left"):
    """A tokenizer of transformers: `name` from the hub, or the book's own.

    The hub is asked only if it answers within one and a half seconds; else
    a copy on this machine is taken. Where there is none, a byte-pair
    tokenizer is trained on `book_text`, which takes a moment; it is used in
    the same way from there on. One line says which one it is.

    Raises:
        ValueError: another padding side than "left" or "right".
    """
    if padding_side not in ("left", "right"):
        raise ValueError(
            f"padding has no side {padding_side!r}; expected 'left' or 'right'"
        )
    tokenizer = None
    if OFFLINE not in os.environ:
        tokenizer = _from_hub(name, padding_side)
    if tokenizer is None:
        print("tokenizer: byte pairs, trained on the book's own stories")
        return train_tokenizer(book_text(), padding_side=padding_side)
    print(f"tokenizer: {name}")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _transformers():
    """The library; it takes seconds to import, so only when needed.

    Its progress bars complain where Jupyter has no widgets; none are shown
    here.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        import transformers

        transformers.AutoTokenizer  # imported when first named
    return transformers


def _from_hub(name, padding_side):
    """The hub's tokenizer from the network or a local copy, or None."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    offline = before or not _reachable(HUB)
    # Without this, even a look for local files waits for the network.
    constants.HF_HUB_OFFLINE = offline
    try:
        return _transformers().AutoTokenizer.from_pretrained(
            name, padding_side=padding_side, local_files_only=offline
        )
    except (OSError, ValueError):  # not there, or not for everyone
        return None
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(address, seconds=1.5):
    """Whether a connection opens in time, the look-up of the name included."""
    answered = threading.Event()

    def knock():
        try:
            with socket.create_connection(address, timeout=seconds):
                answered.set()
        except OSError:
            pass

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()


def train_tokenizer(
    texts: list[str], *, vocab_size: int = 400, padding_side: str = "left"
):
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
    return _transformers().PreTrainedTokenizerFast(
        tokenizer_object=byte_pairs,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side=padding_side,
    )
