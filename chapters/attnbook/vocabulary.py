"""A vocabulary: the tokens that a model knows, and the number of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnbook.files import shown
from attnbook.values import whole


class Vocabulary:
    """The tokens that a model knows. A token's number is its place.

    The tokens are either single characters, which stand side by side in a
    text, or words, which have spaces between them. `list(vocabulary)` gives
    the tokens back.

    >>> words = Vocabulary(["the", "boat", "left"])
    >>> words.encode("the boat")
    [0, 1]
    >>> words.decode([1, 2])
    'boat left'

    Raises:
        ValueError: no tokens, an empty one, one that occurs twice, or a word
            with a space in it.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = list(tokens)
        self._space = " " if any(len(t) > 1 for t in self._tokens) else ""
        self._numbers: dict[str, int] = {}
        if not self._tokens:
            raise ValueError(
                "a vocabulary needs tokens; expected at least one; got none"
            )
        for token in self._tokens:
            spaced = self._space and token.split() != [token]
            if spaced or not token or token in self._numbers:
                raise ValueError(
                    "a vocabulary cannot have such a token; expected single "
                    "characters, or words without spaces, each of them once; "
                    f"got {token!r}"
                )
            self._numbers[token] = len(self._numbers)

    @classmethod
    def of_characters(cls, text: str) -> Vocabulary:
        """The different characters of a text, in the order of their codes.

        Raises:
            ValueError: a text without characters.
        """
        return cls(sorted(set(text)))

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens.

        Raises:
            ValueError: a text without tokens, or with an unknown one.
        """
        tokens = text.split() if self._space else text
        if not tokens:
            raise ValueError(
                f"the text has no tokens; expected at least one; got {text!r}"
            )
        return [self.number(token) for token in tokens]

    def number(self, token: str) -> int:
        """The number of one token, which is its place among all tokens.

        Raises:
            ValueError: a token that the vocabulary does not have.
        """
        if token not in self._numbers:
            raise ValueError(
                f"{token!r} is no token of the vocabulary; expected one of "
                f"its {len(self)}: {shown(self._tokens)}"
            )
        return self._numbers[token]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of some tokens, given by their numbers.

        Raises:
            ValueError: a number that no token has.
        """
        for n in numbers:
            whole("a token's number", n, at_least=0, below=len(self))
        return self._space.join(self._tokens[n] for n in numbers)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, number: int) -> str:
        return self._tokens[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokens)
