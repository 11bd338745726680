"""Mistakes of public reports: refused, and told so that one can go on."""

import pytest
import torch
from reported import ANSWERS, sort_of, verdict_on

from attnbook.families import config_of
from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.difference import difference
from attnbook.teach.check.judge import judge
from attnbook.teach.check.telling.messages import numbers

TASKS = all_tasks()


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda a: a.name)
def test_a_reported_mistake_is_refused_with_a_name_or_a_question(answer):
    verdict = verdict_on(answer)
    assert sort_of(verdict) in ("named", "asked"), verdict.message
    assert "?" in verdict.message or sort_of(verdict) == "named"


def test_every_task_has_a_last_question_where_its_cases_have_none():
    for name, task in TASKS.items():
        assert bool(task.questions) != bool(task.otherwise), name
        assert not task.otherwise or task.otherwise.endswith("?"), name


def test_a_first_step_that_hides_the_mistake_is_not_the_one_shown():
    (answer,) = (
        a for a in ANSWERS if a.wrong.__name__.startswith("no_correction")
    )
    message = verdict_on(answer).message
    assert 'not right yet on "a third, with decay"' in message
    assert "near" not in message.split("wanted:")[0]


def test_a_gradient_that_is_off_is_asked_about():
    grouped = TASKS["grouped_attention"]
    linear = TASKS["linear"]

    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, d):
            return d / 2

    def half(q, k, v):
        return grouped(q, Halved.apply(k), v)

    assert "How many heads of queries" in judge(half, grouped).message
    message = judge(lambda x, w: linear(x, Halved.apply(w)), linear).message
    said = "hint: in which places does your code use a number of tensor "
    assert said + "argument 1," in " ".join(message.split())


def test_of_two_configurations_the_fields_that_differ_are_told():
    task = TASKS["config_of"]

    def other(config):
        return config_of(config | {"rope_theta": 10_000.0})

    message = " ".join(judge(other, task).message.split())
    assert "rotary_base: the answer 10000, the reference 500." in message
    assert "expected rotary_base=500 got rotary_base=10000" in message


@pytest.mark.parametrize("what", [list, tuple, str])
def test_a_message_reaches_the_difference(what):
    long = ["word"] * 400
    other = [*long[:350], "other", *long[351:]]
    if what is str:
        a, b = " ".join(other), " ".join(long)
    else:
        a, b = {"a": what(other)}, {"a": what(long)}
    found = difference(a, b, within=0)
    told = "\n".join(numbers(found))
    assert "other" in told and len(told.splitlines()) <= 10


def test_what_cannot_come_may_be_listed():
    law = TASKS["law_of_a_call"]

    def with_zeros(p, q):
        return {(9, 9, 9): 0.0, (8,): 0} | law(p, q)

    assert judge(with_zeros, law).kind == "right"
    wrong = judge(lambda p, q: {(9,): 0.5} | law(p, q), law)
    assert "not wanted: (9,)" in wrong.message
    for name, mistake in law.known.items():

        def listed(p, q, wrong=mistake.wrong):
            return wrong(p, q) | {(9, 9, 9): 0.0}

        assert judge(listed, law).mistake == name


def test_an_error_of_a_given_function_is_not_called_ones_own():
    task = TASKS["is_self_attention"]

    def mine(fn):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    def calls(fn):
        return fn(torch.ones(2, 3), *3 * [torch.ones(4, 5)]) is None

    told = judge(calls, task).message
    assert "a function that your code calls raised" in told
    assert "What shall your answer be then?" in told
    told = judge(mine, task).message
    assert "your code raised" in told and "two sizes do not fit" in told


def test_the_bound_itself_and_no_numbers_are_asked():
    task = TASKS["looks_right"]

    def below(ours, reference):
        if ours.shape != reference.shape:
            return False
        return (ours - reference).abs().max().item() < 1e-9

    def below_or_none(ours, reference):
        return not ours.numel() or below(ours, reference)

    assert (
        "no numbers at all"
        in judge(
            lambda a, b: task(a, b) if a.numel() else below(a, b), task
        ).message
    )
    assert "the bound itself" in judge(below_or_none, task).message
