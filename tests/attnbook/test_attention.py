"""Attention against torch, in awkward sizes, and what it refuses."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.attention import (
    attend,
    check_heads,
    fused_attention,
    merge_heads,
    scaled_dot_product_attention,
    softmax,
    split_heads,
)
from attnbook.masks import merge_causal, padding_mask
from attnbook.teach.check.proof import agrees
from attnbook.teach.check.running import Case
from attnbook.teach.check.seeded import randn

NAN = torch.nan
INF = torch.inf


def plain(*args, **kwargs):
    return scaled_dot_product_attention(*args, **kwargs).context


BOTH = pytest.mark.parametrize("attention", [plain, fused_attention])


def _cases():
    mask = randn(3, 4, seed=9) > 0
    mask[1] = False  # a query that may attend to nothing
    q, k, v = randn(3, 2, seed=1), randn(4, 2, seed=2), randn(4, 5, seed=3)
    batch = randn(2, 6, 3, 2, seed=4), randn(2, 1, 4, 2, seed=5)
    bias = randn(3, 4, seed=7)
    return [
        Case("one query, one key", (q[:1], k[:1], v[:1])),
        Case("not square", (q, k, v)),
        Case("batch and heads, broadcast", (*batch, randn(4, 5, seed=6))),
        Case("a scale of its own", (q, k, v), {"scale": 0.3}),
        Case("a boolean mask", (q, k, v), {"mask": mask}),
        Case("a bias", (q, k, v), {"mask": bias}),
        Case("with −inf", (q, k, v), {"mask": bias.masked_fill(~mask, -INF)}),
        Case("a mask over keys alone", (q, k, v), {"mask": mask[:1]}),
        Case("one of a single axis", (*batch, v), {"mask": mask[0]}),
        Case("a bias of another type", (q, k, v), {"mask": bias.float()}),
    ]


def _torch(q, k, v, mask=None, scale=None):
    """SDPA, with the book's rule for a query that may attend to nothing."""
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)
    mask = torch.atleast_2d(mask)
    mask = mask.to(q.dtype) if mask.is_floating_point() else mask
    context = F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    allowed = mask if mask.dtype == torch.bool else mask > -INF
    return torch.where(allowed.any(-1, keepdim=True), context, 0.0)


@BOTH
def test_both_paths_agree_with_torch_gradients_too(attention):
    agrees(attention, _torch, name="SDPA", cases=_cases(), gradients=True)


def _repeated(q, k, v, mask=None, causal=False, scale=None):
    """What `attend` stands for: heads repeated, the plain path."""
    group = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(group, -3) for x in (k, v))
    if causal:
        mask = merge_causal(mask, q.shape[-2], k.shape[-2])
    return plain(q, k, v, mask=mask, scale=scale)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"scale": 0.3},
        {"mask": padding_mask([5, 2])[:, None, None, :], "causal": True},
        {"mask": randn(2, 6, 3, 5, seed=9)},
        {"mask": randn(6, 3, 5, seed=9), "causal": True},
        {"mask": (randn(2, 6, 3, 5, seed=8) > 0.5)},  # some rows have no key
    ],
)
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
def test_fewer_heads_of_keys_are_repeated_gradients_too(n_kv_heads, options):
    q = randn(2, 6, 3, 4, seed=1)  # (B, H, T, d_k)
    k = randn(2, n_kv_heads, 5, 4, seed=2)  # (B, H_kv, S, d_k)
    v = randn(2, n_kv_heads, 5, 7, seed=3)
    cases = [Case("a batch", (q, k, v), options)]
    if "mask" not in options or options["mask"].ndim == 3:
        cases.append(Case("no batch", (q[0], k[0], v[0]), options))
    if set(options) <= {"causal", "scale"}:
        cases.append(Case("one query", (q[:, :, :1], k, v), options))
        square = q, k.repeat(1, 1, 2, 1)[:, :, :3], v[:, :, :3]
        cases.append(Case("as many queries", square, options))
    agrees(attend, _repeated, name="repeated", cases=cases, gradients=True)


