"""GPTQ: its price, against enumeration, and the fast way against the plain."""

import itertools

import pytest
import torch

from attnbook.gpt import GPT, GPTConfig
from attnbook.gptq import (
    best_rounding,
    damped,
    gptq,
    gptq_model,
    gptq_slowly,
    input_moments,
    inverse_factor,
    output_error,
    prices,
)
from attnbook.quantised import by_scale
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


def moments_of(n, seed, tokens=200):
    """Of inputs that share two sources, so that each tells about the other."""
    x = 3 * randn(tokens, 2, seed=seed) @ randn(2, n, seed=seed + 1)
    x = x + randn(tokens, n, seed=seed + 2)
    return x.mT @ x / tokens


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


PAIR = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=torch.float64)


def test_by_hand():
    """Two weights of 0.4 on inputs that are much alike, to whole numbers."""
    same(prices(PAIR), f64(0.36, 1.0))
    row = f64(0.4, 0.4)
    plain = output_error(row, PAIR)  # both are rounded to 0
    same(plain, f64(0.576)[0])
    best = best_rounding(row, PAIR, f64(1.0)[0], 2)
    same(best.error, f64(0.136)[0])
    assert best.codes.tolist() in ([0, 1], [1, 0])
    # A second row with a weight of 1 would set another scale; here a third
    # column that is not tied to the others does.
    H = torch.block_diag(PAIR, torch.eye(1).double())
    wide = f64(0.4, 0.4, 1.0)[None]
    assert gptq_slowly(wide, H, 2).tolist() == [[0.0, 1.0, 1.0]]


def test_the_price_is_what_is_left_of_an_input_after_its_prediction():
    """By a regression on the inputs themselves."""
    x = randn(300, 5, seed=1) @ randn(5, 5, seed=2)
    found = prices(x.mT @ x / len(x))
    for i in range(5):
        own = x[:, i : i + 1]
        later = x[:, i + 1 :]
        told = torch.linalg.lstsq(later, own).solution if i < 4 else None
        left = own if told is None else own - later @ told
        same(found[i], left.square().mean(), within=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 20])
