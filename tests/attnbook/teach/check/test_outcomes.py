"""Outcomes arrive as they were, as plain numbers; all else is refused."""

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.difference import difference
from attnbook.teach.check.grade import asked
from attnbook.teach.check.outcomes import MOST_NUMBERS, packed, unpacked
from attnbook.teach.check.running import Outcome, outcome_difference
from attnbook.teach.check.settled import Foreign
from attnbook.teach.check.trial import Trial


def arrived(outcome):
    return unpacked(json.loads(json.dumps(packed(outcome))))


def result(value):
    return arrived(Outcome(value)).result


class Agrees(Tensor):
    """Calls itself equal to everything, and everything what it likes."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


CHAPTERS = sorted({task.chapter for task in all_tasks().values()})
EXERCISES = [task.name for n in CHAPTERS for task in asked(n)]


@pytest.mark.parametrize("name", EXERCISES)
def test_right_answers_arrive_as_they_are(name):
    trial = Trial.on(all_tasks()[name])
    got = [arrived(outcome) for outcome in trial.wanted]
    assert trial.attempt_of(lambda: None, got).failing == []
    exact = {"within": 0, "equal_nan": True}
    for a, b in zip(got, trial.wanted, strict=True):
        assert not outcome_difference(a, b, **exact)
        assert (a.spoilt, len(a.gradients)) == (b.spoilt, len(b.gradients))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -(10**20),
        0.1,
        -math.inf,
        math.nan,
        "",
        "ä",
        "\ud800",
        [1, (2.5, [None])],
        {"a": 1, 2: "b"},
        {1, 2},
        (),
    ],
)
def test_plain_values_arrive(value):
    found = result(value)
    assert type(found) is type(value) and repr(found) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.zeros(0, 3, dtype=torch.int8),
        torch.arange(6).view(2, 3).T,
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([True, False]),
        torch.ones(2, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(2)),
        np.arange(3.0),
        np.float32(2.5),
    ],
)
def test_numbers_arrive_as_plain_tensors(value):
    found = result(value)
    assert type(found) is Tensor and not found.requires_grad
    if isinstance(value, Tensor):
        value = value.resolve_conj()
    assert difference(found, value, within=0) is None


def test_a_subclass_does_not_answer_for_itself():
    found = result(torch.zeros(2).as_subclass(Agrees))
    assert type(found) is Tensor
    assert difference(found, torch.ones(2), within=0.5) is not None


def test_what_is_no_number_arrives_as_its_type():
    values = [object(), (n for n in ()), 10**5000, "x" * 10**5]
    values += [torch.ones(2).to_sparse(), torch.ones(2, device="meta")]
    values += [np.array(["text"]), np.array([None])]
    for value in values:
        found = result(value)
        if isinstance(found, Foreign):
            found = found.value
        assert type(found).__name__ == type(value).__name__
        assert difference(found, torch.ones(2), within=1) is not None
    deep = []
    for _ in range(100):
        deep = [deep]
    assert "a list" in repr(result(deep))


def test_of_a_large_tensor_only_the_shape_arrives():
    large = torch.ones(1).expand(MOST_NUMBERS + 1, 10**6)
    assert len(json.dumps(packed(Outcome(large)))) < 200
    assert result(large).value.shape == large.shape


@pytest.mark.parametrize(
    "error, kind",
    [
        (ValueError("why"), ValueError),
        (NotImplementedError(), NotImplementedError),
        (SystemExit(3), SystemExit),
        (MemoryError(), MemoryError),
    ],
)
def test_errors_arrive_by_their_type(error, kind):
    found = arrived(Outcome(error=error))
    assert type(found.error) is kind
    assert bool(found.error.args) == bool(error.args)
    assert found.broken_off == Outcome(error=error).broken_off


def test_an_error_of_its_own_is_nobody_elses():
    class ValueError(Exception):
        def __str__(self):
            return 1 / 0

    found = arrived(Outcome(error=ValueError())).error
    assert type(found).__name__ == "ValueError"
    assert not isinstance(found, __builtins__["ValueError"])
    odd = UnicodeDecodeError("ascii", b"x", 0, 1, "why")
    assert "why" in str(arrived(Outcome(error=odd)).error)


def tensor(dtype, shape, numbers):
    return {"result": ["tensor", dtype, shape, numbers]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"result": ["right", ""]},
        {"result": ["plain", 1]},
        {"result": ["int", "9" * 10**5]},
        {"result": ["float", "x"]},
        {"result": ["set", [["list", []]]]},
        {"result": ["dict", [[["list", []], ["plain", None]]]]},
        {"result": ["large", "float64", [-1]]},
        {"result": ["large", "float64", [2**62, 2**62]]},
        {"result": ["large", "object", [1]]},
        {"result": ["other", "a\0b"]},
        tensor("float64", [2], "AAAAAAAAAAA="),
        tensor("float64", [-1], "AAAAAAAAAAA="),
        tensor("float64", [True], "AAAAAAAAAAA="),
        tensor("float64", [1], "no base64"),
        tensor("bool", [1], "/w=="),
        {"gradients": [["plain", None]]},
        {"gradients": None},
        {"spoilt": [[["a"], "x", ""]]},
        {"spoilt": [[0, 1, ""]]},
        {"spoilt": [[0, "x"]]},
        {"error": ["rule", "FACTOR", "", 0, 0]},
        {"error": ["rule", "USES_AUTOGRAD", "", "0", 0]},
        {"error": ["builtins", "ValueError"]},
        {"error": ["builtins", 3, True, "x"]},
        {"error": ["builtins", "ValueError", True, 3]},
        {"error": "x"},
        {"again": "once more"},
        {"again": True},
    ],
    ids=str,
)
def test_what_is_no_outcome_is_refused(wrong):
    good = packed(Outcome(torch.ones(2)))
    assert unpacked(good).result.sum() == 2
    assert not unpacked(good).again
    assert arrived(Outcome(3, again="called again")).again == "called again"
    with pytest.raises(ValueError, match="this is no outcome"):
        unpacked({**good, **wrong})


@pytest.mark.parametrize("wrong", [None, [], {}, "x", 3])
def test_what_is_nothing_like_it_is_refused(wrong):
    with pytest.raises(ValueError, match="this is no outcome"):
        unpacked(wrong)


def test_lists_in_lists_are_not_followed_for_ever():
    deep = ["plain", None]
    for _ in range(500):
        deep = ["list", [deep]]
    good = packed(Outcome())
    with pytest.raises(ValueError, match="too many lists"):
        unpacked({**good, "result": deep})
