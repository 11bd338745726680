"""Masks against slow definitions and the libraries that use them."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attnbook.masks import (
    CONVENTIONS,
    causal_mask,
    check_mask,
    combine,
    convert,
    merge_causal,
    padding_mask,
    window_mask,
)
from attnbook.positions import token_positions
from attnbook.teach.check.proof import agrees
from attnbook.teach.check.seeded import randn

SIZES = [(1, 1), (4, 4), (1, 5), (2, 5), (3, 4)]


def test_masks_are_square_unless_told():
    agrees(causal_mask(5), torch.ones(5, 5).tril().bool(), name="tril")
    assert window_mask(5, window=2).shape == (5, 5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_mask_and_positions_by_their_definition(side):
    lengths = [3, 1, 4, 0]
    rows, places = [], []
    for n in lengths:
        real = [True] * n
        pad = [False] * (4 - n)
        count = list(range(n))
        none = [0] * (4 - n)
        rows.append(real + pad if side == "right" else pad + real)
        places.append(count + none if side == "right" else none + count)
    real = padding_mask(lengths, side=side)
    agrees(real, rows, name="the definition")
    agrees(token_positions(real), places, name="the definition")
    agrees(token_positions(real.long()), places, name="the definition")


def test_combine_is_a_logical_and_that_broadcasts():
    causal = causal_mask(3)
    real = padding_mask([3, 2], side="left")
    both = torch.ones(2, 3, 3).tril().bool()
    both[1, :, 0] = False  # the padding
    agrees(combine(causal, real[:, None, :]), both, name="by hand")


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(CONVENTIONS)),
    st.sampled_from(sorted(CONVENTIONS)),
    st.integers(0, 10**6),
)
def test_conversions_round_trip(a, b, seed):
    mask = convert(randn(3, 4, seed=seed) > 0, "sdpa", a)
    there = convert(mask, a, b)
    back = convert(there, b, a)
    agrees(back, mask, name="the mask itself")
    agrees(convert(there, b, "sdpa"), convert(mask, a, "sdpa"), name="sdpa")


def test_conversions_have_the_types_that_libraries_want():
    mask = causal_mask(2)
    half = convert(mask, "sdpa", "additive", dtype=torch.float16)
    assert half.dtype == torch.float16
    assert convert(mask, "sdpa", "additive").dtype == torch.float32
    assert convert(mask, "sdpa", "transformers").dtype == torch.int64


def test_what_comes_back_is_a_new_tensor():
    mask = causal_mask(3)
    real = torch.ones(1, 3).long()
    convert(mask, "sdpa", "sdpa")[0, 0] = False
    combine(mask)[0, 0] = False
    combine(mask, torch.ones(2, 1, 1) > 0)[0, 0, 0] = False
    merge_causal(mask, 3, 3)[0, 0] = False
    convert(real, "transformers", "transformers")[0, 0] = 0
    assert mask[0, 0] and real.all()


@pytest.mark.parametrize("t, s", SIZES)
def test_later_keys_are_forbidden_in_masks_of_both_kinds(t, s):
    causal = causal_mask(t, s)
    bias = randn(2, t, s, seed=1)
    agrees(merge_causal(None, t, s), causal, name="causal_mask")
    agrees(merge_causal(bias > 0, t, s), (bias > 0) & causal, name="and")
    expected = torch.where(causal, bias, -torch.inf)
    agrees(merge_causal(bias, t, s), expected, name="the bias, or −∞")


@pytest.mark.parametrize("seed", range(2))
def test_each_convention_means_what_its_library_does(seed):
    """One mask, three libraries, the same weighted average."""
    t, s, d = 3, 5, 4
    q, k, v = (randn(1, n, d, seed=seed + i) for i, n in enumerate((t, s, s)))
    mask = randn(t, s, seed=seed + 7) > 0
    mask[:, 0] = True  # nn.MultiheadAttention gives NaN for a lost row
    attend = F.scaled_dot_product_attention
    additive = convert(mask, "sdpa", "additive", dtype=torch.float64)
    expected = attend(q, k, v, mask)
    row = attend(q, k, v, mask[:1])
    agrees(attend(q, k, v, additive), expected, name="SDPA, additive")
    layer = nn.MultiheadAttention(d, 1, bias=False, batch_first=True).double()
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(d).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(d))
    theirs, _ = layer(q, k, v, attn_mask=convert(mask, "sdpa", "multihead"))
    agrees(theirs, expected, name="nn.MultiheadAttention")
    real = convert(mask[:1], "sdpa", "transformers")
    padding = convert(real, "transformers", "multihead")
    theirs, _ = layer(q, k, v, key_padding_mask=padding)
    agrees(theirs, row, name="nn.MultiheadAttention, padding")


SQUARE = causal_mask(2)
LOW = torch.tensor([0.0, -1e9])
TWO = torch.tensor([0, 2])
to_additive = partial(convert, SQUARE, "sdpa", "additive")
NOT_BELOW = torch.tensor([[0.0, torch.nan, torch.inf]])


def test_a_mask_that_fits_scores_is_accepted():
    for mask in (SQUARE, SQUARE[:1], to_additive()):
        assert check_mask(mask, (3, 2, 2)) is None


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: causal_mask(0), ValueError, "n_queries"),
        (lambda: causal_mask(2.5), TypeError, "n_queries"),
        (lambda: causal_mask(5, 3), ValueError, "n_keys"),
        (lambda: window_mask(3, window=0), ValueError, "window"),
        (lambda: padding_mask([]), ValueError, "lengths"),
        (lambda: padding_mask([2, -1]), ValueError, "length"),
        (lambda: padding_mask([1.5]), TypeError, "length"),
        (lambda: padding_mask(torch.tensor([True])), TypeError, "lengths"),
        (lambda: padding_mask(torch.ones(2, 2).int()), ValueError, "lengths"),
        (lambda: padding_mask([2], side="top"), ValueError, "side"),
        (lambda: token_positions(torch.ones(2, 3)), TypeError, "real"),
        (lambda: token_positions(SQUARE + 0j), TypeError, "real"),
        (lambda: token_positions(SQUARE.long() * 2), ValueError, "real"),
        (lambda: token_positions(SQUARE[0]), ValueError, "axis B"),
        (lambda: combine(), ValueError, "combine"),
        (lambda: combine(SQUARE, [[True]]), TypeError, "mask 1"),
        (lambda: combine(SQUARE, causal_mask(3)), ValueError, "broadcast"),
        (lambda: check_mask([True], (1,)), TypeError, "mask"),
        (lambda: check_mask(SQUARE.long(), (2, 2)), TypeError, "mask"),
        (lambda: check_mask(SQUARE, (3, 2, 3)), ValueError, "3, 2, 3"),
        (lambda: check_mask(NOT_BELOW, (2, 3)), ValueError, "got nan"),
        (lambda: check_mask(NOT_BELOW[:, 2], (1,)), ValueError, "got inf"),
        (lambda: convert(SQUARE, "sdpa", "keras"), ValueError, "target"),
        (lambda: convert(SQUARE, "keras", "sdpa"), ValueError, "source"),
        (lambda: convert([True], "sdpa", "sdpa"), TypeError, "mask"),
        (lambda: convert(SQUARE + 0j, "additive", "sdpa"), TypeError, "mask"),
        (lambda: convert(SQUARE, "transformers", "sdpa"), TypeError, "mask"),
        (lambda: to_additive(dtype=torch.long), TypeError, "additive"),
        (lambda: convert(LOW, "additive", "sdpa"), ValueError, "-1e.09"),
        (lambda: convert(TWO, "transformers", "sdpa"), ValueError, "got 2"),
    ],
)
def test_bad_input_is_named(call, error, named):
    with pytest.raises(error, match=f"(?s)(?=.*{named}).*; expected .*; got "):
        call()
