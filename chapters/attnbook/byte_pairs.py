"""A published tokenizer of byte pairs: GPT-2's kind, as chapter 12 makes it.

What chapter 12 writes by hand is all of it but for three things. A text is
first cut into pieces, mostly words with the space before them, and a merge
never reaches across a cut. A published table numbers its tokens in an order
of its own, so that merges are pairs of byte strings and not of numbers. And
there are control tokens, such as ``<|im_end|>``, that no text contains unless
one says so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import regex

from attnbook.files import shown
from attnbook.values import whole

#: How GPT-2 cuts a text: English endings such as 's; letters, with the space
#: before them; digits; other signs; and white space, whose last sign is left
#: for the word after it.
#: Source: Radford et al. (2019), github.com/openai/gpt-2, src/encoder.py.
PIECES = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)
_PIECES = regex.compile(PIECES)
_DIGIT = regex.compile(r"(\p{N})")


@functools.cache
def byte_letters() -> list[str]:
    """A visible letter for each of the 256 bytes, as GPT-2 has them.

    Files of tokens are texts, in which spaces and line ends would be lost.
    So a byte that is a visible Latin-1 character is that character, and the
    others are the letters from number 256 on, in order: a space is Ġ, a line
    end Ċ.

    >>> byte_letters()[ord(" ")], byte_letters()[ord("a")]
    ('Ġ', 'a')
    """
    letters = []
    n_hidden = 0
    for byte in range(256):
        if chr(byte).isprintable() and chr(byte) not in " \xa0\xad":
            letters.append(chr(byte))
        else:
            letters.append(chr(256 + n_hidden))
            n_hidden += 1
    return letters


@functools.cache
def _byte_of() -> dict[str, int]:
    """Which byte each of `byte_letters` stands for, as {letter: byte}."""
    return {letter: byte for byte, letter in enumerate(byte_letters())}


def bytes_of(token: str) -> bytes:
    """The bytes that a token of a file stands for.

    >>> bytes_of("Ġriver")
    b' river'

    Raises:
        ValueError: a character that stands for no byte.
    """
    byte_of = _byte_of()
    for letter in token:
        if letter not in byte_of:
            raise ValueError(
                f"{shown(letter)} in the token {shown(token)} stands for no "
                "byte; expected the letters of `byte_letters`"
            )
    return bytes(byte_of[letter] for letter in token)


class BytePairs:
    """Encodes texts into token numbers, and decodes those.

    Args:
        numbers: the number of each token, which is a string of bytes.
        merges: pairs of tokens that are joined, in the order in which they
            were learned.
        special: numbers of control tokens by their names.
        digits_alone: whether each digit is a piece of its own, as SmolLM's
            tokenizer has it; GPT-2 keeps a number's digits together.
        unknown: the number for a byte that has no token. GPT-2's table has
            all 256 bytes; SmolLM's lacks some control characters, which its
            training text did not have. Without it they are refused.

    Raises:
        ValueError: a merge that is there twice, or of which a part or the
            whole is no token; a number that two tokens have.
    """

    def __init__(
        self,
        numbers: Mapping[bytes, int],
        merges: Iterable[tuple[bytes, bytes]],
        *,
        special: Mapping[str, int] | None = None,
        digits_alone: bool = False,
        unknown: int | None = None,
    ) -> None:
        self.numbers = dict(numbers)
        self.special = dict(special or {})
        self.unknown = unknown
        self.rank: dict[tuple[bytes, bytes], int] = {}
        for rank, (first, second) in enumerate(merges):
            for token in (first, second, first + second):
                if token not in self.numbers:
                    raise ValueError(
                        f"the merge of {first!r} and {second!r} needs the "
                        f"token {token!r}, which is not in the table"
                    )
            if (first, second) in self.rank:
                raise ValueError(
                    f"the merge of {first!r} and {second!r} is there twice"
                )
            self.rank[first, second] = rank
        self.tokens = {n: token for token, n in self.numbers.items()}
        names = {n: name.encode() for name, n in self.special.items()}
        self.tokens |= names
        if len(self.tokens) != len(self.numbers) + len(self.special):
            raise ValueError(
                "two tokens have the same number; expected one number for "
                "each of the table's tokens and control tokens"
            )
        self.digits_alone = digits_alone
        self._special = regex.compile(
            "(" + "|".join(map(regex.escape, self.special)) + ")"
        )
        # Words repeat in a text, so what was made of the last 65,536 is kept.
        self._joined = functools.lru_cache(2**16)(self._join)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The numbers of a text's tokens.

        With `special`, the name of a control token in the text becomes that
        token. Without, as a text that somebody else has written should be
        read, it is characters like any other.

        Raises:
            ValueError: a text that cannot be written in UTF-8, because it
                has half of a surrogate pair; a byte for which there is no
                token, if no number for unknown ones was given.
        """
        if not special or not self.special:
            return self._plain(text)
        found: list[int] = []
        for part in self._special.split(text):
            if part in self.special:
                found.append(self.special[part])
            else:
                found += self._plain(part)
        return found

    def _plain(self, text: str) -> list[int]:
        """The numbers of a text in which no control token is looked for.

        The text is cut into pieces, and the bytes of each piece are merged
        apart from the others.
        """
        found: list[int] = []
        for piece in self.pieces(text):
            found += self._joined(piece)
        return found

    def pieces(self, text: str) -> list[str]:
        """The pieces into which a text is cut before any pair is joined."""
        if not self.digits_alone:
            return _PIECES.findall(text)
        # Digits first: each part between them is then cut as a text would
        # be, so that a space before a digit is a piece too.
        found: list[str] = []
        for part in _DIGIT.split(text):
            found += _PIECES.findall(part)
        return found

    def _join(self, piece: str) -> tuple[int, ...]:
        """The tokens of one piece: begin with bytes, and join the pair that
        was learned first, as long as there is one."""
        parts = [bytes([byte]) for byte in piece.encode()]
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:]))
            first = min(pairs, key=lambda pair: self.rank.get(pair, 2**62))
            if first not in self.rank:
                break
            parts = _merged(parts, first)
        found = []
        for part in parts:
            number = self.numbers.get(part, self.unknown)
            if number is None:
                raise ValueError(
                    f"the text has the byte {part!r}, for which the table has "
                    "no token; remove it, or give a number for unknown bytes"
                )
            found.append(number)
        return tuple(found)

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some tokens; control tokens are their names.

        Raises:
            ValueError: a number of no token.
        """
        parts = []
        for n in tokens:
            if n not in self.tokens:
                whole("a token's number", n, at_least=0, below=len(self))
            parts.append(self.tokens[n])
        return b"".join(parts)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens. Bytes that are no character, because
        tokens are missing beside them, become � each."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")


def _merged(parts: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    """The parts with a pair joined wherever it is, from left to right."""
    joined = pair[0] + pair[1]
    found: list[bytes] = []
    at = 0
    while at < len(parts):
        if tuple(parts[at : at + 2]) == pair:
            found.append(joined)
            at += 2
        else:
            found.append(parts[at])
            at += 1
    return found
