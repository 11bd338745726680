"""A batch dealt out among ranks, unequally: the same step as in one."""

import copy
import dataclasses

import pytest
import torch
from models import random_model

from attnbook.data_parallel import (
    ShardedOptimizer,
    data_parallel,
    flat_gradients,
)
from attnbook.gpt import GPTConfig
from attnbook.teach.check.difference import difference
from attnbook.training import (
    Recipe,
    learning_rate,
    loss_share,
    make_optimizer,
    update,
)
from attnbook.wire import on_threads

CONFIG = GPTConfig(vocab_size=7, context=6, d_model=8, n_heads=2, n_layers=1)

#: How seven sequences are dealt out: also one that gives a rank nothing.
SHARES = [[7], [1, 6], [3, 0, 4], [1, 2, 3, 1]]

#: The clip is so short that it always shortens.
RECIPE = Recipe(steps=5, warmup=1, batch_size=7, clip=0.3)


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


def small(**changes):
    return random_model(dataclasses.replace(CONFIG, **changes)).double()


def batch():
    """Seven sequences, with few targets in some and none in one."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(7, (7, 6), generator=generator)
    targets = torch.randint(7, (7, 6), generator=generator)
    targets[0, 2:] = -100
    targets[3] = -100
    return tokens, targets


def dealt(shares, wire):
    return [x.split(shares)[wire.rank] for x in batch()]


@pytest.mark.parametrize("shares", SHARES)
def test_loss_and_gradients_are_those_of_one_process(shares):
    model = small()
    wanted = loss_share(model, *batch())
    gradients = torch.autograd.grad(wanted, [*model.parameters()])
    models = [copy.deepcopy(model) for _ in shares]

    def work(wire):
        mine = models[wire.rank]
        loss = data_parallel(mine, *dealt(shares, wire), wire=wire)
        return loss, [p.grad for p in mine.parameters()], wire.sent

    found = on_threads(len(shares), work)
    for loss, grads, _ in found:
        assert loss == pytest.approx(wanted.item(), abs=1e-12)
        same(grads, list(gradients))
        assert all(
            torch.equal(a, b) for a, b in zip(grads, found[0][1])
        )  # to the bit, so the copies of the model stay equal
    numbers = sum(p.numel() for p in model.parameters())
    sent = sum(bytes_ for *_, bytes_ in found)
    assert sent == 2 * (len(shares) - 1) * 8 * (numbers + 2)


def test_a_mean_of_means_is_noticed():
    model = small()
    tokens, targets = batch()
    wanted = loss_share(model, tokens, targets).item()
    means = [
        loss_share(model, a, b).item()
        for a, b in zip(tokens.split([1, 6]), targets.split([1, 6]))
    ]
    assert abs(sum(means) / 2 - wanted) > 0.01


def test_packed_texts_are_dealt_out_with_their_segments():
    model = small()
    tokens, targets = batch()
    segments = (torch.arange(6) // 2).expand(7, -1)
    wanted = loss_share(model, tokens, targets, segments).item()
    shares = [2, 5]

    def work(wire):
        parts = [
            x.split(shares)[wire.rank] for x in (tokens, targets, segments)
        ]
        return data_parallel(copy.deepcopy(model), *parts, wire=wire)

    assert on_threads(2, work) == pytest.approx([wanted] * 2, abs=1e-12)
    assert abs(wanted - loss_share(model, tokens, targets).item()) > 1e-6


def test_old_gradients_are_gone():
    model = small()
    tokens, targets = batch()

    def work(wire):
        for _ in range(2):
            data_parallel(model, tokens, targets, wire=wire)
        return [p.grad for p in model.parameters()]

    (twice,) = on_threads(1, work)
    wanted = loss_share(model, tokens, targets)
    same(twice, list(torch.autograd.grad(wanted, [*model.parameters()])))


def test_gradients_may_be_left_as_they_are():
    """Their sum over the ranks is then left to whoever wants it."""
    model = small()
    wanted = loss_share(model, *batch())
    gradients = torch.autograd.grad(wanted, [*model.parameters()])
    models = [copy.deepcopy(model) for _ in range(2)]

    def work(wire):
        mine = models[wire.rank]
        own = dealt([2, 5], wire)
        data_parallel(mine, *own, wire=wire, add_gradients=False)
        return [p.grad for p in mine.parameters()]

    first, second = on_threads(2, work)
    same([a + b for a, b in zip(first, second)], list(gradients))


def test_a_batch_without_targets_is_refused():
    tokens, targets = batch()
    none = torch.full_like(targets, -100)

    def work(wire):
        data_parallel(small(), tokens, none, wire=wire)

    said = "no rank has a target that counts; expected at least one in the ba"
    with pytest.raises(ValueError, match=said):
        on_threads(1, work)


@pytest.mark.parametrize("shares", SHARES)
def test_a_shared_optimizer_makes_the_same_steps(shares):
    """Shortened gradients, decay for matrices alone, and a rate that changes;
    each rank remembers its share, and all send as plain data parallel does.
    """
    model = small()
    alone = copy.deepcopy(model)
    optimizer = make_optimizer(alone, RECIPE)
    losses = [
        update(alone, optimizer, batch(), step, RECIPE) for step in range(4)
    ]
    models = [copy.deepcopy(model) for _ in shares]

    def work(wire):
        mine = models[wire.rank]
        shared = ShardedOptimizer(mine, RECIPE, wire)
        found = []
        for step in range(4):
            own = dealt(shares, wire)
            loss = data_parallel(mine, *own, wire=wire, add_gradients=False)
            found.append(loss)
            shared.step(step)
        return found, shared.nbytes, wire.sent

    found, kept, sent = zip(*on_threads(len(shares), work))
    for mine, theirs in zip(models, found):
        assert theirs == pytest.approx(losses, abs=1e-12)
        same([*mine.parameters()], [*alone.parameters()])
        assert all(
            torch.equal(a, b)
            for a, b in zip(mine.parameters(), models[0].parameters())
        )
    numbers = sum(p.numel() for p in model.parameters())
    assert sum(kept) == 2 * 8 * numbers
    assert max(kept) - min(kept) <= 2 * 2 * 8  # two groups
    one_step = 2 * (len(shares) - 1) * 8 * (numbers + 3)
    assert sum(sent) == 4 * one_step


def test_a_gradient_that_is_short_is_not_shortened():
    recipe = dataclasses.replace(RECIPE, clip=1e6, warmup=0)
    alone = small()
    mine = copy.deepcopy(alone)
    update(alone, make_optimizer(alone, recipe), batch(), 0, recipe)

    def work(wire):
        shared = ShardedOptimizer(mine, recipe, wire)
        data_parallel(mine, *batch(), wire=wire, add_gradients=False)
        shared.step(0)

    on_threads(1, work)
    same([*mine.parameters()], [*alone.parameters()])


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_gradients_are_shortened_together_as_by_torch(shares, clip):
    """AdamW nearly forgets how long a gradient is, so it is looked at what
    AdamW is given."""
    recipe = dataclasses.replace(RECIPE, clip=clip)
    alone = small()
    loss_share(alone, *batch()).backward()
    torch.nn.utils.clip_grad_norm_(alone.parameters(), clip)
    groups = [
        torch.cat([p.grad.flatten() for p in group["params"]])
        for group in make_optimizer(alone, recipe).param_groups
    ]
    models = [copy.deepcopy(small()) for _ in shares]

    def work(wire):
        mine = models[wire.rank]
        shared = ShardedOptimizer(mine, recipe, wire)
        own = dealt(shares, wire)
        data_parallel(mine, *own, wire=wire, add_gradients=False)
        shared.step(0)
        return [
            group["params"][0].grad for group in shared.optimizer.param_groups
        ]

    found = on_threads(len(shares), work)
    for n, wanted in enumerate(groups):
        same(torch.cat([gradients[n] for gradients in found]), wanted)


def test_a_weight_without_a_gradient_counts_as_zeros():
    first = torch.ones(2, 3)
    second = torch.ones(4)
    second.grad = torch.full((4,), 7.0)
    found = flat_gradients([first, second])
    assert found.tolist() == [0] * 6 + [7] * 4


def test_a_rank_without_targets_has_no_gradients_of_its_own():
    """Also none that a step before has left."""
    model = small()
    tokens, targets = batch()
    silent = torch.full_like(targets, -100)

    def work(wire):
        mine = copy.deepcopy(model)
        for own in (targets, silent if wire.rank else targets):
            data_parallel(mine, tokens, own, wire=wire, add_gradients=False)
        return flat_gradients([*mine.parameters()])

    first, second = on_threads(2, work)
    assert first.any() and not second.any()


def test_the_options_of_each_group_are_kept():
    """Its rate is that of the step, and vectors do not decay."""

    def work(wire):
        mine = small()
        data_parallel(mine, *batch(), wire=wire, add_gradients=False)
        shared = ShardedOptimizer(mine, RECIPE, wire)
        assert shared.nbytes == 0  # nothing to remember yet
        shared.step(2)
        return [
            (g["weight_decay"], g["lr"], g["betas"])
            for g in shared.optimizer.param_groups
        ]

    (found,) = on_threads(1, work)
    whole = make_optimizer(small(), RECIPE).param_groups
    rate = learning_rate(2, RECIPE)
    assert found == [(g["weight_decay"], rate, g["betas"]) for g in whole]
    assert found[0][0] != found[1][0]
