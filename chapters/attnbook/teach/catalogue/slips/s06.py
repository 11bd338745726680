"""Slips of chapter 6."""

import torch

from attnbook.attention import (
    scaled_dot_product_attention,
    softmax,
)
from attnbook.teach.catalogue import c06_multi_head as c06
from attnbook.teach.catalogue.slips.s04 import attend as attend_masked

c06.linear_weight.slip(
    "the components of the heads are dealt out in turn",
    "Whose component comes second in the output?",
    lambda heads: heads.permute(2, 0, 1).flatten(0, 1),
)
c06.linear_weight.slip(
    "it is reshaped where it should be transposed",
    "Does reshape turn rows into columns?",
    lambda heads: heads.reshape(-1, heads.shape[1]),
)


def _moved(a, n_heads):
    """Split (..., T, H·d) into heads (..., H, T, d)."""
    return a.unflatten(-1, (n_heads, -1)).transpose(-3, -2)


def _joined(a):
    """Join heads (..., H, T, d) to (..., T, H·d)."""
    return a.transpose(-3, -2).flatten(-2)


def _plain(q, k, v):
    """The context of attention without a mask."""
    return attend_masked(q, k, v, None, None).context


def _many(x, memory, *weights, cut=_moved, attend=_plain, join=_joined):
    """Multi-head attention (T, d_model), with another function for one of
    its steps.

    Args:
        x, memory: tokens that ask (T, d), and tokens that are read (S, d).
        *weights: W_q, W_k, W_v and W_O, and the number of heads.
        cut: splits (T, H·d) into heads.
        attend: makes contexts of the heads' q, k and v.
        join: joins the contexts of the heads.
    """
    *projections, w_out, n_heads = weights
    inputs = zip((x, memory, memory), projections)
    q, k, v = (cut(a @ w, n_heads) for a, w in inputs)
    return join(attend(q, k, v)) @ w_out


c06.multi_head_attention.slip(
    "the memory is not read",
    "Whose keys and values does x ask?",
    lambda x, memory, *weights: _many(x, x, *weights),
)
c06.multi_head_attention.slip(
    "the heads are cut, but not moved before the tokens",
    "Print the shape of your weights: what do its last two axes count?",
    lambda *args: _many(
        *args,
        cut=lambda a, n: a.unflatten(-1, (n, -1)),
        attend=lambda *qkv: scaled_dot_product_attention(*qkv).context,
        join=lambda a: a.flatten(-2),
    ),
)
c06.multi_head_attention.slip(
    "the contexts are merged without moving back",
    "Is a row of your merged contexts of one token, or of one head?",
    lambda *args: _many(
        *args, join=lambda a: a.reshape(*a.shape[:-3], a.shape[-2], -1)
    ),
)
c06.multi_head_attention.slip(
    "the components are dealt out to the heads in turn",
    "Which components of a row does head 0 get?",
    lambda *args: _many(
        *args,
        cut=lambda a, n: a.unflatten(-1, (-1, n)).movedim(-1, -3),
        join=lambda a: a.movedim(-3, -1).flatten(-2),
    ),
)
c06.multi_head_attention.slip(
    "the scale is left out",
    "What are the scores divided by?",
    lambda *args: _many(*args, attend=lambda q, k, v: softmax(q @ k.mT) @ v),
)
c06.multi_head_attention.slip(
    "w_out is left out",
    "What mixes the contexts of the heads?",
    lambda *args: _many(
        *args[:-2], torch.eye(len(args[-2])).to(args[0]), args[-1]
    ),
)
c06.multi_head_attention.slip(
    "w_out is transposed",
    "Is w_out used as in x W, or as nn.Linear stores it?",
    lambda *args: _many(*args[:-2], args[-2].mT, args[-1]),
)

c06.grouped_attention.slip(
    "the scale is left out",
    "What are the scores divided by?",
    lambda q, k, v: c06.grouped_attention(q * q.shape[-1] ** 0.5, k, v),
)


def _below(q, k, v):
    """Contexts (..., H, T, d_v) of heads that share keys, computed with all
    queries of a group below each other, as if they were one long text."""
    context = _plain(q.unflatten(-3, (k.shape[-3], -1)).flatten(-3, -2), k, v)
    tokens = context.unflatten(-2, (q.shape[-2], -1))
    return tokens.transpose(-3, -2).flatten(-4, -3)


c06.grouped_attention.slip(
    "the queries are put together by heads and taken apart by tokens",
    "After the first head's first token, whose row comes next?",
    _below,
)
