"""The gated delta rule: three ways that agree, and what a state can hold."""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F

from attnbook.state import (
    in_chunks,
    in_one_solve,
    short_convolution,
    step_by_step,
)
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn


def same(ours, theirs, within=1e-12):
    assert difference(ours, theirs, within=within) is None


def inputs(T, *leading, d_k=5, d_v=4, seed=1):
    """q, k of length 1, v, β up to 2, and log α."""
    sizes = [(*leading, T, d) for d in (d_k, d_k, d_v)]
    q, k, v = (randn(*s, seed=seed + n) for n, s in enumerate(sizes))
    beta = 2 * torch.sigmoid(randn(*leading, T, seed=seed + 3))
    log_alpha = F.logsigmoid(2 * randn(*leading, T, seed=seed + 4))
    return q, F.normalize(k, dim=-1), v, beta, log_alpha


def by_the_papers_matrix(q, k, v, beta, log_alpha, state=None, fresh=None):
    """Equation 10 as the paper has it, S ← S (α (I − β k kᵀ)) + β v kᵀ, for
    one head; its state is ours transposed."""
    S = torch.zeros(v.shape[-1], k.shape[-1]).double()
    S = S if state is None else state.mT
    out = []
    for t in range(len(k)):
        if fresh is not None and fresh[t]:
            S = torch.zeros_like(S)
        key = k[t][:, None]
        kept = torch.eye(len(key)).double() - beta[t] * key @ key.mT
        S = S @ (log_alpha[t].exp() * kept) + beta[t] * v[t][:, None] @ key.mT
        out.append(S @ q[t])
    return torch.stack(out), S.mT


WAYS = step_by_step, in_one_solve, in_chunks
SIZES = (1, 2, 7, 16, 64)


