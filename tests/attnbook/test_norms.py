"""The norms by their names and options. What they compute is held by the tasks
of chapter 7, and inside a block by test_layers."""

import pytest
import torch

from attnbook.norms import LayerNorm, RMSNorm, make_norm

X = torch.ones(3, 4)


def test_norms_by_name():
    layer = make_norm("layer", 5, eps=0.2)
    assert isinstance(layer, LayerNorm) and layer.eps == 0.2
    assert layer.bias.shape == (5,)
    assert make_norm("layer", 5, bias=False).bias is None
    for bias in (True, False):
        layer = make_norm("rms", 5, eps=0.2, bias=bias)
        assert isinstance(layer, RMSNorm) and layer.eps == 0.2
        assert [name for name, _ in layer.named_parameters()] == ["weight"]
    made = make_norm("rms", 1), make_norm("layer", 1), RMSNorm(1), LayerNorm(1)
    assert {layer.eps for layer in made} == {1e-5}
    assert made[1].bias.tolist() == [0] and made[3].bias is not None
    assert all(layer.weight.tolist() == [1] for layer in made)
    assert RMSNorm(1, eps=0).eps == LayerNorm(1, eps=0).eps == 0


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: make_norm("batch", 4), ValueError, "norm"),
        (lambda: make_norm("rms", 0), ValueError, "width"),
        (lambda: make_norm("layer", 4, eps=-1), ValueError, "eps"),
        (lambda: LayerNorm(3)(X), ValueError, "width of x"),
        (lambda: LayerNorm(4)(X.double()), TypeError, "x is"),
        (lambda: RMSNorm(3)(torch.ones(())), ValueError, "axis width"),
    ],
)
def test_bad_input_is_named(call, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        call()
