"""Training: the recipe, the pieces of a step, the loop."""

import dataclasses
import io
import math
import sys
import threading

import pytest
import torch
from torch import nn

from attnbook.gpt import GPT, GPTConfig
from attnbook.training import (
    Recipe,
    decay_groups,
    learning_rate,
    loss_share,
    make_optimizer,
    mean_loss,
    train,
    update,
)

SMALL = GPTConfig(vocab_size=11, context=8, d_model=8, n_heads=2, n_layers=1)
RECIPE = Recipe(steps=7, batch_size=4, peak=0.01, warmup=2, clip=1.0, seed=3)


def small(**changes):
    torch.manual_seed(0)
    return GPT(dataclasses.replace(SMALL, **changes)).double()


def padded(size, generator):
    """Sequences of uneven lengths, padded on the right."""
    tokens = torch.randint(11, (size, 8), generator=generator)
    targets = torch.randint(11, (size, 8), generator=generator)
    lengths = torch.randint(1, 9, (size, 1), generator=generator)
    return tokens, targets.where(torch.arange(8) < lengths, -100)


def held_out():
    return padded(9, torch.Generator().manual_seed(99))


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"steps": 0}, ValueError),
        ({"batch_size": 0}, ValueError),
        ({"peak": 0.0}, ValueError),
        ({"peak": math.nan}, ValueError),
        ({"warmup": 1000}, ValueError),
        ({"warmup": -1}, ValueError),
        ({"final": 1.1}, ValueError),
        ({"betas": (0.9, 1.0)}, ValueError),
        ({"betas": (0.9,)}, TypeError),
        ({"weight_decay": -0.1}, ValueError),
        ({"clip": 0.0}, ValueError),
        ({"seed": -1}, ValueError),
        ({"steps": 10.0}, TypeError),
        ({"steps": True}, TypeError),
        ({"peak": "1e-3"}, TypeError),
    ],
)
def test_a_recipe_names_the_field_that_is_wrong(changes, error):
    [name] = changes
    with pytest.raises(error, match=name):
        Recipe(**changes)


def test_the_learning_rate_at_its_corners():
    recipe = Recipe(steps=101, warmup=10, peak=2.0, final=0.25)
    rates = [learning_rate(step, recipe) for step in range(recipe.steps)]
    assert rates[0] == 2 / 11
    assert rates[10] == max(rates) == 2
    assert rates[55] == pytest.approx((2 + 0.5) / 2)  # half way down
    assert rates[100] == min(rates[10:]) == 0.5
    assert learning_rate(0, Recipe(steps=5, warmup=0, peak=2.0)) == 2
    last = Recipe(steps=5, warmup=4, peak=2.0)  # no step left to fall
    assert learning_rate(4, last) == 2


@pytest.mark.parametrize("warmup, final", [(10, 0.1), (1, 0.0), (0, 0.5)])
def test_the_learning_rate_agrees_with_torch(warmup, final):
    recipe = Recipe(steps=60, warmup=warmup, peak=0.3, final=final)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=recipe.peak)
    schedulers = torch.optim.lr_scheduler
    theirs = schedulers.SequentialLR(
        optimizer,
        [
            schedulers.LinearLR(
                optimizer,
                start_factor=1 / (warmup + 1),
                total_iters=max(1, warmup),
            ),
            schedulers.CosineAnnealingLR(
                optimizer,
                recipe.steps - 1 - warmup,
                eta_min=recipe.peak * final,
            ),
        ],
        milestones=[warmup],
    )
    for step in range(recipe.steps):
        [rate] = theirs.get_last_lr()
        assert learning_rate(step, recipe) == pytest.approx(rate, rel=1e-9)
        optimizer.step()
        theirs.step()


def test_only_matrices_decay():
    model = small()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(3.0)
    recipe = dataclasses.replace(RECIPE, weight_decay=0.5, peak=0.1)
    optimizer = make_optimizer(model, recipe)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    after = {p.ndim: p.unique().tolist() for p in model.parameters()}
    assert after == {1: [3.0], 2: [pytest.approx(3 * (1 - 0.1 * 0.5))]}


def test_every_parameter_is_in_one_group_once():
    model = small()
    model.head = nn.Linear(8, 11, bias=False)
    model.head.weight = model.token_embedding.weight  # tied: two names
    model.norm.bias.requires_grad_(False)
    groups = decay_groups(model, 0.1)
    grouped = [p for group in groups for p in group["params"]]
    wanted = {id(p) for p in model.parameters() if p.requires_grad}
    assert len(grouped) == len(wanted)
    assert {id(p) for p in grouped} == wanted
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]


