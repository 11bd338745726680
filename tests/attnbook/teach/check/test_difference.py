"""Where two results differ first, and that equal ones do not."""

import numpy as np
import pytest
import torch

from attnbook.teach.check.difference import difference
from attnbook.teach.check.proof import Disagreement, agrees
from attnbook.teach.check.telling import difference_words

X = torch.arange(6, dtype=torch.float64).reshape(2, 3)
NAN = X * torch.nan
SPOILT = X.clone()
SPOILT[1, 0] = torch.nan
BIG = torch.tensor([2**53])


@pytest.mark.parametrize(
    "answer, expected, kind, words",
    [
        (X + 1e-9, X, "value", "worst at"),
        (X.float() + 1e-6, X, "value", "; the answer is float32"),
        (X.T, X, "shape", "(3, 2)"),
        (X[:1], X, "shape", "(1, 3)"),  # would broadcast
        (X.int(), X, "type", "integers"),
        (X > 1, (X > 1).int(), "type", "booleans"),
        (SPOILT + torch.inf, X + torch.inf, "nan", "worst at [1, 0]"),
        (X.int(), X.long() + (X > 4), "value", "worst at [1, 2]"),
        (X > 1, X > 2, "value", "first at [0, 2]: the answer gives True"),
        (SPOILT, X, "nan", "worst at [1, 0]: the answer gives nan"),
        (NAN, NAN, "nan", "nan"),
        (X + torch.inf, X - torch.inf, "value", "the answer gives inf"),
        (BIG + 1, BIG, "value", "worst at [0]"),  # equal in float64
        (1 + 2j, 1 + 9j, "value", "worst at [1]: the answer gives 2"),
        (1 + 0j, 1.0, "type", "complex"),
        ((X, X), (X, X + 1), "value", "part 1"),
        ((X,), (X, X), "type", "a tuple of 1"),
        (
            [1, 2],
            [1, 3],
            "value",
            "worst at [1]: the answer gives 2, the reference 3",
        ),
        ({"a": X}, {"b": X}, "type", "keys ['a']"),
        ((1.0, {"k": 2.0}), (1.0, {"k": 3.0}), "value", "part 1: entry 'k': "),
        ("left", "right", "type", "str 'left'"),
        (None, X, "type", "the answer is None"),
    ],
)
def test_differences_are_found(answer, expected, kind, words):
    found = difference(answer, expected, within=1e-12)
    assert found.kind == kind and words in difference_words(found)
    with pytest.raises(Disagreement):
        agrees(answer, expected)


def test_no_bound_is_wide_enough_for_integers():
    assert difference(torch.tensor([2]), torch.tensor([3]), within=1)
    assert difference(X > 1, X > 2, within=1)


@pytest.mark.parametrize(
    "answer, expected",
    [
        (X + 1e-13, X),
        (X, X.float()),
        (X + torch.inf, X + torch.inf),
        (X[:0], X[:0]),
        (1 + 2j, 1 + 2j),
        ({"a": X}, {"a": X}),
        (np.float64(0.1), 0.1),
        (torch.tensor([0.1, 0.2], dtype=torch.float64), [0.1, 0.2]),
    ],
)
def test_equal_things_are_equal(answer, expected):
    assert difference(answer, expected, within=1e-12) is None
    assert difference(NAN, NAN, within=0, equal_nan=True) is None
    odd = SPOILT.where(X != 5, torch.inf)
    assert difference(odd + 1e-9, odd, within=1e-8, equal_nan=True) is None
    assert difference(odd, odd, within=1e-8).place == ()


class Liar(torch.Tensor):
    """A tensor that says of itself that it is equal to everything."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("eq", "__eq__", "equal", "allclose"):
            return torch.ones(2, 3, dtype=torch.bool)
        return super().__torch_function__(function, types, args, kwargs or {})


class Agreeable:
    """An object that says of itself that it is equal to everything."""

    def __eq__(self, other):
        return True

    def __float__(self):
        return 1.0


def test_a_result_does_not_answer_for_its_own_comparison():
    assert difference((X + 1).as_subclass(Liar), X, within=1e-9)
    assert difference(Agreeable(), 1.0, within=1e-9)
    assert difference([Agreeable()], ["word"], within=1e-9)
