"""Rounding to few bits: the error's bound, what is kept, and the packing."""

import gguf as theirs
import numpy as np
import pytest
import torch

from attnbook.gpt import GPT, GPTConfig
from attnbook.quantised import (
    bits_a_weight,
    by_range,
    by_scale,
    pack,
    round_matrices,
    unpack,
)
from attnbook.teach.check.seeded import randn

BITS = range(2, 9)


@pytest.mark.parametrize("rule", [by_scale, by_range])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group", [None, 1, 4, 12])
def test_no_number_moves_by_more_than_half_a_step(rule, bits, group):
    x = randn(3, 2, 12, seed=bits) * torch.tensor([[1e-3], [40.0]]) + 0.3
    rounded = rule(x, bits, group)
    size = group or 12
    assert rounded.codes.shape == (3, 2, 12 // size, size)
    moved = (rounded.values() - x).abs().unflatten(-1, (-1, size))
    assert (moved <= rounded.scale * (0.5 + 1e-9)).all()
    # And the step is as small as it can be: the ends are met exactly.
    groups = x.unflatten(-1, (-1, size))
    if rule is by_scale:
        most = 2 ** (bits - 1) - 1
        assert rounded.codes.abs().amax(-1).eq(most).all()
        assert not rounded.smallest.any()
        torch.testing.assert_close(
            rounded.scale * most, groups.abs().amax(-1, keepdim=True)
        )
    else:
        most = 2**bits - 1
        assert rounded.codes.amin(-1).eq(0).all()
        assert torch.equal(rounded.smallest, groups.amin(-1, keepdim=True))
        ends = rounded.smallest + most * rounded.scale
        torch.testing.assert_close(ends, groups.amax(-1, keepdim=True))


def test_by_hand():
    x = torch.tensor([[0.9, -0.3, 0.1, 0.5]], dtype=torch.float64)
    rounded = by_scale(x, 3)
    assert rounded.codes.tolist() == [[[3, -1, 0, 2]]]
    torch.testing.assert_close(
        rounded.values(), torch.tensor([[0.9, -0.3, 0.0, 0.6]]).double()
    )
    # Groups have scales of their own: 0.1 is no longer rounded away.
    codes = by_scale(x, 3, 2).codes
    assert codes.tolist() == [[[3, -1], [1, 3]]]
    codes, scale, smallest = by_range(x + 10, 2)
    torch.testing.assert_close(scale, torch.tensor([[[0.4]]]).double())
    torch.testing.assert_close(smallest, torch.tensor([[[9.7]]]).double())
    assert codes.tolist() == [[[3, 0, 1, 2]]]


def test_halves_go_to_the_even_code():
    x = torch.tensor([[7.0, 0.5, 1.5, 2.5, -0.5, -1.5]])
    assert by_scale(x, 4).codes.tolist() == [[[7, 0, 2, 2, 0, -2]]]


@pytest.mark.parametrize("rule", [by_scale, by_range])
def test_equal_numbers_and_zeros_come_back(rule):
    for x in (torch.zeros(2, 4), torch.full((2, 4), -2.5)):
        assert torch.equal(rule(x, 2).values(), x)


@pytest.mark.parametrize("rule", [by_scale, by_range])
def test_codes_are_chosen_for_the_scale_that_is_kept(rule):
    """With the exact scale they would often be off by one at the ends."""
    x = 1 + randn(50, 64, seed=3).abs()
    found = rule(x, 8, kept=torch.float16)
    assert torch.equal(found.scale, found.scale.half().double())
    assert torch.equal(found.smallest, found.smallest.half().double())
    steps = (x.unflatten(-1, (1, 64)) - found.smallest) / found.scale
    most = 127 if rule is by_scale else 255
    least = -127 if rule is by_scale else 0
    assert torch.equal(found.codes, steps.round().clamp(least, most).short())
    assert not torch.equal(found.codes, rule(x, 8).codes)
    assert found.codes.max() <= most


def test_a_scale_for_all_is_the_worst_a_group_the_best():
    """Where rows differ in size, more scales leave less error."""
    x = randn(8, 32, seed=1) * torch.logspace(-2, 0, 8)[:, None]
    x[0, 5] = 1.0  # an outlier in a row of small numbers
    errors = [
        (by_scale(y, 4, group).values() - y).square().mean()
        for y, group in ((x.reshape(1, -1), None), (x, None), (x, 8))
    ]
    assert errors[0] > 1.5 * errors[1] > 1.5 * 1.1 * errors[2]


def test_bits_are_counted_with_what_is_shared():
    assert bits_a_weight(4, 32) == 4.5
    assert bits_a_weight(4, 32, shared=32) == 5.0
    assert bits_a_weight(8, 32) == 8.5
    # As in the format's own table of sizes.
    for kind, bits, shared in (("Q4_0", 4, 16), ("Q4_1", 4, 32)):
        weights, size = theirs.GGML_QUANT_SIZES[
            theirs.GGMLQuantizationType[kind]
        ]
        assert bits_a_weight(bits, weights, shared) == 8 * size / weights


@pytest.mark.parametrize("bits", [4, 8])
def test_packing_and_back(bits):
    codes = torch.randint(2**bits, (3, 5, 32), dtype=torch.int16)
    packed = pack(codes, bits)
    assert packed.dtype == torch.uint8
    assert packed.shape == (3, 5, 4 * bits)
    assert torch.equal(unpack(packed, bits).short(), codes)


def test_the_order_is_that_of_published_files():
    """The format's own package reads our codes behind its scales."""
    codes = torch.arange(32)[None] % 16
    shared = np.array([1.0, 0.0], np.float16).view(np.uint8)
    block = np.concatenate([shared, pack(codes, 4)[0].numpy()])
    kind = theirs.GGMLQuantizationType.Q4_1
    assert (
        theirs.dequantize(block[None], kind)[0].tolist() == codes.tolist()[0]
    )


def test_matrices_are_rounded_in_a_copy_and_vectors_are_left():
    config = GPTConfig(
        vocab_size=7, context=5, d_model=8, n_heads=2, n_layers=1
    )
    model = GPT(config)
    before = {n: p.clone() for n, p in model.named_parameters()}
    seen = []

    def rule(name, weight):
        seen.append(name)
        if "embedding" in name:
            return weight
        return by_scale(weight, 2).values()

    found = dict(round_matrices(model, rule).named_parameters())
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name])  # the model itself stays
        changed = not torch.equal(found[name], p)
        assert (name in seen) == (p.ndim == 2)
        assert changed == (p.ndim == 2 and "embedding" not in name), name
        if changed:
            assert torch.equal(found[name], by_scale(p, 2).values())


