"""Latent attention against a loop, absorbed against expanded; pooled heads;
a ring of keys against the window for every cut."""

import functools
import itertools

import pytest
import torch
from models import random_tokens
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attnbook.cache import KVCache, LayerCache, RollingCache
from attnbook.gpt import GPT, GPTConfig
from attnbook.latent import (
    LatentAttention,
    pool_heads,
    read_window,
    sink_mask,
    use_latent,
)
from attnbook.teach.check.inputs import drawn
from attnbook.teach.check.proof import difference
from attnbook.teach.check.seeded import randn


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


# Latent attention.


def layer_of(n_heads=2, d_latent=3, d_rotary=4, seed=1, **rotary):
    layer = LatentAttention(
        8, n_heads, d_latent=d_latent, d_rotary=d_rotary, **rotary
    )
    return drawn(layer, seed=seed)


def by_loop(layer, x, positions, mask, base):
    """Equations 37 to 47 of the paper, pair by pair; rotation as a complex
    product of the halves. x (T, d_model), mask (T, T)."""
    H, d_k, d_r = layer.n_heads, layer.d_k, layer.d_rotary
    speed = base ** (-torch.arange(0, d_r, 2).double() / d_r)

    def turned(a, position):
        a = torch.complex(*a.chunk(2))
        a = a * torch.polar(torch.ones_like(speed), speed * position)
        return torch.cat([a.real, a.imag])

    out = []
    for t, token in enumerate(x):
        heads = []
        queries = (layer.query.weight @ token).view(H, d_k + d_r)
        for h, query in enumerate(queries):
            scores, values = [], []
            for s in mask[t].nonzero()[:, 0].tolist():
                kept = layer.compress.weight @ x[s]
                made = layer.expand.weight @ kept[d_r:]
                key = made[: H * d_k].view(H, d_k)[h]
                values.append(made[H * d_k :].view(H, d_k)[h])
                score = query[:d_k] @ key + turned(
                    query[d_k:], positions[t]
                ) @ turned(kept[:d_r], positions[s])
                scores.append(score / (d_k + d_r) ** 0.5)
            weights = torch.stack(scores).softmax(0)
            heads.append(weights @ torch.stack(values))
        out.append(layer.out.weight @ torch.cat(heads))
    return torch.stack(out)