def test_the_factor_has_the_prices(n):
    H = moments_of(n, seed=n)
    V = inverse_factor(H)
    assert torch.equal(V, V.triu())
    eye = torch.eye(n).double()
    same(V.mT @ V @ H, eye, within=1e-9)
    same(1 / V.diagonal() ** 2, prices(H), within=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_the_prices_add_up_to_the_error_whatever_is_chosen(seed):
    """For any codes, good or bad: the error against the weight as it is when
    its turn comes, squared, times its price, summed."""
    H = moments_of(6, seed=10 * seed)
    w = randn(6, seed=seed)
    q = torch.randint(-3, 4, (6,)).double()
    total = output_error(w - q, H)
    moved = w.clone()
    added = torch.zeros(()).double()
    for i in range(6):
        error = moved[i] - q[i]
        added += error**2 * prices(H)[i]
        moved[i + 1 :] += error * torch.linalg.solve(
            H[i + 1 :, i + 1 :], H[i + 1 :, i]
        )
    same(added, total, within=1e-10)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group", [None, 1, 4, 8])
def test_the_fast_way_is_the_plain_way(bits, group):
    for n, seed in ((8, 1), (16, 2), (24, 3)):
        H = moments_of(n, seed=seed)
        w = randn(5, n, seed=seed + 7)
        plain = gptq_slowly(w, damped(H, 0.01), bits, group)
        same(gptq(w, H, bits, group), plain, within=1e-9)


def test_inputs_that_have_nothing_to_do_with_each_other_are_rounded_plainly():
    w = randn(4, 6, seed=1)
    H = torch.diag(f64(1, 2, 3, 4, 5, 6))
    assert torch.equal(gptq(w, H, 3, damping=0), by_scale(w, 3).values())


def test_against_the_best_of_all_ways():
    """Never better than the best, seldom much worse, and mostly better than
    rounding each weight by itself."""
    total = torch.zeros(3).double()
    for seed in range(20):
        H = moments_of(5, seed=100 * seed)
        w = randn(1, 5, seed=seed)
        scale = by_scale(w, 3).scale[0, 0]
        best = best_rounding(w[0], H, scale, 3)
        codes = best.codes * scale
        same(best.error, output_error(w[0] - codes, H), within=1e-10)
        errors = [
            output_error(w - way, H)[0]
            for way in (by_scale(w, 3).values(), gptq(w, H, 3, damping=0))
        ]
        assert all(e >= best.error * (1 - 1e-9) for e in errors)
        total += torch.stack([*errors, best.error])
    plain, ours, best = (total / 20).tolist()
    assert best < ours < plain / 1.5


def test_the_best_is_the_best():
    """Against a loop in plain Python."""
    H = moments_of(3, seed=4)
    w = randn(3, seed=5)
    scale = f64(0.7)[0]
    least = min(
        (
            sum(
                (w[i] - a[i] * 0.7) * H[i, j] * (w[j] - a[j] * 0.7)
                for i in range(3)
                for j in range(3)
            ).item(),
            a,
        )
        for a in itertools.product(range(-3, 4), repeat=3)
    )
    best = best_rounding(w, H, scale, 3)
    assert best.codes.tolist() == list(least[1])
    same(best.error, f64(least[0])[0])


def test_a_groups_scale_is_that_of_the_weights_as_they_are_then():
    """The first group's errors move the second group before it is rounded:
    its largest weight is met by a code exactly, in its moved state."""
    H = moments_of(8, seed=3)
    w = randn(1, 8, seed=4)
    q = gptq(w, H, 4, 4, damping=0)
    told = torch.linalg.solve(H[4:, 4:], H[4:, :4]) @ (w - q)[0, :4]
    moved = w[0, 4:] + told
    scale = moved.abs().max() / 7
    steps = q[0, 4:] / scale
    same(steps, steps.round(), within=1e-9)
    wrong = w[0, 4:].abs().max() / 7
    steps = q[0, 4:] / wrong
    assert difference(steps, steps.round(), within=1e-9) is not None


def test_an_input_that_is_always_0_needs_damping():
    H = moments_of(4, seed=1)
    H[2] = 0
    H[:, 2] = 0
    w = randn(3, 4, seed=1)
    found = gptq(w, H, 3)
    assert found.isfinite().all()
    # Nothing can be pushed onto it, and nothing onto others from it.
    assert torch.equal(found[:, 2], by_scale(w, 3).values()[:, 2])


def test_the_moments_are_those_of_each_layers_inputs():
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=7, context=5, d_model=8, n_heads=2, n_layers=2
    )
    model = GPT(config)
    tokens = torch.randint(7, (3, 5))
    found = input_moments(model, tokens)
    linear = [
        n for n, m in model.named_modules() if type(m) is torch.nn.Linear
    ]
    assert set(found) == {f"{name}.weight" for name in linear}
    # The queries of the first block read its norm's output.
    with torch.no_grad():
        x = model.embed(tokens, torch.arange(5))
        x = model.blocks[0].attention_norm(x).flatten(0, 1).double()
    H = found["blocks.0.attention.query.weight"]
    same(H, x.mT @ x / 15, within=1e-9)
    assert not any(m._forward_pre_hooks for m in model.modules())
    rounded = gptq_model(model, found, 3)
    for name, p in rounded.named_parameters():
        before = model.get_parameter(name)
        if name in found:
            assert torch.equal(p, gptq(before, found[name], 3))
        else:
            assert torch.equal(p, before)


