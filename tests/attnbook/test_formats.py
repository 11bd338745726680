"""Formats of few bits: torch's own numbers, and training on their grid."""

import dataclasses

import pytest
import torch

from attnbook.formats import (
    FORMATS,
    Format,
    GridAdamW,
    step_at,
    stochastic,
    to_nearest,
)
from attnbook.gpt import GPT, GPTConfig
from attnbook.teach.check.seeded import randn
from attnbook.training import Recipe, make_optimizer, update

SMALL = ["bfloat16", "float16", "float8_e5m2", "float8_e4m3fn"]


def patterns(name):
    """All finite numbers of torch's type from 0 on, by all of its bits."""
    dtype = getattr(torch, name)
    bits = 8 * dtype.itemsize
    integers = {8: torch.uint8, 16: torch.uint16}[bits]
    every = torch.arange(2 ** (bits - 1)).to(integers).view(dtype).double()
    return every[every.isfinite()]


@pytest.mark.parametrize("name", SMALL)
def test_the_numbers_are_those_that_torch_has(name):
    assert torch.equal(FORMATS[name].numbers(), patterns(name))


@pytest.mark.parametrize("name", [*SMALL, "float32"])
def test_the_ends_are_those_that_torch_says(name):
    form = FORMATS[name]
    info = torch.finfo(getattr(torch, name))
    assert form.largest == info.max
    assert form.smallest == info.smallest_normal * info.eps
    assert 2.0**form.least_exponent == info.smallest_normal
    assert step_at(torch.ones(1), form).item() == info.eps


@pytest.mark.parametrize("name", SMALL)
def test_to_nearest_is_torchs_rounding_at_every_kind_of_place(name):
    """On each number, in the middle, and a little on either side."""
    numbers = patterns(name)[:-1]
    if name != "bfloat16":  # whose last step float32 holds, but not more
        numbers = patterns(name)
    low = numbers[:-1]
    high = numbers[1:]
    middle = (low + high) / 2
    x = torch.cat([numbers, middle, (low + middle) / 2, (high + middle) / 2])
    x = torch.cat([x, -x]).float()
    dtype = getattr(torch, name)
    assert torch.equal(to_nearest(x, FORMATS[name]), x.to(dtype).float())


def test_halves_and_ends_by_hand():
    form = FORMATS["float8_e4m3fn"]  # steps of 1/8 from 1 to 2
    x = torch.tensor([1.0625, 1.1875, 1e9, -1e9, 0.0, 2.0**-10, 2.0**-9])
    wanted = [1.0, 1.25, 448.0, -448.0, 0.0, 0.0, 2.0**-9]
    assert to_nearest(x, form).tolist() == wanted
    assert to_nearest(x.double(), form).dtype == torch.float64


@pytest.mark.parametrize("name", SMALL)
def test_stochastic_rounding_gives_a_neighbour_and_the_mean(name):
    form = FORMATS[name]
    generator = torch.Generator().manual_seed(0)
    numbers = form.numbers()
    for x in (1.0 + 0.3 * 2.0**-form.mantissa, -1.7, form.smallest / 4):
        many = torch.full((40_000,), x).double()
        found = stochastic(many, form, generator)
        place = int(torch.searchsorted(numbers, abs(x)))
        low, high = numbers[place - 1 : place + 1].tolist()
        assert set(found.abs().tolist()) == {low, high}
        assert (found.sign() * x >= 0).all()
        step = high - low
        # Four standard errors of a mean of 40,000, at most half a step each.
        assert abs(found.mean().item() - x) < 4 * 0.5 * step / 200
    # What a format has stays as it is, however the dice fall.
    kept = numbers[torch.linspace(0, len(numbers) - 1, 50).long()]
    assert torch.equal(stochastic(kept, form, generator), kept)
    assert torch.equal(stochastic(-kept, form, generator), -kept)
    over = torch.tensor([1e39, -1e39]).double()
    assert stochastic(over, form).tolist() == [form.largest, -form.largest]


