"""Batches: which pieces of a text are drawn, and what is asked for them."""

import pytest
import torch

from attnbook.batches import windows
from attnbook.teach.check.proof import agrees


@pytest.mark.parametrize(
    "numbers, context, names",
    [([1, 2, 3], 3, "length of the text"), ([1, 2, 3], 0, "context")],
)
def test_windows_that_cannot_be_are_refused(numbers, context, names):
    with pytest.raises(ValueError, match=names):
        windows(numbers, context)


def test_windows_are_pieces_of_the_text_one_place_apart():
    """Every piece is drawn, the first and the last too, equally often."""
    numbers = torch.arange(10, 17).int()  # so that a token tells its place
    draw = windows(numbers, 4)
    tokens, targets = draw(3000, torch.Generator().manual_seed(0))
    assert tokens.dtype == targets.dtype == torch.int64
    first = tokens[:, :1]
    agrees(tokens, first + torch.arange(4), name="side by side")
    agrees(targets, tokens + 1, name="the next")
    starts = first.flatten().bincount()[10:]
    assert len(starts) == 3 and starts.min() > 900
    again, _ = draw(3000, torch.Generator().manual_seed(0))
    agrees(again, tokens, name="the same seed")
    one, its_next = windows([5, 6], 1)(2, torch.Generator())
    assert one.tolist() == [[5]] * 2 and its_next.tolist() == [[6]] * 2
