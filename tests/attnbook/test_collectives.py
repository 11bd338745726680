"""Sums and gatherings over ranks: right for any sizes, the same bits in every
rank, and as many bytes as the formulas say."""

import pytest
import torch

from attnbook.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    reduce_scatter,
    share_sizes,
)
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn
from attnbook.wire import on_threads

RANKS = [1, 2, 3, 4]


def same(ours, theirs):
    assert difference(ours, theirs, within=1e-12) is None


@pytest.mark.parametrize("n", range(14))
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_shares_are_those_of_tensor_split(n, ranks):
    cut = torch.arange(n).tensor_split(ranks)
    assert share_sizes(n, ranks) == [len(part) for part in cut]


@pytest.mark.parametrize("shape", [(), (1,), (3,), (7,), (3, 4), (2, 0)])
@pytest.mark.parametrize("ranks", RANKS)
def test_a_sum_over_ranks(ranks, shape):
    """Right, the same bits everywhere, and 2 (N − 1) · S bytes in all."""
    xs = [randn(*shape, seed=rank) for rank in range(ranks)]

    def work(wire):
        return all_reduce(wire, xs[wire.rank]), wire.sent

    found, sent = zip(*on_threads(ranks, work))
    same(found[0], sum(xs))
    assert all(torch.equal(x, found[0]) for x in found)
    assert sum(sent) == 2 * (ranks - 1) * xs[0].numel() * 8


@pytest.mark.parametrize("ranks", RANKS)
def test_each_sends_its_share_where_the_sizes_divide(ranks):
    x = randn(12, seed=1)

    def work(wire):
        all_reduce(wire, x)
        return wire.sent

    each = 2 * (ranks - 1) * 12 * 8 // ranks
    assert on_threads(ranks, work) == [each] * ranks


@pytest.mark.parametrize("sizes", [[3], [1, 4], [2, 0, 5], [1, 2, 3, 1]])
def test_each_rank_gets_the_sum_of_its_own_part(sizes):
    ranks = len(sizes)
    xs = [randn(sum(sizes), 2, seed=rank) for rank in range(ranks)]

    def work(wire):
        parts = xs[wire.rank].split(sizes)
        return reduce_scatter(wire, parts), wire.sent

    found, sent = zip(*on_threads(ranks, work))
    same(torch.cat(found), sum(xs))
    whole = sum(sizes) * 2 * 8
    assert list(sent) == [whole - size * 2 * 8 for size in sizes][:ranks] or (
        ranks == 1 and sent == (0,)
    )
    assert sum(sent) == (ranks - 1) * whole


@pytest.mark.parametrize("sizes", [[3], [1, 4], [2, 0, 5], [1, 2, 3, 1]])
def test_every_rank_gets_the_parts_of_all(sizes):
    ranks = len(sizes)
    parts = [randn(n, 2, seed=rank) for rank, n in enumerate(sizes)]
    shapes = [(n, 2) for n in sizes]

    def work(wire):
        return all_gather(wire, parts[wire.rank], shapes), wire.sent

    found, sent = zip(*on_threads(ranks, work))
    for each in found:
        assert all(torch.equal(a, b) for a, b in zip(each, parts))
    assert sum(sent) == (ranks - 1) * sum(sizes) * 2 * 8


@pytest.mark.parametrize("ranks", RANKS)
def test_each_rank_gets_what_is_meant_for_it(ranks):
    """Rank a has a tensor of a + 2 b numbers for rank b."""
    table = {
        (a, b): randn(a + 2 * b, seed=10 * a + b)
        for a in range(ranks)
        for b in range(ranks)
    }

    def work(wire):
        parts = [table[wire.rank, b] for b in range(ranks)]
        likes = [table[a, wire.rank] for a in range(ranks)]
        return all_to_all(wire, parts, likes), wire.sent

    found = on_threads(ranks, work)
    for b, (came, sent) in enumerate(found):
        assert all(torch.equal(x, table[a, b]) for a, x in enumerate(came))
        others = [table[b, to].numel() for to in range(ranks) if to != b]
        assert sent == 8 * sum(others)


def test_a_part_for_each_rank_is_asked_for():
    one = [torch.ones(1)]
    for collective in (
        lambda wire: reduce_scatter(wire, one),
        lambda wire: all_gather(wire, torch.ones(1), [(1,)]),
        lambda wire: all_to_all(wire, one, one * 2),
        lambda wire: all_to_all(wire, one * 2, one),
    ):
        said = "do not fit; expected 2 parts, one for each rank; got 1"
        with pytest.raises(ValueError, match=said):
            on_threads(2, collective)


def test_a_part_of_another_shape_than_was_said_is_refused():
    said = r"has another shape than was said; expected \(2,\); got \(1,\)"
    with pytest.raises(ValueError, match=said):
        on_threads(1, lambda wire: all_gather(wire, torch.ones(1), [(2,)]))


@pytest.mark.parametrize("n, ranks", [(-1, 2), (3, 0)])
def test_wrong_shares_are_refused(n, ranks):
    with pytest.raises(ValueError, match="is not allowed"):
        share_sizes(n, ranks)
