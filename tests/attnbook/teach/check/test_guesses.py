"""What a wrong answer does instead, found out by doing the same."""

from dataclasses import replace

import pytest
import torch.nn.functional as F
from engine import mix, told

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.guesses import guess
from attnbook.teach.check.inputs import f64, marks
from attnbook.teach.check.seeded import randn
from attnbook.teach.check.task import task
from attnbook.teach.check.trial import Trial

TASKS = all_tasks()
X, S = randn(2, 4, 5, seed=1), randn(4, 4, seed=2)
P = S.softmax(-1)


@task({"two": ([1.0, 3.0], 3), "three": ([5.0, 7.0, 1.0], 2)}, against="x")
def summed(numbers, times):
    """the sum, so many times"""
    return sum(numbers) * times


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda x, n: summed(x, n) * n, "the right result times times."),
        (lambda x, n: summed(x, n) * n**2, "times the square of times."),
        (lambda x, n: summed(x, n) / len(x), "divided by the length of num"),
        (lambda x, n: summed(x, n) / n**2, "divided by the square of times"),
        (lambda x, n: n - summed(x, n), "gives times minus the right result"),
        (lambda x, n: sum(x), "for times = 1, whatever"),
        (lambda x, n: summed(x, n) + 5e-5, "hint: all its numbers are near"),
        (lambda x, n: summed(x, n) * 1.001, "too large by 0.012. wanted"),
        (lambda x, n: summed(x, n) if len(x) < 3 else 5.0, "of 26/5. wanted"),
        (lambda x, n: [summed(x, n)], "but of shape (1,), not (). wanted"),
    ],
)
def test_what_an_argument_has_done_to_the_result_is_told(answer, words):
    assert words in told(answer, summed)


def test_of_a_wrong_gradient_nothing_is_guessed_from_right_values():
    @task({n: (f64(n), n) for n in (1, 2)}, against="x", gradients=True)
    def twice(x, block):
        """twice x; `block` counts for nothing"""
        return 2 * x

    assert "block is" not in told(lambda x, block: x + x.data, twice)


def test_what_is_never_negative_is_not_guessed_to_be_negated():
    above = replace(mix, given={"one": (f64(1), f64(5)), "two": (P, P)})
    assert "−a" not in told(lambda a, b: (-a * 2, b * 3), above)


def test_an_answer_to_all_cases_alike_takes_no_argument_for_0():
    @task({"one": (X,), "two": (2 * X,)}, against="x")
    def count(x):
        """how many are positive"""
        return (x > 0).sum() + 0.0

    assert "whatever" not in told(lambda x: f64(0.0).sum(), count)


@task(
    {
        "two": ([[1, 2], [3]], 2, marks("10"), 0.5),
        "three": ([[4, 1, 2], [2]], 3, marks("01"), 0.2),
    },
    against="x",
)
def total(texts, times, mask, rate):
    """a sum"""
    first = sum(text[0] for text in texts)
    return (sum(map(sum, texts)) + first) * times * rate + 0.3 * mask


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda t, n, m, r: total(t, n + 1, m, r), "for times + 1."),
        (lambda t, n, m, r: total(t, n, ~m, r), "True and False exchanged."),
        (lambda t, n, m, r: total(t, n, m, 1 / r), "for 1/rate."),
        (lambda t, n, m, r: total(t[:-1], n, m, r), "texts without the last."),
        (lambda t, n, m, r: total(t, n, m, r) * 0, ""),
    ],
)
def test_what_is_a_step_off_is_told(answer, words):
    found = told(answer, total)
    assert words in found and bool(words) == ("the right result for" in found)


def test_guesses_do_not_warn(recwarn):
    told(lambda q, k, s: q * k.T, TASKS["distance_weights"])
    told(lambda x: F.relu(x), TASKS["gelu"])
    assert not recwarn.list


def test_the_reference_runs_once_on_a_changed_case():
    calls = []

    @task({"two": (f64(1, 3), 3), "three": (f64(5, 7, 1), 2)}, against="x")
    def times(x, n):
        """x, so many times"""
        calls.append((x.tolist(), n))
        return x * n

    trial = Trial.on(times)
    once = len(calls)
    for wrong in (lambda x, n: x**2 * n + 1, lambda x, n: x**3 - n):
        tried = trial.attempt_of(wrong, trial.outcomes(wrong))
        assert guess(tried) is None
    changed = calls[once:]
    assert len(changed) > 5
    assert len({str(call) for call in changed}) == len(changed)
