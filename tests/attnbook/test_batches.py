"""Batches: which pieces of a text are drawn, and what is asked for them."""

import pytest
import torch

from attnbook.batches import pack, packed, windows
from attnbook.teach.check.proof import agrees


@pytest.mark.parametrize(
    "numbers, context, names",
    [([1, 2, 3], 3, "the text is too short"), ([1, 2, 3], 0, "context")],
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


def test_texts_are_packed_one_after_the_other():
    rows = [[[1, 2, 3], [4, 5]], [[6, 7, 8, 9]]]
    tokens, targets, segments = pack(rows, 4)
    assert tokens.tolist() == [[1, 2, 4, 0], [6, 7, 8, 0]]
    assert targets.tolist() == [[2, 3, 5, -100], [7, 8, 9, -100]]
    assert segments.tolist() == [[0, 0, 1, 2], [0, 0, 0, 1]]


@pytest.mark.parametrize(
    "rows, context, names",
    [
        ([], 4, "number of rows"),
        ([[[1, 2]]], 0, "^context is not allowed"),
        ([[[1, 2], [3]]], 4, "text 1 of row 0 is too short.*got 1"),
        ([[[1, 2]], [[1, 2, 3], [4, 5, 6, 7]]], 4, "row 1 do not fit.*got 5"),
    ],
)
def test_texts_that_cannot_be_packed_are_refused(rows, context, names):
    with pytest.raises(ValueError, match=names):
        pack(rows, context)


def test_packed_batches_have_every_text_whole_and_little_padding():
    texts = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    draw = packed(texts, 7)
    tokens, targets, segments = draw(400, torch.Generator().manual_seed(0))
    again = draw(400, torch.Generator().manual_seed(0))
    agrees(again[0], tokens, name="the same seed")
    assert tokens.shape == targets.shape == segments.shape == (400, 7)
    found = []
    for row, wanted, numbers in zip(tokens, targets, segments):
        real = wanted >= 0
        assert real.sum() >= 5  # the longest text did not fit any more
        for number in numbers[real].unique():
            here = numbers == number
            found.append(row[here].tolist() + wanted[here][-1:].tolist())
    assert {tuple(text) for text in found} == {tuple(text) for text in texts}
    for text in texts:  # none is preferred
        assert found.count(text) / len(found) == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize(
    "texts, names",
    [
        ([], "number of texts"),
        ([[1, 2], [3]], "too short"),
        ([[1, 2, 3, 4, 5, 6]], "do not fit"),
    ],
)
def test_packed_refuses_at_once(texts, names):
    with pytest.raises(ValueError, match=names):
        packed(texts, 4)
