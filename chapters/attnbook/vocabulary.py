"""A vocabulary: the tokens that a model knows, and the number of each."""

from collections.abc import Iterator, Sequence

from attnbook.values import bad_value, whole


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
                raise bad_value(ValueError, "a token", token, words)
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
            raise bad_value(
                ValueError, "a token", token, f"one of {len(self)}"
            )
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
