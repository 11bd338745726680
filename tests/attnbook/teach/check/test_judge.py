"""The verdict: right, not attempted, known mistake, wrong, error."""

import copy
import random
from dataclasses import replace

import pytest
import torch

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.inputs import f64
from attnbook.teach.check.judge import judge
from attnbook.teach.check.task import task
from attnbook.teach.check.trial import ReferenceFailed

X = torch.arange(3, dtype=torch.float64)


@task({"one number": (X[:1],), "three": (X,)}, against="x", gradients=True)
def double(x):
    """twice x"""
    return x * 2


@task(
    {"a list": ([[1, 2], [3], []],), "a dictionary": ({"a": [X.clone()]},)},
    against="len",
)
def how_many(things):
    """the number of things"""
    return len(things)


def stub(*args):
    raise NotImplementedError


def test_right_and_not_attempted():
    right = judge(lambda x: x + x, double)
    not_yet = judge(stub, double)
    assert right.kind == "right"
    assert right.message == "double: right on all 2 cases, gradients too."
    assert not_yet.kind == "not attempted" and not_yet.error is None
    assert not_yet.message == "double: not attempted yet."


def test_wrong_shows_the_smallest_failing_input():
    verdict = judge(lambda x: x**2, replace(double, gradients=False))
    assert verdict.kind == "wrong"
    assert verdict.message.splitlines() == [
        'double: not right yet on "three": wrong in 1 of 3 places.',
        "  wanted: twice x",
        "  called with [0.0, 1.0, 2.0]",
        "  expected [0.0, 2.0, 4.0]",
        "  got [0.0, 1.0, 4.0]",
        "  worst at [1]: the answer gives 1, the reference 2, |Δ| 1 > 1e-09",
    ]


@pytest.mark.parametrize(
    "answer, words",
    [
        # As many digits as it takes to see the difference.
        (lambda x: x * 2 + 1e-7, "expected [0.0]\n  got [1e-07]"),
        (lambda x: (x * 2).detach(), "the gradient of tensor argument 0"),
        (lambda x: (x * 2, x.data.zero_())[0], "argument x was changed"),
        (lambda x: (torch.set_grad_enabled(False), x * 2)[1], "gradient"),
    ],
)
def test_what_is_not_quite_right_is_wrong(answer, words):
    verdict = judge(answer, double)
    assert verdict.kind == "wrong" and words in verdict.message
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_compared_in_whatever_mode(mode):
    with mode():
        assert judge(lambda x: (x * 2).detach(), double).kind == "wrong"
        assert judge(lambda x: x + x, double).kind == "right"


def inner(x):
    return x[9]


class Mine:
    def __call__(self, x):
        return inner(x)


@pytest.mark.parametrize("answer", [inner, Mine(), lambda x: inner(x)])
def test_an_error_is_reported_with_the_readers_innermost_line(answer):
    verdict = judge(answer, double)
    assert verdict.kind == "error" and isinstance(verdict.error, IndexError)
    line = inner.__code__.co_firstlineno + 1
    assert f"in line {line}: return x[9]" in verdict.message
    assert 'not right yet on "one number"' in verdict.message


def grown():
    """An answer with a buffer that only grows, and is not cut."""
    seen = []

    def answer(x):
        """Right as long as each call is at least as long as those before."""
        seen[:] = max(seen, x.tolist(), key=len)
        return torch.tensor(seen, dtype=x.dtype) * 2

    return answer


def once(stop):
    """An answer that is right when it is called with each input once."""
    calls = []

    def answer(things):
        calls.append(things)
        return stop() if len(calls) > 2 else len(things)

    return answer


def test_an_answer_that_keeps_something_from_call_to_call_is_wrong():
    plain = replace(double, gradients=False)
    verdict = judge(grown(), plain)
    assert verdict.kind == "wrong"
    assert verdict.message.splitlines() == [
        'double: not right yet on "one number, called again": of shape (3,), '
        "not (1,): 2",
        "  too many at the end.",
        "  It was right on all cases when it was called with each of them "
        "once. What",
        "    does it keep from one call to the next?",
        "  called with [0.0]",
        "  expected [0.0]",
        "  got [0.0, 2.0, 4.0]",
    ]
    assert verdict.short == "one number, called again: expected [0.0]; " + (
        "got [0.0, 2.0, 4.0]"
    )
    assert verdict.finding.case == "one number"
    assert judge(lambda x: x * 2, plain).kind == "right"


@pytest.mark.parametrize(
    "stop, kind", [(lambda: 9, "wrong"), (lambda: {}[1], "error")]
)
def test_the_second_call_is_with_the_largest_input_first(stop, kind):
    verdict = judge(once(stop), how_many)
    assert verdict.kind == kind
    assert 'on "a dictionary, called again"' in verdict.message
    assert "keep from one call to the next" in verdict.message


def test_a_second_call_that_changes_an_argument_is_seen():
    calls = []

    def answer(things):
        calls.append(things)
        n = len(things)
        if len(calls) > 2:
            things.clear()
        return n

    message = judge(answer, how_many).message
    assert "called again" in message and "argument things" in message


def test_a_known_mistake_that_breaks_off_keeps_its_error():
    """Else the reader's exception would vanish."""

    def breaks(x):
        """It breaks off.

        cause: There is no x.
        fix: Add one.
        """
        raise KeyError("x")

    mine = replace(double, known={})
    mine.mistake()(breaks)
    verdict = judge(breaks, mine)
    assert verdict.mistake == "breaks" and isinstance(verdict.error, KeyError)
    assert judge(inner, mine).mistake == ""


