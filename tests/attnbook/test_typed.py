"""What ranks may compute together: all that is allowed gives the result and
the gradients of one process, and what is refused would not."""

import itertools

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
    sharded,
    split,
    together,
    total,
)
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn
from attnbook.typed import add, add_up, apply, backward, finished, matmul
from attnbook.wire import on_threads

TYPES = [REPLICATED, COPIED, PARTIAL, sharded(-1), sharded(-2)]
RANKS = 3


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


def one_process(f, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = f(*inputs)
    out.pow(2).sum().backward()
    return [out.detach(), *(x.grad for x in inputs)]


def as_loss(y):
    """The sum of squares of what the ranks have, as one process has it."""
    if y.type == PARTIAL:
        y = total(y)
    return add_up(apply(torch.square, y))


def on_ranks(f, inputs, types):
    """The result and the gradients of the inputs, of these types; or None if
    it was refused. A copied input begins as a replicated one, so that its
    gradient is added up."""

    def work(wire):
        placed = [
            place(
                x,
                REPLICATED if t == COPIED else t,
                wire,
                learned=True,
            )
            for x, t in zip(inputs, types)
        ]
        used = [copy(x) if t == COPIED else x for x, t in zip(placed, types)]
        y = f(*used)
        loss = as_loss(y)
        if loss.type == COPIED:  # to be divided among those that do the same
            loss = Placed(loss.local / wire.size, PARTIAL, wire)
        backward(loss)
        gradients = [together(x.gradient()) for x in placed]
        return [together(y), *gradients]

    try:
        return on_threads(RANKS, work)
    except ValueError as error:
        assert " refuses " in str(error)
        return None


ALLOWED_PRODUCTS = {
    (REPLICATED, REPLICATED),
    (COPIED, COPIED),
    (COPIED, sharded(-1)),
    (sharded(-1), sharded(-2)),
    (sharded(-2), COPIED),
}


@pytest.mark.parametrize(
    "types", [*itertools.product(TYPES, TYPES)], ids=lambda t: f"{t[0]} {t[1]}"
)
def test_a_product_is_that_of_one_process_or_refused(types):
    x, w = randn(4, 5, seed=1), randn(5, 7, seed=2)
    found = on_ranks(matmul, (x, w), types)
    assert (found is not None) == (types in ALLOWED_PRODUCTS)
    for rank in found or ():
        same(rank, one_process(torch.matmul, x, w))


@pytest.mark.parametrize(
    "types", [*itertools.product(TYPES, TYPES)], ids=lambda t: f"{t[0]} {t[1]}"
)
def test_a_sum_is_that_of_one_process_or_refused(types):
    x, y = randn(4, 5, seed=1), randn(4, 5, seed=2)
    found = on_ranks(add, (x, y), types)
    assert (found is not None) == (types[0] == types[1])
    for rank in found or ():
        same(rank, one_process(torch.add, x, y))


@pytest.mark.parametrize(
    "types, allowed",
    [
        ((sharded(-2), COPIED), True),
        ((sharded(-1), sharded(-1)), True),
        ((REPLICATED, REPLICATED), True),
        ((sharded(-2), REPLICATED), False),
        ((sharded(-1), COPIED), False),
        ((PARTIAL, REPLICATED), False),
        ((PARTIAL, COPIED), False),
    ],
)
def test_a_bias_is_added_once_or_refused(types, allowed):
    x, b = randn(4, 5, seed=1), randn(5, seed=2)
    found = on_ranks(add, (x, b), types)
    assert (found is not None) == allowed
    for rank in found or ():
        same(rank, one_process(torch.add, x, b))


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_function_of_each_part_is_that_of_the_whole_or_refused(type_):
    x = randn(4, 5, seed=1)
    found = on_ranks(lambda x: apply(torch.tanh, x), (x,), (type_,))
    assert (found is None) == (type_ == PARTIAL)
    for rank in found or ():
        same(rank, one_process(torch.tanh, x))


def test_weights_that_are_copied_may_meet_tokens_that_are_sharded():
    x, w = randn(4, 5, seed=1), randn(5, seed=2)
    types = sharded(-2), COPIED
    found = on_ranks(lambda x, w: apply(torch.mul, x, w), (x, w), types)
    for rank in found:
        same(rank, one_process(torch.mul, x, w))
    for wrong in ((sharded(-2), REPLICATED), (REPLICATED, COPIED)):
        assert (
            on_ranks(lambda x, w: apply(torch.mul, x, w), (x, w), wrong)
            is None
        )


@pytest.mark.parametrize("axis", [-1, -2, -3])
@pytest.mark.parametrize("type_", [*TYPES, sharded(-3)], ids=str)
def test_a_sum_over_an_axis(type_, axis):
    x = randn(3, 4, 5, seed=1)

    def work(wire):
        y = add_up(place(x, type_, wire), axis)
        if type_.axis is None:
            assert y.type == type_
        else:
            assert y.type == (PARTIAL if axis == type_.axis else type_)
        return together(y)

    if type_.axis is not None and type_.axis < axis:
        said = f"over axis {axis} would leave a tensor whose axis {type_.axis}"
        with pytest.raises(ValueError, match=said):
            on_threads(2, work)
        return
    for found in on_threads(2, work):
        same(found, x.sum(axis))


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_loss_begins_with_one_gradient_for_all(type_):
    x = randn(4, 5, seed=1)

    def work(wire):
        mine = place(x, type_, wire, learned=True)
        loss = add_up(mine)
        backward(loss)
        return together(mine.gradient())

    if type_ == COPIED:
        said = "has to be one number, replicated or partial; got one that is c"
        with pytest.raises(ValueError, match=said):
            on_threads(RANKS, work)
        return
    for found in on_threads(RANKS, work):
        same(found, torch.ones_like(x))


def test_a_loss_with_axes_is_refused():
    with pytest.raises(ValueError, match=r"with shape \(2,\)"):
        on_threads(1, lambda w: backward(place(torch.ones(2), REPLICATED, w)))


def test_a_copied_loss_would_count_once_for_each_rank():
    """What is refused above would be wrong: by a factor N."""
    x = randn(4, seed=1)

    def work(wire):
        mine = place(x, REPLICATED, wire, learned=True)
        add_up(copy(mine)).local.backward()
        return mine.gradient().local

    for found in on_threads(RANKS, work):
        same(found, RANKS * torch.ones(4).double())


def test_a_bias_before_the_sum_would_count_once_for_each_rank():
    x, b = randn(4, 5, seed=1), randn(5, seed=2)

    def work(wire):
        part = place(x, PARTIAL, wire)
        wrong = Placed(part.local + b, PARTIAL, wire)
        return together(wrong)

    for found in on_threads(RANKS, work):
        same(found, x + RANKS * b)


def test_a_column_without_a_copy_would_lose_gradient():
    """The result is right, and the gradient of x is each rank's own share."""
    x, w = randn(4, 5, seed=1), randn(5, 6, seed=2)

    def work(wire):
        mine = place(x, REPLICATED, wire, learned=True)
        columns = place(w, sharded(-1), wire)
        y = Placed(
            mine.local @ columns.local, sharded(-1), wire, columns.sizes
        )
        backward(add_up(y))
        return together(y), mine.gradient().local

    found = on_threads(RANKS, work)
    for y, _ in found:
        same(y, x @ w)
    wanted = torch.ones(4, 6).double() @ w.T
    assert all(difference(g, wanted, within=0.01) for _, g in found)
    same(sum(g for _, g in found), wanted)


def test_a_gradient_that_is_not_finished_changes_no_weight():
    def work(wire):
        w = place(randn(3, seed=1), COPIED, wire, learned=True)
        w.local.sum().backward()
        with pytest.raises(ValueError, match="a partial gradient is not fini"):
            finished(w.gradient())
        return finished(total(w.gradient()))

    for found in on_threads(2, work):
        assert found.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "call, said",
    [
        (
            lambda x, p, w: add(p, x),
            "add refuses partial (4, 4) and replicated (4, 4): what is "
            "replicated would be counted once by each rank; make a total of "
            "the partial one first",
        ),
        (
            lambda x, p, w: add(x, p),
            "add refuses replicated (4, 4) and partial (4, 4): what is "
            "replicated would be counted once by each rank; make a total of "
            "the partial one first",
        ),
        (
            lambda x, p, w: matmul(x, w),
            "matmul refuses replicated (4, 4) and sharded(-1) (4, 4): each "
            "rank would find only its share of the gradient of what is "
            "replicated, and take it for the whole; use `copy` first",
        ),
        (
            lambda x, p, w: apply(torch.tanh, p),
            "apply refuses partial (4, 4): a function of a sum is not the sum "
            "of the function; make a total of it first",
        ),
        (
            lambda x, p, w: matmul(p, x),
            "matmul refuses partial (4, 4) and replicated (4, 4): the result, "
            "or a gradient, would not be that of one process",
        ),
    ],
)
def test_a_refusal_says_why_and_what_to_do(call, said):
    one = randn(4, 4, seed=1)

    def work(wire):
        types = REPLICATED, PARTIAL, sharded(-1)
        call(*(place(one, t, wire) for t in types))

    with pytest.raises(ValueError) as caught:
        on_threads(1, work)
    assert str(caught.value) == said


