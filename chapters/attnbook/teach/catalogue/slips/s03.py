"""Slips of chapter 3."""

from functools import partial

import torch

from attnbook.teach.catalogue import c03_queries_keys_values as c03
from attnbook.teach.catalogue.slips.s01 import ROWS, unshifted

c03.attention_scores.slip(
    "the scores are scaled",
    "Does this exercise ask for scaled scores?",
    lambda q, k: c03.attention_scores(q, k) / q.shape[-1] ** 0.5,
)
c03.attention_scores.slip(
    "the products are averaged",
    "What is a dot product, a sum or a mean?",
    lambda q, k: c03.attention_scores(q, k) / q.shape[-1],
)


def _head(x, w_query, w_key, w_value, below=None, weigh=ROWS):
    """One head of attention (T, d_v) with `weigh` in place of softmax, and
    with the divisor `below(x, k, v)` in place of √d_k."""
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scale = below(x, k, v) if below else k.shape[-1] ** 0.5
    return weigh(q @ k.mT / scale) @ v


c03.self_attention.slip(
    "the scores are divided by √d_model",
    "The root of which width stands below the scores?",
    partial(_head, below=lambda x, k, v: x.shape[-1] ** 0.5),
)
c03.self_attention.slip(
    "the scores are divided by √d_v",
    "The root of which width stands below the scores?",
    partial(_head, below=lambda x, k, v: v.shape[-1] ** 0.5),
)
c03.self_attention.slip(
    "the scores are divided by √T",
    "The root of which width stands below the scores?",
    partial(_head, below=lambda x, k, v: x.shape[-2] ** 0.5),
)
c03.self_attention.slip(
    "d_k stands without its root",
    "The root of which width stands below the scores?",
    partial(_head, below=lambda x, k, v: k.shape[-1]),
)
c03.self_attention.slip(
    "√d_k multiplies the scores",
    "The root of which width stands below the scores?",
    partial(_head, below=lambda x, k, v: k.shape[-1] ** -0.5),
)
c03.self_attention.slip(
    "exp overflows at large scores",
    "What may be subtracted from the scores before exp?",
    partial(_head, weigh=unshifted),
)
c03.self_attention.slip(
    "the softmax runs along the first axis",
    "Which axis do the keys lie on, with and without a batch?",
    partial(_head, weigh=partial(torch.softmax, dim=0)),
)
c03.self_attention.slip(
    "the softmax runs along axis 1, also with a batch in front",
    "Which axis do the keys lie on, with and without a batch?",
    partial(_head, weigh=partial(torch.softmax, dim=1)),
)
c03.self_attention.slip(
    "each value is weighted by the column of its token, not by its row",
    "What do the weights sum to by which one token's context is made?",
    partial(_head, weigh=lambda scores: ROWS(scores).mT),
)
c03.qkv_weight.slip(
    "nothing is transposed",
    "Which shape has the weight of an nn.Linear?",
    lambda q, k, v: torch.cat([q, k, v], 1),
)
c03.qkv_weight.slip(
    "key and query have changed places",
    "In which order shall they come out?",
    lambda q, k, v: torch.cat([k, q, v], 1).T,
)
c03.qkv_weight.slip(
    "it is reshaped where it should be transposed",
    "Does reshape turn rows into columns?",
    lambda q, k, v: torch.cat([q, k, v], 1).reshape(-1, len(q)),
)


def _tests_attention(fn, same, sizes=((5, 4), (4, 3), (4, 3), (4, 2))):
    """Whether a candidate gives the `same` as self-attention on one example.
    One that stops with an error about shapes does not."""
    given = c03.randns(*sizes, seed=900)
    try:
        return bool(same(fn(*given), c03.self_attention(*given)))
    except RuntimeError:
        return False


c03.is_self_attention.slip(
    "it looks at shapes alone",
    "Which of the wrong candidates has a wrong shape?",
    lambda fn: _tests_attention(fn, lambda a, b: a.shape == b.shape),
)
c03.is_self_attention.slip(
    "the bound is too wide",
    "How much do the defaults of allclose let through?",
    lambda fn: _tests_attention(
        fn, lambda a, b: a.shape == b.shape and torch.allclose(a, b)
    ),
)
c03.is_self_attention.slip(
    "it refuses the right ones, too",
    "Do two right ways of adding round alike?",
    lambda fn: _tests_attention(fn, torch.equal),
)
