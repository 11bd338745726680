"""Latent attention against a loop, and absorbed against expanded."""

import functools

import pytest
import torch
from models import SMALL_ROTARY, random_tokens
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attnbook.cache import KVCache, LayerCache
from attnbook.gpt import GPT, GPTConfig
from attnbook.latent import LatentAttention, use_latent
from attnbook.teach.check.difference import difference
from attnbook.teach.check.inputs import drawn
from attnbook.teach.check.seeded import randn


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


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
    layer = layer_of()
    x = randn(1, 5, 8, seed=3)
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
    layer = layer_of()
    x = randn(1, 8, seed=1)
    monkeypatch.setattr(layer, "absorbing_pays", lambda T, S: pays)
    for name in ("absorbed", "expanded"):
        monkeypatch.setattr(layer, name, lambda *a, name=name: name)
    assert layer(x) == form


@functools.cache
def model_of(latent=False, **changes):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**(SMALL_ROTARY | changes)))
    if latent:
        model = use_latent(model, d_latent=6, d_rotary=4)
    return model.double().eval().requires_grad_(False)


tokens_of = functools.partial(random_tokens, 11)


def test_a_latent_model_with_a_cache_is_one_without():
    model = model_of(latent=True)
    sizes = dict(n_layers=2, n_heads=1, d_k=4, d_v=6, dtype=torch.float64)
    cache = KVCache(2, 16, **sizes)
    assert cache.nbytes == 2 * 2 * 16 * (4 + 6) * 8
    texts = tokens_of(2, 9)
    found = [[], []]
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
    model = GPT(GPTConfig(**SMALL_ROTARY | {"positions": positions}))
    return use_latent(model, d_latent=6, d_rotary=4)


@pytest.mark.parametrize(
    "match, call",
    [
        ("d_model 8 and n_heads 3", lambda: layer_of(3)),
        ("d_latent.*got 0", lambda: layer_of(d_latent=0)),
        (
            "pairs; expected an even number; got 3",
            lambda: layer_of(d_rotary=3)(randn(2, 8, seed=1)),
        ),
        ("T, d_model=8", lambda: layer_of()(randn(2, 7, seed=1))),
        ("expected 'rotary'; got 'alibi'", lambda: latent_of("alibi")),
    ],
)
def test_a_layer_refuses(match, call):
    with pytest.raises(ValueError, match=match):
        call()