def test_parts_of_different_sizes_are_refused():
    x, w = randn(4, 5, seed=1), randn(5, 4, seed=2)

    def cut(wire, sizes):
        return (
            place(x, sharded(-1), wire, sizes=[1, 4]),
            place(w, sharded(-2), wire, sizes=sizes),
        )

    on_threads(2, lambda wire: matmul(*cut(wire, [1, 4])))
    with pytest.raises(ValueError, match="matmul refuses"):
        on_threads(2, lambda wire: matmul(*cut(wire, [4, 1])))


@pytest.mark.parametrize("f", [add, lambda a, b: apply(torch.mul, a, b)])
def test_numbers_of_different_places_are_not_put_together(f):
    x = randn(4, 5, seed=1)

    def work(wire):
        f(
            place(x, sharded(-1), wire, sizes=[1, 4]),
            place(x, sharded(-1), wire, sizes=[4, 1]),
        )

    with pytest.raises(ValueError, match="refuses"):
        on_threads(2, work)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("way", ["tensor parallel", "fully sharded", "data"])
def test_two_matrices_in_three_ways(way, ranks):
    """A feed-forward layer: the same loss and gradients in each."""
    x = randn(5, 6, seed=1)
    weights = [randn(*s, seed=2) for s in ((6, 7), (7,), (7, 6), (6,))]

    def alone(x, up, b, down, c):
        return torch.tanh(x @ up + b) @ down + c

    wanted = one_process(alone, x, *weights)

    def by_columns_and_rows(wire):
        types = sharded(-1), sharded(-1), sharded(-2), REPLICATED
        placed = [
            place(w, t, wire, learned=True) for w, t in zip(weights, types)
        ]
        mine = place(x, REPLICATED, wire, learned=True)
        up, b, down, c = placed
        inner = apply(torch.tanh, add(matmul(copy(mine), up), b))
        return add(total(matmul(inner, down)), c), mine, placed

    def by_tokens(wire, type_, read):
        placed = [place(w, type_(w), wire, learned=True) for w in weights]
        mine = place(x, sharded(-2), wire, learned=True)
        up, b, down, c = map(read, placed)
        inner = apply(torch.tanh, add(matmul(mine, up), b))
        return add(matmul(inner, down), c), mine, placed

    def work(wire):
        if way == "tensor parallel":
            y, mine, placed = by_columns_and_rows(wire)
        elif way == "data":
            y, mine, placed = by_tokens(wire, lambda w: REPLICATED, copy)
        else:
            y, mine, placed = by_tokens(
                wire, lambda w: sharded(-w.ndim), collect
            )
        backward(add_up(apply(torch.square, y)))
        return [
            together(y),
            *(together(g.gradient()) for g in (mine, *placed)),
        ]

    for found in on_threads(ranks, work):
        for ours, theirs in zip(found, wanted):
            same(ours, theirs, within=1e-11)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_experts_that_are_sharded_give_the_router_its_whole_gradient(ranks):
    """All tokens in every rank, the experts dealt out on an axis of their
    own, and each expert's share of the result with them."""
    x, router = randn(4, 3, seed=1), randn(3, 5, seed=2)
    up, down = randn(5, 3, 2, seed=3), randn(5, 2, 3, seed=4)

    def alone(x, router, up, down):
        gates = (x @ router).softmax(-1).T[..., None]  # (E, T, 1)
        return (gates * (torch.tanh(x @ up) @ down)).sum(0)

    wanted = one_process(alone, x, router, up, down)

    def work(wire):
        types = REPLICATED, REPLICATED, sharded(-3), sharded(-3)
        placed = [
            place(w, t, wire, learned=True)
            for w, t in zip((x, router, up, down), types)
        ]
        x_, router_, up_, down_ = placed
        gates = apply(
            lambda a: a.softmax(-1).T[..., None], matmul(x_, router_)
        )
        gates = split(gates, -3)
        tokens = split(
            apply(lambda a: a.expand(5, 4, 3), x_), -3
        )  # the same tokens for each expert
        out = apply(
            lambda x, g, a, b: g * (torch.tanh(x @ a) @ b),
            tokens,
            gates,
            up_,
            down_,
        )
        y = total(add_up(out, -3))
        backward(add_up(apply(torch.square, y)))
        return [together(y), *(together(g.gradient()) for g in placed)]

    for found in on_threads(ranks, work):
        same(found, wanted)


def test_a_sharded_result_may_be_gathered_to_go_on():
    x, w = randn(4, 5, seed=1), randn(5, 7, seed=2)

    def f(x, w):
        return gather(matmul(x, w))

    for rank in on_ranks(f, (x, w), (COPIED, sharded(-1))):
        same(rank, one_process(torch.matmul, x, w))
