"""Small random models of ours, and tokens for them."""

import torch
from torch import nn

from attnbook.gpt import GPT

#: The configuration of a small model with rotary positions, which tests of
#: several kinds of attention change a little.
SMALL_ROTARY = dict(
    d_model=16,
    n_heads=4,
    n_layers=2,
    positions="rotary",
    vocab_size=11,
    context=16,
    initial_std=0.5,
)


def random_model(config, seed=0, dtype=torch.float64):
    """A model in which nothing is 0 or 1."""
    torch.manual_seed(seed)
    model = GPT(config).to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def random_tokens(below, *size, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(below, size, generator=generator)
