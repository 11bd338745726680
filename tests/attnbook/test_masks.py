"""Masks against slow definitions and the libraries that use them."""

import re

import pytest
import torch
import torch.nn.functional as F
from attnbook.masks import (
    CONVENTIONS,
    causal_mask,
    combine,
    convert,
    padding_mask,
    window_mask,
)
from attnbook.positions import token_positions
from attnbook.teach.proof import agrees
from attnbook.teach.seeded import randn
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

SIZES = [(1, 1), (4, 4), (1, 5), (2, 5), (3, 4)]


@pytest.mark.parametrize("t, s", SIZES)
def test_causal_mask_by_its_definition(t, s):
    slow = [[j <= i + s - t for j in range(s)] for i in range(t)]
    agrees(causal_mask(t, s), slow, name="the definition")


def test_causal_mask_is_square_unless_told():
    agrees(causal_mask(5), torch.ones(5, 5).tril().bool(), name="tril")


@pytest.mark.parametrize("t, s", SIZES)
@pytest.mark.parametrize("window", [1, 2, 9])
def test_window_mask_by_its_definition(t, s, window):
    slow = [[i + s - t - j < window for j in range(s)] for i in range(t)]
    agrees(window_mask(t, s, window=window), slow, name="the definition")


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_mask_and_positions_by_their_definition(side):
    lengths = [3, 1, 4, 0]
    rows, places = [], []
    for n in lengths:
        real, pad = [True] * n, [False] * (4 - n)
        count, none = list(range(n)), [0] * (4 - n)
        rows.append(real + pad if side == "right" else pad + real)
        places.append(count + none if side == "right" else none + count)
    real = padding_mask(lengths, side=side)
    agrees(real, rows, name="the definition")
    agrees(token_positions(real), places, name="the definition")
    agrees(token_positions(real.long()), places, name="the definition")


def test_combine_is_a_logical_and_that_broadcasts():
    causal = causal_mask(3)
    real = padding_mask([3, 2], side="left")[:, None, :]
    both = combine(causal, real)
    slow = [
        [
            [bool(causal[i, j] and real[b, 0, j]) for j in range(3)]
            for i in range(3)
        ]
        for b in range(2)
    ]
    agrees(both, slow, name="the definition")


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
    assert convert(mask, "sdpa", "transformers").dtype == torch.int64


def test_a_conversion_is_a_new_tensor():
    mask = causal_mask(3)
    convert(mask, "sdpa", "sdpa")[0, 0] = False
    assert mask[0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_each_convention_means_what_its_library_does(seed):
    """One mask, three libraries, the same weighted average."""
    t, s, d = 3, 5, 4
    q, k, v = (randn(1, n, d, seed=seed + i) for i, n in enumerate((t, s, s)))
    mask = randn(t, s, seed=seed + 7) > 0
    mask[:, 0] = True  # nn.MultiheadAttention gives NaN for a lost row
    boolean = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    additive = convert(mask, "sdpa", "additive", dtype=torch.float64)
    agrees(
        F.scaled_dot_product_attention(q, k, v, attn_mask=additive),
        boolean,
        name="SDPA, additive",
    )
    multihead = nn.MultiheadAttention(d, 1, bias=False, batch_first=True)
    multihead = multihead.double()
    with torch.no_grad():
        multihead.in_proj_weight.copy_(torch.eye(d).repeat(3, 1))
        multihead.out_proj.weight.copy_(torch.eye(d))
    theirs, _ = multihead(
        q, k, v, attn_mask=convert(mask, "sdpa", "multihead")
    )
    agrees(theirs, boolean, name="nn.MultiheadAttention")
    real = convert(mask[:1], "sdpa", "transformers")
    theirs, _ = multihead(
        q, k, v, key_padding_mask=convert(real, "transformers", "multihead")
    )
    agrees(
        theirs,
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:1]),
        name="nn.MultiheadAttention, padding",
    )


