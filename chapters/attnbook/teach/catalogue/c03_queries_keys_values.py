"""Chapter 3, queries, keys and values: tasks and known mistakes."""

import numpy as np
import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import Labelled, f64, randns
from attnbook.teach.check.rules import NoProduct

task = tasks_of(3)

#: The six tokens of "Your journey begins with one step".
TOKENS = f64(
    [0.43, 0.15, 0.89],
    [0.55, 0.87, 0.66],
    [0.57, 0.85, 0.64],
    [0.22, 0.58, 0.33],
    [0.77, 0.25, 0.10],
    [0.05, 0.80, 0.55],
)
_GENERATOR = torch.Generator().manual_seed(42)
#: The chapter's W_q, W_k and W_v, (3, 2) each, drawn in this order.
MATRICES = tuple(
    torch.rand(3, 2, generator=_GENERATOR).double() for _ in "qkv"
)
attention_weights = torch.softmax(
    TOKENS @ MATRICES[0] @ (TOKENS @ MATRICES[1]).T / 2**0.5, dim=-1
)


@task(
    against="a sum over components",
    gradients=True,
    cases={
        "two tokens": (f64([1, 0], [2, 1]), f64([1, 3], [0, 1])),
        "one query, three keys": randns((1, 2), (3, 2), seed=1),
        "five queries, four keys": randns((5, 3), (4, 3), seed=3),
        "a batch of sequences": randns((2, 5, 3), (2, 4, 3), seed=5),
        "two leading axes": randns((2, 3, 4, 5), (2, 3, 6, 5), seed=7),
        "131 queries, 137 keys": randns((131, 3), (137, 3), seed=9),
        "17 texts of 17 heads, 130 wide": randns(
            (17, 17, 1, 130), (17, 17, 2, 130), seed=11
        ),
    },
    rules=(NoProduct,),
)
def attention_scores(q, k):
    """scores (..., T, S): in row i, column j the dot product of query i with
    key j, not scaled"""
    parts = zip(q.unbind(-1), k.unbind(-1))  # component by component
    return sum(a[..., :, None] * b[..., None, :] for a, b in parts)


@attention_scores.mistake("nntile/nntile #382", symptom=symptoms.WRONG_NUMBERS)
def query_and_key_swapped(q, k):
    """Row i holds the scores that token i gets as a key, not those that it
    gives as a query; with as many keys as queries the shape is right, and the
    softmax then runs along the wrong axis.
    cause: k times q transposed is the transpose of q times k transposed.
    fix: Queries on the left, one row each; keys on the right, one column each.
    hint: Which token does row 0 of your scores belong to: query 0 or key 0?"""
    return (k[..., :, None, :] * q[..., None, :, :]).sum(-1)


# The whole head


def _head(*size, d_k, d_v, seed):
    """Tokens of a shape, and the matrices of one head, drawn from a seed."""
    d_in = size[-1]
    return randns(size, (d_in, d_k), (d_in, d_k), (d_in, d_v), seed=seed)


_UNEQUAL = _head(20, 4, d_k=3, d_v=5, seed=30)


@task(
    against="torch's scaled_dot_product_attention",
    gradients=True,
    cases={
        "the six tokens of journey": (TOKENS, *MATRICES),
        "six other tokens": _head(6, 3, d_k=2, d_v=2, seed=10),
        "one token": _head(1, 3, d_k=2, d_v=2, seed=20),
        "T=20, d_model=4, d_k=3, d_v=5": _UNEQUAL,
        "a batch of sequences": _head(2, 7, 4, d_k=3, d_v=5, seed=40),
        "all sizes alike, scores past the overflow of exp": (
            f64([40, 0, 0], [40, 1, 0], [0, 0, 0]),
            *(size * torch.eye(3).double() for size in (1, 1, 0.01)),
        ),
        "17 texts": _head(17, 2, 4, d_k=3, d_v=5, seed=50),
        "131 tokens, all wider than 128": tuple(
            a / 4 for a in _head(131, 130, d_k=131, d_v=132, seed=60)
        ),
    },
    within=1e-6,  # d_k may become a float32 on its way to the root
)
def self_attention(x, w_query, w_key, w_value):
    """the context softmax(q kᵀ / √d_k) v of q = x w_query, k = x w_key, v = x
    w_value; d_k is the width of a key"""
    return F.scaled_dot_product_attention(x @ w_query, x @ w_key, x @ w_value)