def test_an_answer_that_was_begun_is_not_taken_for_a_stub():
    for begun in (
        lambda x: x * 2 if len(x) == 1 else stub(),
        # torch has no softmax of integers, and raises NotImplementedError.
        lambda x: torch.softmax(x.long(), -1),
    ):
        assert judge(begun, double).kind == "error"


def empties_the_parts(things):
    for thing in getattr(things, "values", things.copy)():
        thing.clear()


def zeroes_a_tensor(things):
    if "a" in things:
        things["a"][0].zero_()


@pytest.mark.parametrize(
    "spoil",
    [lambda things: things.clear(), empties_the_parts, zeroes_a_tensor],
)
def test_what_an_answer_does_inside_its_arguments_is_seen(spoil):
    """And harms nobody: else the reference would solve the spoilt case."""

    def mine(things):
        n = len(things)
        spoil(things)
        return n

    verdict = judge(mine, how_many)
    message = " ".join(verdict.message.split())
    assert "the argument things was changed in place" in message
    assert judge(len, how_many).kind == "right"


def said(answer, wanted):
    return " ".join(judge(answer, wanted).message.split())


@task({"of one number": (torch.nn.Linear(1, 1), X[:1])}, against="x")
def use(model, x):
    """what the model makes of x"""
    return x.tolist()


@task({"of one number": (torch.nn.Linear(1, 1), X[:1])}, against="x")
def train(model, x):
    """x, and the model is trained"""
    model.bias.data += 1
    return x.tolist()


@pytest.mark.parametrize(
    "spoil, what",
    [
        (lambda model: model.weight.data.mul_(2), "its numbers"),
        (lambda model: model.eval(), "its mode"),
        (lambda model: model.register_forward_hook(print), "its hooks"),
        (lambda model: model.register_full_backward_hook(print), "its hooks"),
        (lambda model: model.requires_grad_(False), "its requires_grad"),
        (lambda model: model(X[:1].float()).backward(), "its gradients"),
    ],
)
def test_what_an_answer_does_to_a_model_is_seen(spoil, what):
    told = said(lambda m, x: (x.tolist(), spoil(m))[0], use)
    assert f"the argument m ({what}) was changed in place." in told
    assert (
        judge(lambda m, x: (x.tolist(), m(x.float()))[0], use).kind == "right"
    )


def test_a_layer_that_never_drops_again_is_seen():
    """A call in evaluation must not end dropout in training for good."""
    dropping = all_tasks()["drop"]

    def once_for_all(x, keep, layer):
        if not layer.training:
            layer.p = 0.0
        return dropping.right(x, keep, layer)

    told = said(once_for_all, dropping)
    assert "the argument layer (its dropout) was changed in place." in told


def test_a_model_that_is_to_be_trained_is_itself_trained():
    def copied(model, x):
        return train(copy.deepcopy(model), x)

    told = said(copied, train)
    assert "the model (its numbers) that was given has not changed." in told
    assert judge(train.right, train).kind == "right"


class Mute:
    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no comparison")


@pytest.mark.filterwarnings("ignore")  # quantised and nested: deprecated
@pytest.mark.parametrize(
    "answer",
    [
        lambda x: (x * 2).to_sparse(),
        lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8),
        lambda x: x.to("meta"),
        lambda x: x.sum().expand(500_000_000, 500_000_000),
        lambda x: [Mute()],
        lambda x: {Mute: x},
        lambda x: random,
        lambda x: lambda: x,
        lambda x: torch.nested.nested_tensor([x, x]),
    ],
)
def test_the_judge_survives_whatever_is_returned(answer):
    verdict = judge(answer, double)
    assert verdict.kind == "wrong"
    assert 'not right yet on "one number"' in verdict.message


def test_the_judge_survives_an_error_without_a_text():
    class MuteError(Exception):
        __str__ = Mute.__repr__

    def mine(x):
        raise MuteError

    assert "your code raised MuteError" in judge(mine, double).message


def test_a_forgotten_return_is_named_where_none_is_no_answer():
    words = "was a return forgotten?"
    for name, asked in (("softmax", True), ("find_first", False)):
        message = judge(lambda *given: None, all_tasks()[name]).message
        assert (words in message) == asked


# ---- a reference that fails


def test_a_references_own_error_stops_the_judge():
    """Else an answer that raises the same would be right."""

    @task({"one number": (X[:1],), "three": (X,)}, against="x")
    def broken(x):
        """nothing that can be had"""
        return [1, 2][len(x)]

    for answer in (broken.right, lambda x: x, stub):
        with pytest.raises(ReferenceFailed) as caught:
            judge(answer, broken)
        assert str(caught.value) == (
            'the reference of broken failed on "three"; expected a result to '
            "compare answers with; got IndexError: list index out of range"
        )
        assert isinstance(caught.value.__cause__, IndexError)


def test_a_reference_can_be_interrupted():
    @task({"one number": (X[:1],)}, against="x")
    def endless(x):
        """a number"""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(lambda x: x, endless)


@task(
    {
        "one": (f64(1.0),),
        "a small one": (f64(1e-4),),
        "several": (f64(1.0, 2.0, -1.0),),
    },
    gradients=True,
    against="x",
)
def unit(x):
    """the sign of x, smoothly"""
    return x / (x.square() + 1e-10).sqrt()


def test_wrong_values_are_told_before_a_wrong_gradient():
    """What stands beside the root moves the value of 1 less than the bound,
    and its gradient more."""

    def eps_outside(x):
        return x / (x.abs() + 4e-10)

    message = judge(eps_outside, unit).message
    assert 'not right yet on "a small one"' in message
    assert "gradient" not in message
    cut = judge(lambda x: unit.right(x) + x - x.detach(), unit).message
    assert 'on "one": the values are right, the gradient of tensor' in cut
