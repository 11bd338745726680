"""Training: the recipe, the pieces of a step, the loop."""

import dataclasses
import io
import sys
import threading

import killed
import pytest
import torch
import torch.nn.functional as F
from killed import RECIPE, padded
from torch import nn

from attnbook.batches import pack, packed
from attnbook.gpt import POSITIONS
from attnbook.training import (
    Recipe,
    learning_rate,
    loss_share,
    make_optimizer,
    mean_loss,
    train,
    update,
)


def small(**changes):
    return killed.small(dtype=torch.float64, **changes)


def held_out():
    return padded(9, torch.Generator().manual_seed(99))


@pytest.mark.parametrize(
    "name, value",
    [
        ("steps", 0),
        ("batch_size", 0),
        ("peak", 0.0),
        ("warmup", 1000),
        ("warmup", -1),
        ("final", 1.1),
        ("final", -0.1),
        ("betas", (0.9, 1.0)),
        ("betas", (-0.1, 0.9)),
        ("weight_decay", -0.1),
        ("clip", 0.0),
        ("seed", -1),
        ("seed", 2**62),
        ("accumulation", 0),
        ("accumulation", 33),  # more pieces than sequences
        ("precision", "float16"),
    ],
)
def test_a_recipe_names_the_field_that_is_wrong(name, value):
    with pytest.raises(ValueError, match=name):
        Recipe(**{name: value})


def test_a_recipe_that_is_just_allowed():
    edge = dict(
        steps=1,
        batch_size=1,
        warmup=0,
        final=0.0,
        betas=(0.0, 0.0),
        weight_decay=0.0,
        clip=0.5,
        seed=2**62 - 1,
        accumulation=1,
        precision="bfloat16",
    )
    made = dataclasses.asdict(Recipe(**edge))
    assert made == edge | {"peak": 1e-3} and Recipe(final=1.0).final == 1
    rest = (1e-3, 100, 0.1, (0.9, 0.99), 0.1, 1.0, 0, 1, "float32")
    assert dataclasses.astuple(Recipe()) == (1000, 32, *rest)


def test_a_rate_with_one_step_or_none_left_to_fall():
    assert learning_rate(4, Recipe(steps=5, warmup=4, peak=2.0)) == 2
    last = learning_rate(5, Recipe(steps=6, warmup=4, peak=2.0, final=0.1))
    assert last == pytest.approx(0.2)


@pytest.mark.parametrize("warmup, final", [(10, 0.1), (1, 0.0), (0, 0.5)])
def test_the_learning_rate_agrees_with_torch(warmup, final):
    recipe = Recipe(steps=60, warmup=warmup, peak=0.3, final=final)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=recipe.peak)
    schedulers = torch.optim.lr_scheduler
    up = max(1, warmup)
    first = 1 / (warmup + 1)
    rise = schedulers.LinearLR(optimizer, first, total_iters=up)
    steps = recipe.steps - 1 - warmup
    least = recipe.peak * final
    fall = schedulers.CosineAnnealingLR(optimizer, steps, eta_min=least)
    both = [rise, fall]
    theirs = schedulers.SequentialLR(optimizer, both, milestones=[warmup])
    for step in range(recipe.steps):
        [rate] = theirs.get_last_lr()
        assert learning_rate(step, recipe) == pytest.approx(rate, rel=1e-9)
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("warmup", [0, 10, 99])
def test_whoever_trains_longer_than_planned_stays_at_the_last_rate(warmup):
    recipe = Recipe(steps=100, warmup=warmup, peak=2.0, final=0.1)
    least = learning_rate(99, recipe)
    assert least == pytest.approx(2.0 if warmup == 99 else 0.2)
    for step in (100, 120, 150, 189, 10_000):
        assert learning_rate(step, recipe) == pytest.approx(0.2)


def test_every_parameter_is_in_one_group_once():
    model = small()
    model.head = nn.Linear(8, 11, bias=False)
    model.head.weight = model.token_embedding.weight  # tied: two names
    groups = make_optimizer(model, RECIPE).param_groups
    assert {group["lr"] for group in groups} == {RECIPE.peak}
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(map(id, model.parameters()))


def loss_by_torch(model, tokens, targets):
    logits = model(tokens).flatten(0, 1)
    return F.cross_entropy(logits, targets.flatten(), ignore_index=-100)


def test_uneven_shares_add_up_to_the_mean():
    model, (tokens, targets) = small(), held_out()
    total = (targets != -100).sum().item()
    whole = loss_by_torch(model, tokens, targets)
    assert loss_share(model, tokens, targets).item() == whole.item()
    expected = torch.autograd.grad(whole, model.parameters())
    loss = 0.0
    for rows in (slice(0, 1), slice(1, 4), slice(4, 9)):
        share = loss_share(model, tokens[rows], targets[rows], total=total)
        share.backward()  # gradients accumulate
        loss += share.item()
    assert loss == pytest.approx(whole.item(), rel=1e-12)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("training", [True, False])
def test_the_mean_loss_leaves_the_mode_as_it_was(training):
    model = small(dropout=0.5).train(training)
    mean_loss(model, *held_out())
    assert model.training == training


def test_four_threads_may_measure_one_model():
    model = small(dropout=0.5)
    tokens, targets = held_out()
    expected = mean_loss(model.train(), tokens, targets)
    barrier = threading.Barrier(4)
    found = []

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


