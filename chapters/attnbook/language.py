"""Text for the book: a tokenizer from the hub, or one trained on the spot."""

from __future__ import annotations

import os
import socket
import threading
import warnings
from importlib import resources

HUB = ("huggingface.co", 443)
TOKENIZER = "mistralai/Mistral-7B-v0.1"

#: Set (to anything) it keeps the book off the network, so that outputs are
#: the same on every machine. The book's own targets set it.
OFFLINE = "ATTNBOOK_OFFLINE"


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
            f"padding has no side {padding_side!r}; "
            "expected 'left' or 'right'"
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
