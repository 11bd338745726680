"""Slips of chapter 24."""

import torch

from attnbook.teach.catalogue import c24_hands as c24

c24.clipped.slip(
    "short ones made longer",
    "What happens to a gradient that is shorter than the limit?",
    lambda parts, limit: parts * limit / parts.norm(),
)
c24.ddp_losses.slip(
    "one number for all",
    "Does each rank go back from its own targets, or from all?",
    lambda losses, real: (
        (losses * real).sum() / real.sum() + 0 * losses.sum(-1)
    ),
)


def _first_rows(q, k, v, *, sizes):
    """Attention in which each rank masks as if it had the first queries."""
    row = torch.cat([torch.arange(size) for size in sizes])
    return c24.seen(q, k, v, torch.arange(len(k)) > row[:, None])


c24.ring.slip(
    "the queries of each rank are taken for the first of the sequence",
    "Which place in the sequence has the first query of the second rank?",
    _first_rows,
)
c24.balance.slip(
    "a softmax is taken of the probabilities",
    "What do a token's given numbers sum to, before anything is done?",
    lambda chosen, probabilities, real: c24.balance(
        chosen, probabilities.softmax(-1), real
    ),
)