@pytest.mark.parametrize(
    "mask",
    [
        padding_mask([5, 2])[:, None, None, :],
        randn(2, 6, 1, 5, seed=9),
        randn(6, 1, 5, seed=9),
        randn(2, 6, 1, 5, seed=8) > 0.5,
        torch.arange(6).reshape(6, 1, 1) % 4 >= torch.ones(5),  # two see none
    ],
)
def test_one_query_a_head_and_a_mask(mask):
    """As in a step of writing: the heads that share keys are computed as
    several queries, and each keeps its own row of the mask."""
    q = randn(2, 6, 1, 4, seed=1)  # (B, H, 1, d_k)
    k = randn(2, 2, 5, 4, seed=2)  # (B, H_kv, S, d_k)
    v = randn(2, 2, 5, 7, seed=3)
    case = Case("one query", (q, k, v), {"mask": mask})
    agrees(attend, _repeated, name="repeated", cases=[case], gradients=True)


@BOTH
def test_a_bias_too_low_for_half_precision_hides_the_row(attention):
    """The lowest float32 is −∞ in float16: nothing may be attended to."""
    q, k, v = (randn(2, 4, seed=i, dtype=torch.float16) for i in range(3))
    mask = torch.full((2, 2), torch.finfo(torch.float32).min)
    context = attention(q, k, v, mask=mask)
    agrees(context, torch.zeros(2, 4), name="the rule", within=0)


@BOTH
def test_a_batch_of_none_gives_none(attention):
    q, k, v = (torch.ones(0, 3, 2) for _ in range(3))
    for mask in (None, torch.zeros(0, 3, 3), torch.ones(0, 3, 3) > 0):
        assert attention(q, k, v, mask=mask).shape == (0, 3, 2)


def test_what_softmax_refuses_and_what_it_lets_through():
    x = torch.ones(3, 0)
    for scores, dim, error, named in (
        (torch.tensor([1, 2]), -1, TypeError, "scores"),
        ([1.0, 2.0], -1, TypeError, "scores"),
        (x, -1, ValueError, "empty"),
        (x, 2, ValueError, "dim is"),
        (x, -3, ValueError, "dim is"),
        (x, 0.0, TypeError, "dim is"),
        (torch.tensor(1.0), -1, ValueError, "dim is"),
        (torch.tensor([INF, 1.0]), -1, ValueError, r"\+inf"),
    ):
        with pytest.raises(error, match=f"{named}.*; expected .*; got "):
            softmax(scores, dim)
    assert softmax(torch.tensor([NAN, 1.0])).isnan().all()


Q, K, V = torch.ones(3, 2), torch.ones(4, 2), torch.ones(4, 5)
APART = torch.tensor([1e30, -1e30])  # inf − inf in the product


@BOTH
@pytest.mark.parametrize(
    "args, options, error, named",
    [
        ((Q, torch.ones(4, 3), V), {}, ValueError, "d_k"),
        ((Q, K, torch.ones(3, 5)), {}, ValueError, "S is"),
        ((Q, K.double(), V), {}, TypeError, "q, k, v"),
        ((Q * NAN, K, V), {}, ValueError, "q contains"),
        ((Q, K * -INF, V), {}, ValueError, "k contains"),
        ((Q, K, V * INF), {"mask": V[:, 0] < 0}, ValueError, "v contains"),
        ((Q * 1e30, K * 1e30, V), {}, ValueError, r"inf"),
        ((Q * 1e30, K * APART, V), {}, ValueError, "context"),
        ((Q, K, V), {"scale": NAN}, ValueError, "scale"),
        ((Q, K, V), {"mask": torch.ones(3, 4).int()}, TypeError, "mask"),
        ((Q, K, V), {"mask": torch.ones(4, 3) > 0}, ValueError, "mask"),
    ],
)
def test_what_attention_refuses(attention, args, options, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        attention(*args, **options)


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: split_heads([[1.0]], 1), TypeError, "x is"),
        (lambda: merge_heads([[1.0]]), TypeError, "x is"),
        (lambda: split_heads(torch.ones(6), 2), ValueError, "axis T"),
        (lambda: split_heads(torch.ones(2, 6), 4), ValueError, "n_heads"),
        (lambda: split_heads(torch.ones(2, 6), 0), ValueError, "n_heads"),
        (lambda: check_heads(6, 0), ValueError, "n_heads is"),
        (lambda: merge_heads(torch.ones(7, 2)), ValueError, "axis H"),
    ],
)
def test_what_heads_refuse(call, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        call()


def test_a_scale_of_zero_is_a_scale():
    """It makes all weights equal; a mutant took it for none."""
    q, k, v = (randn(3, 2, seed=n) for n in range(3))
    found = scaled_dot_product_attention(q, k, v, scale=0.0)
    agrees(found.weights, torch.full((3, 3), 1 / 3), name="equal", within=1e-7)
