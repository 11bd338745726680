"""What is said of a wrong answer: in words, first, and short."""

import re
from dataclasses import replace

import pytest
import torch
from engine import mix, told, without_its_line

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.inputs import f64
from attnbook.teach.check.judge import judge
from attnbook.teach.check.seeded import randn
from attnbook.teach.check.task import task

TASKS = all_tasks()
X, S = randn(2, 4, 5, seed=1), randn(4, 4, seed=2)


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda a, b: (a * 2, b * -3), 'on "one": part 1 is of the wrong si'),
        (lambda a, b: (a.detach() * 2, b * 3), "the values are right, the gr"),
        (lambda a, b: (a * 2, b * 0), "for b = 0, whatever"),
        (lambda a, b: (b * 2, a * 3), "for a and b exchanged"),
        (lambda a, b: (a * 0 + 2, b * 3), "for a = 1, whatever a is"),
        (lambda a, b: (-a * 2, b * 3), "it gives the right result for −a."),
        (lambda a, b: (b * 3, a * 2), "the result are right, in another ord"),
        (lambda a, b: b * 3, "this is part 1 of the result alone."),
        (lambda a, b: (a.mul_(2), b * 3), "argument a was changed in place."),
        (
            lambda a, b: (x for x in (a, b)),
            "the answer is generator a generator",
        ),
        (lambda a, b: (a * 2, b.long() * 3), "the right numbers in another"),
    ],
)
def test_the_verdict_comes_first(answer, words):
    assert words in without_its_line(answer)


def test_where_nothing_is_returned_of_many_its_shape_is_told():
    counts = replace(mix, right=lambda a, b: [1, 2], gradients=False)
    assert "of shape (0,), not (2,)" in told(lambda a, b: [], counts)
    assert "holds floats" in told(lambda a, b: [1.0, 2.5], counts)


def test_of_a_large_result_the_row_is_shown_where_it_differs():
    wide = replace(mix, given={"wide": (S, randn(3, 40, seed=3))})
    spike = torch.zeros(3, 40).double().index_fill(1, torch.tensor([30]), 1.0)
    message = told(lambda a, b: (a * 2, b * 3 + spike), wide)
    assert "expected in part 1 at [0, '27:']" in message or "at [" in message
    assert "wrong in 3 of 120 places" in message
    expected, got = re.findall(
        r"(?:expected[^[]*\[.*?\]|got) (\[.*?\])", message
    )
    assert expected != got and expected.count(",") == got.count(",") == 7


def test_a_long_input_is_cut_short():
    message = judge(lambda state: {}, TASKS["from_gpt2"]).message
    assert len(message.splitlines()) < 17  # with a question of two lines
    assert "missing: 'attention.out.weight'," in message


def test_what_is_right_to_float32_is_told_where_the_float32_is_from():
    def scaled(scores, dim=-1):
        one = torch.arange(1, 2) / 1.0  # float32
        return torch.softmax(scores.float() * one, dim).double()

    message = told(scaled, TASKS["softmax"])
    assert "right to the digits of a float32" in message
    assert (
        "return torch.softmax(scores.float()" in message or "one =" in message
    )
    assert "float32" not in told(lambda s, dim=-1: s * 0, TASKS["softmax"])


def test_an_integer_that_equals_the_float_is_right():
    wanted = TASKS["weighted_average"]
    whole = {"a": (f64(2, 4), f64(0.5, 0.5))}
    only = replace(wanted, given=whole, known={})
    for answer in (3, torch.tensor(3).numpy()[()], 3.0):
        assert judge(lambda v, w, a=answer: a, only).kind == "right"
    assert judge(lambda v, w: True, only).kind == "wrong"


@pytest.mark.parametrize(
    "answer, advice",
    [
        (lambda a, b: (a.requires_grad_().add_(1), b), "writes into one of"),
        (lambda a, b: (a.sigmoid().exp_().mul_(a), b), ""),
        (lambda a, b: (a * 2, torch.tensor(b.tolist()) @ b), "two number fo"),
        (lambda a, b: (a if a > 0 and S > 0 else b, b), "want a single True"),
        (lambda a, b: (S.mT.view(2, 8), b), "transposed tensor cannot be vi"),
        (
            lambda a, b: (a + f64(1, 2, 3, 4, 5, 6)[:3] + S, b),
            "sizes do not f",
        ),
        (lambda a, b: (torch.cat([a[None], S]), b), "sizes do not fit"),
        (lambda a, b: ([n for n, d in [a.shape]], b), "has other axes"),
        (lambda a, b: (a * 2 + 0 * a.numpy().sum(), b * 3), "numpy has none"),
    ],
)
def test_torchs_dark_words_come_with_advice(answer, advice):
    message = without_its_line(answer)
    assert advice in message and (not advice or "that is: " in message)


class Layer(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()

    def forward(self, *inputs):
        return inputs[7]


@torch.no_grad()
def decorated(a, b):
    return a[7]


def test_the_readers_line_is_shown_of_a_class_and_of_a_decorated_function():
    found = told(Layer, TASKS["feed_forward"])
    assert "return inputs[7]" in found
    assert "return a[7]" in told(decorated)


@pytest.mark.filterwarnings("ignore:The use of .x.T.")
def test_T_of_a_batch_is_told_of():
    @task({"one": (X, X)}, against="x")
    def scores(q, k):
        """scores"""
        return q @ k.mT

    def turned(q, k):
        return q @ k.T

    def plain(q, k):
        return q @ k

    assert ".mT exchanges the last two" in told(turned, scores)
    assert ".mT" not in told(plain, scores)


def test_where_a_nan_is_made_it_is_asked_for():
    ask = "which line makes 0/0"
    assert ask in told(lambda a, b: (a * 2, b * torch.nan))
    assert ask not in told(lambda a, b: (a * 2, b * torch.inf))
