"""What helps where no mistake is recognised, and which question is asked."""

from dataclasses import replace

import pytest
import torch
from engine import mix, told

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.finding import Kind
from attnbook.teach.check.inputs import f64
from attnbook.teach.check.judge import judge
from attnbook.teach.check.rules import AtMost
from attnbook.teach.check.seeded import randn
from attnbook.teach.check.task import Asked, task

TASKS = all_tasks()
X, S = randn(2, 4, 5, seed=1), randn(4, 4, seed=2)
SECOND = torch.tensor(1)


@task({"four": ("a b c d",), "two": ("e f",)}, against="x")
def cut(text):
    """the words of a text"""
    return text.split()


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda text: cut(text)[::-1], "stand in the reverse order"),
        (lambda text: ["", *cut(text)[:-1]], "all comes one place late"),
        (lambda text: [*cut(text)[1:], ""], "all comes one place early"),
        (lambda text: cut(text)[:-1], "of 3 parts, not 4: 1 missing at the"),
        (lambda text: [*"e", *cut(text)], "1 too many at the beginning"),
        (lambda text: [cut(text), "b"], "of 2 parts, not 4. wanted"),
        (lambda text: ["x"] * len(cut(text)), "where 'a' is right. wanted"),
    ],
)
def test_what_is_wrong_with_a_list_is_told(answer, words):
    assert words in told(answer, cut)


def test_a_question_hangs_on_the_first_case_that_fails():
    asked = replace(mix, questions={"one": "Why one?", "rows": "Why rows?"})

    def wrong(a, b):
        return a.exp(), b * 3

    def wrong_of_many(a, b):
        return (a * 2 if a.ndim < 2 else a.exp()), b * 3

    assert "hint: Why one? wanted" in told(wrong, asked)
    assert "hint: Why rows? wanted" in told(wrong_of_many, asked)
    of_part_1 = [Asked("Why 1?", part=1)]
    said = replace(asked, questions={"one": "Why?"}, asked=of_part_1)
    assert "hint: Why 1?" in told(lambda a, b: (a * 2, b.cosh()), said)
    assert "hint: Why? wanted" in told(wrong, said)
    few = replace(asked, rules=[lambda: AtMost(30)])
    assert "hint" not in told(lambda a, b: (a * 2, b * 3), few)
    many = [Asked("Why many?", kind=Kind.HOLDS_TOO_MUCH)]
    few = replace(few, asked=many)
    assert "hint: Why many?" in told(lambda a, b: (a * 2, b * 3), few)
    # Of a wrong gradient the case's question would not speak.
    assert "hint: data, in" in told(lambda a, b: (a + a.data, b * 3), said)
    still = torch.detach
    message = told(lambda a, b: (a + still(a), b * 3), said)
    assert "hint: in which places does your code use a number of" in message
    for words, answer in (
        ("is 0: look for detach()", lambda a, b: (a.detach() * 2, b * 3)),
        ("was changed in place", lambda a, b: (a.mul_(2), b * 3)),
        ("into one of its arg", lambda a, b: (a.mul_(1) * 2, b * 3)),
        ("the right numbers, but", lambda a, b: (a[None] * 2, b * 3)),
        ("another format", lambda a, b: ((a * 2).long(), b * 3)),
    ):
        message = told(answer, asked)
        assert words in message and "hint" not in message
    masks, context = TASKS["tree_mask"], TASKS["attention_in_blocks"]
    assert "hint" not in told(lambda p: masks(p) * 0.5, masks)
    assert "hint" not in told(lambda *x: (context(*x), 0), context)
    rows = replace(asked, given={"rows": (S, X[0])})
    lines = judge(lambda a, b: (a.exp() * a, b * -3), rows).message
    assert "\n  part 1 is of the wrong sign.\n  hint: Why rows?\n" in lines


def test_a_gradient_that_is_nearly_right_is_asked_for_something_small():
    """Of an eps beside the root no value shows enough, only a gradient."""

    def answer(x, weight=None, *, eps=1e-5):
        root = (x.square().mean(-1, keepdim=True) + eps).sqrt()
        normal = x / (root + 1e-12)
        return normal if weight is None else normal * weight

    message = told(answer, TASKS["rms_norm"])
    assert "gradient of tensor argument 0 is off by" in message
    assert "hint: all its numbers are near the right ones" in message
    assert "hand its gradient back" not in message


