"""Slips of chapter 17."""

import torch

from attnbook.teach.catalogue import c17_merging as c17


def _unfinished(a, b):
    """Two finished parts merged without the division by the new total."""
    context, lse = c17.merge_finished.right(a, b)
    top = torch.maximum(a[1], b[1]).clamp(min=torch.finfo(lse.dtype).min)
    return context * (lse - top).exp(), lse


c17.merge_finished.slip(
    "the context is not divided by the total",
    "What do the weights of a finished context sum to?",
    _unfinished,
)
c17.merge_finished.slip(
    "the pair is in the other order",
    "Which comes first in the pairs that you are given?",
    lambda a, b: c17.merge_finished.right(a, b)[::-1],
)
c17.tiles_to_visit.slip(
    "every tile is given a mask",
    "Is there a key in the first two that the last of four may not read?",
    lambda *sizes: [
        (i, j, True) for i, j, _ in c17.tiles_to_visit.right(*sizes)
    ],
)


def _visited(full):
    """A slip of `tiles_to_visit` by full(first query's place, first key,
    columns, S)."""

    def wrong(T, S, rows, columns):
        return c17.visit(
            T,
            S,
            rows,
            columns,
            lambda i, j: j <= min(i + rows, T) - 1 + S - T,
            lambda i, j: full(i + S - T, j, columns, S),
        )

    return wrong


c17.tiles_to_visit.slip(
    "a tile at the end counts keys that are not there",
    "Where does the last tile of a row end, if the text ends before it?",
    _visited(lambda place, j, columns, S: j + columns - 1 <= place),
)
c17.tiles_to_visit.slip(
    "a key at a query's own place is taken for a later one",
    "May a query read the key at its own position?",
    _visited(lambda place, j, columns, S: min(j + columns, S) - 1 < place),
)


def _reads_what_comes_later(*given):
    """Contexts of the new tokens after a shared prefix, where each token reads
    the new tokens after it, too."""
    t, u, c, d = c17.totals_and_contexts(*given, causal=False)
    return (c + d) / (t + u)


c17.with_prefix.slip(
    "a new token reads the new tokens behind it",
    "May the first of three new tokens read the second?",
    _reads_what_comes_later,
)
