"""Attention in a ring: the context and the gradients of one process."""

import pytest
import torch

from attnbook.attention import scaled_dot_product_attention
from attnbook.ring import ring_attention
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn
from attnbook.wire import on_threads

SHARES = [[9], [1, 8], [8, 1], [4, 2, 3], [1, 5, 1, 2]]


def same(ours, theirs):
    assert difference(ours, theirs, within=1e-12) is None


def dealt(inputs, sizes, wire):
    return [
        x.detach().split(sizes, -2)[wire.rank].clone().requires_grad_()
        for x in inputs
    ]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("sizes", SHARES)
def test_a_ring_is_attention(sizes, causal):
    inputs = [randn(2, 3, 9, d, seed=d).requires_grad_() for d in (4, 5, 3)]
    q, k, v = inputs[0], randn(2, 3, 9, 4, seed=9).requires_grad_(), inputs[2]
    mask = torch.ones(9, 9).tril().bool() if causal else None
    out = scaled_dot_product_attention(q, k, v, mask=mask).context
    wanted = torch.autograd.grad(out.square().sum(), (q, k, v))

    def work(wire):
        own = dealt((q, k, v), sizes, wire)
        found = ring_attention(*own, sizes, wire, causal=causal)
        there = wire.sent
        gradients = torch.autograd.grad(found.square().sum(), own)
        return found, gradients, there, wire.sent - there

    found, gradients, there, back = zip(*on_threads(len(sizes), work))
    same(torch.cat(found, -2), out)
    for n, gradient in enumerate(wanted):
        same(torch.cat([g[n] for g in gradients], -2), gradient)
    keys_and_values = 2 * 3 * 9 * (4 + 3) * 8
    once = (len(sizes) - 1) * keys_and_values
    assert sum(there) == sum(back) == once


def test_it_is_causal_unless_told_otherwise():
    q, k, v = (randn(4, 2, seed=n) for n in range(3))

    def work(wire):
        own = dealt((q, k, v), [1, 3], wire)
        return ring_attention(*own, [1, 3], wire)

    first, _ = on_threads(2, work)
    same(first, v[:1])  # it sees itself alone


def test_a_rank_that_sees_nothing_of_a_block_passes_it_on():
    """The loss is about the first token alone, which sees itself alone; all
    other gradients are 0, and nobody waits for them in vain."""
    q, k, v = (randn(6, 2, seed=n) for n in range(3))
    sizes = [1, 2, 3]

    def work(wire):
        own = dealt((q, k, v), sizes, wire)
        found = ring_attention(*own, sizes, wire)
        loss = found.sum() if wire.rank == 0 else 0 * found.sum()
        return torch.autograd.grad(loss, own)

    found = on_threads(3, work, patience=10)
    same(found[0][2], torch.ones(1, 2).double())
    assert all(g.abs().max() == 0 for rank in found[1:] for g in rank)


@pytest.mark.parametrize("sizes", [[4], [0, 4], [4, 0], [1, 2, 1]])
def test_each_rank_needs_a_token(sizes):
    x = randn(4, 2, seed=1)
    said = "each rank needs a token at least; expected as many sizes as ranks"
    with pytest.raises(ValueError, match=said):
        on_threads(2, lambda wire: ring_attention(x, x, x, sizes, wire))


def test_another_number_of_tokens_than_was_said_is_refused():
    x = randn(4, 2, seed=1)
    with pytest.raises(ValueError, match="axis T of q is 4; expected q"):
        on_threads(2, lambda wire: ring_attention(x, x, x, [3, 5], wire))
