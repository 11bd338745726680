"""Tensor parallel: each rank has some heads and some inner numbers of a block.

`deal_block` deals out the weights of a block, and `block_on_ranks` computes
it with two sums over all ranks on the way there, and two on the way back.

Source: Shoeybi et al. (2019), arXiv:1909.08053.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from attnbook.attention import attend, merge_heads, split_heads
from attnbook.collectives import share_sizes
from attnbook.layers import TransformerBlock
from attnbook.placed import REPLICATED, Placed, copy, place, sharded, total
from attnbook.typed import add, apply, matmul
from attnbook.wire import Wire

#: The weights of a block on ranks, by name.
Parts = dict[str, Placed]


def deal_block(block: TransformerBlock, wire: Wire) -> Parts:
    """The weights of a block, dealt out by heads and by inner numbers.

    Queries, keys, values and the first matrix of the feed-forward layer are
    cut by columns, the two matrices after them by rows. Norms, and the biases
    that are added at the end, stay whole. Matrices are (in, out), the
    transpose of torch's.

    Raises:
        ValueError: a block with rotary positions, shared keys, norms of
            queries, dropout or a gate, which this short way does not have.
    """
    # long: a table of all weights
    attention = block.attention
    inner = block.feed_forward
    plain = (
        not attention.rotary
        and attention.n_kv_heads == attention.n_heads
        and attention.query_norm is None
        and not attention.dropout
        and hasattr(inner, "up")
        and not hasattr(inner, "gate")
        and block.norm_first
    )
    if not plain:
        raise ValueError(
            "this block cannot be dealt out here; expected one with the norms "
            "first, as many heads of keys as of queries, and without rotary "
            "positions, norms of queries, dropout or a gate"
        )
    heads = share_sizes(attention.n_heads, wire.size)
    d_head = attention.query.out_features // attention.n_heads
    by_heads = [n * d_head for n in heads]
    weight: dict[str, Tensor] = dict(block.named_parameters())
    keys, values = weight["attention.key_value.weight"].chunk(2)
    key_bias, value_bias = weight["attention.key_value.bias"].chunk(2)
    columns = {
        "query": (weight["attention.query.weight"].T, by_heads),
        "query_bias": (weight["attention.query.bias"], by_heads),
        "key": (keys.T, by_heads),
        "key_bias": (key_bias, by_heads),
        "value": (values.T, by_heads),
        "value_bias": (value_bias, by_heads),
        "up": (weight["feed_forward.up.weight"].T, None),
        "up_bias": (weight["feed_forward.up.bias"], None),
    }
    rows = {
        "out": (weight["attention.out.weight"].T, by_heads),
        "down": (weight["feed_forward.down.weight"].T, None),
    }
    whole = {
        "out_bias": weight["attention.out.bias"],
        "down_bias": weight["feed_forward.down.bias"],
    }
    for name in ("attention_norm", "feed_forward_norm"):
        whole[name] = weight[f"{name}.weight"]
        whole[f"{name}_bias"] = weight[f"{name}.bias"]
    parts = {}
    for axis, group in ((-1, columns), (-2, rows)):
        for name, (matrix, sizes) in group.items():
            parts[name] = place(
                matrix, sharded(axis), wire, sizes=sizes, learned=True
            )
    for name, vector in whole.items():
        parts[name] = place(vector, REPLICATED, wire, learned=True)
    return parts


def block_on_ranks(x: Placed, parts: Parts, d_head: int) -> Placed:
    """A block of whose weights each rank has a part; causal attention.

    Two all-reduces there, one after the attention and one after the
    feed-forward layer; and two back, where the two halves begin.

    Args:
        x: (B, T, d_model), replicated.
        parts: what `deal_block` returns.
        d_head: the width of a head.

    Returns:
        What the block of a single process returns, replicated.
    """
    normal = copy(_normed(x, parts, "attention_norm"))
    q, k, v = (
        add(matmul(normal, parts[name]), parts[f"{name}_bias"])
        for name in ("query", "key", "value")
    )

    def by_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n_heads = q.shape[-1] // d_head
        if not n_heads:  # more ranks than heads: nothing, made of all three
            return q + k + v
        q, k, v = (split_heads(a, n_heads) for a in (q, k, v))
        return merge_heads(attend(q, k, v, causal=True))

    context = apply(by_head, q, k, v)
    mixed = total(matmul(context, parts["out"]))
    x = add(x, add(mixed, parts["out_bias"]))
    normal = copy(_normed(x, parts, "feed_forward_norm"))
    inner = add(matmul(normal, parts["up"]), parts["up_bias"])
    inner = apply(lambda a: F.gelu(a, approximate="tanh"), inner)
    narrow = total(matmul(inner, parts["down"]))
    return add(x, add(narrow, parts["down_bias"]))


def _normed(x: Placed, parts: Parts, name: str) -> Placed:
    """The layer norm of this name, of replicated tokens."""

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, weight.shape, weight, bias)

    return apply(norm, x, parts[name], parts[f"{name}_bias"])