def test_hooks_go_also_when_the_model_fails():
    model = GPT(
        GPTConfig(vocab_size=7, context=5, d_model=8, n_heads=2, n_layers=1)
    )
    with pytest.raises(ValueError, match="vocabulary"):
        input_moments(model, torch.tensor([[7]]))
    assert not any(m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_plain_rounding_is_met_in_any_number_of_bits(bits):
    """Where no input tells about another; the plain way, too. Zeros stay."""
    w = randn(4, 6, seed=bits)
    w[1] = 0
    H = torch.diag(f64(1, 2, 3, 4, 5, 6))
    wanted = by_scale(w, bits).values()
    assert torch.equal(gptq(w, H, bits, damping=0), wanted)
    assert torch.equal(gptq_slowly(w, H, bits), wanted)


def test_a_row_with_too_many_ways_is_refused():
    """And one with 65,025 of them is not."""
    scale = f64(1.0)[0]
    ways = "a row of 8 weights in 3 bits can be rounded in 5,764,801 ways; e"
    with pytest.raises(ValueError, match=ways):
        best_rounding(f64(*[0] * 8), torch.eye(8).double(), scale, 3)
    row = f64(-200, 99.3)
    best = best_rounding(row, torch.eye(2).double(), scale, 8)
    assert best.codes.tolist() == [-127, 99]
    same(best.error, f64(73**2 + 0.3**2)[0])


def test_damping_adds_a_share_of_the_mean_diagonal():
    H = torch.stack([f64(2, 1), f64(1, 4)])
    wanted = torch.stack([f64(2.3, 1), f64(1, 4.3)])
    same(damped(H, 0.1), wanted)
    assert torch.equal(damped(H, 0), H)
    with pytest.raises(ValueError, match="damping is not allowed.*got -0.1"):
        damped(H, -0.1)
    # In `gptq` it is a hundredth, if not given.
    w = randn(8, 24, seed=1)
    moments = moments_of(24, seed=2)
    found = gptq(w, moments, 4)
    assert torch.equal(found, gptq(w, moments, 4, damping=0.01))
    for other in (0.02, 1.01):
        assert not torch.equal(found, gptq(w, moments, 4, damping=other))


@pytest.mark.parametrize("way", [gptq, gptq_slowly])
def test_what_does_not_fit_is_refused(way):
    w, H = randn(3, 4, seed=1), moments_of(4, seed=1)
    for group in (0, -1):
        with pytest.raises(ValueError, match=f"group is not .*got {group}"):
            way(w, H, 3, group)
    with pytest.raises(ValueError, match="axis n of moments is 3; expected"):
        way(w, H[:3, :3], 3)
    with pytest.raises(ValueError, match="axes|axis"):
        way(w[0], H, 3)
    with pytest.raises(TypeError, match="weight is of the wrong type"):
        way(w.long(), H, 3)
    with pytest.raises(TypeError, match="moments is of the wrong type"):
        way(w, H.long(), 3)


def test_moments_of_no_inputs_are_refused():
    said = "the moments of the inputs are not positive definite; expected thos"
    with pytest.raises(ValueError, match=said):
        gptq(randn(3, 4, seed=1), torch.zeros(4, 4).double(), 3)
    with pytest.raises(ValueError, match=said):
        inverse_factor(-torch.eye(2).double())


def test_the_result_has_the_type_of_the_weight():
    """And the given matrix stays as it is."""
    w, H = randn(3, 6, seed=1).float(), moments_of(6, seed=1)
    before = w.clone()
    assert gptq(w, H.float(), 3).dtype == torch.float32
    assert gptq_slowly(w, H, 3).dtype == torch.float64
    assert torch.equal(w, before)
    w = w.double()
    gptq(w, H, 3)
    gptq_slowly(w, H, 3)
    assert torch.equal(w, before.double())


def test_a_model_is_rounded_in_groups_and_the_rest_stays():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    moments = {"0.weight": moments_of(8, seed=1)}
    found = gptq_model(model, moments, 3, 4)
    wanted = gptq(model[0].weight.detach(), moments["0.weight"], 3, 4)
    assert torch.equal(found[0].weight, wanted)
    assert not torch.equal(
        wanted, gptq(model[0].weight.detach(), moments["0.weight"], 3)
    )
    assert torch.equal(found[1].weight, model[1].weight)
