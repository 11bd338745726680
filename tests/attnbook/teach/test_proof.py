"""The proofs prove: `agrees` says what it compared, and fails when it must."""

import numpy as np
import pytest
import torch

from attnbook.teach.proof import (
    Case,
    Disagreement,
    agrees,
    call,
    difference,
    run,
)

X = torch.arange(6, dtype=torch.float64).reshape(2, 3)


def test_the_line_names_reference_bound_and_sizes(capsys):
    agrees(
        torch.exp,
        lambda x: x.exp(),
        name="torch.exp",
        within=1e-9,
        cases=[(X,), (X[0],)],
    )
    assert (
        capsys.readouterr().out
        == "equal to torch.exp on 2×3 and 3: |Δ| ≤ 1e-09\n"
    )


@pytest.mark.parametrize(
    "value, words",
    [
        (X, "2×3 numbers, |Δ| ≤ 1e-12"),
        (X[0, 1], "one number, |Δ| ≤ 1e-12"),
        (X > 1, "2×3 booleans"),
        (X.long(), "2×3 numbers"),
        ((X, X[0]), "2×3, 3 numbers, |Δ| ≤ 1e-12"),
        ("left", "one value"),
    ],
)
def test_the_sentence_says_what_was_compared(value, words, capsys):
    agrees(value, value, name="it")
    assert capsys.readouterr().out == f"equal to it: {words}\n"


def test_the_labels_of_the_cases_stand_in_the_sentence(capsys):
    cases = {n: (X,) for n in "abcdef"} | {"g": call(X)}
    agrees(torch.sin, torch.sin, cases=cases, gradients=True)
    assert capsys.readouterr().out == (
        "equal on a, b, c and 4 more: |Δ| ≤ 1e-12; gradients too\n"
    )


@pytest.mark.parametrize(
    "ours, theirs, kind",
    [
        (X + 1e-9, X, "value"),
        (X.T, X, "shape"),
        (X[:1], X, "shape"),  # would broadcast
        (X.int(), X, "type"),
        (X > 1, (X > 1).int(), "type"),
        (X * torch.nan, X, "nan"),
        (X * torch.nan, X * torch.nan, "nan"),
        (X + torch.inf, X - torch.inf, "value"),
        ((X, X), (X, X + 1), "value"),
        ((X,), (X, X), "type"),
        (None, X, "type"),
        ({"a": X}, {"b": X}, "type"),
        ([1, 2], [1, 3], "value"),
        ("left", "right", "type"),
    ],
)
def test_differences_are_found(ours, theirs, kind):
    assert difference(ours, theirs, within=1e-12).kind == kind
    with pytest.raises(Disagreement):
        agrees(ours, theirs, name="the other")


@pytest.mark.parametrize(
    "ours, theirs, message",
    [
        (X > 1, X > 2, r"first at \[0, 2\]: ours True, the reference False"),
        (None, X, r"ours is None \(was a return forgotten\?\)"),
    ],
)
def test_the_message_suits_the_values(ours, theirs, message):
    with pytest.raises(Disagreement, match=message):
        agrees(ours, theirs, name="the other")


def test_a_single_nan_among_good_numbers_is_found():
    spoilt = X.clone()
    spoilt[1, 0] = torch.nan
    with pytest.raises(Disagreement, match=r"worst at \[1, 0\]: ours nan"):
        agrees(spoilt, X, name="x")


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (X, X.float()),
        (X + torch.inf, X + torch.inf),
        (X[:0], X[:0]),
        ({"a": X}, {"a": X}),
        (np.float64(0.1), 0.1),
        (torch.tensor([0.1, 0.2], dtype=torch.float64), [0.1, 0.2]),
        ("left", "left"),
    ],
)
def test_equal_things_are_equal(ours, theirs):
    assert difference(ours, theirs, within=1e-12) is None


def test_nan_equals_nan_only_on_request():
    nan = X * torch.nan
    assert difference(nan, nan, within=0, equal_nan=True) is None


def test_the_message_names_case_and_place():
    wrong = X.clone()
    wrong[1, 2] = 7
    with pytest.raises(
        Disagreement,
        match=r"case 1 \(the second\), sizes 2×3: worst at \[1, 2\]: "
        r"ours 7, the reference 5, \|Δ\| 2 > 1e-12",
    ):
        agrees(
            lambda x: x if x.ndim == 1 else wrong,
            lambda x: x,
            name="identity",
            cases=[Case("the first", (X[0],)), Case("the second", (X,))],
        )