MASKS = {
    "none": torch.ones(5, 5).bool(),
    "causal": torch.ones(5, 5).bool().tril(),
    "holes": torch.tensor([[1, 0, 1, 0, 1]]).bool() | torch.eye(5).bool(),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("n_heads, d_latent, d_rotary", [(1, 1, 2), (4, 5, 6)])
def test_both_forms_are_the_papers_equations(
    mask, n_heads, d_latent, d_rotary
):
    layer = layer_of(n_heads, d_latent, d_rotary, base=7.0)
    x, at = randn(5, 8, seed=3), torch.tensor([2, 3, 5, 8, 11])
    wanted = by_loop(layer, x, at, MASKS[mask], base=7.0)
    parts = layer.project(x, at)
    same(layer.expanded(parts, MASKS[mask]), wanted)
    same(layer.absorbed(parts, MASKS[mask]), wanted)
    if mask == "causal":
        same(layer(x, causal=True, positions=at), wanted)


@pytest.mark.parametrize("T", [1, 3, 6])
@pytest.mark.parametrize("S", [6, 9])
@pytest.mark.parametrize("kind", ["none", "boolean", "added"])
def test_absorbed_is_expanded_and_gradients_too(T, S, kind):
    layer = layer_of()
    mask = randn(2, 1, T, S, seed=5) > -0.5
    mask[0, 0, 0] = False  # a query that sees nothing
    if kind == "added":
        mask = randn(T, S, seed=6).masked_fill(~mask, -torch.inf)
    mask = None if kind == "none" else mask
    found = []
    for form in (layer.expanded, layer.absorbed):
        x = randn(2, S, 8, seed=4).requires_grad_()
        q, turned, r, c = layer.project(x)
        parts = q[..., -T:, :], turned[..., -T:, :], r, c
        out = form(parts, mask)
        total = (out * randn(*out.shape, seed=7)).sum()
        wanted = [x, *layer.parameters()]
        found.append([out, *torch.autograd.grad(total, wanted)])
    same(*found)
    assert all(a.abs().sum() > 0 for a in found[0])


def test_positions_come_from_the_cache_if_not_given():
    layer, x = layer_of(), randn(1, 5, 8, seed=3)
    cache = KVCache(1, 5, n_layers=1, n_heads=1, d_k=4, d_v=3, dtype=x.dtype)
    with torch.no_grad():
        for new in x.split((2, 3), 1):
            places = cache.place(1, new.shape[1])
            part = LayerCache(cache, 0, places)
            out = layer(new, causal=True, cache=part)
            cache.commit(places)
        same(out, layer(x, causal=True)[:, 2:])


@pytest.mark.parametrize("sizes", [(2, 3, 4), (4, 16, 2), (1, 64, 8)])
@pytest.mark.parametrize("T, S", [(1, 1), (1, 9), (5, 9), (9, 9), (3, 40)])
def test_absorbing_pays_where_torch_counts_fewer_flops(sizes, T, S):
    layer = layer_of(*sizes)
    with torch.no_grad():
        q, turned, r, c = layer.project(randn(S, 8, seed=1))
    counts = []
    for form in (layer.absorbed, layer.expanded):
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            form((q[..., -T:, :], turned[..., -T:, :], r, c))
        counts.append(counter.get_total_flops())
    assert layer.absorbing_pays(T, S) == (counts[0] < counts[1])


@pytest.mark.parametrize(
    "pays, form", [(True, "absorbed"), (False, "expanded")]
)
def test_the_cheaper_form_runs(monkeypatch, pays, form):
    layer, x = layer_of(), randn(1, 8, seed=1)
    monkeypatch.setattr(layer, "absorbing_pays", lambda T, S: pays)
    for name in ("absorbed", "expanded"):
        monkeypatch.setattr(layer, name, lambda *a, name=name: name)
    assert layer(x) == form


CONFIG = dict(d_model=16, n_heads=4, n_layers=2, positions="rotary")
CONFIG |= dict(vocab_size=11, context=16, initial_std=0.5)


@functools.cache
def model_of(latent=False, **changes):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**(CONFIG | changes)))
    if latent:
        model = use_latent(model, d_latent=6, d_rotary=4)
    return model.double().eval().requires_grad_(False)


tokens_of = functools.partial(random_tokens, 11)


def test_a_latent_model_with_a_cache_is_one_without():
    model = model_of(latent=True)
    sizes = dict(n_layers=2, n_heads=1, d_k=4, d_v=6, dtype=torch.float64)
    cache = KVCache(2, 16, **sizes)
    assert cache.nbytes == 2 * 2 * 16 * (4 + 6) * 8
    texts, found = tokens_of(2, 9), [[], []]
    real = torch.ones(2, 9).bool()
    real[0, :4] = False  # the first row begins later
    for columns in torch.arange(9).split((5, 1, 3)):
        logits = model(texts[:, columns], real=real[:, columns], cache=cache)
        for row in (0, 1):
            found[row].append(logits[row, real[row, columns]])
    assert cache.lengths == [5, 9]
    for row in (0, 1):
        alone = model(texts[row, real[row]][None])[0]
        same(torch.cat(found[row]), alone, within=1e-11)


def test_a_latent_model_starts_small_and_takes_the_configs_rotation():
    scaling = (4.0, 1.0, 4.0, 16.0)
    changes = dict(rotary_base=50.0, rotary_scaling=scaling, initial_std=0.02)
    model = model_of(latent=True, d_model=64, **changes)
    layer = model.blocks[1].attention
    assert layer.rotary.keywords == dict(width=4, base=50.0, scaling=scaling)
    for name, std in dict(
        query=0.02, compress=0.02, expand=0.02, out=0.01
    ).items():
        weight = getattr(layer, name).weight
        assert weight.std().item() == pytest.approx(std, rel=0.15)


def latent_of(positions):
    model = GPT(GPTConfig(**CONFIG | {"positions": positions}))
    return use_latent(model, d_latent=6, d_rotary=4)


@pytest.mark.parametrize(
    "match, call",
    [
        ("got 8, 3, 1", lambda: layer_of(3)),
        ("d_latent.*got 0", lambda: layer_of(d_latent=0)),
        ("pairs; got 3", lambda: layer_of(d_rotary=3)(randn(2, 8, seed=1))),
        ("T, d_model=8", lambda: layer_of()(randn(2, 7, seed=1))),
        ("expected rotary; got 'alibi'", lambda: latent_of("alibi")),
    ],
)
def test_a_layer_refuses(match, call):
    with pytest.raises(ValueError, match=match):
        call()


