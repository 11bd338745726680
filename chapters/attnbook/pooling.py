"""Fewer heads of keys and values, made of a trained model's many."""

from __future__ import annotations

from dataclasses import replace

import torch

from attnbook.attention import check_heads
from attnbook.gpt import GPT


def pool_heads(model: GPT, n_kv_heads: int) -> GPT:
    """A copy of the model with fewer heads of keys and values.

    Each new head is the mean of old heads that are next to each other, so
    the copy is a good start for training with a smaller cache (from
    multi-head to grouped-query or multi-query attention). Its results differ
    from the model's, which stays as it is.

    Raises:
        TypeError, ValueError: n_kv_heads is no whole number from 1 on, or
            does not divide the number of heads that the model has now.

    Source: Ainslie et al. (2023), arXiv:2305.13245, section 2.1.
    """
    config = replace(model.config, n_kv_heads=n_kv_heads)
    heads = model.config.n_kv_heads or model.config.n_heads
    check_heads(heads * config.head_width(), heads, n_kv_heads)
    state = {}
    for name, tensor in model.state_dict().items():
        if ".key_value." in name:  # (2·H·d_k, d_in), or a bias (2·H·d_k,)
            groups = (2, n_kv_heads, heads // n_kv_heads, -1)
            tensor = tensor.unflatten(0, groups).mean(2).flatten(0, 2)
        state[name] = tensor.clone()
    with torch.device("meta"):
        pooled = GPT(config)
    pooled.load_state_dict(state, assign=True)
    return pooled.train(model.training)
