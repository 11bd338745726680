"""The feed-forward layers against torch and their formulas."""

import pytest
import torch
from torch import nn

from attnbook.feed_forward import (
    ACTIVATIONS,
    FEED_FORWARDS,
    FeedForward,
    SwiGLU,
)
from attnbook.teach.check.proof import agrees
from attnbook.teach.check.seeded import randn


@pytest.mark.parametrize(
    "name, module",
    [
        ("relu", nn.ReLU()),
        ("gelu", nn.GELU()),
        ("silu", nn.SiLU()),
        ("gelu_tanh", nn.GELU(approximate="tanh")),
    ],
)
def test_feed_forward_agrees_with_torch(name, module):
    assert name in ACTIVATIONS
    ours = FEED_FORWARDS[name](4).double()
    theirs = nn.Sequential(nn.Linear(4, 16), module, nn.Linear(16, 4))
    theirs = theirs.double()
    theirs[0].load_state_dict(ours.up.state_dict())
    theirs[2].load_state_dict(ours.down.state_dict())
    cases = [(randn(4, seed=25),), (randn(2, 3, 4, seed=26),)]
    agrees(ours, theirs, name=name, cases=cases, gradients=True)


def test_swiglu_is_its_formula_and_as_large_as_a_feed_forward():
    assert FEED_FORWARDS["swiglu"] is SwiGLU
    layer = SwiGLU(6, bias=False).double()
    x = randn(2, 3, 6, seed=27)
    gate = x @ layer.gate.weight.T
    expected = gate * gate.sigmoid() * (x @ layer.up.weight.T)
    agrees(layer(x), expected @ layer.down.weight.T, name="the formula")
    count = sum(p.numel() for p in layer.parameters())
    plain = FeedForward(6, bias=False)
    assert count == sum(p.numel() for p in plain.parameters())


@pytest.mark.parametrize("layer", [FeedForward, SwiGLU])
def test_feed_forward_drops_out_in_training_only(layer):
    layer = layer(8, dropout=0.5)
    x = torch.ones(100, 8)
    torch.manual_seed(0)
    zeros = (layer(x) == 0).double().mean()
    assert abs(zeros - 0.5) < 0.1
    assert not (layer.eval()(x) == 0).any()


@pytest.mark.parametrize("kind", [FeedForward, SwiGLU])
def test_the_options_of_a_feed_forward_layer(kind):
    one = kind(1, 1)
    plain = kind(3, 5, bias=False)
    assert one.dropout == 0 and all(m.bias is not None for m in one.children())
    assert plain.down.in_features == 5
    assert all(m.bias is None for m in plain.children())
    sizes, wrong = {"d_model": 3, "d_ff": 5}, {"d_model": 0, "d_ff": 0}
    for name, value in [*wrong.items(), ("dropout", 1), ("dropout", -0.1)]:
        with pytest.raises(ValueError, match=f"{name}.*; expected .*; got "):
            kind(**sizes | {name: value})
    with pytest.raises(ValueError, match="d_model of x.*; expected .*; got "):
        kind(3)(torch.ones(2, 4))


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: FeedForward(4, activation="tanh"), ValueError, "activation"),
    ],
)
def test_bad_input_is_named(call, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        call()