def test_a_wrong_gradient_is_found():
    def ours(x):
        return x.detach() ** 2 + 0 * x

    with pytest.raises(Disagreement, match="gradient of tensor argument 0"):
        agrees(
            ours, lambda x: x**2, name="square", cases=[(X,)], gradients=True
        )
    agrees(ours, lambda x: x**2, name="square", cases=[(X,)])


def test_gradient_errors_cannot_cancel():
    """Σ softmax has no gradient; the weights must make the error visible."""
    with pytest.raises(Disagreement):
        agrees(
            lambda x: torch.softmax(x, -1).detach() + 0 * x,
            lambda x: torch.softmax(x, -1),
            name="softmax",
            cases=[(X,)],
            gradients=True,
        )


def test_a_changed_argument_is_found_and_harms_nobody():
    def ours(x):
        return x.mul_(2)

    with pytest.raises(Disagreement, match="argument x was changed in place"):
        agrees(ours, lambda x: x * 2, name="twice", cases=[(X,)])
    assert X[0, 1] == 1


def test_errors_of_either_side_are_raised():
    with pytest.raises(ZeroDivisionError):
        agrees(lambda x: 1 / 0, torch.exp, name="exp", cases=[(X,)])
    with pytest.raises(ZeroDivisionError):
        agrees(torch.exp, lambda x: 1 / 0, name="exp", cases=[(X,)])


@pytest.mark.parametrize("nothing", [None, [], X[:0], (None, [])])
def test_a_reference_without_numbers_is_an_error(nothing):
    with pytest.raises(ValueError, match="nothing to compare; expected a ref"):
        agrees(nothing, nothing, name="nothing")
    with pytest.raises(ValueError, match="nothing to compare; expected a ref"):
        agrees(lambda x: nothing, lambda x: nothing, name="it", cases=[(X,)])


def test_gradients_of_constants_are_an_error():
    with pytest.raises(ValueError, match="no gradient to compare; expected"):
        agrees(
            lambda x: x.detach(),
            lambda x: x.detach(),
            name="a constant",
            cases=[(X,)],
            gradients=True,
        )


def test_a_bound_that_bounds_nothing_is_an_error():
    with pytest.raises(ValueError, match="no bound; expected .*; got inf"):
        agrees(X, X + 1, name="x", within=torch.inf)


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (torch.tensor([2]), torch.tensor([3])),
        (torch.tensor([2**53 + 1]), torch.tensor([2**53])),
        (torch.tensor([True]), torch.tensor([False])),
    ],
)
def test_no_bound_is_wide_enough_for_integers(ours, theirs):
    assert difference(ours, theirs, within=1).kind == "value"


def test_complex_numbers_are_compared_whole():
    assert difference(1 + 2j, 1 + 2j, within=0) is None
    assert difference(1 + 2j, 1 + 9j, within=1e-9).kind == "value"
    assert difference(1 + 0j, 1.0, within=1e-9).kind == "type"


@pytest.mark.parametrize(
    "pack",
    [
        lambda a, b: (a, (b,)),
        lambda a, b: {"a": a, "b": b},
    ],
)
def test_gradients_of_every_part_and_argument_are_compared(pack):
    def right(x, y):
        return pack(x * 2, y * 3)

    cases = [Case("", (X, X))]
    agrees(right, right, name="it", cases=cases, gradients=True)
    for wrong in (
        lambda x, y: pack((x * 2).detach(), y * 3),
        lambda x, y: pack(x * 2, (y * 3).detach()),
    ):
        with pytest.raises(Disagreement, match="gradient"):
            agrees(wrong, right, name="it", cases=cases, gradients=True)


def test_a_changed_keyword_argument_is_found():
    case = Case("", (X,), {"y": X})
    with pytest.raises(Disagreement, match="argument y was changed"):
        agrees(
            lambda x, *, y: x + y.mul_(2),
            lambda x, *, y: x + y * 2,
            name="it",
            cases=[case],
        )


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ValueError, match="expected at least one case"):
        agrees(torch.exp, torch.exp, name="exp", cases=[])


def test_outcomes_keep_errors_and_gradients():
    assert isinstance(run(lambda: [][0], Case("")).error, IndexError)
    case = Case("", (X,), {"y": X})
    outcome = run(lambda x, *, y: x * y, case, gradients=True)
    assert len(outcome.gradients) == 2


def test_a_wrong_entry_is_named():
    found = difference({"q": 1.0, "k": 2.0}, {"q": 1.0, "k": 3.0}, within=0)
    assert found.message.startswith("entry 'k': worst at []: ours 2, ")
    found = difference((1.0, {"k": 2.0}), (1.0, {"k": 3.0}), within=0)
    assert found.message.startswith("part 1: entry 'k': ")
