"""Comparisons say what they compared, and fail when they must."""

import pytest
import torch

from attnbook.teach.check.proof import Disagreement, agrees
from attnbook.teach.check.running import Case, call, outcome_of

X = torch.arange(6, dtype=torch.float64).reshape(2, 3)


def test_the_message_names_case_and_place():
    def wrong_in_the_second(x):
        return (
            x if x.ndim == 1 else x.clone().index_fill(0, torch.tensor(1), 7)
        )

    words = (
        r"case 1 \(b\), sizes 2×3: worst at \[1, 0\]: "
        r"the answer gives 7, .* 3, \|Δ\| 4"
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
    assert isinstance(outcome_of(fails, call(X)).error, ZeroDivisionError)


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
        ({"cases": [(X,)], "within": torch.inf}, "bound has to be"),
    ],
)
def test_a_comparison_that_cannot_fail_is_an_error(options, words):
    with pytest.raises(ValueError, match=words):
        agrees(torch.detach, torch.detach, **options)


def test_the_same_object_in_two_places_stays_one():
    shared = [X]
    case = Case("", (shared, shared))
    assert outcome_of(lambda a, b: a is b, case).result
