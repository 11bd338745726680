"""Chapter 3, queries, keys and values: tasks and known mistakes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from attnbook.teach.proof import Case
from attnbook.teach.seeded import randn
from attnbook.teach.tasks import task

#: The six tokens of "Your journey begins with one step".
TOKENS = torch.tensor(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ],
    dtype=torch.float64,
)


def _published_weights():
    """The chapter's W_q, W_k and W_v, (3, 2) each, drawn in this order."""
    generator = torch.Generator().manual_seed(42)
    return tuple(
        torch.rand(3, 2, generator=generator).double() for _ in range(3)
    )


def _whole(*rows):
    return torch.tensor(rows, dtype=torch.float64)


@task(
    against="torch.einsum",
    gradients=True,
    cases={
        "two tokens": (_whole([1, 0], [2, 1]), _whole([1, 3], [0, 1])),
        "one query, three keys": (randn(1, 2, seed=1), randn(3, 2, seed=2)),
        "five queries, four keys": (randn(5, 3, seed=3), randn(4, 3, seed=4)),
        "a batch of sequences": (
            randn(2, 5, 3, seed=5),
            randn(2, 4, 3, seed=6),
        ),
        "two leading axes": (
            randn(2, 3, 4, 5, seed=7),
            randn(2, 3, 6, 5, seed=8),
        ),
    },
)
def attention_scores(q, k):
    """scores (..., T, S): in row i, column j the dot product of query i with
    key j, not scaled"""
    return torch.einsum("...id,...jd->...ij", q, k)


@attention_scores.mistake(
    "nntile/nntile #382 (there between a reference and its kernel)"
)
def query_and_key_swapped(q, k):
    """Row i holds the scores that token i gets as a key, not those that it
    gives as a query; with as many keys as queries the shape is right, and the
    softmax then runs along the wrong axis.

    cause: k times q transposed is the transpose of q times k transposed.
    fix: Queries on the left, one row each; keys on the right, one column each.
    hint: Which token does row 0 of your scores belong to: query 0 or key 0?
    """
    return k @ q.transpose(-2, -1)


# The whole head


def _head_cases():
    def case(label, *size, d_k, d_v, seed):
        d_in = size[-1]
        return Case(
            label,
            (
                randn(*size, seed=seed),
                randn(d_in, d_k, seed=seed + 1),
                randn(d_in, d_k, seed=seed + 2),
                randn(d_in, d_v, seed=seed + 3),
            ),
        )

    return [
        Case("the running example", (TOKENS, *_published_weights())),
        case("six other tokens", 6, 3, d_k=2, d_v=2, seed=10),
        case("one token", 1, 3, d_k=2, d_v=2, seed=20),
        case("T=20, d_model=4, d_k=3, d_v=5", 20, 4, d_k=3, d_v=5, seed=30),
        case("a batch of sequences", 2, 7, 4, d_k=3, d_v=5, seed=40),
    ]


@task(
    against="torch's scaled_dot_product_attention",
    gradients=True,
    cases=_head_cases,
)
def self_attention(x, w_query, w_key, w_value):
    """the context softmax(q kᵀ / √d_k) v of q = x w_query, k = x w_key, v = x
    w_value"""
    return F.scaled_dot_product_attention(x @ w_query, x @ w_key, x @ w_value)


def _weights_of_the_running_example():
    w_query, w_key, _ = _published_weights()
    scores = (TOKENS @ w_query) @ (TOKENS @ w_key).T
    return torch.softmax(scores / 2**0.5, dim=-1)


#: What a notebook may still hold from an earlier cell.
attention_weights = _weights_of_the_running_example()


@self_attention.mistake(
    "jaygala24/pytorch-implementations #1 (there sizes instead of weights)"
)
def leans_on_a_global(x, w_query, w_key, w_value):
    """Right on the running example, to the last digit. Any other six tokens
    are averaged with the running example's weights, five tokens raise an
    error, and w_query and w_key get no gradient: they never learn.

    cause: The last line uses attention_weights, a variable of an earlier cell,
    in place of the local weights.
    fix: Use the local name; restart the kernel and try a second input.
    hint: Does every name in your function come from its arguments or from a
    line above?
    """
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-1)
    return attention_weights @ v


