"""Experts: routing, balance and capacity by enumeration; a mixture is the
dense one, and on ranks it is that of one process."""

import itertools

import pytest
import torch

from attnbook.collectives import all_reduce, share_sizes
from attnbook.experts import (
    Mixture,
    Routing,
    balance_loss,
    dense_mixture,
    mixture_on_ranks,
    one_expert,
    route,
    within_capacity,
)
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn
from attnbook.wire import on_threads


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


def mixture(k, n_experts=5, d=4, **options):
    made = Mixture(d, 3, n_experts, k, **options).double()
    with torch.no_grad():
        for n, p in enumerate(made.parameters()):
            p.copy_(randn(*p.shape, seed=n))
    return made


def weights_of(made):
    return made.router, made.up, made.down


def with_gradients(f, inputs):
    out = f(*inputs)
    return [out, *torch.autograd.grad(out.square().sum(), inputs)]


def test_a_token_goes_where_its_probability_is_highest():
    logits = torch.tensor([[1.0, 3, 2], [0, -1, -2]]).double()
    chosen, weights, probabilities = route(logits, 2)
    assert chosen.tolist() == [[1, 2], [0, 1]]
    same(probabilities, logits.exp() / logits.exp().sum(-1, True))
    e = torch.tensor(1.0).double().exp()
    wanted = torch.stack([e / (e + 1), 1 / (e + 1)]).expand(2, -1)
    same(weights, wanted)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_each_expert_computes_its_own_tokens_or_all_compute_all(k):
    made = mixture(k)
    x = randn(6, 4, seed=9).requires_grad_()
    weights = weights_of(made)
    ours = with_gradients(lambda x, *_: made(x), (x, *weights))
    theirs = with_gradients(
        lambda *given: dense_mixture(*given, k), (x, *weights)
    )
    same(ours, theirs)
    if k == 1:  # one weight, divided by itself
        assert ours[2].abs().max() < 1e-12


def test_all_experts_chosen_is_the_dense_mixture():
    made = mixture(5)
    x = randn(6, 4, seed=9)
    gates = (x @ made.router).softmax(-1)
    wanted = sum(
        gates[:, e, None] * one_expert(x, made.up[e], made.down[e])
        for e in range(5)
    )
    same(made(x), wanted)


def test_a_token_is_computed_as_if_alone():
    made = mixture(2)
    x = randn(6, 4, seed=9)
    same(made(x), torch.cat([made(token[None]) for token in x]))


def routing_of(choices, probabilities):
    chosen = torch.tensor(choices)[:, None]
    return Routing(chosen, torch.ones(chosen.shape), probabilities)


@pytest.mark.parametrize("k", [1, 2])
def test_the_balance_is_one_where_all_get_the_same(k):
    """Whatever the probabilities are, if the choices are even; and whatever
    the choices are, if the probabilities are."""
    chosen = torch.tensor([[0, 1], [1, 2], [2, 0]])[:, :k]
    any_ = randn(3, 3, seed=1).softmax(-1)
    even = torch.full((3, 3), 1 / 3, dtype=torch.float64)
    same(balance_loss(Routing(chosen, None, any_)), torch.tensor(1.0).double())
    uneven = torch.zeros(3, k).long()
    same(balance_loss(Routing(uneven, None, even)), torch.tensor(1.0).double())


def test_the_balance_is_largest_where_one_gets_all_and_may_be_below_one():
    """All go to one of two, surely: 2. And 0.896 for three tokens of which
    two go where the mean probability is below a half."""
    sure = torch.tensor([[1.0, 0.0]] * 3).double()
    assert balance_loss(routing_of([0, 0, 0], sure)).item() == 2
    low = torch.tensor([[0.51, 0.49], [0.51, 0.49], [0.01, 0.99]]).double()
    found = balance_loss(route(low.log(), 1))
    f, p = torch.tensor([2 / 3, 1 / 3]), low.mean(0)
    same(found, 2 * (f.double() * p).sum(), within=1e-7)
    assert found.item() == pytest.approx(0.8956, abs=1e-4)


def test_only_probabilities_have_a_gradient_in_the_balance():
    logits = randn(6, 3, seed=1).requires_grad_()
    routing = route(logits, 2)
    (found,) = torch.autograd.grad(balance_loss(routing), logits)
    shares = torch.bincount(routing.chosen.flatten(), minlength=3).double()
    wanted = (3 * shares / 12 * logits.softmax(-1).mean(0)).sum()
    same(found, torch.autograd.grad(wanted, logits)[0])


def test_padding_does_not_count_in_the_balance():
    logits = randn(6, 3, seed=1)
    real = torch.tensor([1, 1, 0, 1, 0, 0]).bool()
    found = balance_loss(route(logits, 2), real)
    same(found, balance_loss(route(logits[real], 2)))
    assert abs(found - balance_loss(route(logits, 2))) > 1e-3
    said = "there is nothing to balance; expected one real token at least; got"
    with pytest.raises(ValueError, match=said):
        balance_loss(route(logits, 2), real & False)


