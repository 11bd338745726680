"""Types of tensors on ranks: each move has the value and the gradient of one
process, and sends what it should."""

import pytest
import torch

from attnbook.placed import (
    COPIED,
    PARTIAL,
    REPLICATED,
    Placed,
    collect,
    copy,
    gather,
    place,
    scatter,
    sharded,
    split,
    together,
    total,
)
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn
from attnbook.wire import on_threads

RANKS = [1, 2, 3, 4]
#: Unequal shares of five, with an empty one among them.
FIVE = {1: [5], 2: [1, 4], 3: [2, 0, 3], 4: [1, 1, 0, 3]}


def same(ours, theirs):
    assert difference(ours, theirs, within=1e-12) is None


def whole_of(placed):
    """The tensor of a single process, told from what all ranks have."""
    kind = placed[0].type
    locals_ = [x.local.detach() for x in placed]
    if kind == PARTIAL:
        return sum(locals_)
    if kind.axis is not None:
        return torch.cat(locals_, kind.axis)
    assert all(torch.equal(x, locals_[0]) for x in locals_)
    return locals_[0]


def grads_of(placed, gradients):
    """The gradient of a single process, by the rule of the types."""
    kind = placed[0].type.of_gradient
    return whole_of(
        [Placed(g, kind, x.wire) for x, g in zip(placed, gradients)]
    )


