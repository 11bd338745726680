"""Slips of chapter 12."""

import math
from functools import partial

from attnbook.teach.catalogue import c12_real_text as c12

c12.bits_per_byte.slip(
    "it counts characters",
    "How many bytes has an é?",
    lambda loss, n, text: loss * n / math.log(2) / len(text),
)
c12.bits_per_byte.slip(
    "it multiplies by ln 2",
    "Are there more bits than nats, or fewer?",
    lambda loss, n, text: loss * n * math.log(2) / len(text.encode()),
)
c12.bits_per_byte.slip(
    "it is bits a token",
    "How many tokens does the text have, and how many bytes?",
    lambda loss, n, text: loss / math.log(2),
)
c12.bits_per_byte.slip(
    "tokens and bytes have changed places",
    "Do more tokens for the same text cost more, or less?",
    lambda loss, n, text: loss * len(text.encode()) / n / math.log(2),
)
c12.bits_per_byte.slip(
    "it is a perplexity",
    "Is the loss asked for, or its exponential?",
    lambda loss, n, text: (
        math.exp(loss) * n / len(text.encode()) / math.log(2)
    ),
)


def _merge(data, merges, *, right, first=256):
    """Byte pairs joined one pair at a time, each time the one that was
    learned first.

    Args:
        data: the text's bytes.
        merges: the pairs, in the order in which they were learned.
        right: 1 to join the last place where a pair is, 0 for the first.
        first: the number of the first merged token.
    """
    number = {pair: n for n, pair in enumerate(merges, first)}
    ids = list(data)
    while here := [p for p in zip(ids, ids[1:]) if p in number]:
        pair = min(here, key=number.get)
        at = [n for n in range(len(ids)) if (*ids[n : n + 2],) == pair][-right]
        ids[at : at + 2] = [number[pair]]
    return ids


c12.encode_bytes.slip(
    "it goes from right to left",
    "Which two of three equal bytes are joined?",
    lambda data, merges: _merge(data, merges, right=1),
)


def _first_found(data, merges):
    """The text after one merge alone: the first of which it has a pair."""
    one = [pair for pair in merges if pair in zip(data, data[1:])][:1]
    return _merge(data, [p if p in one else None for p in merges], right=0)


c12.encode_bytes.slip(
    "it stops after one merge",
    "When is there no pair left to be joined?",
    _first_found,
)
c12.encode_bytes.slip(
    "the first merge is not 256",
    "Which id is the first that no byte has?",
    partial(_merge, right=0, first=257),
)
c12.encode_bytes.slip(
    "the merges are counted from 0",
    "Which id is the first that no byte has?",
    partial(_merge, right=0, first=0),
)
c12.encode_bytes.slip(
    "a pair that a merge has made is passed by",
    "Which new pairs does a merge make?",
    lambda data, merges: _merge(
        data,
        [pair if pair in zip(data, data[1:]) else None for pair in merges],
        right=0,
    ),
)


def _until_one_is_missing(data, merges):
    """The text after the merges up to one that changes nothing."""
    ids = list(data)
    for n in range(len(merges)):
        before = ids
        ids = c12.encode_bytes(data, merges[: n + 1])
        if ids == before:
            break
    return ids


c12.encode_bytes.slip(
    "it ends at a merge that the text does not have",
    "Which merges come after one that is not in the text?",
    _until_one_is_missing,
)
c12.text_as_it_comes.slip(
    "everything is shown again with each part",
    "What was shown already?",
    lambda parts: [
        b"".join(parts[: n + 1]).decode(errors="ignore")
        for n in range(len(parts))
    ],
)
c12.text_as_it_comes.slip(
    "a character that is cut is lost",
    "What becomes of the first byte of an é?",
    lambda parts: [part.decode(errors="ignore") for part in parts],
)


def _or_nothing(parts, *, keep=1, clear=1):
    """A text for each part: all bytes that are held if they are a text, else
    nothing.

    Args:
        parts: bytes, as they come.
        keep: 0 to forget what was held when a part comes.
        clear: 0 to go on holding what was shown.
    """
    held = b""
    out = []
    for part in parts:
        held = keep * held + part
        try:
            out.append(held.decode())
            held = (1 - clear) * held
        except UnicodeDecodeError:
            out.append("")
    return out


c12.text_as_it_comes.slip(
    "whole characters wait for one that is cut",
    "What can be shown of caf and the first byte of an é?",
    _or_nothing,
)
c12.text_as_it_comes.slip(
    "a part that ends within a character is lost",
    "What becomes of the first byte of an é?",
    partial(_or_nothing, keep=0),
)
c12.text_as_it_comes.slip(
    "what was shown is not taken away",
    "What was shown already?",
    partial(_or_nothing, clear=0),
)
c12.text_as_it_comes.slip(
    "each byte is taken for a character",
    "How many characters are the two bytes of an é?",
    lambda parts: [part.decode("latin-1") for part in parts],
)


def _without_sign(parts):
    """A text for each part: what is new in the text so far, without the
    signs at its end that stand for bytes that are no text yet."""
    texts = [
        b"".join(parts[:n]).decode(errors="replace").rstrip("\ufffd")
        for n in range(len(parts) + 1)
    ]
    return [b[len(a) :] for a, b in zip(texts, texts[1:])]


c12.text_as_it_comes.slip(
    "a � of the text itself is held back",
    "May a text hold a � of its own?",
    _without_sign,
)
