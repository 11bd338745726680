"""How a wrong tensor differs from the right one, found out and told."""

import pytest
import torch

from attnbook.teach.check.finding import Kind
from attnbook.teach.check.inputs import f64, marks
from attnbook.teach.check.likeness import likeness
from attnbook.teach.check.seeded import randn
from attnbook.teach.check.telling import likeness as told

X, S = randn(2, 4, 5, seed=1), randn(4, 4, seed=2)
P = S.softmax(-1)
SECOND = torch.tensor(1)
NUMBER = f64(3.0).sum()
THREE = torch.tensor(3)


@pytest.mark.parametrize(
    "answer, expected, words",
    [
        (X * 2**0.5, X, "too large by a factor of √2"),
        (X * 2 / 3, X, "too small by a factor of 3/2"),
        (X * 6.2831853071795, X, "too large by a factor of 2π"),
        (X * 1.2345, X, "too large by a factor of 1.234"),
        (X * 1.00002, X, "places"),
        (-X, X, "of the wrong sign"),
        (-3 * X, X, "of the wrong sign and too large by a factor of 3"),
        (X + 0.5, X, "too large by 0.5 everywhere"),
        (X * f64([1], [2], [3], [4]), X, "in each row, from 1 to 4"),
        (X * (1 + 1e-5 * f64([1], [2], [3], [4])), X, "places"),
        (S.mT, S, "the transpose"),
        (X.mT, X, "the transpose, of shape (2, 5, 4), not (2, 4, 5)"),
        (X.flatten(), X, "the right numbers, but of shape (40,)"),
        (X[..., :1], X, "of shape (2, 4, 1), not (2, 4, 5)"),
        (S[0, :1], S[0], "of shape (1,), not (4,): 3 missing at the end"),
        (S[0, 1:], S[0], "1 missing at the beginning"),
        (S[0, [0, 1, 2, 3, 3]], S[0], "1 too many at the end"),
        (S[0, [0, 2, 1, 2, 3]], S[0], "1 too many, the others right"),
        (S[0, [1, 0]], S[0], "of shape (2,), not (4,)"),
        (X[0, [0, 2, 3]], X[0], "1 missing, the others right"),
        (torch.tensor([1, 5, 3]), torch.tensor([0, 2, 3]), "in 2 of 3 places"),
        (S[0].flip(0), S[0], "backwards"),
        (X.flip(-1), X, "backwards along axis -1"),
        (X[..., :2].flip(-1), X[..., :2], "the order along axis -1"),
        (f64([0, 1]), f64([1, 0]), "not 0 where 0 is right"),
        (f64([0, 0, 1, 0]), f64([1, 0, 0, 0]), "not everywhere 0 where 0"),
        (X.roll(1, -2), X, "one place too far on along axis -2"),
        (X.roll(-1, -2), X, "one place too far back along axis -2"),
        (X[:, [1, 0, 3, 2]], X, "right but for the order along axis -2"),
        (X.reshape(2, 5, 4).mT, X, "the right numbers in other places"),
        (X * torch.nan, X, "all NaN"),
        (X.where(X < 1, torch.nan), X, "NaN in 4 of 40 places"),
        (X.where(X < 1, torch.inf), X, "infinite in 4 of 40 places"),
        (X.where(X < 1, 0), X, "wrong in 4 of 40 places"),
        (X + 1e-9, X, "off by 1e-09"),
        (marks("10"), marks("01"), "True and False exchanged"),
        (marks("1"), marks("0"), "True where False is right"),
        (marks("11"), marks("10"), "True in 1 of 2 places too many"),
        (marks("00"), marks("10"), "True in 1 of 2 places too few"),
        (THREE + 1, THREE, "one too many"),
        (THREE - 1, THREE, "one too few"),
        (-NUMBER, NUMBER, "of the wrong sign"),
        (NUMBER / 3**0.5, NUMBER, "too small by a factor of √3"),
        (NUMBER + 0.1234, NUMBER, "too large by 0.1234"),
        (X.exp(), X, "the exponential of the right numbers"),
        (X.softmax(-1), X, "the softmax of the right numbers"),
        (X.log_softmax(-1), X, "the log-softmax of the right numbers"),
        (1 / NUMBER.exp(), NUMBER.exp(), "reciprocal of the right numbers"),
        (X + f64([1], [2], [3], [4]), X, "by a number in each row, 1 to 4"),
        (X + f64(1, 2, 3, 4, 5), X, "by a number in each column, 1 to 5"),
        (S + f64([-1e-15], [0], [1], [2]), S, "in each row, 0 to 2"),
        (S.softmax(0), P, "off: its columns sum to one, its rows do not"),
        (P * P, P, "the square of the right numbers"),
        (P.tril(), P.triu(), "not 0 where 0 is right"),
        (P.tril(1), P.tril(), "not everywhere 0 where 0 is right"),
        (P.sqrt() * P, P, "sum to 0.569361 up to 0.679262, not to one"),
        (X.index_fill(1, SECOND, 7), X, "in 10 of 40 places, all in row 1"),
        (X[..., [0, 2, 1, 3, 4]], X, "along axis -1, in columns 1 to 2"),
        (X[:, -1], X, "the last along axis -2 alone, of shape (2, 5), not (2"),
        (
            X.mean(-1),
            X,
            "the mean along axis -1 alone, of shape (2, 4), not (",
        ),
        (X.exp() * X, X, ""),
    ],
)
def test_a_difference_has_words(answer, expected, words):
    found = likeness(answer, expected)
    assert bool(words) == bool(found)
    assert found is None or words in told(found)


@pytest.mark.parametrize(
    "answer, expected, words",
    [
        (f64([0], [0]), f64([0.3], [-1.2]), "softmax"),
        (f64([2, 3], [0, 1]), f64([1, 0], [0, 1]), "sum"),
    ],
)
def test_what_holds_of_one_number_or_of_counts_is_not_said(
    answer, expected, words
):
    found = likeness(answer, expected)
    assert found is None or words not in told(found)


def test_what_is_found_is_numbers_and_kinds():
    found = likeness(X * 2**0.5, X)
    assert found.kind == Kind.FACTOR and abs(found.ratio - 2**0.5) < 1e-9
    found = likeness(X.index_fill(1, SECOND, 7), X)
    assert found.kind == Kind.SOME_PLACES
    assert (found.count, found.total) == (10, 40)
    assert found.only == ("row", 1, 1)
    found = likeness(S[0, 1:], S[0])
    assert (found.kind, found.count) == (Kind.LENGTH, 1)
    assert (found.name, found.where) == ("missing", "beginning")


@pytest.mark.parametrize(
    "answer, expected",
    [
        (f64(torch.inf, -torch.inf), f64(-torch.inf, torch.inf)),
        (f64(1, 2), f64()),
        (f64(), f64(1, 2)),
        (torch.tensor([1j]), f64(1)),
        (torch.tensor([1j]), torch.tensor([2j])),
        (torch.ones(2, 0), torch.ones(0, 2)),
    ],
)
def test_what_is_empty_infinite_or_complex_is_looked_at_too(answer, expected):
    found = likeness(answer, expected)
    assert found is None or told(found)