def by_a_walk(chosen, n_experts, capacity, real=None):
    taken = [0] * n_experts
    kept = [[False] * len(chosen[0]) for _ in chosen]
    for rank in range(len(chosen[0])):
        for t, choices in enumerate(chosen):
            expert = choices[rank]
            if real is not None and not real[t]:
                continue
            kept[t][rank] = taken[expert] < capacity
            taken[expert] += 1
    return kept


@pytest.mark.parametrize("capacity", [0, 1, 2, 5])
def test_places_go_to_first_choices_first(capacity):
    """All 36 ways in which two of three tokens choose, and two that ask for
    one and the same; with and without padding."""
    pairs = list(itertools.permutations(range(3), 2))
    for a, b in itertools.product(pairs, pairs):
        chosen = [list(a), list(b), [2, 1], [2, 0]]
        for real in (None, [True, False, True, True]):
            found = within_capacity(
                torch.tensor(chosen),
                3,
                capacity,
                None if real is None else torch.tensor(real),
            )
            assert found.tolist() == by_a_walk(chosen, 3, capacity, real)


def test_what_finds_no_place_adds_nothing():
    """Six tokens, one place in each of two experts: two tokens get something
    and the others the zero vector, and their gradient is none."""
    made = mixture(1, n_experts=2, capacity_factor=1 / 3)
    x = randn(6, 4, seed=9).requires_grad_()
    out = made(x)
    chosen = route(x @ made.router, 1).chosen
    kept = within_capacity(chosen, 2, 1)[:, 0]
    assert kept.sum() == 2
    assert (out[~kept] == 0).all()
    same(out[kept], mixture(1, n_experts=2)(x)[kept])
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert (gradient[~kept] == 0).all() and (gradient[kept] != 0).any()


def test_padding_takes_no_place():
    made = mixture(1, n_experts=2, capacity_factor=1.0)
    x = randn(4, 4, seed=9)
    padded = torch.cat([x[:1].expand(6, -1), x])
    real = torch.arange(10) >= 6
    found = made(padded, real)
    same(found[real], made(x))
    assert (found[~real] == 0).all()


def test_there_is_always_a_place():
    made = mixture(1, n_experts=5, capacity_factor=0.001)
    assert (made(randn(1, 4, seed=9)) != 0).any()


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("sizes", [[6], [1, 5], [3, 0, 3], [1, 2, 0, 3]])
def test_experts_on_ranks_are_those_of_one_process(sizes, k):
    """Also for a rank that has no token, and for the router, whose gradient
    is the sum of what the ranks find."""
    made = mixture(k)
    x = randn(6, 4, seed=9).requires_grad_()
    wanted = with_gradients(lambda x, *_: made(x), (x, *weights_of(made)))
    held = share_sizes(5, len(sizes))

    def work(wire):
        cuts = [sizes, None, held, held]
        own = [
            (w if cut is None else w.split(cut)[wire.rank]).detach().clone()
            for w, cut in zip((x, *weights_of(made)), cuts)
        ]
        own = [w.requires_grad_() for w in own]
        out = mixture_on_ranks(*own, k, wire)
        there = wire.sent
        gradients = [*torch.autograd.grad(out.square().sum(), own)]
        back = wire.sent - there
        share = gradients[1]
        gradients[1] = all_reduce(wire, share)
        return out, gradients, share, there, back

    out, gradients, shares, there, back = zip(
        *on_threads(len(sizes), work, patience=20)
    )
    same(torch.cat(out), wanted[0])
    for n in (0, 2, 3):
        same(torch.cat([g[n] for g in gradients]), wanted[n + 1])
    for g in gradients:
        same(g[1], wanted[2])
    if len(sizes) > 1 and k == 2:
        assert difference(shares[0], wanted[2], within=0.01)
    home = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(held))
    chosen = route(x @ made.router, k).chosen
    away = int((owner[chosen] != home[:, None]).sum())
    vectors = 2 * away * 4 * 8
    assert sum(back) == vectors
    assert sum(there) == vectors + (len(sizes) - 1) * 5 * 8


def test_more_ranks_than_experts():
    made = mixture(1, n_experts=2)
    x = randn(3, 4, seed=9)
    held = share_sizes(2, 3)

    def work(wire):
        up, down = (w.split(held)[wire.rank] for w in (made.up, made.down))
        own = x[wire.rank : wire.rank + 1]
        return mixture_on_ranks(own, made.router, up, down, 1, wire)

    same(torch.cat(on_threads(3, work)), made(x))