@self_attention.mistake()
def scale_outside_the_softmax(x, w_query, w_key, w_value):
    """Each row of weights sums to 1/√d_k instead of one, so that the context
    is no average any more, and the softmax is as sharp as without any scale.

    cause: √d_k divides what the softmax returns; it belongs to what goes in.
    fix: Divide the scores, then take the softmax.
    hint: What does each row of the weights that multiply v sum to?
    """
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
    return weights / k.shape[-1] ** 0.5 @ v


@self_attention.mistake(
    "stevezheng23/reading_comprehension_tf #284 (there reported)"
)
def keys_from_the_query_matrix(x, w_query, w_key, w_value):
    """All shapes are right and the model trains, but its scores are symmetric,
    and w_key gets no gradient.

    cause: A line was copied and one name in it was not changed.
    fix: Multiply each of the three by its own matrix.
    hint: Which of your arguments is never used?
    """
    q, k, v = x @ w_query, x @ w_query, x @ w_value
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v


@self_attention.mistake(
    "mlc-ai/mlc-llm #3426, PAIR-code/tiny-transformers #71"
)
def leaves_the_scale_out(x, w_query, w_key, w_value):
    """The rows of weights sum to one, but they are too sharp, the more so the
    wider queries and keys are.

    cause: The scores go into the softmax as they are, not divided by √d_k.
    fix: Divide the scores by the root of the width of a key.
    hint: What does your code do between the scores and the softmax?
    """
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v


@self_attention.mistake(
    "labmlai/annotated_deep_learning_paper_implementations #146"
)
def softmax_down_the_columns(x, w_query, w_key, w_value):
    """The columns of the weights sum to one, the rows do not: the queries
    share out each key, and the context is no average.

    cause: The softmax runs along dim=-2, the axis of the queries.
    fix: Take it along dim=-1, the axis of the keys.
    hint: What does each row of the weights that multiply v sum to?
    """
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-2) @ v


# What nn.Linear does


@task(
    against="torch's F.linear",
    gradients=True,
    cases={
        "square": (_whole([1, 2], [0, 1]), _whole([1, 2], [3, 4])),
        "three to two": (randn(6, 3, seed=50), randn(2, 3, seed=51)),
        "two to five": (randn(4, 2, seed=52), randn(5, 2, seed=53)),
        "a batch": (randn(2, 4, 3, seed=54), randn(5, 3, seed=55)),
    },
)
def linear(x, weight):
    """x (..., d_in) projected by a weight that is stored as nn.Linear stores
    it, (d_out, d_in)"""
    return F.linear(x, weight)


@linear.mistake("rasbt/LLMs-from-scratch #857, #893")
def transpose_hidden_by_a_square(x, weight):
    """With d_in = d_out the shape is right and the numbers are wrong; with any
    other sizes it fails.

    cause: The weight has shape (d_out, d_in), the product needs (d_in, d_out).
    fix: Transpose the weight; and try the function where d_in is not d_out.
    """
    return x @ weight


# Weights from one class into another


def _matrices(d_in, d_k, d_v, seed):
    return (
        randn(d_in, d_k, seed=seed),
        randn(d_in, d_k, seed=seed + 1),
        randn(d_in, d_v, seed=seed + 2),
    )


def _matrix_cases():
    return {
        "square": (
            _whole([1, 2], [3, 4]),
            _whole([5, 6], [7, 8]),
            _whole([9, 10], [11, 12]),
        ),
        "the running example": _published_weights(),
        "d_model=4, d_k=3, d_v=5": _matrices(4, 3, 5, seed=60),
    }


@task(
    against="torch.einsum",
    cases=_matrix_cases,
)
def copy_weights(w_query, w_key, w_value):
    """a dictionary of query.weight, key.weight and value.weight, each of shape
    (d_out, d_in), from matrices of shape (d_in, d_out)"""
    given = {"query": w_query, "key": w_key, "value": w_value}
    return {
        f"{name}.weight": torch.einsum("io->oi", w)
        for name, w in given.items()
    }


