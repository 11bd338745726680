"""What a reader is told: right, not yet, known mistake, wrong, error."""

import contextlib
import io

import pytest
import torch

from attnbook.attention import softmax
from attnbook.teach.catalogue import all_mistakes
from attnbook.teach.check.proof import Disagreement
from attnbook.teach.check.task import task
from attnbook.teach.check.words import brief
from attnbook.teach.exercises import check

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


def test_a_check_prints_and_raises_the_readers_error(capsys):
    with pytest.raises(IndexError):
        check.weighted_average(lambda values, weights: [][0])
    assert "your code raised IndexError" in capsys.readouterr().out


def test_a_check_returns_nothing_and_names_the_mistake(capsys):
    mistake = all_mistakes()["keeps_its_own_value"]
    assert check.leave_one_out(mistake.wrong) is None
    out = capsys.readouterr().out
    assert "a known mistake, keeps_its_own_value" in out
    assert "hint:" in out


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(AttributeError, match="no check named 'len'"):
        check(len)
    with pytest.raises(AttributeError, match="did you mean weighted_average"):
        check.wieghted_average  # noqa: B018
    with pytest.raises(TypeError, match="softmax needs a function.*got int"):
        check.softmax(3)
    assert "weighted_average" in dir(check)


def test_the_sentence_names_what_was_given(capsys):
    def in_one_row(scores, dim=-1):
        return softmax(scores, dim)

    check(in_one_row, "softmax")
    assert capsys.readouterr().out.startswith("in_one_row agrees with torch")


def test_a_function_of_the_page_that_is_not_right_stops_it():
    with pytest.raises(Disagreement, match="softmax: not right yet"):
        check(lambda scores, dim=-1: scores, "softmax")
    with pytest.raises(Disagreement, match="not attempted"):
        check(stub, "softmax")
    with pytest.raises(Disagreement, match="IndexError") as caught:
        check(lambda scores, dim=-1: [][0], "softmax")
    assert isinstance(caught.value.__cause__, IndexError)
    wrong = all_mistakes()["divides_by_n_again"].wrong  # under its own name
    with pytest.raises(Disagreement, match="mistake, divides_by_n_again"):
        check(wrong)


def test_where_only_ascii_can_be_printed_the_words_are_ascii():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with contextlib.redirect_stdout(stream):
        check.equal(X, X)
        check.softmax(lambda scores, dim=-1: scores * 0)
    stream.flush()
    said = stream.buffer.getvalue()
    assert b"|D| 1 > 1e-09" in said and b"wanted: exp(s) / sum of exp" in said


def test_values_are_brief():
    x = torch.tensor([1 / 3, -0.0])
    assert brief((x, x[:1])) == "([0.3333, 0.0], [0.3333])"
    assert brief({"a": torch.zeros(5, 5)}) == "{'a': a tensor of shape (5, 5)}"
    assert brief(x[:1] * 1e-20) == "[3.333e-21]"
    assert brief([0.123456789, "left"]) == "[0.123456789, 'left']"
    assert brief(0.123456789) == "0.123457"
