"""The cache in few bits: cached = uncached, for any cuts, and its bytes."""

import pytest
import torch

from attnbook.cache import KVCache
from attnbook.generate import complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.quantised import by_range
from attnbook.rounded_cache import RoundedCache, from_blocks, to_blocks
from attnbook.teach.check.seeded import randn

SIZES = {"vocab_size": 40, "context": 32, "d_model": 32, "n_layers": 2}


def small(**options):
    torch.manual_seed(0)
    config = GPTConfig(
        **SIZES, n_heads=4, n_kv_heads=2, positions="rotary", initial_std=0.3
    )
    return GPT(config).eval().requires_grad_(False)


def cache_of(batch=1, capacity=32, bits=4, dtype=torch.float32):
    return RoundedCache(
        batch,
        capacity,
        n_layers=2,
        n_heads=2,
        d_k=8,
        bits=bits,
        dtype=dtype,
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_a_block_is_read_as_it_was_rounded(bits):
    x = randn(2, 3, 8, seed=1).float()
    blocks = to_blocks(x, bits)
    assert blocks.shape == (2, 3, 4 + bits)
    wanted = by_range(x, bits, kept=torch.float16).values()
    assert torch.equal(from_blocks(blocks, bits, torch.float32), wanted)


@pytest.mark.parametrize("bits", [4, 8])
def test_any_cuts_give_the_same_logits(bits):
    """What a key is rounded to depends on its own token alone.

    In float64, because in float32 a sum in another order turns a code into
    its neighbour now and then, and that is a whole step.
    """
    model = small().double()
    tokens = torch.randint(40, (1, 24))
    whole = model(tokens, cache=cache_of(bits=bits, dtype=torch.float64))
    for cuts in ([1] * 24, [10, 14], [7, 1, 1, 8, 7], [23, 1]):
        cache = cache_of(bits=bits, dtype=torch.float64)
        parts = [model(new, cache=cache) for new in tokens.split(cuts, 1)]
        found = torch.cat(parts, 1)
        torch.testing.assert_close(found, whole, rtol=0, atol=1e-9)


def test_it_is_the_model_whose_keys_and_values_are_rounded():
    """Without a cache, by a hook on the layer that makes both."""
    model = small()
    tokens = torch.randint(40, (2, 16))
    cached = model(tokens, cache=cache_of(2, bits=8))
    exact = model(tokens)
    off = {}
    for bits in (8, 4):
        found = model(tokens, cache=cache_of(2, bits=bits))
        off[bits] = (found - exact).abs().max().item()
    assert 0 < off[8] < off[4] / 4
    keys, values = [], []
    plain = KVCache(2, 16, n_layers=2, n_heads=2, d_k=8)
    model(tokens, cache=plain)
    rounded = cache_of(2, bits=8)
    places = rounded.place(2, 16)
    for layer in range(2):
        k, v = rounded.write(
            layer, plain.keys[layer], plain.values[layer], places
        )
        keys.append(k)
        values.append(v)
    for ours, theirs in ((keys, plain.keys), (values, plain.values)):
        wanted = by_range(theirs, 8, kept=torch.float16).values()
        assert torch.equal(torch.stack(ours), wanted)
    assert cached.shape == exact.shape


def test_its_bytes_are_blocks():
    """4 bytes a block for scale and smallest, then the codes."""
    for bits, block in ((8, 12), (4, 8)):
        cache = cache_of(3, 5, bits=bits)
        assert cache.nbytes == 2 * 3 * 2 * 5 * 2 * block
        assert cache.capacity == 5
    plain = KVCache(1, 5, n_layers=1, n_heads=1, d_k=64)
    four = RoundedCache(1, 5, n_layers=1, n_heads=1, d_k=64, bits=4)
    assert plain.nbytes / four.nbytes == 256 / 36
    wide = RoundedCache(1, 5, n_layers=1, n_heads=1, d_k=8, d_v=4, bits=4)
    assert wide.values.shape[-1] == 6


def test_rows_of_different_lengths_going_back_and_choosing():
    model = small().double()
    tokens = torch.randint(40, (2, 12))
    real = torch.ones(2, 12, dtype=torch.bool)
    real[1, :5] = False
    both = cache_of(2, dtype=torch.float64)
    logits = model(tokens, real=real, cache=both)
    alone = cache_of(1, dtype=torch.float64)
    other = model(tokens[1:, 5:], cache=alone)
    torch.testing.assert_close(logits[1:, 5:], other, rtol=0, atol=1e-9)
    more = torch.randint(40, (1, 3))
    both.select([1])
    both.trim(5)
    alone.trim(5)
    torch.testing.assert_close(
        model(more, cache=both), model(more, cache=alone), rtol=0, atol=1e-9
    )
    alone.grow(40)
    assert alone.capacity == 40
    alone.reset()
    assert not alone.keys.any()


def test_what_was_never_written_is_0():
    blocks = cache_of().keys[0]
    assert not from_blocks(blocks, 4, torch.float32).any()


def test_the_type_that_is_asked_for_comes_back():
    cache = RoundedCache(
        1, 4, n_layers=1, n_heads=1, d_k=4, dtype=torch.bfloat16
    )
    x = torch.ones(1, 1, 2, 4, dtype=torch.bfloat16)
    k, v = cache.write(0, x, 2 * x, cache.place(1, 2))
    assert k.dtype == v.dtype == torch.bfloat16
    assert torch.equal(k, x) and torch.equal(v, 2 * x)


def test_a_model_writes_with_it():
    model = small()
    (new,) = complete(model, [[1, 2, 3]], 5)
    tokens = [1, 2, 3]
    cache = cache_of(bits=8)
    logits = model(torch.tensor([tokens]), cache=cache)
    for _ in range(5):
        tokens.append(int(logits[0, -1].argmax()))
        logits = model(torch.tensor([tokens[-1:]]), cache=cache)
    assert cache.lengths == [8]
    assert tokens[3:] == new  # in 8 bits, this text is the same


@pytest.mark.parametrize("value", [torch.inf, torch.nan, -7e4, 2e7])
def test_what_does_not_fit_into_16_bits_is_refused(value):
    x = randn(3, 8, seed=1).float()
    x[1, 2] = value
    said = "does not fit into 16 bits; expected finite numbers up to 65,504"
    with pytest.raises(ValueError, match=said):
        to_blocks(x, 8)
    x[1] = 6e4  # as large as they may be
    assert from_blocks(to_blocks(x, 8), 8, torch.float32)[1].eq(6e4).all()


def test_what_cannot_be_rounded_is_refused():
    x = randn(3, 8, seed=1)
    with pytest.raises(TypeError, match="record gradients cannot be rounded"):
        to_blocks(x.requires_grad_(), 8)
    with pytest.raises(ValueError, match="packed in 4 or 8 bits here.*got 6"):
        cache_of(bits=6)
    for wrong, name in (({"d_k": 0}, "d_k"), ({"d_k": 4, "d_v": 0}, "d_v")):
        with pytest.raises(ValueError, match=f"{name} is not allowed.*got 0"):
            RoundedCache(1, 4, n_layers=1, n_heads=1, **wrong)
    with pytest.raises(TypeError, match="d_k is of the wrong type"):
        RoundedCache(1, 4, n_layers=1, n_heads=1, d_k=4.0)
    with pytest.raises(ValueError, match="an even number of them; got 5"):
        RoundedCache(1, 4, n_layers=1, n_heads=1, d_k=5, bits=4)


def test_what_it_is_made_of():
    cache = RoundedCache(2, 4, n_layers=3, n_heads=5, d_k=6, d_v=8)
    assert (cache.bits, cache.dtype) == (8, torch.float32)
    assert cache.keys.shape == (3, 2, 5, 4, 4 + 6)
    assert cache.values.shape == (3, 2, 5, 4, 4 + 8)
    assert cache.keys.dtype == cache.values.dtype == torch.uint8


@pytest.mark.parametrize("bits", [4, 8])
def test_a_block_by_hand(bits):
    """Scale and smallest in two bytes each, then the codes."""
    x = torch.tensor([[-1.0, 14.0, 0.0, 3.0]])
    block = to_blocks(x, bits)
    step = 1.0 if bits == 4 else 15 / 255
    shared = block[:, :4].contiguous().view(torch.float16)
    wanted = torch.tensor([[step, -1.0]]).half()
    assert torch.equal(shared, wanted)
    if bits == 4:  # the first half low, the second half high
        assert block[0, 4:].tolist() == [0 + 16 * 1, 15 + 16 * 4]
        assert from_blocks(block, 4, torch.float64).tolist() == x.tolist()