@self_attention.mistake(
    "google-deepmind/tracr #8, jaygala24/pytorch-implementations #1",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_IN_THE_NEXT_CASE),
)
def leans_on_a_global(x, w_query, w_key, w_value):
    """Right on the six tokens of journey, to the last digit. Any other six
    are averaged with the weights of these, five tokens raise an
    error, and w_query and w_key get no gradient: they never learn.
    cause: The last line uses attention_weights, a variable of an earlier cell,
    in place of the local weights.
    fix: Use the local name; restart the kernel and try a second input.
    hint: Does every name in your function come from its arguments or from a
    line above?"""
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-1)  # noqa: F841
    return attention_weights @ v


@self_attention.mistake(symptom=symptoms.WRONG_SUMS)
def scale_outside_the_softmax(x, w_query, w_key, w_value):
    """Each row of weights sums to 1/√d_k instead of one, so that the context
    is no average any more, and the softmax is as sharp as without any scale.
    cause: √d_k divides what the softmax returns; it belongs to what goes in.
    fix: Divide the scores, then take the softmax.
    hint: What does each row of the weights that multiply v sum to?"""
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
    return weights / k.shape[-1] ** 0.5 @ v


@self_attention.mistake(
    "stevezheng23/reading_comprehension_tf #284",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_GRADIENTS),
)
def keys_from_the_query_matrix(x, w_query, w_key, w_value):
    """All shapes are right and the model trains, but its scores are symmetric,
    and training leaves the matrix of the keys as it is.
    cause: A line was copied and one name in it was not changed.
    fix: Multiply each of the three by its own matrix.
    hint: Which of your arguments is never used?"""
    q, k, v = x @ w_query, x @ w_query, x @ w_value
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v


@self_attention.mistake(
    "mlc-ai/mlc-llm #3426, PAIR-code/tiny-transformers #71",
    symptom=symptoms.WRONG_SHARPNESS,
)
def leaves_the_scale_out(x, w_query, w_key, w_value):
    """The rows of weights sum to one, but they are too sharp, the more so the
    wider queries and keys are.
    cause: The scores go into the softmax as they are, not divided by √d_k.
    fix: Divide the scores by the root of the width of a key.
    hint: What does your code do between the scores and the softmax?"""
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v


@self_attention.mistake(
    "labmlai/annotated_deep_learning_paper_implementations #146",
    symptom=symptoms.WRONG_SUMS,
)
def softmax_down_the_columns(x, w_query, w_key, w_value):
    """The columns of the weights sum to one, the rows do not: the queries
    share out each key, and the context is no average.
    cause: The softmax runs along dim=-2, the axis of the queries.
    fix: Take it along dim=-1, the axis of the keys.
    hint: What does each row of the weights that multiply v sum to?"""
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-2) @ v


# What nn.Linear does


@task(
    against="torch's F.linear",
    gradients=True,
    cases={
        "square": (f64([1, 2], [0, 1]), f64([1, 2], [3, 4])),
        "three to two": randns((6, 3), (2, 3), seed=50),
        "two to five": randns((4, 2), (5, 2), seed=52),
        "a batch": randns((2, 4, 3), (5, 3), seed=54),
        "one vector": randns((3,), (2, 3), seed=56),
        "131 vectors": randns((131, 3), (2, 3), seed=58),
        "17 texts, 130 to 131": randns((17, 2, 130), (131, 130), seed=60),
    },
)
def linear(x, weight):
    """x (..., d_in) projected by a weight that is stored as nn.Linear stores
    it, (d_out, d_in)"""
    return F.linear(x, weight)


