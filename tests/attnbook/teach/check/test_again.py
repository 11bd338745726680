"""Answers that are right on all cases, and wrong in another call."""

import pytest
import torch

from attnbook.teach.check.again import relaid
from attnbook.teach.check.judge import judge
from attnbook.teach.check.running import Case, call
from attnbook.teach.check.task import task

ROWS = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)


@task(
    {
        "one": (ROWS[:1, :1], ROWS[:1, :1]),
        "four": (ROWS[:, :2] + 1, ROWS[:, :2]),
        "six": (ROWS, ROWS * 3),
        "six more": (ROWS + 1, ROWS),
    },
    against="a product",
)
def product(x, y):
    """x · y, place by place"""
    return x * y


def by_columns(x):
    """Whether a matrix lies in memory column after column."""
    return x.stride()[0] == 1 and x.stride()[1] > 1


def with_the_strides_of_x(x, y):
    y = y.as_strided(x.shape, x.stride(), y.storage_offset())
    return x * y


def in_memory(x, y):
    return (x.ravel() * y.as_strided((y.numel(),), (1,))).reshape(x.shape)


def by_view(x, y):
    return (x.view(-1) * y.view(-1)).view(x.shape)


@pytest.mark.parametrize(
    "answer, label", [(with_the_strides_of_x, "six more"), (in_memory, "four")]
)
def test_reading_a_tensor_by_its_place_in_memory_is_wrong(answer, label):
    verdict = judge(answer, product)
    assert verdict.kind == "wrong"
    message = " ".join(verdict.message.split())
    assert f'not right yet on "{label}, not contiguous in memory"' in message
    assert "It was right on the same numbers" in message
    assert "with the strides of another?" in message
    assert "not contiguous in memory: expected" in verdict.short


@pytest.mark.parametrize("answer", [by_view, product.right])
def test_an_answer_may_refuse_such_tensors_or_read_them(answer):
    assert judge(answer, product).kind == "right"


def test_where_the_reference_differs_too_nobody_is_wrong():
    @task({"six": (ROWS,)}, against="strides")
    def first_in_memory(x):
        """the strides of x"""
        return x.stride()

    assert judge(lambda x: x.stride(), first_in_memory).kind == "right"


def test_what_takes_forever_there_is_broken_off():
    def stops(x, y):
        if by_columns(x) or by_columns(y):
            raise KeyboardInterrupt
        return x * y

    verdict = judge(stops, product)
    assert verdict.kind == "error"
    assert isinstance(verdict.error, KeyboardInterrupt)


def test_the_numbers_stay_and_any_two_arguments_lie_differently_once():
    names = "abcdefg"
    case = call(*[ROWS + n for n in range(4)], **{n: ROWS for n in names[4:]})
    differ = set()
    for n in range(3):
        new = relaid(case, n)
        laid = [*new.args, *new.kwargs.values()]
        old = [*case.args, *case.kwargs.values()]
        assert all(torch.equal(a, b) for a, b in zip(laid, old))
        other = [by_columns(x) for x in laid]
        differ |= {
            (i, j) for i in range(7) for j in range(i) if other[i] != other[j]
        }
    assert len(differ) == 7 * 6 / 2


@pytest.mark.parametrize("x", [ROWS[0], ROWS[:1], torch.tensor(1.0), 3, "x"])
def test_a_case_that_would_lie_as_it_does_is_none(x):
    assert relaid(Case("one", (x,)), 0) is None
