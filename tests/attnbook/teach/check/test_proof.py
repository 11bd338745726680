"""Comparisons say what they compared, and fail when they must."""

import numpy as np
import pytest
import torch

from attnbook.teach.check.proof import (
    Case,
    Disagreement,
    agrees,
    call,
    difference,
    run,
)

X = torch.arange(6, dtype=torch.float64).reshape(2, 3)
NAN = X * torch.nan
SPOILT = X.clone()
SPOILT[1, 0] = torch.nan
BIG = torch.tensor([2**53])


@pytest.mark.parametrize(
    "ours, theirs, kind, words",
    [
        (X + 1e-9, X, "value", "worst at"),
        (X.float() + 1e-6, X, "value", "; ours is float32"),
        (X.T, X, "shape", "(3, 2)"),
        (X[:1], X, "shape", "(1, 3)"),  # would broadcast
        (X.int(), X, "type", "integers"),
        (X > 1, (X > 1).int(), "type", "booleans"),
        (X > 1, X > 2, "value", "first at [0, 2]: ours True"),
        (SPOILT, X, "nan", "worst at [1, 0]: ours nan"),
        (NAN, NAN, "nan", "nan"),
        (X + torch.inf, X - torch.inf, "value", "ours inf"),
        (BIG + 1, BIG, "value", "worst at [0]"),  # equal in float64
        (1 + 2j, 1 + 9j, "value", "worst at [1]: ours 2"),
        (1 + 0j, 1.0, "type", "complex"),
        ((X, X), (X, X + 1), "value", "part 1"),
        ((X,), (X, X), "type", "a tuple of 1"),
        ([1, 2], [1, 3], "value", "worst at [1]: ours 2, the reference 3"),
        ({"a": X}, {"b": X}, "type", "keys ['a']"),
        ((1.0, {"k": 2.0}), (1.0, {"k": 3.0}), "value", "part 1: entry 'k': "),
        ("left", "right", "type", "str 'left'"),
        (None, X, "type", "ours is None"),
    ],
)
def test_differences_are_found(ours, theirs, kind, words):
    found = difference(ours, theirs, within=1e-12)
    assert found.kind == kind and words in found.message
    with pytest.raises(Disagreement):
        agrees(ours, theirs)


def test_no_bound_is_wide_enough_for_integers():
    assert difference(torch.tensor([2]), torch.tensor([3]), within=1)
    assert difference(X > 1, X > 2, within=1)


@pytest.mark.parametrize(
    "ours, theirs",
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
def test_equal_things_are_equal(ours, theirs):
    assert difference(ours, theirs, within=1e-12) is None
    assert difference(NAN, NAN, within=0, equal_nan=True) is None


def test_the_message_names_case_and_place():
    def wrong_in_the_second(x):
        return (
            x if x.ndim == 1 else x.clone().index_fill(0, torch.tensor(1), 7)
        )

    words = (
        r"case 1 \(b\), sizes 2×3: worst at \[1, 0\]: ours 7, .* 3, \|Δ\| 4"
    )
    with pytest.raises(Disagreement, match=words):
        agrees(
            wrong_in_the_second, torch.clone, cases={"a": (X[0],), "b": (X,)}
        )


# Σ softmax has no gradient: unequal weights make its error visible.
@pytest.mark.parametrize("right", [torch.square, lambda x: x.softmax(-1)])
def test_a_wrong_gradient_is_found(right):
    def wrong(x):
        return right(x.detach()) + 0 * x

    agrees(wrong, right, cases=[(X,)])
    with pytest.raises(Disagreement, match="gradient of tensor argument 0"):
        agrees(wrong, right, cases=[(X,)], gradients=True)


@pytest.mark.parametrize(
    "pack", [lambda a, b: (a, (b,)), lambda a, b: {"a": a, "b": b}]
)
def test_gradients_of_every_part_and_argument_are_compared(pack):
    def right(x, y):
        return pack(x * 2, y * 3)

    def compare(wrong):
        agrees(wrong, right, cases=[call(X, y=X)], gradients=True)

    compare(right)
    with pytest.raises(Disagreement, match="argument 0"):
        compare(lambda x, y: pack((x * 2).detach(), y * 3))
    with pytest.raises(Disagreement, match="argument 1"):
        compare(lambda x, y: pack(x * 2, (y * 3).detach()))


@pytest.mark.parametrize("case", [call(X), call(x=X)])
def test_a_changed_argument_is_found_and_harms_nobody(case):
    with pytest.raises(Disagreement, match="argument x was changed in place"):
        agrees(lambda x: x.mul_(2), lambda x: x * 2, cases=[case])
    assert X[0, 1] == 1


def test_errors_of_either_side_are_raised():
    def fails(x):
        return 1 / 0

    for pair in ((fails, torch.exp), (torch.exp, fails)):
        with pytest.raises(ZeroDivisionError):
            agrees(*pair, cases=[(X,)])
    assert isinstance(run(fails, call(X)).error, ZeroDivisionError)


@pytest.mark.parametrize("nothing", [None, [], X[:0], (None, [])])
def test_a_reference_without_numbers_is_an_error(nothing):
    with pytest.raises(ValueError, match="nothing to compare"):
        agrees(nothing, nothing)
    with pytest.raises(ValueError, match="nothing to compare"):
        agrees(lambda x: nothing, lambda x: nothing, cases=[(X,)])


@pytest.mark.parametrize(
    "options, words",
    [
        ({"cases": []}, "at least one case"),
        ({"cases": [(X,)], "gradients": True}, "no gradient to compare"),
        ({"cases": [(X,)], "within": torch.inf}, "no bound"),
    ],
)
def test_a_comparison_that_cannot_fail_is_an_error(options, words):
    with pytest.raises(ValueError, match=words):
        agrees(torch.detach, torch.detach, **options)


def test_the_same_object_in_two_places_stays_one():
    shared = [X]
    case = Case("", (shared, shared))
    assert run(lambda a, b: a is b, case).result
