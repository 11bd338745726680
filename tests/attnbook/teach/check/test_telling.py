"""What is said of a wrong answer: in words, first, and short."""

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.inputs import f64, marks
from attnbook.teach.check.judge import judge
from attnbook.teach.check.likeness import likeness
from attnbook.teach.check.rules import AtMost
from attnbook.teach.check.seeded import randn
from attnbook.teach.check.task import task

TASKS = all_tasks()
X, S = randn(2, 4, 5, seed=1), randn(4, 4, seed=2)
P, SECOND = S.softmax(-1), torch.tensor(1)
NUMBER, THREE = f64(3.0).sum(), torch.tensor(3)


@pytest.mark.parametrize(
    "ours, theirs, words",
    [
        (X * 2**0.5, X, "too large by a factor of √2"),
        (X * 2 / 3, X, "too small by a factor of 3/2"),
        (X * 6.2831853071795, X, "too large by a factor of 2π"),
        (X * 1.2345, X, "too large by a factor of 1.234"),
        (X * 1.00002, X, "places"),
        (-X, X, "of the wrong sign"),
        (-3 * X, X, "of the wrong sign and too large by a factor of 3"),
        (X + 0.5, X, "too large by 0.5 everywhere"),
        (X * f64([1], [2], [3], [4]), X, "in each row, from 1 to 4"),
        (X * (1 + 1e-5 * f64([1], [2], [3], [4])), X, "places"),
        (S.mT, S, "the transpose"),
        (X.mT, X, "the transpose, of shape (2, 5, 4), not (2, 4, 5)"),
        (X.flatten(), X, "the right numbers, but of shape (40,)"),
        (X[..., :1], X, "of shape (2, 4, 1), not (2, 4, 5)"),
        (S[0, :1], S[0], "of shape (1,), not (4,): 3 missing at the end"),
        (S[0, 1:], S[0], "1 missing at the beginning"),
        (S[0, [0, 1, 2, 3, 3]], S[0], "1 too many at the end"),
        (S[0, [0, 2, 1, 2, 3]], S[0], "1 too many, the others right"),
        (S[0, [1, 0]], S[0], "of shape (2,), not (4,)"),
        (X[0, [0, 2, 3]], X[0], "1 missing, the others right"),
        (torch.tensor([1, 5, 3]), torch.tensor([0, 2, 3]), "in 2 of 3 places"),
        (S[0].flip(0), S[0], "backwards"),
        (X.flip(-1), X, "backwards along axis -1"),
        (X.roll(1, -2), X, "one place too far on along axis -2"),
        (X.roll(-1, -2), X, "one place too far back along axis -2"),
        (X[:, [1, 0, 3, 2]], X, "right but for the order along axis -2"),
        (X.reshape(2, 5, 4).mT, X, "the right numbers in other places"),
        (X * torch.nan, X, "all NaN"),
        (X.where(X < 1, torch.nan), X, "NaN in 4 of 40 places"),
        (X.where(X < 1, torch.inf), X, "infinite in 4 of 40 places"),
        (X.where(X < 1, 0), X, "wrong in 4 of 40 places"),
        (X + 1e-9, X, "nearly right, off by 1e-09"),
        (marks("10"), marks("01"), "True and False exchanged"),
        (marks("1"), marks("0"), "True where False is right"),
        (marks("11"), marks("10"), "True in 1 of 2 places too many"),
        (marks("00"), marks("10"), "True in 1 of 2 places too few"),
        (THREE + 1, THREE, "one too many"),
        (THREE - 1, THREE, "one too few"),
        (-NUMBER, NUMBER, "of the wrong sign"),
        (NUMBER / 3**0.5, NUMBER, "too small by a factor of √3"),
        (NUMBER + 0.1234, NUMBER, "too large by 0.1234"),
        (X.exp(), X, "the exponential of the right numbers"),
        (X.softmax(-1), X, "the softmax of the right numbers"),
        (X.log_softmax(-1), X, "the log-softmax of the right numbers"),
        (1 / NUMBER.exp(), NUMBER.exp(), "reciprocal of the right numbers"),
        (X + f64([1], [2], [3], [4]), X, "by a number in each row, 1 to 4"),
        (X + f64(1, 2, 3, 4, 5), X, "by a number in each column, 1 to 5"),
        (S + f64([-1e-15], [0], [1], [2]), S, "in each row, 0 to 2"),
        (S.softmax(0), P, "off: its columns sum to one, its rows do not"),
        (P * P, P, "the square of the right numbers"),
        (P.tril(), P.triu(), "not 0 where 0 is right"),
        (P.tril(1), P.tril(), "not everywhere 0 where 0 is right"),
        (P.sqrt() * P, P, "sum to 0.569361 up to 0.679262, not to one"),
        (X.index_fill(1, SECOND, 7), X, "in 10 of 40 places, all in row 1"),
        (X[..., [0, 2, 1, 3, 4]], X, "along axis -1, in columns 1 to 2"),
        (X[:, -1], X, "the last along axis -2 alone, of shape (2, 5), not (2"),
        (
            X.mean(-1),
            X,
            "the mean along axis -1 alone, of shape (2, 4), not (",
        ),
        (X.exp() * X, X, ""),
    ],
)
def test_a_difference_has_words(ours, theirs, words):
    found = likeness(ours, theirs)
    assert found.endswith(words) or words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize(
    "ours, theirs, words",
    [
        (f64([0], [0]), f64([0.3], [-1.2]), "softmax"),
        (f64([2, 3], [0, 1]), f64([1, 0], [0, 1]), "sum"),
    ],
)
def test_what_holds_of_one_number_or_of_counts_is_not_said(
    ours, theirs, words
):
    assert words not in likeness(ours, theirs)