def test_uneven_shares_add_up_to_the_mean():
    model, (tokens, targets) = small(), held_out()
    total = (targets != -100).sum().item()
    whole = model.loss(tokens, targets)
    assert loss_share(model, tokens, targets).item() == whole.item()
    expected = torch.autograd.grad(whole, model.parameters())
    loss = 0.0
    for rows in (slice(0, 1), slice(1, 4), slice(4, 9)):
        share = loss_share(model, tokens[rows], targets[rows], total)
        share.backward()  # gradients accumulate
        loss += share.item()
    assert loss == pytest.approx(whole.item(), rel=1e-12)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-10, atol=1e-14)


def test_the_mean_loss_is_that_of_all_targets_without_dropout():
    model, (tokens, targets) = small(dropout=0.5), held_out()
    whole = model.eval().loss(tokens, targets).item()
    model.train()
    for batch_size in (1, 2, 9, 100):
        found = mean_loss(model, tokens, targets, batch_size=batch_size)
        assert found == pytest.approx(whole, rel=1e-12)
    assert model.training
    mean_loss(model.eval(), tokens, targets)
    assert not model.training


def test_four_threads_may_measure_one_model():
    model, (tokens, targets) = small(dropout=0.5), held_out()
    expected = mean_loss(model.train(), tokens, targets)
    barrier, found = threading.Barrier(4), []

    def measure():
        barrier.wait()
        for _ in range(10):
            found.append(mean_loss(model, tokens, targets, batch_size=1))

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.training
    assert found == pytest.approx([expected] * 40, rel=1e-12)


# The loop


def test_the_loop_agrees_with_one_in_plain_torch():
    model, plain = small(), small()
    losses, lengths = train(model, padded, RECIPE), []
    matrices = [p for p in plain.parameters() if p.ndim == 2]
    vectors = [p for p in plain.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": RECIPE.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=1.0,
        betas=RECIPE.betas,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, RECIPE)
    )
    generator = torch.Generator().manual_seed(RECIPE.seed)
    for step in range(RECIPE.steps):
        tokens, targets = padded(RECIPE.batch_size, generator)
        loss = plain.loss(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        norms = [p.grad.norm() for p in plain.parameters()]
        norm = torch.stack(norms).norm().item()
        lengths.append(norm)
        for p in plain.parameters():
            p.grad *= min(1, RECIPE.clip / (norm + 1e-6))  # as torch does
        optimizer.step()
        assert losses[step] == pytest.approx(loss.item(), rel=1e-9)
        schedule.step()
    assert min(lengths) < RECIPE.clip < max(lengths)
    for ours, theirs in zip(
        model.parameters(), plain.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_run_has_its_own_random_numbers():
    runs = []
    for before, seed in ((5, 3), (6, 3), (5, 4)):
        model = small(dropout=0.3)
        torch.manual_seed(before)
        state = torch.get_rng_state()
        recipe = dataclasses.replace(RECIPE, seed=seed)
        runs.append(train(model, padded, recipe))
        assert torch.equal(torch.get_rng_state(), state)
        assert not model.training
    assert runs[0] == runs[1] != runs[2]


def test_dropout_is_drawn_from_the_seed():
    def always(size, generator):
        return held_out()[0][:size], held_out()[1][:size]

    first = [
        train(
            small(dropout=0.3), always, dataclasses.replace(RECIPE, seed=seed)
        )[0]
        for seed in (3, 3, 4)
    ]
    assert first[0] == first[1] != first[2]


def test_each_step_is_told():
    told = []
    losses = train(
        small(),
        padded,
        RECIPE,
        on_step=lambda done, so_far: told.append((done, so_far[-1])),
    )
    assert told == list(enumerate(losses, start=1))


def test_a_step_that_is_not_finite_is_not_made():
    model = small()
    optimizer = make_optimizer(model, RECIPE)
    batch = padded(4, torch.Generator())
    nothing = batch[0], torch.full_like(batch[1], -100)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="step 5"):
        update(model, optimizer, nothing, 5, RECIPE)
    assert all(map(torch.equal, before, model.parameters()))
    update(model, optimizer, batch, 5, RECIPE)
    assert not all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("quiet", [True, False])
def test_there_is_a_bar_unless_it_is_to_be_quiet(monkeypatch, quiet):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delenv("ATTNBOOK_QUIET", raising=False)
    if quiet:
        monkeypatch.setenv("ATTNBOOK_QUIET", "1")
    train(small(), padded, RECIPE)
    assert ("7/7" in sys.stderr.getvalue()) != quiet