@pytest.mark.parametrize("rule", [by_scale, by_range])
def test_bits_and_groups_out_of_their_range_are_refused(rule):
    x = randn(3, 12, seed=1)
    for bits in (1, 9):
        said = f"bits is not .*, at least 2, at most 8; got {bits}"
        with pytest.raises(ValueError, match=said):
            rule(x, bits)
    with pytest.raises(ValueError, match="group is not allowed.*got 0"):
        rule(x, 4, 0)
    said = "the rows cannot be cut into groups of 5; expected a number that d"
    with pytest.raises(ValueError, match=said):
        rule(x, 4, 5)
    # The length is that of a row, not the number of rows.
    assert rule(x, 4, 6).codes.shape == (3, 2, 6)
    with pytest.raises(ValueError, match="divides their length, 12"):
        rule(x[:3], 4, 8)
    with pytest.raises(ValueError, match="group is not allowed.*got 0"):
        bits_a_weight(4, 0)
    assert bits_a_weight(4, 1) == 20


def test_codes_that_fill_no_bytes_are_refused():
    codes = torch.zeros(2, 6)
    for bits in (3, 5, 16):
        said = f"codes are packed in 4 or 8 bits here, .*; got {bits}"
        with pytest.raises(ValueError, match=said):
            pack(codes, bits)
        with pytest.raises(ValueError, match=said):
            unpack(codes.byte(), bits)
    with pytest.raises(ValueError, match="an even number of them; got 3"):
        pack(codes[:, :3], 4)
    assert pack(codes[:, :3], 8).shape == (2, 3)
    assert unpack(pack(codes, 4)[:, :1], 4).shape == (2, 2)


def test_a_copy_records_no_gradients_and_keeps_its_own_types():
    model = torch.nn.Linear(4, 2)
    found = round_matrices(model, lambda _, w: 0 * w)
    assert found is not model and not found.weight.any()
    assert found.weight.is_leaf and found.weight.requires_grad
    assert model.weight.all()


def test_what_lies_below_the_kept_smallest_gets_its_code():
    """In 16 bits 1000.3 is kept as 1000.5: nothing goes below code 0."""
    x = torch.tensor([[1000.3, 1000.9]])
    found = by_range(x, 8, kept=torch.float16)
    assert found.smallest.item() == 1000.5
    assert found.codes.tolist() == [[[0, 170]]]