@task(
    {"one": (f64(1), f64(5)), "rows": (S, X[0])}, against="x", gradients=True
)
def mix(a, b):
    """the pair (twice a, three times b)"""
    return a * 2, b * 3


def told(answer, wanted=mix):
    message = judge(answer, wanted).message
    assert len(message.splitlines()) <= 16
    return " ".join(message.split())


def without_its_line(answer):
    """A line of this file, when it is quoted, holds the words looked for."""
    lines = judge(answer, mix).message.splitlines()
    kept = [line for line in lines if not line.startswith("  in line")]
    return " ".join(" ".join(kept).split())


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
        (lambda a, b: (x for x in (a, b)), "ours is generator a generator"),
        (lambda a, b: (a * 2, b.long() * 3), "the right numbers in another"),
    ],
)
def test_the_verdict_comes_first(answer, words):
    assert words in without_its_line(answer)


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
        (lambda x, n: summed(x, n) + 5e-5, "hint: it is nearly right. Is"),
        (lambda x, n: summed(x, n) * 1.001, "too large by 0.012. wanted"),
        (lambda x, n: summed(x, n) if len(x) < 3 else 5.0, "of 26/5. wanted"),
        (lambda x, n: [summed(x, n)], "but of shape (1,), not (). wanted"),
    ],
)
def test_what_an_argument_has_done_to_the_result_is_told(answer, words):
    assert words in told(answer, summed)


def test_where_nothing_is_returned_of_many_its_shape_is_told():
    counts = replace(mix, right=lambda a, b: [1, 2], gradients=False)
    assert "of shape (0,), not (2,)" in told(lambda a, b: [], counts)
    assert "holds floats" in told(lambda a, b: [1.0, 2.5], counts)


def test_of_a_wrong_gradient_nothing_is_guessed_from_right_values():
    @task({n: (f64(n), n) for n in (1, 2)}, against="x", gradients=True)
    def twice(x, block):
        """twice x; `block` counts for nothing"""
        return 2 * x

    assert "block is" not in told(lambda x, block: x + x.data, twice)


def test_a_question_hangs_on_the_first_case_that_fails():
    asked = replace(mix, questions={"one": "Why one?", "rows": "Why rows?"})

    def wrong(a, b):
        return a.exp(), b * 3

    def wrong_of_many(a, b):
        return (a * 2 if a.ndim < 2 else a.exp()), b * 3

    assert "hint: Why one? wanted" in told(wrong, asked)
    assert "hint: Why rows? wanted" in told(wrong_of_many, asked)
    said = replace(asked, questions={"…part 1 is": "Why 1?", "one": "Why?"})
    assert "hint: Why 1?" in told(lambda a, b: (a * 2, b.cosh()), said)
    assert "hint: Why? wanted" in told(wrong, said)
    few = replace(asked, rules=[lambda: AtMost(30)])
    assert "hint" not in told(lambda a, b: (a * 2, b * 3), few)
    few.questions["…too many"] = "Why many?"
    assert "hint: Why many?" in told(lambda a, b: (a * 2, b * 3), few)
    # Of a wrong gradient the case's question would not speak.
    assert "hint: data, in" in told(lambda a, b: (a + a.data, b * 3), said)
    still = torch.detach
    assert "hint" not in told(lambda a, b: (a + still(a), b * 3), said)
    for words, answer in (
        ("is 0: look for detach()", lambda a, b: (a.detach() * 2, b * 3)),
        ("was changed in place", lambda a, b: (a.mul_(2), b * 3)),
        ("into one of its arg", lambda a, b: (a.mul_(1) * 2, b * 3)),
        ("the right numbers, but", lambda a, b: (a[None] * 2, b * 3)),
        ("another format", lambda a, b: ((a * 2).long(), b * 3)),
        ("but for the order", lambda a, b: (a.roll(2, 0) * 2, b * 3)),
    ):
        message = told(answer, asked)
        assert words in message and "hint" not in message
    masks, context = TASKS["tree_mask"], TASKS["attention_in_blocks"]
    assert "hint" not in told(lambda p: masks(p) * 0.5, masks)
    assert "hint" not in told(lambda *x: (context(*x), 0), context)
    rows = replace(asked, given={"rows": (S, X[0])})
    lines = judge(lambda a, b: (a.exp() * a, b * -3), rows).message
    assert "\n  part 1 is of the wrong sign.\n  hint: Why rows?\n" in lines


def test_what_is_never_negative_is_not_guessed_to_be_negated():
    above = replace(mix, given={"one": (f64(1), f64(5)), "two": (P, P)})
    assert "−a" not in told(lambda a, b: (-a * 2, b * 3), above)


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
    assert len(message.splitlines()) < 14
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
    still, steep = torch.detach, replace(plain, gradients=True)
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


def test_where_a_nan_is_made_it_is_asked_for():
    ask = "which line makes 0/0"
    assert ask in told(lambda a, b: (a * 2, b * torch.nan))
    assert ask not in told(lambda a, b: (a * 2, b * torch.inf))


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


def test_guesses_do_not_warn(recwarn):
    told(lambda q, k, s: q * k.T, TASKS["distance_weights"])
    told(lambda x: F.relu(x), TASKS["gelu"])
    assert not recwarn.list
