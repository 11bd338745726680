"""Small random models of ours, and tokens for them."""

import torch
from torch import nn

from attnbook.gpt import GPT


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