@copy_weights.mistake("AutoGPTQ/AutoGPTQ #139")
def copied_without_transposing(w_query, w_key, w_value):
    """Square matrices load without complaint and give other numbers than
    before; others are refused with a size mismatch.

    cause: nn.Linear stores its weight as (d_out, d_in).
    fix: Transpose each matrix on the way.
    """
    return {
        "query.weight": w_query,
        "key.weight": w_key,
        "value.weight": w_value,
    }


@task(
    against="numpy.concatenate",
    cases=_matrix_cases,
)
def qkv_weight(w_query, w_key, w_value):
    """the weight (2 d_k + d_v, d_in) of one nn.Linear whose output is query,
    key and value side by side, in this order"""
    joined = np.concatenate(
        [w.numpy().T for w in (w_query, w_key, w_value)], axis=0
    )
    return torch.from_numpy(joined.copy())


# Back to the tokens


def _residual_cases():
    def case(label, *size, d_v, seed):
        return Case(
            label,
            (
                randn(*size, seed=seed),
                randn(*size[:-1], d_v, seed=seed + 1),
                randn(d_v, size[-1], seed=seed + 2),
            ),
        )

    return [
        case("d_v = d_model", 3, 2, d_v=2, seed=70),
        case("d_v = 1", 3, 2, d_v=1, seed=73),
        case("d_model=4, d_v=5", 20, 4, d_v=5, seed=76),
        case("a batch", 2, 6, 4, d_v=3, seed=79),
    ]


@task(
    against="torch.einsum",
    gradients=True,
    cases=_residual_cases,
)
def add_to_tokens(x, context, w_out):
    """x plus the context, brought back to d_model by w_out (d_v, d_model)"""
    return x + torch.einsum("...v,vm->...m", context, w_out)


@add_to_tokens.mistake()
def adds_the_context_itself(x, context, w_out):
    """An error for most widths. With d_v = d_model, or if one of the two is 1,
    no error: numbers of two different spaces are added, and w_out gets no
    gradient.

    cause: The context lives in value space; it has to be projected first.
    fix: Add context @ w_out, not the context.
    """
    return x + context


# Testing


@dataclass(frozen=True)
class Times:
    """x times a factor, plus a number: a function with a readable name."""

    factor: float
    plus: float = 0.0

    def __call__(self, x):
        return self.factor * x + self.plus


@dataclass(frozen=True)
class FirstColumn:
    """The first column of x, kept as a column."""

    def __call__(self, x):
        return x[..., :1]


@dataclass(frozen=True)
class SumOfThree:
    """x₀ + x₁ + x₂ along the last axis, from the left or from the right."""

    start: str

    def __call__(self, x):
        first, second, third = x.unbind(-1)
        if self.start == "left":
            return (first + second) + third
        return first + (second + third)


