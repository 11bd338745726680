"""What an exercise does without is seen, in whatever dress it comes."""

from functools import partial

import pytest
import torch

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.finding import Kind
from attnbook.teach.check.inputs import f64
from attnbook.teach.check.judge import judge
from attnbook.teach.check.rules import (
    AtMost,
    NoAutograd,
    NoProduct,
    RuleBroken,
    following,
)

X = f64(1, 2, 3)


def squares(x):
    return (x * x).sum()


AUTOGRAD = {
    "grad": lambda x: torch.autograd.grad(squares(y := x * 1), y),
    "a leaf": lambda x: squares(x.requires_grad_()).backward(),
    "func": torch.func.grad(squares),
    "forwards": lambda x: torch.func.jvp(squares, (x,), (x,)),
    "jacobian": partial(torch.autograd.functional.jacobian, squares),
    "a parameter": lambda x: torch.nn.Parameter(x) * 2,
}


@pytest.mark.parametrize("derive", AUTOGRAD.values(), ids=AUTOGRAD)
def test_autograd_is_seen_in_whatever_dress(derive):
    with pytest.raises(RuleBroken, match="without autograd"):
        with following([NoAutograd]):
            try:
                derive(X.clone().requires_grad_(derive is AUTOGRAD["grad"]))
            except RuntimeError:
                pass
    with following([NoAutograd]):
        torch.vmap(squares)(X[None] + torch.ones(2, 1))


def test_of_numbers_one_after_the_other_only_those_that_are_kept_count():
    many = torch.ones(20, 100)
    with following([partial(AtMost, 500)]):
        for row in many:
            row * 2 + many.T[:, 0]  # and a view, which is no new number


def test_the_exercises_that_do_without_something_say_so():
    ruled = {name for name, t in all_tasks().items() if t.rules}
    blocks = {"attention_in_blocks", "feed_forward_in_slices", "with_prefix"}
    backward = {"slope", "rms_norm_backward", "stream_gradient"}
    assert ruled == {*blocks, *backward, "gate_backward", "attention_scores"}
    for name in backward:
        wanted = all_tasks()[name]
        message = judge(lambda *a, f=wanted.right, **k: f(*a, **k), wanted)
        assert "does without autograd" in message.message
        assert judge(wanted.right, wanted).kind == "right"  # it may


def test_lists_that_are_kept_are_refused():
    def slices(x, w_up, b_up, w_down, b_down, size):
        parts = [slice(a, a + size) for a in range(0, len(b_up), size)]
        inner = [
            torch.nn.functional.gelu(x @ w_up[:, p] + b_up[p]) for p in parts
        ]
        return sum(i @ w_down[p] for i, p in zip(inner, parts)) + b_down

    kept = judge(slices, all_tasks()["feed_forward_in_slices"])
    assert "too many numbers held at once" in kept.message


@pytest.mark.parametrize(
    "rule, breaks, kind, words",
    [
        (
            NoAutograd,
            lambda: X.clone().requires_grad_() * 2,
            Kind.USES_AUTOGRAD,
            "does without autograd",
        ),
        (NoProduct, lambda: X @ X, Kind.USES_FUNCTION, "without matmul"),
        (
            partial(AtMost, 2),
            lambda: X * 2,
            Kind.HOLDS_TOO_MUCH,
            "expected at most 2 in all new tensors together; got 3",
        ),
    ],
)
def test_a_broken_rule_is_data_and_a_sentence(rule, breaks, kind, words):
    with pytest.raises(RuleBroken, match=words) as caught:
        with following([rule]):
            breaks()
    assert caught.value.finding.kind == kind
