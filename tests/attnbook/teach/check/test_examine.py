"""What is wrong on the first case that fails, as data."""

import pytest
import torch

from attnbook.teach.check.difference import difference
from attnbook.teach.check.examine import ADVICE, examined, examined_error
from attnbook.teach.check.finding import Kind
from attnbook.teach.check.guard import OutOfTime
from attnbook.teach.check.telling.stops import _ADVICE

X = torch.arange(6, dtype=torch.float64).reshape(2, 3) + 1


@pytest.mark.parametrize(
    "answer, expected, kind",
    [
        (X * 2, X, Kind.FACTOR),
        (X.exp() * X, X, Kind.EVERY_PLACE),
        (X.long(), X, Kind.FORMAT),
        (X > 2, X, Kind.NUMBER_TYPE),
        (X.to(torch.complex128), X, Kind.NUMBER_TYPE),
        ("a", 1, Kind.VALUE),
        (None, X, Kind.TYPE),
        ({"a": X}, {"b": X}, Kind.ENTRIES),
        ([X], [X, X], Kind.LIST_LENGTH),
        (["a"], [X, X], Kind.LIST_LENGTH),
        ((X, X), [X], Kind.LIST_LENGTH),
    ],
)
def test_a_difference_has_a_kind(answer, expected, kind):
    found = examined(difference(answer, expected, within=0), "a case")
    assert (found.kind, found.case) == (kind, "a case")


def test_a_place_is_kept():
    both = (1, {"k": X}), (1, {"k": -X})
    found = examined(difference(*both, within=0), "")
    assert found.place == (("part", 1), ("entry", "k"))
    assert found.kind == Kind.SIGN


@pytest.mark.parametrize(
    "error, kind, advice",
    [
        (RuntimeError("view size is not compatible"), Kind.ERROR, "view"),
        (MemoryError(), Kind.OUT_OF_MEMORY, ""),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            Kind.OUT_OF_MEMORY,
            "",
        ),
        (OutOfTime("no result"), Kind.OUT_OF_TIME, ""),
        (SystemExit(), Kind.BROKEN_OFF, ""),
    ],
)
def test_an_error_has_a_kind(error, kind, advice):
    found = examined_error(error, len, "a case")
    assert (found.kind, found.advice) == (kind, advice)
    assert found.error is error and found.line is None


def test_each_complaint_has_its_advice():
    assert {*ADVICE.values(), "given"} == set(_ADVICE)


def test_the_readers_own_line_is_found():
    def mine(x):
        return x[9]

    with pytest.raises(IndexError) as caught:
        mine(X)
    found = examined_error(caught.value, mine, "")
    assert found.line == (mine.__code__.co_firstlineno + 1, "return x[9]")
