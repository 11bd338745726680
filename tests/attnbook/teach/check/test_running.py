"""An answer runs in one place, which keeps whatever it does."""

import pytest
import torch

from attnbook.teach.check.running import (
    Case,
    Outcome,
    as_cases,
    attempt,
    call,
    outcome_difference,
    outcome_of,
)
from attnbook.teach.check.settled import Foreign

X = torch.arange(3, dtype=torch.float64)


def test_cases_have_labels_and_arguments():
    one, two = as_cases({"one": (X, 1), "two": call(X, dim=0)})
    assert (one.label, one.args, one.kwargs) == ("one", (X, 1), {})
    assert (two.label, two.args, two.kwargs) == ("two", (X,), {"dim": 0})
    assert as_cases([(1,), Case("a", (2,))])[1].label == "a"


@pytest.mark.parametrize("kind", [KeyError, SystemExit, KeyboardInterrupt])
def test_whatever_is_raised_is_kept(kind):
    def raises(x):
        raise kind("x")

    outcome = outcome_of(raises, call(X))
    assert isinstance(outcome.error, kind)
    assert outcome.broken_off == (kind is not KeyError)


def test_a_result_is_plain_data():
    class Mine:
        pass

    outcome = outcome_of(lambda x: (x.requires_grad_(), Mine()), call(X))
    tensor, other = outcome.result
    assert type(tensor) is torch.Tensor and not tensor.requires_grad
    assert isinstance(other, Foreign)


def test_what_was_changed_in_place_is_named():
    model = torch.nn.Linear(2, 2)
    outcome = outcome_of(
        lambda x, m: (x.zero_(), m.eval())[0], call(X, m=model)
    )
    assert outcome.spoilt == {0: ("x", ""), "m": ("m", "mode")}
    assert X[1] == 1 and model.training


def test_gradients_are_taken_of_a_right_result_only():
    case = call(X)
    calls = []

    def wrong(x):
        calls.append(1)
        return x * 3

    right = outcome_of(lambda x: x * 2, case, gradients=True)
    bounds = {"gradients": True, "within": 1e-9}
    outcome, found = attempt(wrong, case, right, **bounds)
    assert found and len(calls) == 1 and outcome.gradients == ()
    outcome, found = attempt(lambda x: x + x, case, right, **bounds)
    assert found is None and len(outcome.gradients) == 1
    _, found = attempt(lambda x: x + x.detach(), case, right, **bounds)
    assert found.gradient_of == 0 and found.beside_the_result


def test_an_answer_that_changes_its_mind_is_not_right():
    case = call(X)
    calls = []

    def second_time(x):
        calls.append(1)
        return x * 2 + (len(calls) > 1)

    right = outcome_of(lambda x: x * 2, case, gradients=True)
    _, found = attempt(second_time, case, right, gradients=True, within=1e-9)
    assert found and not found.beside_the_result


def test_a_result_where_an_error_is_right_differs():
    failed = Outcome(error=KeyError())
    gave = Outcome(X)
    assert outcome_difference(gave, failed, within=0)
    assert outcome_difference(failed, gave, within=0)
    assert not outcome_difference(failed, failed, within=0)
