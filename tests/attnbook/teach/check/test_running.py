"""An answer runs in one place, which keeps whatever it does."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from attnbook.teach.check.inputs import Watched
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


class Tied(torch.nn.Module):
    """A model that has one weight at two places, and a list of models."""

    def __init__(self):
        super().__init__()
        self.here = torch.nn.Linear(2, 2, bias=False)
        self.there = torch.nn.Linear(2, 2, bias=False)
        self.there.weight = self.here.weight
        self.more = [torch.nn.Dropout(0.5), self.here]
        self.register_buffer("mask", torch.ones(2))


@dataclass(frozen=True)
class Pair:
    """A function, and the model that it belongs to."""

    fn: Callable
    model: torch.nn.Module


class ByItself(torch.nn.Module):
    """A model that says how it is copied."""

    def __deepcopy__(self, memo):
        new = type(self)()
        new.copied = True
        return new


class ByPickle(torch.nn.Module):
    """A model that becomes another where it is copied."""

    def __reduce_ex__(self, protocol):
        return ByItself().__reduce_ex__(protocol)


def test_a_model_is_copied_whole_and_what_it_shares_stays_shared():
    model = Tied()
    pair = Pair(model.forward, model)
    model.weight_of_another = model.here.weight

    def spoils(given, pair, rows):
        assert pair.model is given and rows["first"][0] is given.here
        assert pair.fn.__self__ is given
        assert given.there.weight is given.here.weight
        assert given.weight_of_another is given.here.weight
        assert given.more[1] is given.here
        assert isinstance(given.here._forward_hooks, OrderedDict)
        with torch.no_grad():
            given.here.weight.zero_()
            given.mask.zero_()
        given.here.register_forward_hook(print)
        given.more[0].p = 0.1
        given.more.clear()
        rows["first"].clear()

    rows = OrderedDict(first=[model.here])
    outcome = outcome_of(spoils, call(model, pair, rows))
    assert outcome.error is None
    assert outcome.spoilt[0] == ("given", "numbers")
    assert model.here.weight.all() and model.mask.all() and model.more
    assert model.more[0].p == 0.5 and not model.here._forward_hooks
    assert rows["first"] == [model.here]


def test_a_model_that_says_how_it_is_copied_is_copied_so():
    found = outcome_of(
        lambda *given: (
            [vars(x).get("copied") for x in given]
            + [type(x).__name__ for x in given]
        ),
        call(ByItself(), ByPickle()),
    )
    assert found.result == [True, None, "ByItself", "ByItself"]


@pytest.mark.parametrize(
    "change, changed",
    [
        (lambda x: x, False),
        (lambda x: x.fill_(torch.nan), True),
        (lambda x: x.add_(1), True),
        (lambda x: x.resize_(0), True),
        (lambda x: setattr(x, "data", x.float()), False),
        (lambda x: setattr(x, "data", x.float() + 1), True),
        (lambda x: setattr(x, "data", x.long()), True),
        (lambda x: x.requires_grad_(), False),
    ],
)
@pytest.mark.parametrize("kind", [torch.Tensor, Watched])
def test_a_tensor_is_changed_if_its_numbers_are(kind, change, changed):
    given = torch.tensor([1.0, 2.0]).double().as_subclass(kind)
    outcome = outcome_of(lambda x: (change(x), 1)[1], call(given))
    assert outcome.error is None
    assert (0 in outcome.spoilt) == changed
    with_nan = torch.tensor([1.0, torch.nan]).double().as_subclass(kind)
    assert not outcome_of(lambda x: 1, call(with_nan)).spoilt


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
