"""Positions: rotary and ALiBi against transformers, and what they refuse."""

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from attnbook.positions import (
    alibi_bias,
    alibi_slopes,
    half_order,
    rotary_angles,
    rotate,
    sinusoidal,
    token_positions,
)
from attnbook.teach.check.proof import agrees
from attnbook.teach.check.seeded import randn


def test_the_layouts_are_permutations_of_each_other():
    x = randn(2, 5, 8, seed=2)
    positions = torch.arange(5)
    order = half_order(8)
    angles = rotary_angles(positions, 8)
    agrees(
        rotate(x[..., order], angles),
        rotate(x, angles, layout="interleaved")[..., order],
        name="the interleaved layout, permuted",
        within=0,
    )


def test_rotary_agrees_with_llama():
    config = LlamaConfig(
        hidden_size=32, num_attention_heads=4, rope_theta=5000.0
    )
    theta = config.rope_parameters["rope_theta"]
    q = randn(2, 4, 7, 8, seed=3, dtype=torch.float32)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [9, 3, 50, 4, 0, 0, 1]])
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(q, positions)
    expected, _ = modeling_llama.apply_rotary_pos_emb(q, q, cos, sin)
    angles = rotary_angles(positions, 8, base=theta)[:, None]
    agrees(rotate(q, angles), expected, name="transformers", within=1e-5)


def test_the_interleaved_layout_agrees_with_gptj():
    x = randn(2, 7, 4, 8, seed=4)  # (B, T, H, d): GPT-J's order
    sin, cos = modeling_gptj.create_sinusoidal_positions(7, 8).chunk(2, -1)
    expected = modeling_gptj.apply_rotary_pos_emb(x, sin[None], cos[None])
    angles = rotary_angles(torch.arange(7), 8)  # (T, d/2)
    ours = rotate(x.transpose(1, 2), angles, layout="interleaved")
    agrees(ours.transpose(1, 2), expected, name="transformers", within=1e-5)


def test_half_precision_is_kept_and_the_device():
    far = torch.arange(3, device="meta")
    assert alibi_bias(2, far, far).is_meta
    x = randn(3, 4, seed=7, dtype=torch.bfloat16)
    assert rotate(x, rotary_angles(torch.arange(3), 4)).dtype == x.dtype


@pytest.mark.parametrize("width, factor", [(16, 8.0), (64, 3.0)])
def test_the_scaling_is_llama_3s(width, factor):
    """For pairs that turn often, seldom, and in between."""
    rope = {"rope_type": "llama3", "factor": factor, "rope_theta": 5e3}
    rope |= {"low_freq_factor": 1.5, "high_freq_factor": 5.0}
    rope |= {"original_max_position_embeddings": 300}
    sizes = {"hidden_size": 2 * width, "num_attention_heads": 2}
    config = LlamaConfig(rope_parameters=rope, **sizes)
    expected = modeling_llama.LlamaRotaryEmbedding(config).inv_freq
    at = torch.tensor([1])
    scaling = (factor, 1.5, 5.0, 300.0)
    found = rotary_angles(at, width, base=5e3, scaling=scaling)[0]
    agrees(found, expected, name="transformers", within=1e-6)
    assert (found < rotary_angles(at, width, base=5e3)[0]).any()


def test_a_base_of_one_turns_all_pairs_alike():
    agrees(rotary_angles(P, 4, base=1), P[:, None].expand(3, 2).double())


P, X = torch.arange(3), torch.ones(3, 4)


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: rotary_angles(P, 5), ValueError, "width"),
        (lambda: rotary_angles([1, 2], 4), TypeError, "positions"),
        (lambda: rotary_angles(P, 4, base=0.5), ValueError, "base"),
        (lambda: rotate(X, X), ValueError, "angles"),
        (lambda: rotate(X, X[:2, :2]), ValueError, "leading"),
        (lambda: rotate(X[:, :3], X[:, :1]), ValueError, "d of x"),
        (lambda: rotate(P, X), TypeError, "x is"),
        (lambda: rotate(X, X[:, :2], layout="whole"), ValueError, "layout"),
        (lambda: alibi_slopes(0), ValueError, "n_heads"),
        (lambda: alibi_bias(2, P.double(), P), TypeError, "queries"),
        (lambda: alibi_bias(2, P, P.double()), TypeError, "keys"),
        (lambda: half_order(5), ValueError, "width"),
        (lambda: token_positions([[1]]), TypeError, "real"),
        (lambda: token_positions(P[None]), ValueError, "mask"),
        (lambda: token_positions(P > 0), ValueError, "real"),
    ],
)
def test_bad_input_is_named(call, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        call()


# ---- what mutants once survived


def test_the_waves_are_as_long_as_their_base_says():
    """The slowest of two pairs turns by base^(−1/2) for each position."""
    positions = torch.tensor([3])
    for base in (100.0, 10_000.0):
        slow = 3 / math.sqrt(base)
        wanted = [math.sin(3), math.cos(3), math.sin(slow), math.cos(slow)]
        found = sinusoidal(positions, 4, base=base)[0].tolist()
        assert found == pytest.approx(wanted, abs=1e-12)


def test_angles_are_rounded_after_their_cosine_and_not_before():
    """At position 4,097 an angle in bfloat16 is off by whole turns."""
    x = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16)
    angles = torch.tensor([[4097.0]], dtype=torch.float64)
    found = rotate(x, angles)[0].tolist()
    assert found == pytest.approx([math.cos(4097), math.sin(4097)], abs=0.01)


def test_slopes_of_six_heads_are_those_of_four_and_then_two_of_eight():
    wanted = [2.0**-n for n in (2, 4, 6, 8, 1, 3)]
    assert alibi_slopes(6).tolist() == wanted


@pytest.mark.parametrize(
    "call",
    [
        lambda: rotary_angles(torch.tensor([True]), 4),
        lambda: rotary_angles(torch.tensor([1]), 0),
        lambda: half_order(0),
        lambda: token_positions(torch.ones(2, 3, 4).bool()),
    ],
)
def test_what_are_no_positions_or_widths_is_refused(call):
    with pytest.raises((TypeError, ValueError), match="; expected .*; got "):
        call()