@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_loop_agrees_with_one_in_plain_torch(accumulation):
    """Also where a batch of four is computed in three pieces: the schedule
    counts steps of the optimiser, as the loop in plain torch does."""
    model, plain = small(), small()
    recipe = dataclasses.replace(RECIPE, accumulation=accumulation)
    losses = train(model, padded, recipe)
    lengths = []
    groups = [
        {"params": [p], "weight_decay": RECIPE.weight_decay * (p.ndim == 2)}
        for p in plain.parameters()
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=RECIPE.betas)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, RECIPE)
    )
    generator = torch.Generator().manual_seed(RECIPE.seed)
    for step in range(RECIPE.steps):
        tokens, targets = padded(RECIPE.batch_size, generator)
        loss = loss_by_torch(plain, tokens, targets)
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

    recipes = [dataclasses.replace(RECIPE, seed=seed) for seed in (3, 3, 4)]
    models = [small(dropout=0.3).eval() for _ in recipes]
    first = [train(m, always, one)[0] for m, one in zip(models, recipes)]
    assert first[0] == first[1] != first[2]


def test_each_step_is_told():
    told = []

    def note(done, losses):
        told.append((done, losses[-1]))

    losses = train(small(), padded, RECIPE, on_step=note)
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


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda model, *_, total: (0 * model.norm.weight.sum()).sqrt(),  # slope
        lambda model, *_, total: model.norm.weight.sum() + torch.inf,
    ],
)
def test_loss_and_gradient_are_both_to_be_finite(loss_of):
    model = small()
    optimizer = make_optimizer(model, RECIPE)
    batch = padded(4, torch.Generator())
    with pytest.raises(ValueError, match="step 5"):
        update(model, optimizer, batch, 5, RECIPE, loss_of)
    assert torch.equal(model.norm.weight, torch.ones(8).double())


@pytest.mark.parametrize("quiet", [True, False])
def test_there_is_a_bar_unless_it_is_to_be_quiet(monkeypatch, quiet):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delenv("ATTNBOOK_QUIET", raising=False)
    if quiet:
        monkeypatch.setenv("ATTNBOOK_QUIET", "1")
    train(small(), padded, RECIPE)
    assert ("7/7" in sys.stderr.getvalue()) != quiet


# In pieces, in half precision, and with packed texts


def test_a_batch_in_pieces_is_drawn_once_and_read_piece_by_piece():
    """Four steps of six sequences in three pieces: twelve passes of two."""
    recipe = dataclasses.replace(RECIPE, steps=4, batch_size=6, accumulation=3)
    model = small()
    read = []
    drawn = []
    model.register_forward_pre_hook(lambda m, x: read.append(len(x[0])))

    def batches(size, generator):
        drawn.append(size)
        return padded(size, generator)

    assert len(train(model, batches, recipe)) == 4
    assert drawn == [6] * 4 and read == [2] * 12


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_in_half_precision_the_weights_stay_in_32_bits(positions, norm):
    """The layers compute in bfloat16, and the losses are those of float32 to
    the digits that bfloat16 has."""

    def run(precision):
        recipe = dataclasses.replace(RECIPE, precision=precision)
        changes = dict(positions=positions, norm=norm, activation="swiglu")
        model = killed.small(**changes)
        seen = set()
        layer = model.blocks[0].feed_forward.down
        layer.register_forward_hook(lambda m, x, y: seen.add(y.dtype))
        losses = train(model, padded, recipe)
        assert seen == {getattr(torch, precision)}
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        return losses

    ours, theirs = run("bfloat16"), run("float32")
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.02)


def test_small_updates_are_not_lost_in_half_precision():
    """A weight of 1 changed by 1e-3 is 1 again in bfloat16, whose next number
    below 1 is 0.996: so the weights that are updated must be in 32 bits."""
    recipe = dataclasses.replace(
        RECIPE, precision="bfloat16", peak=1e-3, warmup=0, steps=1
    )
    model = killed.small()
    train(model, padded, recipe)
    moved = (model.norm.weight - 1).abs()
    assert 5e-4 < moved.max() < 2e-3
    assert torch.ones(()).bfloat16() - torch.tensor(1e-3).bfloat16() == 1


def test_the_optimizer_keeps_32_bits_in_half_precision():
    recipe = dataclasses.replace(RECIPE, precision="bfloat16")
    model = killed.small()
    optimizer = make_optimizer(model, recipe)
    update(model, optimizer, padded(4, torch.Generator()), 0, recipe)
    kept = [t for s in optimizer.state.values() for t in s.values()]
    assert {t.dtype for t in kept} == {torch.float32}
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}


TEXTS = [[1, 2, 3, 4], [5, 6], [7, 8, 9], [2, 4, 6, 8, 10]]


def test_the_loss_of_packed_texts_is_that_of_each_alone():
    model = small(positions="learned")
    tokens, targets, segments = pack([TEXTS[:3], TEXTS[3:]], 8)
    packed_loss = loss_share(model, tokens, targets, segments)
    found = torch.autograd.grad(packed_loss, model.parameters())
    total = sum(len(text) - 1 for text in TEXTS)
    alone = sum(
        loss_share(
            model,
            torch.tensor([text[:-1]]),
            torch.tensor([text[1:]]),
            total=total,
        )
        for text in TEXTS
    )
    expected = torch.autograd.grad(alone, model.parameters())
    assert packed_loss.item() == pytest.approx(alone.item(), rel=1e-12)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    without = loss_share(model, tokens, targets)  # one reads another
    assert abs(without.item() - alone.item()) > 1e-6


def test_packed_texts_can_be_trained_on_in_pieces():
    recipes = [dataclasses.replace(RECIPE, accumulation=n) for n in (1, 2)]
    runs = [train(small(), packed(TEXTS, 8), one) for one in recipes]
    assert runs[0] == pytest.approx(runs[1], rel=1e-9)
