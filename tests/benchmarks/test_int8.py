"""Matrices in 8 bits: exactly what they say, and little lost by it."""

from runpy import run_path

import torch
from notebooks import ROOT
from torch import nn

Int8Linear = run_path(ROOT / "benchmarks" / "int8.py")["Int8Linear"]


@torch.no_grad()
def test_8_bits_are_what_they_say():
    torch.manual_seed(0)
    linear = nn.Linear(64, 89)
    x = torch.randn(7, 64) * torch.logspace(-3, 3, 7)[:, None]
    x[3] = 0
    w_scale = linear.weight.abs().amax(1, keepdim=True) / 127
    x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-30) / 63
    whole = (x / x_scale).round().double()
    expected = whole @ (linear.weight / w_scale).round().double().T
    expected = (expected * x_scale * w_scale.T + linear.bias).float()
    ours = Int8Linear(linear.weight, linear.bias)
    torch.testing.assert_close(ours(x), expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(ours(x)[3], linear.bias)
    assert torch.equal(ours(x[2:3]), ours(x)[2:3])  # alone as in a batch
    assert ours(x.view(7, 1, 64)).shape == (7, 1, 89)
    bare = Int8Linear(linear.weight, None)
    torch.testing.assert_close(bare(x) + linear.bias, ours(x))


@torch.no_grad()
def test_the_largest_products_do_not_overflow():
    """Where two products are added in 16 bits, 8 bits each are too many."""
    ours = Int8Linear(torch.ones(3, 256), None)
    torch.testing.assert_close(
        ours(torch.ones(2, 256)), torch.full((2, 3), 256.0)
    )