TYPES = [REPLICATED, COPIED, PARTIAL, sharded(-1), sharded(-2)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_whole_is_placed_and_put_together_again(type_, ranks):
    x = randn(5, 5, seed=1)
    sizes = FIVE[ranks] if type_.axis else None

    def work(wire):
        mine = place(x, type_, wire, sizes=sizes)
        assert wire.sent == 0 and not mine.local.requires_grad
        return mine, together(mine)

    placed, found = zip(*on_threads(ranks, work))
    same(whole_of(placed), x)
    for each in found:
        same(each, x)


MOVES = {
    "copy": (copy, REPLICATED, COPIED),
    "total": (total, PARTIAL, REPLICATED),
    "scatter": (lambda x: scatter(x, -2), PARTIAL, sharded(-2)),
    "scatter columns": (lambda x: scatter(x, -1), PARTIAL, sharded(-1)),
    "gather": (gather, sharded(-2), REPLICATED),
    "gather columns": (gather, sharded(-1), REPLICATED),
    "collect": (collect, sharded(-2), COPIED),
    "collect columns": (collect, sharded(-1), COPIED),
    "split": (lambda x: split(x, -2), REPLICATED, sharded(-2)),
    "split columns": (lambda x: split(x, -1), REPLICATED, sharded(-1)),
}

#: The bytes that all ranks send, there and back, in units of (N − 1) · S.
SENT = {
    "copy": (0, 2),
    "total": (2, 0),
    "scatter": (1, 1),
    "gather": (1, 0),
    "collect": (1, 1),
    "split": (0, 1),
}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("move", MOVES)
def test_a_move_keeps_the_whole_and_its_gradient(move, ranks):
    """Whatever the ranks then do: each has a gradient of its own where the
    type says that they differ, and one for all where it says the same."""
    function, before, after = MOVES[move]
    value = randn(5, 5, seed=1)
    back = randn(5, 5, seed=2)
    parts = [randn(5, 5, seed=3 + rank) for rank in range(ranks)]

    def work(wire):
        sizes = FIVE[ranks] if before.axis else None
        x = place(value, before, wire, sizes=sizes)
        if before == PARTIAL:  # summands, none of which is the whole
            x = Placed(parts[wire.rank], PARTIAL, wire)
        x.local.requires_grad_()
        y = function(x)
        there = wire.sent
        assert y.type == after
        if after == COPIED:  # each does work of its own
            outer = parts[wire.rank]
        else:
            sizes = y.sizes or None
            outer = place(back, after.of_gradient, wire, sizes=sizes).local
        y.local.backward(outer)
        return x, y, x.local.grad, there, wire.sent - there

    x, y, gradients, there, returned = zip(*on_threads(ranks, work))
    same(whole_of(y), whole_of(x))
    wanted = sum(parts) if after == COPIED else back
    same(grads_of(x, gradients), wanted)
    unit = (ranks - 1) * value.numel() * 8
    wanted = [n * unit for n in SENT[move.split()[0]]]
    assert [sum(there), sum(returned)] == wanted


@pytest.mark.parametrize("move", MOVES)
def test_a_move_takes_one_type_alone(move):
    function, before, _ = MOVES[move]
    for type_ in TYPES:
        if type_ == before or (before.axis and type_.axis):
            continue
        said = f"takes a tensor of another type; expected .*is {type_.name}"

        def work(wire, type_=type_):
            function(place(randn(5, 5, seed=1), type_, wire))

        with pytest.raises(ValueError, match=said):
            on_threads(2, work)


def test_the_gradient_of_a_type_has_a_type():
    """And the gradient of what has such a gradient has the first again: the
    moves back are moves."""
    pairs = [str(t.of_gradient) for t in TYPES]
    assert pairs == [
        "replicated",
        "partial",
        "replicated",
        "sharded(-1)",
        "sharded(-2)",
    ]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_gradient_is_given_with_its_type(type_):
    def work(wire):
        x = place(randn(4, 4, seed=1), type_, wire, learned=True)
        with pytest.raises(ValueError, match="this tensor has no gradient; e"):
            x.gradient()
        x.local.square().sum().backward()
        gradient = x.gradient()
        assert gradient.type == type_.of_gradient
        assert gradient.sizes == x.sizes
        same(gradient.local, 2 * x.local.detach())

    on_threads(2, work)


@pytest.mark.parametrize("sizes", [[1, 2], [5], [2, 2, 1], [1, 3]])
def test_sizes_that_do_not_fit_are_refused(sizes):
    said = "the sizes do not fit the axis; expected 2 of them, one for each"

    def work(wire):
        place(randn(5, seed=1), sharded(-1), wire, sizes=sizes)

    with pytest.raises(ValueError, match=said):
        on_threads(2, work)


@pytest.mark.parametrize("axis", [0, 1, None, -1.0])
def test_an_axis_is_counted_from_the_back(axis):
    said = "the axis of a sharded tensor is counted from the back here; expect"
    with pytest.raises(ValueError, match=said):
        sharded(axis)


def test_sizes_may_be_given_in_any_sequence():
    """A list, or none where the shares are even: they are the same sizes."""

    def work(wire):
        x = randn(4, seed=1)
        listed = place(x, sharded(-1), wire, sizes=[2, 2])
        return listed.sizes == place(x, sharded(-1), wire).sizes == (2, 2)

    assert on_threads(2, work) == [True, True]


def test_a_placed_tensor_is_the_ranks_own():
    """What one rank does to its copy does not reach the others'."""
    x = torch.zeros(2)

    def work(wire):
        mine = place(x, REPLICATED, wire)
        mine.local.add_(wire.rank)
        return mine.local.tolist()

    assert on_threads(2, work) == [[0, 0], [1, 1]]
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize("axis", [-1, -2])
def test_sizes_are_the_same_however_a_part_came_about(axis):
    """Else what was split could not be added to what was placed."""
    x = randn(5, 7, seed=1)

    def work(wire):
        replicated = place(x, REPLICATED, wire)
        partial = place(x, PARTIAL, wire)
        even = place(x, sharded(axis), wire).sizes
        assert split(replicated, axis).sizes == even
        assert scatter(partial, axis).sizes == even
        own = [1, x.shape[axis] - 1]
        mine = split(replicated, axis, own)
        assert mine.sizes == tuple(own)
        assert mine.local.shape[axis] == own[wire.rank]
        assert place(x, REPLICATED, wire).sizes == ()
        assert gather(mine).sizes == copy(replicated).sizes == ()
        return even

    n = x.shape[axis]
    assert on_threads(2, work) == [(n - n // 2, n // 2)] * 2


def test_what_is_put_together_has_no_gradient_and_is_whole():
    def work(wire):
        for type_ in TYPES:
            x = place(randn(3, 3, seed=1), type_, wire, learned=True)
            assert x.local.requires_grad
            assert not together(x).requires_grad
        return True

    assert on_threads(2, work) == [True] * 2
    assert [str(type_) for type_ in TYPES] == [
        "replicated",
        "copied",
        "partial",
        "sharded(-1)",
        "sharded(-2)",
    ]
