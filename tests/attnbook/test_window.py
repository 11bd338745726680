"""A ring of keys against the window, for every cut of the text."""

import functools
import itertools

import pytest
import torch
from models import SMALL_ROTARY, random_tokens

from attnbook.cache import KVCache, RollingCache
from attnbook.gpt import GPT, GPTConfig
from attnbook.teach.check.difference import difference
from attnbook.window import read_window, sink_mask


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


@functools.cache
def model_of(**changes):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**(SMALL_ROTARY | changes)))
    return model.double().eval().requires_grad_(False)


tokens_of = functools.partial(random_tokens, 11)


def ring_of(batch, window, sinks=0, **changes):
    sizes = dict(n_layers=2, n_heads=4, d_k=4, dtype=torch.float64)
    return RollingCache(batch, window, sinks=sinks, **(sizes | changes))


@torch.no_grad()
def in_pieces(model, tokens, cuts, cache):
    parts = tokens.split(cuts, 1)
    return torch.cat([read_window(model, p, cache=cache) for p in parts], 1)


CUTS = [
    cut
    for parts in range(1, 8)
    for cut in itertools.product(range(1, 8), repeat=parts)
    if sum(cut) == 7
]


@pytest.mark.parametrize(
    "window, sinks", [(1, 0), (2, 1), (3, 0), (3, 2), (1, 4)]
)
def test_the_ring_is_the_window_for_every_cut(window, sinks):
    assert len(CUTS) == 2**6
    model = model_of()
    tokens = tokens_of(2, 7)
    whole = read_window(model, tokens, window=window, sinks=sinks)
    full = model(tokens)
    assert (whole - full).abs().max() > 0.1  # the window is felt
    for cut in CUTS:
        cache = ring_of(2, window, sinks)
        same(in_pieces(model, tokens, cut, cache), whole, within=1e-11)
        assert cache.lengths == [7, 7]


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "none"])
def test_a_text_longer_than_any_table(positions):
    model = model_of(positions=positions)
    tokens = tokens_of(1, 40)
    whole = read_window(model, tokens, window=5, sinks=2)
    cache = ring_of(1, 5, 2)
    size = cache.nbytes
    assert size == 2 * 2 * 1 * 4 * (5 + 2) * 4 * 8
    found = in_pieces(model, tokens, (17, *[1] * 20, 3), cache)
    same(found, whole, within=1e-11)
    assert cache.nbytes == size


@pytest.mark.parametrize("sizes", [{"window": 9}, {"window": 1, "sinks": 9}])
def test_without_an_end_it_is_the_model(sizes):
    model = model_of()
    tokens = tokens_of(2, 9)
    same(read_window(model, tokens, **sizes), model(tokens), within=1e-11)


def test_a_call_that_fails_leaves_the_ring_as_it_was():
    model = model_of()
    tokens = tokens_of(1, 9)
    cache = ring_of(1, 3, 1)
    in_pieces(model, tokens[:, :6], (4, 2), cache)
    before = cache.keys.clone()
    hook = model.norm.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        read_window(model, tokens[:, 6:8], cache=cache)
    hook.remove()
    assert cache.lengths == [6] and torch.equal(cache.keys, before)
    whole = read_window(model, tokens, window=3, sinks=1)
    found = in_pieces(model, tokens[:, 6:], (3,), cache)
    same(found, whole[:, 6:], within=1e-11)


def test_a_ring_can_be_emptied_and_its_rows_chosen_but_not_trimmed():
    model = model_of()
    tokens = tokens_of(2, 6)
    cache = ring_of(2, 2)
    in_pieces(model, tokens_of(2, 6, seed=9), (6,), cache)
    with pytest.raises(ValueError, match="cannot go back.*expected 0.*got 3"):
        cache.trim(3)
    cache.reset()
    assert cache.lengths == [0, 0] and not cache.keys.any()
    whole = read_window(model, tokens, window=2)
    same(in_pieces(model, tokens[:, :5], (5,), cache), whole[:, :5])
    cache.select([1])
    same(in_pieces(model, tokens[1:, 5:], (1,), cache), whole[1:, 5:])


ONE = torch.ones(1, 1)
TOKENS = tokens_of(1, 2)


def read(positions="rotary", tokens=TOKENS):
    return read_window(model_of(positions=positions), tokens, window=1)


@pytest.mark.parametrize(
    "error, match, call",
    [
        (ValueError, "window.*at least 1; got 0", lambda: ring_of(1, 0)),
        (ValueError, "sinks.*at least 0; got -1", lambda: ring_of(1, 2, -1)),
        (ValueError, "sinks", lambda: sink_mask(3, window=2, sinks=-1)),
        (
            ValueError,
            "expected 1 rows.*got 2",
            lambda: ring_of(1, 2).place(2, 1),
        ),
        (
            ValueError,
            "takes no padding",
            lambda: ring_of(1, 2).place(1, 1, ONE),
        ),
        (ValueError, "n_tokens", lambda: ring_of(1, 2).place(1, 0)),
        (ValueError, "got 'alibi'", lambda: read("alibi")),
        (ValueError, "got 'learned'", lambda: read("learned")),
        (TypeError, "integer", lambda: read(tokens=torch.ones(1, 2))),
    ],
)
def test_windows_refuse(error, match, call):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("L", [1, 2, 3])
def test_the_reach_of_a_window_is_exact(L, window):
    """Gradients of exactly zero beyond L·(w − 1) + 1 tokens, none within."""
    model = model_of(n_layers=L)
    tokens = tokens_of(1, 12)
    embedded = []

    def keep(module, args, x):
        embedded.append(x.detach().requires_grad_())
        return embedded[0]

    hook = model.token_embedding.register_forward_hook(keep)
    logits = read_window(model, tokens, window=window)[0, -1]
    hook.remove()
    logits.square().sum().backward()
    heard = embedded[0].grad[0].abs().amax(-1)  # (T,)
    reach = L * (window - 1) + 1
    assert (heard[-reach:] > 0).all()
    assert (heard[:-reach] == 0).all()


def test_a_cache_whose_values_have_a_width_of_their_own():
    cache = KVCache(1, 5, n_layers=1, n_heads=2, d_k=3, d_v=4)
    assert cache.keys.shape == (1, 1, 2, 5, 3)
    assert cache.values.shape == (1, 1, 2, 5, 4)
    assert cache.nbytes == 2 * 5 * (3 + 4) * 4
    places = cache.place(1, 2)
    k, v = torch.ones(1, 2, 2, 3), torch.ones(1, 2, 2, 4)
    keys, values = cache.write(0, k, v, places)
    assert torch.equal(keys, k) and torch.equal(values, v)
    with pytest.raises(ValueError, match="values"):
        cache.write(0, k, k, places)
    with pytest.raises(ValueError, match="d_v.*got 0"):
        KVCache(1, 5, n_layers=1, n_heads=2, d_k=3, d_v=0)