def test_the_generator_decides():
    form = FORMATS["bfloat16"]
    x = randn(100, seed=1)
    draws = [
        stochastic(x, form, torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def bfloat(x):
    return x.to(torch.bfloat16).to(x.dtype)


def steps(rounding, masters, n=20):
    """A weight of 1 that a constant gradient pulls down by 0.001 a step."""
    weight = torch.nn.Parameter(torch.ones(1))
    groups = [{"params": [weight], "lr": 1e-3, "weight_decay": 0.0}]
    optimizer = GridAdamW(groups, rounding, masters=masters)
    for _ in range(n):
        weight.grad = torch.ones(1)
        optimizer.step()
    return weight.item(), optimizer


def test_a_weight_stands_still_without_masters_and_moves_with_them():
    assert steps(bfloat, False)[0] == 1.0  # half a step down is 0.00195
    moved, optimizer = steps(bfloat, True)
    assert moved == bfloat(torch.tensor(1 - 0.02)).item()
    assert optimizer.masters[0].item() == pytest.approx(1 - 0.02, abs=1e-6)
    assert steps(lambda x: x.clone(), False)[0] == pytest.approx(0.98)


def test_stochastic_rounding_moves_on_average():
    generator = torch.Generator().manual_seed(0)
    form = FORMATS["bfloat16"]

    def rounding(x):
        return stochastic(x, form, generator)

    ends = [steps(rounding, False)[0] for _ in range(200)]
    assert len(set(ends)) > 1
    assert sum(ends) / 200 == pytest.approx(0.98, abs=2e-3)


def small_model():
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=7, context=5, d_model=8, n_heads=2, n_layers=1
    )
    return GPT(config)


@pytest.mark.parametrize("masters", [False, True])
def test_with_a_rounding_that_does_nothing_it_is_adamw(masters):
    recipe = Recipe(steps=5, warmup=1, peak=1e-2)
    torch.manual_seed(1)
    batch = torch.randint(7, (4, 5)), torch.randint(7, (4, 5))
    models = [small_model(), small_model()]
    groups = make_optimizer(models[1], recipe).param_groups
    optimizers = [
        make_optimizer(models[0], recipe),
        GridAdamW(groups, torch.clone, masters=masters),
    ]
    for step in range(5):
        losses = [
            update(model, optimizer, batch, step, recipe)
            for model, optimizer in zip(models, optimizers)
        ]
        assert losses[0] == losses[1]
    for a, b in zip(models[0].parameters(), models[1].parameters()):
        assert torch.equal(a, b)


def test_weights_are_on_the_grid_from_the_start_and_after_each_step():
    recipe = Recipe(steps=3, warmup=1)
    model = small_model()
    before = [p.detach().clone() for p in model.parameters()]
    groups = make_optimizer(model, recipe).param_groups
    optimizer = GridAdamW(groups, bfloat, masters=True)
    batch = torch.randint(7, (4, 5)), torch.randint(7, (4, 5))
    by_weight = {
        id(p): m
        for p, m in zip(
            (p for g in optimizer.param_groups for p in g["params"]),
            optimizer.masters,
        )
    }
    for p, old in zip(model.parameters(), before):
        assert torch.equal(by_weight[id(p)], old)  # nothing is lost
    for step in range(3):
        for p in model.parameters():
            assert torch.equal(p, bfloat(p))
            assert torch.equal(p, bfloat(by_weight[id(p)]))
        update(model, optimizer, batch, step, recipe)


def test_a_format_says_what_it_is():
    assert dataclasses.astuple(Format()) == (8, 23, True)
    assert Format(2, 1).numbers().tolist() == [0, 0.5, 1, 1.5, 2, 3]
    fp4 = Format(2, 1, infinity=False)
    assert fp4.largest == 4.0


def test_chance_is_drawn_in_float64():
    """The upper neighbour comes where the place and the draw reach 1."""
    form = FORMATS["float8_e5m2"]
    x = randn(1000, seed=1)
    found = stochastic(x, form, torch.Generator().manual_seed(3))
    u = torch.rand(
        1000, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    step = step_at(x, form)
    assert torch.equal(found, ((x / step + u).floor() * step))
    assert found.dtype == x.dtype == torch.float64
    assert stochastic(x.float(), form).dtype == torch.float32


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"exponent": 1}, "exponent is not allowed.*got 1"),
        ({"exponent": 9}, "exponent is not allowed.*got 9"),
        ({"mantissa": 0}, "mantissa is not allowed.*got 0"),
        ({"mantissa": 24}, "mantissa is not allowed.*got 24"),
    ],
)
def test_bits_out_of_their_range_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        Format(**fields)
    with pytest.raises(TypeError, match="infinity is of the wrong type"):
        Format(infinity=1)


def test_a_step_by_hand():
    """Between 4 and 8 the step of two bits of mantissa is 1; below the
    smallest normal number it no longer shrinks, and zero has it, too."""
    form = Format(3, 2)  # from 1/4 on numbers are normal
    x = torch.tensor([4.0, 7.99, -5.0, 8.0, 0.25, 0.3, 0.2, 0.01, 0.0])
    wanted = [1.0, 1.0, 1.0, 2.0, 1 / 16, 1 / 16, 1 / 16, 1 / 16, 1 / 16]
    assert step_at(x, form).tolist() == wanted
    assert step_at(x, form).dtype == torch.float64
    assert form.smallest == 1 / 16 and form.largest == 14.0
    assert len(form.numbers()) == 4 + 6 * 4
    zero = torch.zeros(1)
    assert step_at(zero, FORMATS["float16"]).item() == 2.0**-24


def test_the_closure_is_called_and_its_loss_returned():
    weight = torch.nn.Parameter(torch.ones(1))
    groups = [{"params": [weight], "lr": 1e-3, "weight_decay": 0.0}]
    optimizer = GridAdamW(groups, bfloat, masters=True)

    def closure():
        weight.grad = torch.ones(1)
        return 7.0

    assert optimizer.step(closure) == 7.0
    assert optimizer.masters[0].item() == pytest.approx(0.999)
    assert optimizer.step() is None


def test_masters_are_copies_and_record_no_gradients():
    weight = torch.nn.Parameter(torch.tensor([1.001]))
    optimizer = GridAdamW([{"params": [weight]}], bfloat, masters=True)
    assert weight.item() == 1.0 and not optimizer.masters[0].requires_grad
    assert optimizer.masters[0].item() == pytest.approx(1.001)
    assert weight.is_leaf and weight.requires_grad