def test_a_hint_hangs_on_the_cases_that_fail():
    def answer(queries, keys, values, bandwidth):
        near = ((queries[:, None] - keys).abs() <= bandwidth).double()
        return (near / near.sum(-1, keepdim=True)).nan_to_num(7.0) @ values

    unasked = replace(TASKS["box_regression"], questions={})
    assert "perhaps: What do you divide by" in told(answer, unasked)
    assert "perhaps" not in told(lambda *_: f64(1), unasked)


def test_of_several_hints_none_is_given():
    """Which cases fail is chance then: the first would often mislead."""

    @task({n: (f64(*range(n)),) for n in (1, 2, 3)}, against="x")
    def plain(x):
        """x"""
        return x

    def long(x):
        return x[:2] if len(x) > 2 else x

    for change, hint in ((0, "Zero?"), (1, "One?")):
        plain.mistake("")(_named(f"adds_{change}", hint, long, change))
    assert "perhaps" not in told(lambda x: long(x) + 0.5 * (len(x) > 2), plain)
    plain.known.popitem()
    assert "Zero?" in told(lambda x: long(x) + 0.5 * (len(x) > 2), plain)
    still = torch.detach
    steep = replace(plain, gradients=True)
    assert "perhaps" not in told(
        lambda x: 2 * x - still(x) if len(x) > 2 else x, steep
    )


def test_a_question_of_the_case_goes_before_what_is_right_there():
    @task({f"{n}": (f64(*range(n)),) for n in (1, 2, 3, 4)}, against="x")
    def plain(x):
        """x"""
        return x

    plain.mistake("")(_named("adds", "Seven?", lambda x: x, 0))

    def wrong(x):
        return x + (7 if len(x) > 2 else len(x) - 1)

    assert "perhaps: Seven?" in told(wrong, plain)
    assert "hint: Two?" in told(wrong, replace(plain, questions={"2": "Two?"}))


def _named(name, hint, long, change):
    def wrong(x):
        return long(x) + 7 + change if len(x) > 2 else x

    wrong.__name__ = name
    wrong.__doc__ = f"a\n    cause: b\n    fix: c\n    hint: {hint}"
    return wrong


def test_what_is_added_to_an_argument_is_compared_by_itself():
    @task({"one": (X, S), "two": (X + 1, S)}, against="x")
    def residual(x, s):
        """x, and something more"""
        return x + x.sin() * s.sum()

    found = told(lambda x, s: x + x.sin() * s.sum() / 3, residual)
    given = "what it adds to the given (2, 4, 5) is too small by a factor of 3"
    assert given in found
    # Between constants every difference is a factor.
    alike = replace(residual, given={"one": (0 * X + 2, S), "two": (X, S)})
    found = told(lambda x, s: x + x.sin() * s.sum() / 3, alike)
    assert "what it adds" not in found


def test_of_a_later_part_is_told_what_cannot_be_of_the_first():
    @task({"one": (X, S)}, against="x")
    def weigh(x, s):
        """context and weights"""
        return s.softmax(-1) @ x, s.softmax(-1)

    found = told(lambda x, s: (s.softmax(0) @ x, s.softmax(0)), weigh)
    assert "part 1 is off: its columns sum to one, its rows do not." in found


def test_a_mistake_is_known_by_most_of_its_numbers():
    @task({"one": (X,), "two": (X + 1,), "three": (X - 1,)}, against="x")
    def double(x):
        """twice x"""
        return x * 2

    double.slip("it is squared", "What is a square?", torch.square)
    double.slip("it is shifted", "What is a sum?", lambda x: x + 2)
    most = told(lambda x: x.square().index_fill(-1, SECOND, 3), double)
    few = told(lambda x: x.square().where(x > 1, x.exp() + x), double)
    assert "perhaps: What is a square?" in most and "perhaps" not in few


def test_what_is_read_is_not_called_ignored_without_a_question():
    """A running sum of logarithms never reaches p."""
    task = TASKS["keep_top_p"]

    def sums_logs(logits, share):
        logs, order = logits.log_softmax(-1).sort(-1, descending=True)
        keep = torch.zeros_like(logs, dtype=torch.bool)
        keep = keep.scatter(-1, order, logs.cumsum(-1) < share)
        return logits.masked_fill(~keep, -torch.inf)

    found = told(sums_logs, task)
    assert "for p = 1, whatever p is, although your code reads it" in found
    assert "hint: Are probabilities summed, and not logits or logs" in found
    plain = told(lambda logits, p: logits, task)
    assert "for p = 1, whatever p is. wanted" in plain