def test_the_transformers_convention_is_what_its_masks_mean():
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        vocab_size=7,
        n_positions=8,
        n_embd=4,
        n_layer=1,
        n_head=1,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    model = GPT2Model(config).double().eval()
    tokens = torch.tensor([[0, 3, 5, 6]])
    real = padding_mask([3, 4], side="left")[:1]
    real = convert(real, "sdpa", "transformers")
    weights = model(
        tokens, attention_mask=real, output_attentions=True
    ).attentions[0][0, 0]
    allowed = combine(causal_mask(4), real == 1)
    agrees(weights[1:] > 0, allowed[1:], name="GPT-2's attention")


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda: causal_mask(0),
            ValueError,
            "the queries are not the last of the keys; expected "
            "1 ≤ n_queries ≤ n_keys; got 0 and 0",
        ),
        (
            lambda: causal_mask(5, 3),
            ValueError,
            "the queries are not the last of the keys; expected "
            "1 ≤ n_queries ≤ n_keys; got 5 and 3",
        ),
        (
            lambda: window_mask(3, window=0),
            ValueError,
            "the window is empty; expected at least 1; got 0",
        ),
        (
            lambda: padding_mask([]),
            ValueError,
            "these are no lengths; expected one integer ≥ 0 a sequence; got []",
        ),
        (
            lambda: padding_mask([2, -1]),
            ValueError,
            "these are no lengths; expected one integer ≥ 0 a sequence; "
            "got [2, -1]",
        ),
        (
            lambda: padding_mask([1.5]),
            ValueError,
            "these are no lengths; expected one integer ≥ 0 a sequence; "
            "got [1.5]",
        ),
        (
            lambda: padding_mask([2], side="top"),
            ValueError,
            "padding has no side 'top'; expected 'left' or 'right'",
        ),
        (
            lambda: token_positions(torch.ones(2, 3)),
            TypeError,
            "the mask is of the wrong type; expected transformers: integer, "
            "1 = real token, 0 = padding; got torch.float32",
        ),
        (
            lambda: token_positions(torch.tensor([[0, 2, 1]])),
            ValueError,
            "the mask holds other values; expected transformers: integer, "
            "1 = real token, 0 = padding; got 2",
        ),
        (
            lambda: token_positions(torch.ones(3).bool()),
            ValueError,
            "this is no padding mask; expected a shape (B, S); got (3,)",
        ),
        (
            lambda: combine([[True]]),
            TypeError,
            "the mask is no tensor; expected sdpa: boolean, True = may attend; "
            "got list",
        ),
        (
            lambda: convert(
                causal_mask(2), "sdpa", "additive", dtype=torch.long
            ),
            TypeError,
            "an additive mask cannot be of this type; expected a "
            "floating-point type; got torch.int64",
        ),
        (
            lambda: combine(),
            ValueError,
            "nothing to combine; expected at least one mask",
        ),
        (
            lambda: combine(torch.ones(2, 3)),
            TypeError,
            "the mask is of the wrong type; expected sdpa: boolean, True = may "
            "attend; got torch.float32",
        ),
        (
            lambda: combine(causal_mask(2), causal_mask(3)),
            ValueError,
            "the masks do not fit together; expected shapes that broadcast; "
            "got (2, 2), (3, 3)",
        ),
        (
            lambda: convert(causal_mask(2), "sdpa", "keras"),
            ValueError,
            "'keras' is no mask convention; expected one of sdpa, multihead, "
            "transformers, additive",
        ),
        (
            lambda: convert(causal_mask(2), "transformers", "sdpa"),
            TypeError,
            "the mask is of the wrong type; expected transformers: integer, "
            "1 = real token, 0 = padding; got torch.bool",
        ),
        (
            lambda: convert(torch.tensor([0.0, -1e9]), "additive", "sdpa"),
            ValueError,
            "the mask holds other values; expected additive: floating-point, "
            "0 = may attend, −inf = may not; got -1e+09",
        ),
        (
            lambda: convert(torch.tensor([0, 2]), "transformers", "sdpa"),
            ValueError,
            "the mask holds other values; expected transformers: integer, "
            "1 = real token, 0 = padding; got 2",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
