"""A block whose heads and inner numbers are dealt out is the block."""

import pytest
import torch

from attnbook.layers import TransformerBlock
from attnbook.placed import REPLICATED, place, together
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn
from attnbook.tensor_parallel import block_on_ranks, deal_block
from attnbook.typed import add_up, apply, backward
from attnbook.wire import on_threads


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


def block_of(n_heads, **options):
    block = TransformerBlock(3 * n_heads, n_heads, **options).double()
    with torch.no_grad():
        for n, p in enumerate(block.parameters()):
            p.copy_(0.3 * randn(*p.shape, seed=n))
    return block


def gradients_of(block):
    """By the names of the parts, matrices as (in, out)."""
    attention, inner = block.attention, block.feed_forward
    keys, values = attention.key_value.weight.grad.chunk(2)
    key_bias, value_bias = attention.key_value.bias.grad.chunk(2)
    return {
        "query": attention.query.weight.grad.T,
        "query_bias": attention.query.bias.grad,
        "key": keys.T,
        "key_bias": key_bias,
        "value": values.T,
        "value_bias": value_bias,
        "out": attention.out.weight.grad.T,
        "out_bias": attention.out.bias.grad,
        "up": inner.up.weight.grad.T,
        "up_bias": inner.up.bias.grad,
        "down": inner.down.weight.grad.T,
        "down_bias": inner.down.bias.grad,
        "attention_norm": block.attention_norm.weight.grad,
        "attention_norm_bias": block.attention_norm.bias.grad,
        "feed_forward_norm": block.feed_forward_norm.weight.grad,
        "feed_forward_norm_bias": block.feed_forward_norm.bias.grad,
    }


@pytest.mark.parametrize("n_heads", [1, 3, 5])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_block_on_ranks_is_the_block(ranks, n_heads):
    """Also with heads that the ranks do not divide, and with fewer heads than
    ranks; and every gradient, of biases and norms too."""
    block = block_of(n_heads)
    x = randn(2, 5, 3 * n_heads, seed=50).requires_grad_()
    out = block(x, causal=True)
    out.square().sum().backward()
    wanted = gradients_of(block)

    def work(wire):
        parts = deal_block(block, wire)
        mine = place(x, REPLICATED, wire, learned=True)
        found = block_on_ranks(mine, parts, 3)
        there = wire.sent
        backward(add_up(apply(torch.square, found)))
        back = wire.sent - there
        gradients = {
            name: together(part.gradient()) for name, part in parts.items()
        }
        return found, mine.gradient(), gradients, there, back

    results = on_threads(ranks, work)
    for found, of_x, gradients, *_ in results:
        assert found.type == of_x.type == REPLICATED
        same(found.local, out)
        same(of_x.local, x.grad, within=1e-11)
        assert gradients.keys() == wanted.keys()
        for name, gradient in gradients.items():
            same(gradient, wanted[name], within=1e-11)
    # Two all-reduces of the tokens there, and two back.
    once = 2 * 2 * (ranks - 1) * x.numel() * 8
    assert sum(result[3] for result in results) == once
    assert sum(result[4] for result in results) == once


def test_each_rank_has_its_part_of_the_weights():
    block = block_of(5)

    def work(wire):
        parts = deal_block(block, wire)
        return {name: tuple(p.local.shape) for name, p in parts.items()}

    first, *_, last = on_threads(4, work)
    assert first["query"] == (15, 6) and last["query"] == (15, 3)
    assert first["out"] == (6, 15) and last["out"] == (3, 15)
    assert first["up"] == (15, 15) and first["down"] == (15, 15)
    assert first["out_bias"] == last["out_bias"] == (15,)


@pytest.mark.parametrize(
    "options",
    [
        {"rotary": True},
        {"n_kv_heads": 1},
        {"qk_norm": True},
        {"dropout": 0.1},
        {"activation": "swiglu"},
        {"norm_first": False},
    ],
)
def test_a_block_that_cannot_be_dealt_out_is_refused(options):
    block = TransformerBlock(8, 2, **options)
    said = "this block cannot be dealt out here; expected one with the norms "
    with pytest.raises(ValueError, match=said):
        on_threads(1, lambda wire: deal_block(block, wire))


def test_a_block_with_another_layer_in_place_of_feed_forward_is_refused():
    block = TransformerBlock(8, 2)
    block.feed_forward = torch.nn.Identity()
    with pytest.raises(ValueError, match="this block cannot be dealt out her"):
        on_threads(1, lambda wire: deal_block(block, wire))


def test_what_each_rank_has_is_learned_and_has_its_type():
    def work(wire):
        parts = deal_block(block_of(3), wire)
        assert all(part.local.requires_grad for part in parts.values())
        return {name: str(part.type) for name, part in parts.items()}

    first, _ = on_threads(2, work)
    columns = ("query", "key", "value", "up")
    rows = ("out", "down")
    norms = ("attention_norm", "feed_forward_norm")
    assert first == (
        dict.fromkeys(columns, "sharded(-1)")
        | dict.fromkeys([f"{name}_bias" for name in columns], "sharded(-1)")
        | dict.fromkeys(rows, "sharded(-2)")
        | dict.fromkeys([f"{name}_bias" for name in rows], "replicated")
        | dict.fromkeys(norms, "replicated")
        | dict.fromkeys([f"{name}_bias" for name in norms], "replicated")
    )