@linear.mistake(
    "rasbt/LLMs-from-scratch #857, #893",
    symptom=(symptoms.SIZES, symptoms.WRONG_IN_THE_NEXT_CASE),
    not_looked_up="rasbt/LLMs-from-scratch #857, rasbt/LLMs-from-scratch #893",
)
def transpose_hidden_by_a_square(x, weight):
    """With d_in = d_out the shape is right and the numbers are wrong; with any
    other sizes it fails.
    cause: The weight has shape (d_out, d_in), the product needs (d_in, d_out).
    fix: Transpose the weight; and try the function where d_in is not d_out."""
    return x @ weight


# Weights from one class into another


_MATRIX_CASES = {
    "square": (f64([1, 2], [3, 4]), f64([5, 6], [7, 8]), f64([9, 0], [1, 2])),
    "the six tokens of journey": MATRICES,
    "d_model=4, d_k=3, d_v=5": randns((4, 3), (4, 3), (4, 5), seed=60),
    "all wider than 128": randns((130, 131), (130, 131), (130, 133), seed=63),
}


@task(against="torch.einsum", cases=_MATRIX_CASES)
def copy_weights(w_query, w_key, w_value):
    """a dictionary of query.weight, key.weight and value.weight, each of shape
    (d_out, d_in), from matrices of shape (d_in, d_out)"""
    given = {"query": w_query, "key": w_key, "value": w_value}
    return {
        f"{name}.weight": torch.einsum("io->oi", w)
        for name, w in given.items()
    }


@copy_weights.mistake(
    "AutoGPTQ/AutoGPTQ #139", symptom=(symptoms.SIZES, symptoms.LOADED_WEIGHTS)
)
def copied_without_transposing(w_query, w_key, w_value):
    """Square matrices load without complaint and give other numbers than
    before; others are refused with a size mismatch.
    cause: nn.Linear stores its weight as (d_out, d_in).
    fix: Transpose each matrix on the way."""
    return {
        "query.weight": w_query,
        "key.weight": w_key,
        "value.weight": w_value,
    }


@task(against="numpy.concatenate", cases=_MATRIX_CASES)
def qkv_weight(w_query, w_key, w_value):
    """the weight (2 d_k + d_v, d_in) of one nn.Linear whose output is query,
    key and value side by side, in this order"""
    joined = np.concatenate(
        [w.numpy().T for w in (w_query, w_key, w_value)], axis=0
    )
    return torch.from_numpy(joined.copy())


# Back to the tokens


@task(
    against="torch.einsum",
    gradients=True,
    cases={
        "d_v = d_model": randns((3, 2), (3, 2), (2, 2), seed=70),
        "d_v = 1": randns((3, 2), (3, 1), (1, 2), seed=73),
        "d_model=4, d_v=5": randns((20, 4), (20, 5), (5, 4), seed=76),
        "a batch": randns((2, 6, 4), (2, 6, 3), (3, 4), seed=79),
        "131 tokens": randns((131, 4), (131, 3), (3, 4), seed=82),
        "17 texts, 131 to 130": randns(
            (17, 2, 130), (17, 2, 131), (131, 130), seed=85
        ),
    },
)
def add_to_tokens(x, context, w_out):
    """x plus the context, brought back to d_model by w_out (d_v, d_model)"""
    return x + torch.einsum("...v,vm->...m", context, w_out)


@add_to_tokens.mistake(symptom=(symptoms.TRAINS_BADLY, symptoms.SIZES))
def adds_the_context_itself(x, context, w_out):
    """An error for most widths. With d_v = d_model, or if one of the two is 1,
    no error: numbers of two different spaces are added, and w_out gets no
    gradient.
    cause: The context lives in value space; it has to be projected first.
    fix: Add context @ w_out, not the context."""
    return x + context


# Testing


def _times(factor, plus=0.0):
    """The function x ↦ factor · x + plus, under a name that says so."""
    return Labelled(f"{factor} x + {plus}", lambda x: factor * x + plus)


def _with_one_off(x):
    """x with 3e-6 added to the second number of its first row."""
    off = torch.zeros_like(x)
    off[0, 1] = 3e-6
    return x + off


