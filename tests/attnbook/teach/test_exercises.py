"""What a reader is told: right, not yet, known mistake, wrong, error."""

import contextlib
import io
import random
from dataclasses import replace

import pytest
import torch

from attnbook.attention import softmax
from attnbook.teach.catalogue import all_mistakes, all_tasks
from attnbook.teach.exercises import check
from attnbook.teach.proof import Disagreement
from attnbook.teach.tasks import brief, judge, task

X = torch.arange(3, dtype=torch.float64)


@task({"one number": (X[:1],), "three": (X,)}, against="x", gradients=True)
def double(x):
    """twice x"""
    return x * 2


DOUBLE = double


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

    class Mine:
        def __call__(self, x):
            return x[8]

    code = inner.__code__, Mine.__call__.__code__
    for fn, number, index in zip((lambda x: inner(x), Mine()), code, (9, 8)):
        line = number.co_firstlineno + 1
        wanted = f"in line {line}: return x[{index}]"
        assert wanted in judge(fn, DOUBLE).message


def test_a_known_mistake_that_breaks_off_keeps_its_error():
    """Else the reader's exception would vanish."""

    def breaks(x):
        """It breaks off.

        cause: There is no x.
        fix: Add one.
        """
        raise KeyError("x")

    def breaks_otherwise(x):
        raise IndexError("x")

    mine = replace(DOUBLE, known={})
    mine.mistake()(breaks)
    verdict = judge(breaks, mine)
    assert verdict.mistake == "breaks" and isinstance(verdict.error, KeyError)
    assert judge(breaks_otherwise, mine).mistake == ""


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
    mistake = all_mistakes()["keeps_its_own_value"]
    assert check.leave_one_out(mistake.wrong) is None
    out = capsys.readouterr().out
    assert "a known mistake, keeps_its_own_value" in out
    assert "hint:" in out


def test_a_misspelt_check_suggests_the_right_one():
    with pytest.raises(AttributeError, match="no check named 'len'"):
        check(len)
    with pytest.raises(AttributeError, match="did you mean weighted_average"):
        check.wieghted_average  # noqa: B018
    assert "weighted_average" in dir(check)


def test_one_sentence_says_what_was_tried(capsys):
    check(softmax)
    out = capsys.readouterr().out
    labels = [c.label for c in all_tasks()["softmax"].cases()]
    wanted = (
        f"softmax agrees with torch.softmax on {', '.join(labels[:3])} "
        f"and {len(labels) - 3} more; gradients too"
    )
    assert " ".join(out.split()) == wanted
    assert max(map(len, out.splitlines())) <= 79


def test_a_wrong_function_of_the_page_stops_it():
    def softmax(scores, dim=-1):
        return scores

    with pytest.raises(Disagreement, match="softmax: not right yet"):
        check(softmax)
    with pytest.raises(Disagreement, match="not right yet"):
        check(lambda scores, dim=-1: scores, "softmax")


def test_a_known_mistake_stops_the_page_under_its_own_name():
    wrong = all_mistakes()["divides_by_n_again"].wrong
    with pytest.raises(Disagreement, match="mistake, divides_by_n_again"):
        check(wrong)


def test_an_error_or_a_stub_stops_the_page():
    def softmax(scores, dim=-1):
        raise KeyError("here")

    with pytest.raises(Disagreement, match="KeyError") as caught:
        check(softmax)
    assert isinstance(caught.value.__cause__, KeyError)

    def stub(*args):
        raise NotImplementedError

    with pytest.raises(Disagreement, match="not attempted"):
        check(stub, "softmax")


def test_check_equal_compares_two_things_on_the_page(capsys):
    check.equal(X, X.clone(), name="its copy")
    assert "equal to its copy: 3 numbers" in capsys.readouterr().out
    with pytest.raises(Disagreement, match="the two differ"):
        check.equal(X, X + 1)


@task(
    {
        "three lists": ([[1, 2], [3], []],),
        "a dictionary": ({"a": [X.clone()]},),
    },
    against="len",
)
def how_many(things):
    """the number of things"""
    return len(things)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda things: things.clear(),
        lambda things: [
            t.clear() for t in getattr(things, "values", things.copy)()
        ],
    ],
)
def test_what_an_answer_does_to_lists_is_seen_and_harms_nobody(spoil):
    """Else the reference would solve the spoilt case."""

    def mine(things):
        n = len(things)
        spoil(things)
        return n

    verdict = judge(mine, how_many)
    assert "the argument things was changed in place" in verdict.message
    assert (
        judge(lambda things: (spoil(things), 0)[1], how_many).kind == "wrong"
    )
    assert judge(len, how_many).kind == "right"


@pytest.mark.parametrize("name", ["pad_left", "goes_on", "what_differs"])
def test_no_answer_gets_away_with_emptying_its_arguments(name):
    found = all_tasks()[name]

    def mine(*args, **kwargs):
        for a in args:
            a.clear() if hasattr(a, "clear") else None
        with contextlib.suppress(Exception):
            return found.right(*args, **kwargs)

    assert judge(mine, found).kind != "right"


def test_a_tensor_in_a_list_is_copied_too():
    def mine(things):
        for t in things:
            if things is not t and "a" in things:
                things[t][0].zero_()
        return len(things)

    assert "changed in place" in judge(mine, how_many).message


@pytest.mark.parametrize(
    "mode",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.set_grad_enabled(False),
    ],
)
def test_gradients_are_compared_in_whatever_mode(mode):
    def detached(x):
        return (x * 2).detach()

    with mode():
        assert judge(detached, DOUBLE).kind == "wrong"
        assert judge(lambda x: x + x, DOUBLE).kind == "right"


def test_an_answer_that_switches_gradients_off_is_no_right_one():
    def mine(x):
        torch.set_grad_enabled(False)
        return x * 2

    assert judge(mine, DOUBLE).kind == "wrong"
    assert torch.is_grad_enabled()


class _Mute:
    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no comparison")


class _MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.filterwarnings("ignore")  # quantised and nested: deprecated
@pytest.mark.parametrize(
    "answer",
    [
        lambda x: (x * 2).to_sparse(),
        lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8),
        lambda x: x.to("meta"),
        lambda x: x.sum().expand(500_000_000, 500_000_000),
        lambda x: _Mute(),
        lambda x: [_Mute()],
        lambda x: {_Mute: x},
        lambda x: random,
        lambda x: lambda: x,
        lambda x: torch.nested.nested_tensor([x, x]),
    ],
)
def test_the_judge_survives_whatever_is_returned(answer):
    verdict = judge(answer, DOUBLE)
    assert verdict.kind == "wrong"
    assert "the case: one number" in verdict.message


def test_the_judge_survives_an_error_without_a_text():
    def mine(x):
        raise _MuteError

    assert "your code raised _MuteError" in judge(mine, DOUBLE).message


def test_where_only_ascii_can_be_printed_the_words_are_ascii():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with contextlib.redirect_stdout(stream):
        check.equal(X, X)
        check.softmax(lambda scores, dim=-1: scores * 0)
    stream.flush()
    assert b"|D| <= 1e-12" in stream.buffer.getvalue()


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
