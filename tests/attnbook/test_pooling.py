"""Pooled heads are the means of their groups."""

import functools

import pytest
import torch
from models import SMALL_ROTARY, random_tokens

from attnbook.gpt import GPT, GPTConfig
from attnbook.pooling import pool_heads
from attnbook.teach.check.difference import difference
from attnbook.teach.check.inputs import drawn


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


@functools.cache
def model_of(**changes):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**(SMALL_ROTARY | changes)))
    return model.double().eval().requires_grad_(False)


tokens_of = functools.partial(random_tokens, 11)


@pytest.mark.parametrize("bias", [True, False])
def test_a_pooled_head_is_the_mean_of_its_group(bias):
    model = drawn(GPT(GPTConfig(**SMALL_ROTARY | {"bias": bias})), seed=2)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    pooled = pool_heads(model.train(), 2)
    assert pooled.config.n_kv_heads == 2 and pooled.training
    after = pooled.state_dict()
    for name, tensor in model.state_dict().items():
        same(tensor, before[name], within=0)  # the model is as it was
        if ".key_value." not in name:
            same(after[name], tensor, within=0)
            assert after[name].data_ptr() != tensor.data_ptr()
            continue
        # Four rows a head: keys of heads 0 to 3, then values.
        for row in range(16):
            side = row // 8
            head = row // 4 % 2
            place = row % 4
            first = 16 * side + 8 * head + place
            mean = (tensor[first] + tensor[first + 4]) / 2
            same(after[name][row], mean)
    assert all(p.requires_grad for p in pooled.parameters())
    assert not pool_heads(model.eval(), 2).training


def test_pooled_in_two_steps_or_in_one():
    model = model_of()
    tokens = tokens_of(2, 9)
    same(pool_heads(model, 4)(tokens), model(tokens))
    twice = pool_heads(pool_heads(model, 2), 1)
    same(twice(tokens), pool_heads(model, 1)(tokens), within=1e-11)
    with pytest.raises(ValueError, match="n_heads 4 and n_kv_heads 3"):
        pool_heads(model, 3)
    with pytest.raises(ValueError, match="n_heads 2 and n_kv_heads 4"):
        pool_heads(pool_heads(model, 2), 4)
