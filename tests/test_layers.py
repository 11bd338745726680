"""The layers against torch, alone and in batches."""

import re

import pytest
import torch
import torch.nn.functional as F

from attnbook.layers import SelfAttention, Stages
from attnbook.masks import causal_mask, combine, padding_mask
from attnbook.proof import agrees
from attnbook.tasks import draw

B, T, D_IN, D_K, D_V = 2, 7, 4, 3, 5


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return SelfAttention(D_IN, D_K, D_V).double()


def _theirs(layer, x, mask=None):
    """Plain products with the layer's weights, then torch's attention."""
    q, k, v = (
        x @ linear.weight.T for linear in (layer.query, layer.key, layer.value)
    )
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("mask", [None, causal_mask(T)])
def test_the_layer_agrees_with_torch(layer, mask):
    agrees(
        lambda x: layer(x, mask), lambda x: _theirs(layer, x, mask),
        name="SDPA", gradients=True,
        cases=[(draw(T, D_IN, seed=1),), (draw(B, T, D_IN, seed=2),)],
    )


def test_the_gradients_of_the_weights_agree(layer):
    x = draw(B, T, D_IN, seed=3)
    weights = list(layer.parameters())
    ours = torch.autograd.grad(layer(x).pow(2).sum(), weights)
    theirs = torch.autograd.grad(_theirs(layer, x).pow(2).sum(), weights)
    agrees(ours, theirs, name="SDPA")


def test_every_stage_is_there_and_fits(layer):
    x, mask = draw(B, T, D_IN, seed=4), causal_mask(T)
    stages = layer.stages(x, mask)
    assert isinstance(stages, Stages)
    assert {n: tuple(s.shape) for n, s in stages._asdict().items()} == {
        "q": (B, T, D_K), "k": (B, T, D_K), "v": (B, T, D_V),
        "scores": (B, T, T), "masked": (B, T, T), "weights": (B, T, T),
        "context": (B, T, D_V),
    }
    agrees(stages.context, layer(x, mask), name="forward", within=0)
    agrees(stages.weights @ stages.v, stages.context, name="the average")
    agrees(stages.weights > 0, mask.expand(B, -1, -1), name="the mask")
    assert stages.scores.isfinite().all()  # masking made a new tensor


@pytest.mark.parametrize("side", ["left", "right"])
def test_batched_equals_alone(layer, side):
    """Sequences of unequal length, padded with large numbers that must not
    leak, give what each gives by itself."""
    lengths = [3, 7, 1]
    real = padding_mask(lengths, side=side)  # (B, T)
    x = draw(3, T, D_IN, seed=5)
    padded = torch.where(real[..., None], x, 1e3)
    mask = combine(causal_mask(T), real[:, None, :])
    batched = layer(padded, mask)
    for row, n in enumerate(lengths):
        alone = layer(x[row][real[row]], causal_mask(n))
        agrees(batched[row][real[row]], alone, name="alone")


def test_a_layer_may_have_biases_and_one_width():
    layer = SelfAttention(D_IN, D_K, bias=True)
    assert sum(p.numel() for p in layer.parameters()) == 3 * (D_IN + 1) * D_K
    assert layer(torch.ones(2, D_IN)).shape == (2, D_K)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: SelfAttention(0, 3),
         "a width is below 1; expected positive widths; "
         "got d_in=0, d_k=3, d_v=3"),
        (lambda: SelfAttention(4, 3)(torch.ones(2, 5)),
         "the tokens have the wrong shape; expected (..., T, 4); "
         "got x (2, 5)"),
        (lambda: SelfAttention(4, 3)(torch.ones(4)),
         "the tokens have the wrong shape; expected (..., T, 4); got x (4,)"),
        (lambda: SelfAttention(4, 3, 0),
         "a width is below 1; expected positive widths; "
         "got d_in=4, d_k=3, d_v=0"),
        (lambda: SelfAttention(4, 3)(torch.ones(0, 4)),
         "q has an empty or missing axis; expected (..., length, width), "
         "both at least 1; got (0, 3)"),
        (lambda: SelfAttention(4, 3)(torch.full((2, 4), torch.nan)),
         "q contains NaN; expected numbers only; got 6 NaN in (2, 3)"),
        (lambda: SelfAttention(4, 3)(torch.ones(2, 4), causal_mask(3)),
         "the mask does not fit the scores; expected a shape that "
         "broadcasts to (2, 2); got (3, 3)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: SelfAttention(4, 3)(torch.ones(2, 4).double()),
         "the tokens are of the wrong type; expected a tensor of "
         "torch.float32; got torch.float64"),
        (lambda: SelfAttention(4, 3)([[1.0] * 4]),
         "the tokens are of the wrong type; expected a tensor of "
         "torch.float32; got list"),
        (lambda: SelfAttention(4, 3)(torch.ones(2, 4), torch.zeros(2, 2)),
         "the mask is of the wrong type; expected a boolean tensor "
         "(True = may attend); got torch.float32"),
    ],
)
def test_a_bad_type_is_named(call, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        call()