# Pooled heads.


@pytest.mark.parametrize("bias", [True, False])
def test_a_pooled_head_is_the_mean_of_its_group(bias):
    model = drawn(GPT(GPTConfig(**CONFIG | {"bias": bias})), seed=2)
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
            side, head, place = row // 8, row // 4 % 2, row % 4
            first = 16 * side + 8 * head + place
            mean = (tensor[first] + tensor[first + 4]) / 2
            same(after[name][row], mean)
    assert all(p.requires_grad for p in pooled.parameters())
    assert not pool_heads(model.eval(), 2).training


def test_pooled_in_two_steps_or_in_one():
    model, tokens = model_of(), tokens_of(2, 9)
    same(pool_heads(model, 4)(tokens), model(tokens))
    twice = pool_heads(pool_heads(model, 2), 1)
    same(twice(tokens), pool_heads(model, 1)(tokens), within=1e-11)
    with pytest.raises(ValueError, match="16, 4, 3"):
        pool_heads(model, 3)
    with pytest.raises(ValueError, match="16, 2, 4"):
        pool_heads(pool_heads(model, 2), 4)


# Windows, sinks, and the ring.


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
    model, tokens = model_of(), tokens_of(2, 7)
    whole = read_window(model, tokens, window=window, sinks=sinks)
    full = model(tokens)
    assert (whole - full).abs().max() > 0.1  # the window is felt
    for cut in CUTS:
        cache = ring_of(2, window, sinks)
        same(in_pieces(model, tokens, cut, cache), whole, within=1e-11)
        assert cache.lengths == [7, 7]


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "none"])
def test_a_text_longer_than_any_table(positions):
    model, tokens = model_of(positions=positions), tokens_of(1, 40)
    whole = read_window(model, tokens, window=5, sinks=2)
    cache = ring_of(1, 5, 2)
    size = cache.nbytes
    assert size == 2 * 2 * 1 * 4 * (5 + 2) * 4 * 8
    found = in_pieces(model, tokens, (17, *[1] * 20, 3), cache)
    same(found, whole, within=1e-11)
    assert cache.nbytes == size


@pytest.mark.parametrize("sizes", [{"window": 9}, {"window": 1, "sinks": 9}])
def test_without_an_end_it_is_the_model(sizes):
    model, tokens = model_of(), tokens_of(2, 9)
    same(read_window(model, tokens, **sizes), model(tokens), within=1e-11)


def test_a_call_that_fails_leaves_the_ring_as_it_was():
    model, tokens = model_of(), tokens_of(1, 9)
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
    model, tokens = model_of(), tokens_of(2, 6)
    cache = ring_of(2, 2)
    in_pieces(model, tokens_of(2, 6, seed=9), (6,), cache)
    with pytest.raises(ValueError, match="0 for a ring; got 3"):
        cache.trim(3)
    cache.reset()
    assert cache.lengths == [0, 0] and not cache.keys.any()
    whole = read_window(model, tokens, window=2)
    same(in_pieces(model, tokens[:, :5], (5,), cache), whole[:, :5])
    cache.select([1])
    same(in_pieces(model, tokens[1:, 5:], (1,), cache), whole[1:, 5:])


ONE, TOKENS = torch.ones(1, 1), tokens_of(1, 2)


def read(positions="rotary", tokens=TOKENS):
    return read_window(model_of(positions=positions), tokens, window=1)


@pytest.mark.parametrize(
    "error, match, call",
    [
        (ValueError, "window.*at least 1; got 0", lambda: ring_of(1, 0)),
        (ValueError, "sinks.*at least 0; got -1", lambda: ring_of(1, 2, -1)),
        (ValueError, "sinks", lambda: sink_mask(3, window=2, sinks=-1)),
        (ValueError, "'2 without pad", lambda: ring_of(1, 2).place(2, 1)),
        (ValueError, "'1 with pad", lambda: ring_of(1, 2).place(1, 1, ONE)),
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
    model, tokens = model_of(n_layers=L), tokens_of(1, 12)
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