def _with_the_last_off(x):
    """x with 3e-6 added to its last number."""
    off = torch.zeros_like(x)
    off[-1, -1] = 3e-6
    return x + off


_NUMBERS = f64([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
_ITSELF = Labelled("x", lambda x: x)
_COLUMN = Labelled("the first column", lambda x: x[..., :1])
_LEFT = Labelled("(x₀ + x₁) + x₂", lambda x: x[..., 0] + x[..., 1] + x[..., 2])
_RIGHT = Labelled(
    "x₀ + (x₁ + x₂)", lambda x: x[..., 0] + (x[..., 1] + x[..., 2])
)


@task(
    against="numpy.allclose",
    cases={
        "one function, twice": (_times(3), _times(3), _NUMBERS),
        "the second is larger": (_times(3), _times(4), _NUMBERS),
        "the second is smaller": (_times(4), _times(3), _NUMBERS),
        "a sum in another order": (_LEFT, _RIGHT, _NUMBERS),
        "off by 5e-7": (_times(1), _times(1, 5e-7), _NUMBERS),
        "off by 5e-6": (_times(1), _times(1, 5e-6), _NUMBERS + 1000),
        "one of six off by 3e-6": (
            _ITSELF,
            Labelled("x, one of its numbers + 3e-6", _with_one_off),
            _NUMBERS,
        ),
        "one off in the last row": (
            _ITSELF,
            Labelled("x, the last of its numbers + 3e-6", _with_the_last_off),
            _NUMBERS,
        ),
        "off by 5e-7, no gap allowed": (
            _times(1),
            _times(1, 5e-7),
            _NUMBERS,
            0.0,
        ),
        "off by the bound itself": (
            _ITSELF,
            _times(1, 0.25),
            f64([1, 2], [3, 4]),
            0.25,
        ),
        "the same numbers, in another order": (
            _ITSELF,
            Labelled("the rows of x, backwards", lambda x: x.flip(-1)),
            _NUMBERS,
        ),
        "the same numbers, in another shape": (
            _ITSELF,
            Labelled("x, reshaped", lambda x: x.reshape(-1, 2)),
            _NUMBERS,
        ),
        "off by 5e-6, allowed": (_times(1), _times(1, 5e-6), _NUMBERS, 1e-5),
        "a shape that broadcasts": (_times(1), _COLUMN, f64([2, 2, 2])),
        "NaN on both sides": (_times(torch.nan), _times(torch.nan), _NUMBERS),
        "the last of 131 rows of 130 is off": (
            _ITSELF,
            Labelled(
                "x, its last number + 1",
                lambda x: (
                    x
                    + torch.eye(130).to(x)[-1]
                    * (torch.arange(131) > 129)[:, None]
                ),
            ),
            *randns((131, 130), seed=90),
        ),
    },
)
def same_outputs(a, b, x, within=1e-6):
    """True if a(x) and b(x) have one shape and differ by at most `within`
    everywhere, else False"""
    ours, theirs = a(x).numpy(), b(x).numpy()
    return ours.shape == theirs.shape and np.allclose(
        ours, theirs, rtol=0, atol=within
    )


@same_outputs.mistake(symptom=symptoms.TEST_ALWAYS_PASSES)
def compares_with_itself(a, b, x, within=1e-6):
    """True whatever the second function does: the test cannot fail.
    cause: The first function is called twice; b is never called.
    fix: Call each of the two once, under two names."""
    ours, theirs = a(x), a(x)
    if ours.shape != theirs.shape:
        return False
    return bool((ours - theirs).abs().max() <= within)


@same_outputs.mistake(symptom=symptoms.TEST_ALWAYS_PASSES)
def compares_with_equals(a, b, x, within=1e-6):
    """False for two functions that are equal in mathematics and differ by
    rounding in the last digit.
    cause: Each operation on floats rounds, so that the order of operations
    shows; == asks for every bit.
    fix: Ask for a difference of at most a stated bound."""
    return torch.equal(a(x), b(x))


@same_outputs.mistake(symptom=symptoms.TEST_ALWAYS_PASSES)
def compares_only_the_shapes(a, b, x, within=1e-6):
    """True for any two functions whose results have the same shape.
    cause: Only shapes are compared; wrong numbers have right shapes too.
    fix: Compare the shapes, then the values."""
    return a(x).shape == b(x).shape


def _by_matrices(x, w_query, w_key, w_value):
    """Self-attention as it should be, by products of matrices."""
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scores = attention_scores(q, k) / k.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v


def _token_by_token(x, w_query, w_key, w_value):
    """One query at a time, with the sums in another order."""
    rows = []
    for token in x:
        scores = (x @ (w_key @ (w_query.T @ token))) / w_key.shape[1] ** 0.5
        share = (scores - scores.max()).exp()
        rows.append((share @ x / share.sum()) @ w_value)
    return torch.stack(rows)


def _as_the_first_token(x, w_query, w_key, w_value):
    """Wrong: each token gets the first one's result; row 0 is right."""
    return _by_matrices(x, w_query, w_key, w_value)[:1].expand(len(x), -1)


def _wrong_for_the_first_token(x, w_query, w_key, w_value):
    """Wrong: row 0 is that of the token after it; all others are right."""
    found = _by_matrices(x, w_query, w_key, w_value)
    return torch.cat([found[1:2], found[1:]])


def _wrong_for_the_last_token(x, w_query, w_key, w_value):
    """Wrong: the last row is that of the token before it."""
    found = _by_matrices(x, w_query, w_key, w_value)
    return torch.cat([found[:-1], found[-2:-1]])


def _wrong_in_the_last_component(x, w_query, w_key, w_value):
    """Wrong: the last component is missing; all others are right."""
    found = _by_matrices(x, w_query, w_key, w_value)
    return torch.cat([found[:, :-1], 0 * found[:, -1:]], -1)


def _another_tokens_context(x, w_query, w_key, w_value):
    """Wrong: each token gets the next one's result, so that sums over all
    tokens are right, and so are means, norms and the largest number."""
    return _by_matrices(x, w_query, w_key, w_value).roll(-1, 0)


def _scale_from_the_tokens(x, w_query, w_key, w_value):
    """Wrong: scaled by √d_in, which is right if tokens are as wide as keys."""
    scores = attention_scores(x @ w_query, x @ w_key) / x.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ (x @ w_value)


def _scale_from_the_values(x, w_query, w_key, w_value):
    """Wrong: scaled by √d_v, which is right if values are as wide as keys."""
    v = x @ w_value
    scores = attention_scores(x @ w_query, x @ w_key) / v.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v


def _an_axis_too_many(x, w_query, w_key, w_value):
    """Wrong: the shape has an axis too many; the numbers are right."""
    return _by_matrices(x[None], w_query, w_key, w_value)


def _rounded_down(x, w_query, w_key, w_value):
    """Wrong by at most a ten-millionth, and nowhere too large: of each number
    seven digits after the point are left."""
    return (1e7 * _by_matrices(x, w_query, w_key, w_value)).floor() / 1e7


@task(
    against="torch's scaled_dot_product_attention",
    cases=lambda: {
        fn.__name__.replace("_", " ").strip(): (fn,)
        for fn in (
            _by_matrices,
            _as_the_first_token,
            leaves_the_scale_out,
            scale_outside_the_softmax,
            keys_from_the_query_matrix,
            _token_by_token,  # no answer may count on an order
            leans_on_a_global,
            _scale_from_the_tokens,
            _scale_from_the_values,
            _an_axis_too_many,
            _rounded_down,
            _wrong_for_the_first_token,
            _wrong_for_the_last_token,
            _wrong_in_the_last_component,
            _another_tokens_context,
        )
    },
)
def is_self_attention(fn):
    """True if fn is a right self_attention, False if it is a wrong one"""
    try:
        ours = fn(*_UNEQUAL)
    except RuntimeError:
        return False
    theirs = self_attention(*_UNEQUAL)
    return ours.shape == theirs.shape and torch.allclose(
        ours, theirs, rtol=0, atol=1e-9
    )
