"""Batches for training: pieces of one long text, or whole texts packed.

A batch is a tuple of tensors (B, T): tokens, their targets, and for packed
texts the segments, which say where one text ends and the next begins.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnbook.values import whole

#: Draws a batch on the CPU: (number of rows, generator) → tokens, targets,
#: and segments if the rows are packed.
Batches = Callable[[int, torch.Generator], tuple[Tensor, ...]]

#: A target that no loss counts, as in `torch.nn.functional.cross_entropy`.
IGNORED = -100


def windows(numbers: Sequence[int] | Tensor, context: int) -> Batches:
    """Batches of pieces of one long text, each drawn from anywhere in it.

    Args:
        numbers: the text's tokens, (N,), more than `context` of them.
        context: tokens in a piece.

    Returns:
        A function that draws tokens and their targets, which are the tokens
        one place later; each (B, context), int64.

    Raises:
        ValueError: a context below 1, or a text that is no longer than it.
    """
    numbers = torch.as_tensor(numbers, dtype=torch.int64)  # (N,)
    whole("context", context, at_least=1)
    if len(numbers) <= context:
        raise ValueError(
            f"the text is too short; expected more tokens than the context's "
            f"{context}, since a piece needs {context} and one to follow; "
            f"got {len(numbers)}"
        )

    def draw(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        last = len(numbers) - context
        starts = torch.randint(last, (size, 1), generator=generator)
        pieces = numbers[starts + torch.arange(context + 1)]
        return pieces[:, :-1], pieces[:, 1:]  # (B, context) each

    return draw


def pack(
    rows: Sequence[Sequence[Sequence[int]]], context: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Put several whole texts into each row, so that little is padding.

    The model must be told where a text begins, or it reads the one before:
    hand it the segments, ``model(tokens, segments=segments)``.

    Args:
        rows: for each row its texts, each a list of token numbers.
        context: tokens in a row.

    Returns:
        Tokens, targets and segments, each (B, context), int64. A text of n
        tokens takes n − 1 places: its last token is only a target. What is
        left of a row is padding: tokens 0, targets −100, which no loss
        counts, and a segment of its own, so that no text sees it.

    Raises:
        ValueError: no rows, a text of fewer than two tokens, or more tokens
            in a row than the context.

    >>> tokens, targets, segments = pack([[[1, 2, 3], [4, 5]]], 4)
    >>> tokens.tolist(), targets.tolist(), segments.tolist()
    ([[1, 2, 4, 0]], [[2, 3, 5, -100]], [[0, 0, 1, 2]])
    """
    whole("number of rows", len(rows), at_least=1)
    shape = len(rows), whole("context", context, at_least=1)
    tokens = torch.zeros(shape, dtype=torch.int64)
    targets = torch.full(shape, IGNORED)
    segments = torch.zeros(shape, dtype=torch.int64)
    for row, texts in enumerate(rows):
        start = 0
        for segment, text in enumerate(texts):
            if len(text) < 2:
                raise ValueError(
                    f"text {segment} of row {row} is too short; expected at "
                    f"least two tokens, one to read and one to predict; got "
                    f"{len(text)}"
                )
            end = start + len(text) - 1
            if end > context:
                raise ValueError(
                    f"the texts of row {row} do not fit; expected at most the "
                    f"context's {context} places; got {end} up to text "
                    f"{segment}"
                )
            tokens[row, start:end] = torch.tensor(text[:-1])
            targets[row, start:end] = torch.tensor(text[1:])
            segments[row, start:end] = segment
            start = end
        segments[row, start:] = len(texts)
    return tokens, targets, segments


def packed(texts: Sequence[Sequence[int]], context: int) -> Batches:
    """Batches of rows into which whole texts are packed, drawn at random.

    A row takes texts until the next one does not fit.

    Args:
        texts: each a list of at least two token numbers, and at most
            `context` + 1.
        context: tokens in a row.

    Returns:
        A function that draws tokens, targets and segments; see `pack`.

    Raises:
        ValueError: no texts, or one that is too short or too long.
    """
    whole("number of texts", len(texts), at_least=1)
    for text in texts:
        pack([[text]], context)  # raises for one that cannot be packed

    def draw(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        rows: list[list[Sequence[int]]] = [[]]
        taken = 0  # places of the last row
        while True:
            number = torch.randint(len(texts), (), generator=generator)
            text = texts[int(number)]
            if taken + len(text) - 1 > context:
                if len(rows) == size:
                    return pack(rows, context)
                rows.append([])
                taken = 0
            rows[-1].append(text)
            taken += len(text) - 1

    return draw