@pytest.mark.parametrize("delta", [True, False])
def test_the_three_ways_agree_at_every_length(delta):
    for T in range(1, 131):
        read = inputs(T, 2, d_k=6, seed=T)
        state = randn(2, 6, 4, seed=T)
        wanted = step_by_step(*read, state, delta=delta)
        same(in_one_solve(*read, state, delta=delta), wanted)
        size = SIZES[T % len(SIZES)]
        same(in_chunks(*read, state, delta=delta, size=size), wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("T", [1, 63, 64, 65, 130])
def test_the_size_of_a_chunk_changes_nothing(T, size):
    read = inputs(T, 1, 3)
    same(in_chunks(*read, size=size), step_by_step(*read))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("T", [1, 9, 70])
def test_each_is_the_papers_equation(way, T):
    read = inputs(T, d_k=3, d_v=7)
    state = randn(3, 7, seed=9)
    fresh = randn(T, seed=10) > 1
    wanted = by_the_papers_matrix(*read, state, fresh)
    same(tuple(way(*read, state, fresh=fresh)), wanted)


@pytest.mark.parametrize("way", [in_one_solve, in_chunks])
@pytest.mark.parametrize("T", [1, 2, 9, 33, 64, 65, 130])
@pytest.mark.parametrize("delta", [True, False])
def test_gradients_agree_too(way, T, delta):
    found = []
    for each in (step_by_step, way):
        read = [*inputs(T, 2), randn(2, 5, 4, seed=9)]
        read = [x.requires_grad_() for x in read]
        out, state = each(*read, delta=delta)
        total = (out * randn(*out.shape, seed=7)).sum()
        total = total + (state * randn(*state.shape, seed=8)).sum()
        found.append(torch.autograd.grad(total, read))
    same(*found, within=1e-11 if T > 64 else 1e-12)
    assert all(a.abs().sum() > 0 for a in found[0])


@pytest.mark.parametrize("ways", [*itertools.product(WAYS, repeat=2)])
@pytest.mark.parametrize("cut", [1, 5, 64, 99])
def test_a_text_may_be_cut_anywhere_and_by_any_way(ways, cut):
    """A prompt is read in one way and the answer in another."""
    read = inputs(100, 2)
    wanted = step_by_step(*read)
    axes = -2, -2, -2, -1, -1
    cuts = [x.split((cut, 100 - cut), n) for x, n in zip(read, axes)]
    first, second = ([c[n] for c in cuts] for n in (0, 1))
    begun = ways[0](*first)
    out, state = ways[1](*second, begun.state)
    same((torch.cat([begun.out, out], -2), state), tuple(wanted))


def test_a_second_part_without_the_state_is_noticed():
    read = inputs(20, 2)
    half = [x[..., 10:, :] if x.ndim == 3 else x[..., 10:] for x in read]
    lost = in_chunks(*half).out  # the state of the first half is dropped
    assert difference(lost, step_by_step(*read).out[:, 10:], within=0.01)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("delta", [True, False])
def test_packed_texts_are_read_as_if_alone(way, delta):
    read = inputs(90, 2)
    fresh = torch.zeros(2, 90).bool()
    fresh[0, [0, 30, 31, 64]] = True
    fresh[1, 10] = True
    state = randn(2, 5, 4, seed=9)
    out, last = way(*read, state, delta=delta, fresh=fresh)
    for row, bounds in enumerate([(0, 30, 31, 64, 90), (0, 10, 90)]):
        for start, end in itertools.pairwise(bounds):
            begun = state[row] if row and not start else None
            alone = way(*(x[row, start:end] for x in read), begun, delta=delta)
            same(out[row, start:end], alone.out)
        same(last[row], alone.state)


def test_a_state_that_leaks_is_noticed():
    read = inputs(20)
    leaking = in_chunks(*read).out[10:]
    alone = in_chunks(*(x[10:] for x in read)).out
    assert difference(leaking, alone, within=0.01)


@pytest.mark.parametrize("d", [1, 2, 16])
def test_d_orthonormal_pairs_are_recalled_and_one_more_is_not(d):
    keys = torch.linalg.qr(randn(d, d, seed=1)).Q
    values = randn(d + 1, 4, seed=2)
    ones, zeros = torch.ones(d + 1).double(), torch.zeros(d + 1).double()
    for delta in (True, False):
        _, state = step_by_step(
            keys, keys, values[:d], ones[:d], zeros[:d], delta=delta
        )
        same(keys @ state, values[:d])
        extra = F.normalize(randn(1, d, seed=3), dim=-1)
        more = torch.cat([keys, extra])
        _, state = step_by_step(more, more, values, ones, zeros, delta=delta)
        # The newest is there under the delta rule; some other is lost.
        newest = (more[-1] @ state - values[-1]).abs().max()
        assert (newest < 1e-12) == (delta)
        assert (more @ state - values).abs().max() > 0.1


def test_a_key_written_again_replaces():
    key = F.normalize(randn(1, 3, seed=1), dim=-1).repeat(2, 1)
    values = randn(2, 4, seed=2)
    ones, zeros = torch.ones(2).double(), torch.zeros(2).double()
    read = key, key, values, ones, zeros
    same(step_by_step(*read).out[1], values[1])
    same(step_by_step(*read, delta=False).out[1], values.sum(0))


def test_without_fading_and_delta_it_is_attention_without_softmax():
    q, k, v, *_ = inputs(33, 2)
    ones, zeros = torch.ones(2, 33).double(), torch.zeros(2, 33).double()
    out = in_chunks(q, k, v, ones, zeros, delta=False, size=8).out
    same(out, (q @ k.mT).tril() @ v)


def test_a_state_fades_to_nothing_and_no_nan_comes():
    """α of e⁻¹⁰⁰⁰ is 0, and its quotients are hidden before exp."""
    q, k, v, beta, _ = inputs(70, 2)
    gone = torch.full_like(beta, -1000.0)
    wanted = beta[..., None] * (q * k).sum(-1, keepdim=True) * v
    for way in WAYS:
        same(way(q, k, v, beta, gone).out, wanted)


def test_a_kept_share_of_nothing_gives_gradients_without_nan():
    read = [x.requires_grad_() for x in inputs(70)]
    faded = torch.full((70,), -50.0).double().requires_grad_()
    out = in_one_solve(*read[:4], faded).out
    grads = torch.autograd.grad(out.sum(), [*read[:4], faded])
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("T", [1, 64, 100])
def test_transformers_has_the_same_rule(T):
    """Both of its forms, in float32, where queries are divided by √d_k."""
    theirs = pytest.importorskip(
        "transformers.models.qwen3_next.modeling_qwen3_next"
    )
    q, k, v, beta, log_alpha = (x.float() for x in inputs(T, 2, 3))
    state = randn(2, 3, 5, 4, seed=9).float()
    wanted = in_chunks(q / 5**0.5, k, v, beta, log_alpha, state)
    turned = [x.transpose(1, 2) for x in (q, k, v, log_alpha, beta)]
    for form in ("torch_chunk", "torch_recurrent"):
        way = getattr(theirs, f"{form}_gated_delta_rule")
        kept = {"initial_state": state, "output_final_state": True}
        out, last = way(*turned, **kept)
        same(out.transpose(1, 2), wanted.out, within=1e-5)
        same(last, wanted.state, within=1e-5)


@pytest.mark.parametrize("w", [1, 2, 4])
def test_the_short_convolution_is_torchs(w):
    x = randn(2, 9, 6, seed=1)
    weight = randn(6, w, seed=2)
    before = randn(2, w - 1, 6, seed=3)
    seen = torch.cat([before, x], 1).mT
    wanted = F.conv1d(seen, weight[:, None], groups=6).mT
    same(short_convolution(x, weight, before), wanted)
    fresh = torch.zeros(2, 9).bool()
    fresh[0, 4] = fresh[1, 0] = True
    out = short_convolution(x, weight, before, fresh)
    alone = functools.partial(
        short_convolution, weight=weight, before=before[:1] * 0
    )
    same(out[:1, 4:], alone(x[:1, 4:]))
    same(out[1:], alone(x[1:]))
    same(out[:1, :4], wanted[:1, :4])
