"""Random numbers that are drawn from a seed."""

import torch

from attnbook.teach.check.seeded import randn


def test_one_seed_gives_one_tensor_and_another_seed_another():
    first = randn(3, 4, seed=5)
    assert first.shape == (3, 4) and first.dtype == torch.float64
    assert torch.equal(first, randn(3, 4, seed=5))
    assert not torch.equal(first, randn(3, 4, seed=6))
    assert randn(2, seed=1, dtype=torch.float32).dtype == torch.float32


def test_the_generator_of_torch_is_left_alone():
    before = torch.get_rng_state()
    randn(3, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