def test_other_experts_than_a_rank_should_have_are_refused():
    made = mixture(1)

    def work(wire):
        mixture_on_ranks(randn(2, 4, seed=1), *weights_of(made), 1, wire)

    said = "rank . has other experts than it should; expected . of 5; got 5"
    with pytest.raises(ValueError, match=said):
        on_threads(2, work)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: route(torch.ones(2, 3), 4), "k is not allowed.*got 4"),
        (lambda: route(torch.ones(2, 3), 0), "k is not allowed.*got 0"),
        (lambda: route(torch.ones(3), 1), "has no axis T"),
        (lambda: Mixture(4, 3, 2, 3), "k is not allowed.*at most 2; got 3"),
        (lambda: Mixture(4, 3, 0, 1), "n_experts is not allowed"),
        (
            lambda: Mixture(4, 3, 2, 1, capacity_factor=0),
            "capacity_factor is not allowed",
        ),
        (
            lambda: within_capacity(torch.ones(2, 1).long(), 2, -1),
            "capacity is not allowed",
        ),
        (
            lambda: within_capacity(torch.ones(2, 1).long(), 0, 1),
            "n_experts is not allowed",
        ),
        (lambda: Mixture(4, 3, 2, 1)(torch.ones(2, 5)), "axis d of x is 5"),
    ],
)
def test_what_cannot_be_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda real: within_capacity(torch.ones(2, 1).long(), 2, 1, real),
        lambda real: balance_loss(route(torch.ones(2, 3), 1), real),
    ],
)
def test_what_is_real_is_said_by_booleans_for_each_token(call):
    with pytest.raises(TypeError, match="real is of the wrong type; expected"):
        call(torch.ones(2))
    with pytest.raises(ValueError, match="axis T of real is 3"):
        call(torch.ones(3) > 0)


def test_new_weights_are_small_and_differ():
    torch.manual_seed(0)
    made = Mixture(4, 3, 2, 1)
    for p in made.parameters():
        assert 0.005 < p.std() < 0.05
        assert p.requires_grad
    assert [tuple(p.shape) for p in made.parameters()] == [
        (4, 2),
        (2, 4, 3),
        (2, 3, 4),
    ]


def test_padding_adds_nothing_and_the_rest_stays():
    """Without a limit of places, too."""
    made = mixture(2)
    x = randn(6, 4, seed=9)
    real = torch.tensor([1, 0, 1, 1, 0, 1]).bool()
    found = made(x, real)
    assert not found[~real].any()
    same(found[real], made(x)[real])


@pytest.mark.parametrize("factor, places", [(0.5, 1), (1.0, 2), (1.5, 3)])
def test_places_are_a_multiple_of_what_is_even(factor, places):
    """Eight choices of four tokens among four experts: two are even; of the
    five tokens one is padding."""
    made = mixture(2, n_experts=4, capacity_factor=factor)
    x = randn(5, 4, seed=9)
    real = torch.tensor([1, 1, 0, 1, 1]).bool()
    chosen, weights, _ = route(x @ made.router, 2)
    kept = within_capacity(chosen, 4, places, real)
    assert kept.sum() < 8 or factor > 1
    wanted = torch.zeros_like(x)
    for t, rank in kept.nonzero().tolist():
        e = chosen[t, rank]
        y = one_expert(x[t : t + 1], made.up[e], made.down[e])
        wanted[t] += weights[t, rank] * y[0]
    same(made(x, real), wanted)


def test_experts_by_hand():
    """One number, two experts, weights of 2 and 3."""
    x = torch.tensor([[1.0]]).double()
    up = torch.tensor([[[1.0]], [[2.0]]]).double()
    down = torch.tensor([[[5.0]], [[7.0]]]).double()
    router = torch.tensor([[2.0, 3.0]]).double().log()
    gelu = [0.8411919906082768, 1.954597694087775]  # the tanh form of 1 and 2
    wanted = 0.4 * 5 * gelu[0] + 0.6 * 7 * gelu[1]
    found = dense_mixture(x, router, up, down, 2).item()
    assert found == pytest.approx(wanted, abs=1e-12)
    found = dense_mixture(x, router, up, down, 1).item()
    assert found == pytest.approx(7 * gelu[1], abs=1e-12)


def test_experts_that_do_not_fit_a_rank_are_refused():
    made = mixture(1)
    x = randn(2, 4, seed=1)

    def with_down(wire):
        mixture_on_ranks(x, made.router, made.up, made.down[:1], 1, wire)

    with pytest.raises(ValueError, match="rank 0 has other experts than it s"):
        on_threads(1, with_down)

    def with_router(wire):
        mixture_on_ranks(x, made.router[:3], made.up, made.down, 1, wire)

    with pytest.raises(ValueError, match="d is both 3 and 4"):
        on_threads(1, with_router)


def test_k_and_sizes_at_their_bounds():
    assert Mixture(1, 1, 1, 1).k == 1
    assert route(torch.zeros(1, 3), 3).chosen.shape == (1, 3)
    for wrong in ({"d_model": 0}, {"d_ff": 0}):
        sizes = {"d_model": 2, "d_ff": 2, "n_experts": 2, "k": 1} | wrong
        with pytest.raises(ValueError, match="is not allowed.*got 0"):
            Mixture(**sizes)
    with pytest.raises(ValueError, match="k is not allowed.*got 0"):
        Mixture(2, 2, 2, 0)
    none = within_capacity(torch.zeros(3, 1).long(), 1, 0)
    assert none.tolist() == [[False]] * 3
