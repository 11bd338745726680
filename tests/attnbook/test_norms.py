"""The norms by their names and options. What they compute is held by the tasks
of chapter 7, and inside a block by test_layers."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.norms import LayerNorm, RMSNorm, layer_norm, make_norm, rms_norm

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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("eps", [1e-5, 1e-6])
@pytest.mark.parametrize(
    "numbers",
    [
        [1e-4, -1e-4, 2e-4],  # the slope of the root is beyond float16
        [0.01, -0.01, 0.02],  # and here, where eps plays no part
        [300.0, -300.0, 100.0],  # the squares are beyond float16
        [0.55, 0.87, 0.66],
    ],
)
def test_16_bits_are_normalised_in_32(numbers, eps, dtype):
    """Results and gradients are those of float64, except for the rounding to
    16 bits at the end."""
    weight, bias = torch.tensor([[1.5, 0.5, 2.0], [0.25, -1.0, 0.5]])
    for own, theirs in (
        (
            lambda x: layer_norm(x, weight.to(x), bias.to(x), eps=eps),
            lambda x: F.layer_norm(x, (3,), weight.to(x), bias.to(x), eps),
        ),
        (
            lambda x: rms_norm(x, weight.to(x), eps=eps),
            lambda x: F.rms_norm(x, (3,), weight.to(x), eps),
        ),
        (
            lambda x: layer_norm(x, eps=eps),
            lambda x: F.layer_norm(x, (3,), eps=eps),
        ),
    ):
        found = []
        for norm, kind in ((own, dtype), (theirs, torch.float64)):
            x = torch.tensor(numbers, dtype=dtype).to(kind).requires_grad_()
            y = norm(x)
            assert y.dtype == kind
            (slopes,) = torch.autograd.grad(y[0], x)
            found.append(torch.stack([y.detach(), slopes]).double())
        bits = torch.finfo(dtype).eps
        torch.testing.assert_close(*found, rtol=bits, atol=1e-4)


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