def _test_cases():
    x = _whole([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    same = _whole([2, 2, 2])
    left, right = SumOfThree("left"), SumOfThree("right")
    return {
        "one function, twice": (Times(3), Times(3), x),
        "the second is larger": (Times(3), Times(4), x),
        "the second is smaller": (Times(4), Times(3), x),
        "a sum in another order": (left, right, x),
        "off by 5e-7": (Times(1), Times(1, 5e-7), x),
        "off by 5e-6": (Times(1), Times(1, 5e-6), x),
        "off by 5e-6, allowed": (Times(1), Times(1, 5e-6), x, 1e-5),
        "a shape that broadcasts": (Times(1), FirstColumn(), same),
        "NaN on both sides": (Times(torch.nan), Times(torch.nan), x),
    }


@task(
    against="numpy.allclose",
    cases=_test_cases,
)
def same_outputs(a, b, x, within=1e-6):
    """True if a(x) and b(x) have one shape and differ by at most `within`
    everywhere, else False"""
    ours, theirs = a(x).numpy(), b(x).numpy()
    return ours.shape == theirs.shape and np.allclose(
        ours, theirs, rtol=0, atol=within
    )


@same_outputs.mistake()
def compares_with_itself(a, b, x, within=1e-6):
    """True whatever the second function does: the test cannot fail.

    cause: The first function is called twice; b is never called.
    fix: Call each of the two once, under two names.
    """
    ours, theirs = a(x), a(x)
    if ours.shape != theirs.shape:
        return False
    return bool((ours - theirs).abs().max() <= within)


@same_outputs.mistake()
def compares_with_equals(a, b, x, within=1e-6):
    """False for two functions that are equal in mathematics and differ by
    rounding in the last digit.

    cause: Each operation on floats rounds, so that the order of operations
    shows; == asks for every bit.
    fix: Ask for a difference of at most a stated bound.
    """
    return torch.equal(a(x), b(x))


@same_outputs.mistake()
def compares_only_the_shapes(a, b, x, within=1e-6):
    """True for any two functions whose results have the same shape.

    cause: Only shapes are compared; wrong numbers have right shapes too.
    fix: Compare the shapes, then the values.
    """
    return a(x).shape == b(x).shape


@dataclass(frozen=True)
class Candidate:
    """A function that says its name when it is printed."""

    name: str
    fn: Callable

    def __repr__(self):
        return self.name

    def __call__(self, *args):
        return self.fn(*args)


def _by_matrices(x, w_query, w_key, w_value):
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scores = attention_scores(q, k) / k.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v


def _by_tokens(x, w_query, w_key, w_value):
    """One query at a time, with the sums in another order."""
    rows = []
    for token in x:
        scores = (x @ (w_key @ (w_query.T @ token))) / w_key.shape[1] ** 0.5
        share = (scores - scores.max()).exp()
        rows.append((share @ x / share.sum()) @ w_value)
    return torch.stack(rows)


def _only_the_values(x, w_query, w_key, w_value):
    return x @ w_value


def _scale_from_the_tokens(x, w_query, w_key, w_value):
    """Right where a token is as wide as a key."""
    scores = attention_scores(x @ w_query, x @ w_key) / x.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ (x @ w_value)


def _scale_from_the_values(x, w_query, w_key, w_value):
    """Right where a value is as wide as a key."""
    v = x @ w_value
    scores = attention_scores(x @ w_query, x @ w_key) / v.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v


def _an_axis_too_many(x, w_query, w_key, w_value):
    """Equal wherever shapes may broadcast."""
    return _by_matrices(x[None], w_query, w_key, w_value)


def _epsilon_in_the_sum(x, w_query, w_key, w_value):
    """Too small, by at most a ten-millionth."""
    scores = attention_scores(x @ w_query, x @ w_key) / w_key.shape[1] ** 0.5
    share = (scores - scores.amax(-1, keepdim=True)).exp()
    return share / (share.sum(-1, keepdim=True) + 1e-7) @ (x @ w_value)


def _candidate_cases():
    candidates = {
        "by_matrices": _by_matrices,
        "token_by_token": _by_tokens,
        "only_the_values": _only_the_values,
        "leaves_the_scale_out": leaves_the_scale_out,
        "scale_outside_the_softmax": scale_outside_the_softmax,
        "keys_from_the_query_matrix": keys_from_the_query_matrix,
        "leans_on_a_global": leans_on_a_global,
        "scale_from_the_tokens": _scale_from_the_tokens,
        "scale_from_the_values": _scale_from_the_values,
        "an_axis_too_many": _an_axis_too_many,
        "epsilon_in_the_sum": _epsilon_in_the_sum,
    }
    return {
        name.replace("_", " "): (Candidate(name, fn),)
        for name, fn in candidates.items()
    }


@task(
    against="torch's scaled_dot_product_attention",
    cases=_candidate_cases,
)
def is_self_attention(fn):
    """True if fn is a right self_attention, False if it is a wrong one"""
    *_, unequal, _ = _head_cases()  # T=20, d_model=4, d_k=3, d_v=5
    try:
        ours = fn(*unequal.args)
    except RuntimeError:
        return False
    theirs = self_attention(*unequal.args)
    return ours.shape == theirs.shape and torch.allclose(
        ours, theirs, rtol=0, atol=1e-9
    )
