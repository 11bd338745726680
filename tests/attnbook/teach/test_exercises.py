"""What a reader is told: right, not yet, known mistake, wrong, error."""

from dataclasses import replace

import pytest
import torch
from attnbook.teach.exercises import check
from attnbook.teach.mistakes import all_mistakes
from attnbook.teach.proof import Case
from attnbook.teach.tasks import Task, brief, judge


def _cases():
    x = torch.arange(3, dtype=torch.float64)
    return [Case("one number", (x[:1],)), Case("three", (x,))]


DOUBLE = Task(
    name="double",
    chapter=1,
    wanted="twice x",
    right=lambda x: x * 2,
    cases=_cases,
    gradients=True,
)


def test_right():
    verdict = judge(lambda x: x + x, DOUBLE)
    assert verdict.kind == "right"
    assert verdict.message == ("double: right on all 2 cases, gradients too.")


def test_not_attempted():
    def stub(x):
        raise NotImplementedError

    verdict = judge(stub, DOUBLE)
    assert verdict.kind == "not attempted"
    assert verdict.message == "double: not attempted yet."
    assert verdict.error is None


def test_wrong_shows_the_smallest_failing_input():
    verdict = judge(lambda x: x**2, replace(DOUBLE, gradients=False))
    assert verdict.kind == "wrong"
    assert verdict.message.splitlines() == [
        "double: not right yet.",
        "  wanted: twice x",
        "  the case: three",
        "  called with [0.0, 1.0, 2.0]",
        "  expected [0.0, 2.0, 4.0]",
        "  got [0.0, 1.0, 4.0]",
        "  worst at [1]: ours 1, the reference 2, |Δ| 1 > 1e-09",
    ]


def test_a_small_difference_is_printed_with_enough_digits():
    verdict = judge(lambda x: x * 2 + 1e-7, DOUBLE)
    assert "expected [0.0]\n  got [1e-07]" in verdict.message


def test_a_wrong_gradient_alone_is_wrong():
    verdict = judge(lambda x: (x * 2).detach(), DOUBLE)
    assert "expected [0.0]\n  got [0.0]" in verdict.message
    assert verdict.kind == "wrong" and "gradient" in verdict.message


def test_a_changed_argument_alone_is_wrong():
    def spoils(x):
        twice = x * 2
        x.data.zero_()
        return twice

    verdict = judge(spoils, DOUBLE)
    assert verdict.kind == "wrong"
    assert "the argument x was changed in place" in verdict.message


def test_an_error_is_reported_with_the_readers_line():
    def mine(x):
        y = x * 2
        return y[7]

    verdict = judge(mine, DOUBLE)
    line = mine.__code__.co_firstlineno + 2
    assert verdict.kind == "error"
    assert isinstance(verdict.error, IndexError)
    assert f"in line {line}: return y[7]" in verdict.message
    assert "the case: one number" in verdict.message


def test_the_innermost_line_of_the_reader_is_named():
    def inner(x):
        return x[9]

    def outer(x):
        return inner(x)

    line = inner.__code__.co_firstlineno + 1
    assert f"in line {line}: return x[9]" in judge(outer, DOUBLE).message


def test_the_line_of_a_callable_object_is_named():
    class Mine:
        def __call__(self, x):
            return x[8]

    line = Mine.__call__.__code__.co_firstlineno + 1
    assert f"in line {line}: return x[8]" in judge(Mine(), DOUBLE).message


def test_a_known_mistake_that_breaks_off_keeps_its_error():
    """Else the reader's exception would vanish."""
    wrong = all_mistakes()["divides_by_n_again"]

    def breaks(x):
        raise KeyError("x")

    def breaks_otherwise(x):
        raise IndexError("x")

    known = {"breaks": replace(wrong, wrong=breaks)}
    verdict = judge(breaks, DOUBLE, known)
    assert verdict.mistake == "breaks" and isinstance(verdict.error, KeyError)
    assert judge(breaks_otherwise, DOUBLE, known).mistake == ""


def test_not_implemented_after_a_start_is_an_error():
    def mine(x):
        if len(x) > 1:
            raise NotImplementedError("longer ones")
        return x * 2

    assert judge(mine, DOUBLE).kind == "error"


def test_an_error_of_torch_is_not_taken_for_a_stub():
    """torch has no softmax of integers, and raises NotImplementedError."""
    verdict = judge(lambda x: torch.softmax(x.long(), -1), DOUBLE)
    assert verdict.kind == "error"


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="double needs a function.*got int"):
        judge(3, DOUBLE)


def test_check_prints_and_raises_the_readers_error(capsys):
    def mine(values, weights):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        check.weighted_average(mine)
    assert "your code raised KeyError" in capsys.readouterr().out


def test_check_returns_nothing_and_names_the_mistake(capsys):
    mistake = all_mistakes()["divides_by_n_again"]
    assert check.weighted_average(mistake.wrong) is None
    out = capsys.readouterr().out
    assert "a known mistake, divides_by_n_again" in out
    assert "hint:" in out


def test_a_misspelt_check_suggests_the_right_one():
    with pytest.raises(AttributeError, match="did you mean weighted_average"):
        check.wieghted_average


def test_the_checks_can_be_listed():
    assert "weighted_average" in dir(check)


@pytest.mark.parametrize(
    "value, text",
    [
        (torch.tensor([1 / 3, -0.0]), "[0.3333, 0.0]"),
        (torch.zeros(5, 5), "a tensor of shape (5, 5)"),
        ((torch.tensor(1), torch.tensor(2)), "(1, 2)"),
        ({"a": torch.tensor([0.5])}, "{'a': [0.5]}"),
        (0.123456789, "0.123457"),
        ("left", "'left'"),
    ],
)
def test_brief(value, text):
    assert brief(value) == text
