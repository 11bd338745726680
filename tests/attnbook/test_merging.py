"""Parts that merge, and what is made of them, against the whole matrix."""

import functools
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnbook.merging import (
    Partial,
    attend_to_part,
    finish,
    merge,
    tiled_attention,
)
from attnbook.teach.check.difference import difference
from attnbook.teach.check.proof import agrees
from attnbook.teach.check.running import Case
from attnbook.teach.check.seeded import randn

INF = torch.inf
TIGHT = 1e-12


def whole_attention(q, k, v, mask=None, causal=False, **_):
    """Context and log-sum-exp with the whole matrix, by torch's functions."""
    T, S = q.shape[-2], k.shape[-2]
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.shape[-1])
    allowed = torch.ones(T, S, dtype=torch.bool)
    if causal:
        place = torch.arange(T)[:, None] + S - T
        allowed = torch.arange(S) <= place
    if mask is not None:
        allowed = allowed & mask
    lost = ~allowed.any(-1, keepdim=True)
    scores = scores.masked_fill(~(allowed | lost), -INF)
    context = (torch.softmax(scores, -1) @ v).masked_fill(lost, 0)
    lse = torch.logsumexp(scores, -1, keepdim=True).masked_fill(lost, -INF)
    return context, lse


def same(a, b, within=TIGHT):
    found = difference(tuple(a), tuple(b), within=within)
    assert found is None, found


@st.composite
def parts(draw, n=3):
    """Parts of one attention, some of whose queries see no key of a part."""
    seed = draw(st.integers(0, 10**6))
    by = draw(st.sampled_from([1, 30, 1e4]))
    T, d_v = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    q = randn(T, 2, seed=seed) * by
    found = []
    for m in range(n):
        S = draw(st.integers(1, 4))
        k, v = (randn(S, d, seed=seed + 7 * m + d) for d in (2, d_v))
        rows = draw(st.lists(st.booleans(), min_size=T * S, max_size=T * S))
        mask = torch.tensor(rows).reshape(T, S)
        found.append(attend_to_part(q, k, v, mask=mask))
    return found


@settings(deadline=None, max_examples=100)
@given(parts())
def test_the_merge_is_a_commutative_monoid(three):
    a, b, c = three
    same(merge(a, b), merge(b, a), within=0)
    zero = a.total * 0
    nothing = Partial(zero - INF, zero, a.context * 0)
    same(merge(a, nothing), a, within=0)
    same(merge(nothing, a), a, within=0)
    same(merge(merge(a, b), c), merge(a, merge(b, c)))


def test_a_part_is_what_it_says():
    q, k, v = randn(2, 3, seed=1), randn(4, 3, seed=2), randn(4, 5, seed=3)
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0]]).bool()
    scores = (q @ k.mT / math.sqrt(3))[0, [0, 2, 3]]
    exp = (scores - scores.max()).exp()
    found = attend_to_part(q, k, v, mask=mask)
    first = [scores.max(), exp.sum(), exp @ v[[0, 2, 3]]]
    same([x[0].squeeze() for x in found], first)
    same([x[1] for x in found], [f64(-INF), f64(0), torch.zeros(5)], 0)
    same([x[1] for x in finish(found)], [torch.zeros(5), f64(-INF)], 0)


def f64(x):
    return torch.tensor([x], dtype=torch.float64)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.permutations(range(6)), st.data())
def test_any_cut_in_any_order_is_the_whole(seed, order, data):
    """Six keys in some order, cut somewhere, merged in some grouping."""
    q, k, v = (randn(*s, seed=seed) for s in ((3, 4), (6, 4), (6, 2)))
    mask = randn(3, 6, seed=seed + 1) > 0
    cuts = sorted(data.draw(st.sets(st.integers(1, 5))))
    heap = [
        attend_to_part(q, k[list(at)], v[list(at)], mask=mask[:, list(at)])
        for at in (order[a:b] for a, b in itertools.pairwise([0, *cuts, 6]))
    ]
    while len(heap) > 1:
        i = data.draw(st.integers(0, len(heap) - 1))
        heap.append(merge(heap.pop(i), heap.pop(i - 1)))
    same(finish(heap[0]), whole_attention(q, k, v, mask))


def padded(T, S):
    """A batch of two: the first key of the second text alone is real."""
    return (torch.arange(S) < torch.tensor([[S], [1]]))[:, None]


def holes(T, S):
    """Some pairs forbidden; the last query sees no key."""
    mask = randn(2, T, S, seed=5) > -0.5
    return mask & (torch.arange(T) < T - 1)[:, None]


OPTIONS = {
    "all": lambda T, S: {},
    "causal": lambda T, S: {"causal": True},
    "padded": lambda T, S: {"mask": padded(T, S)},
    "causal, padded": lambda T, S: {"mask": padded(T, S), "causal": True},
    "empty rows": lambda T, S: {"mask": holes(T, S)},
    "all, empty rows": lambda T, S: {"mask": holes(T, S), "causal": True},
}
SIZES = (1, 5, 33, 57)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("tile", [(1, 1), (16, 16), (7, 32), (64, 5)])
def test_tiles_are_the_whole_gradients_too(options, tile):
    """Context, log-sum-exp, dq, dk and dv, the gradient of both together."""
    rows, columns = tile
    sizes = ((1, 5),) * 2 if tile == (1, 1) else (SIZES, SIZES)
    cases = []
    for T, S in itertools.product(*sizes):
        q, k, v = (
            randn(2, *size, seed=n)
            for n, size in enumerate([(T, 4), (S, 4), (S, 3)])
        )
        given = OPTIONS[options](T, S) | dict(rows=rows, columns=columns)
        cases.append(Case(f"{T}×{S}", (q, k, v), given))

    def finite(f):
        """Without −∞, whose gradient is none."""

        def call(*args, **kwargs):
            context, lse = f(*args, **kwargs)
            return context, lse.masked_fill(lse == -INF, 7)

        return call

    for case in cases:
        ours = tiled_attention(*case.args, **case.kwargs)
        same(ours, whole_attention(*case.args, **case.kwargs))
    both = finite(tiled_attention), finite(whole_attention)
    agrees(*both, cases=cases, gradients=True, within=TIGHT)


def test_there_is_no_second_derivative():
    q, k, v = (randn(n, 4, seed=n).requires_grad_() for n in (3, 5, 5))
    total = tiled_attention(q, k, v).context.square().sum()
    (dq,) = torch.autograd.grad(total, q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def test_leading_axes_broadcast_gradients_too():
    q, k, v = randn(2, 6, 3, 4, seed=1), randn(2, 1, 5, 4, seed=2), 0
    v = randn(5, 7, seed=3)
    mask = randn(2, 1, 3, 5, seed=4) > 0
    cases = [
        Case("shared keys", (q, k, v), {}),
        Case("one mask for all heads", (q, k, v), {"mask": mask}),
        Case("one for all rows", (q, k, v), {"mask": mask[..., :1, :]}),
    ]
    for f in (
        functools.partial(tiled_attention, rows=2, columns=2),
        lambda *a, **kw: finish(attend_to_part(*a, **kw)),
    ):
        agrees(
            lambda *a, f=f, **kw: f(*a, **kw).context,
            lambda *a, **kw: whole_attention(*a, **kw)[0],
            cases=cases,
            gradients=True,
        )


class Largest(TorchDispatchMode):
    """The most numbers in a tensor made, and how many products were made."""

    def __init__(self):
        super().__init__()
        self.numbers, self.products = 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, torch.Tensor):
                size = x.untyped_storage().nbytes() // x.element_size()
                self.numbers = max(self.numbers, size)
        self.products += function in (
            torch.ops.aten.bmm.default,
            torch.ops.aten.mm.default,
        )
        return made


@pytest.mark.parametrize("causal", [False, True])
def test_the_matrix_is_never_there(causal):
    T, S, tile = 200, 300, 32
    q, k, v = (randn(n, 4, seed=n).requires_grad_() for n in (T, S, S))
    with Largest() as seen:
        context, lse = tiled_attention(
            q, k, v, causal=causal, rows=tile, columns=tile, mask=padding(S)
        )
        (context.sum() + lse.sum()).backward()
    assert seen.numbers == S * 4  # k itself; a tile has 1,024
    with Largest() as seen:
        whole_attention(q, k, v, causal=causal)
    assert seen.numbers == T * S


def padding(S):
    return torch.arange(S) < S - 3


def test_tiles_behind_the_diagonal_are_left_out():
    q, k, v = (randn(64, 4, seed=n).requires_grad_() for n in range(3))
    for causal, tiles in ((False, 16), (True, 10)):
        with Largest() as seen:
            out = tiled_attention(q, k, v, causal=causal, rows=16, columns=16)
        assert seen.products == 2 * tiles
        with Largest() as seen:
            out.context.sum().backward()
        assert seen.products == 5 * tiles
    with Largest() as seen:  # four tiles below each other
        tiled_attention(q[:32], k, v, rows=8, columns=64)
    assert seen.products == 2 * 4


def test_finished_results_merge_gradients_too():
    def in_halves(q, k, v):
        first = tiled_attention(q, k[:3], v[:3], rows=1, columns=2)
        second = tiled_attention(q, k[3:], v[3:], rows=2, columns=1)
        one = torch.ones_like(first.lse)
        both = (Partial(x.lse, one, x.context) for x in (first, second))
        return tuple(finish(merge(*both)))

    args = randn(3, 4, seed=1) * 9, randn(7, 4, seed=2), randn(7, 2, seed=3)
    agrees(in_halves, whole_attention, cases=[args], gradients=True)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32]
)
def test_scores_of_any_height_in_any_type(dtype):
    """300, 298 and −300, whose exponentials have no number; all negative."""
    q, v = torch.tensor([[1.0]]), torch.tensor([[1.0], [0.0], [5.0]])
    scores = torch.tensor([[300.0], [298.0], [-300.0]])
    first = 1 / (1 + math.exp(-2))
    for k, context, lse in (
        (scores, first, 300.0),
        (-scores, 5.0, 300.0),
        (scores - 600, first, -300.0),
    ):
        given = (x.to(dtype) for x in (q, k, v))
        found = tiled_attention(*given, rows=1, columns=1)
        assert found.context.dtype == found.lse.dtype == dtype
        agrees(found.context, [[context]], within=4e-3)
        agrees(found.lse, [[lse]], within=4.0)


Q, K, V = torch.ones(3, 2), torch.ones(4, 2), torch.ones(4, 5)
MASK = torch.ones(3, 4) > 0
ONE = attend_to_part(Q, K, V)
FLAT = Partial(ONE.peak[..., 0], ONE.total[..., 0], ONE.context)


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: attend_to_part(Q, K[:, :1], V), ValueError, "d_k"),
        (lambda: attend_to_part(Q, K, V[:3]), ValueError, "S is"),
        (lambda: attend_to_part(Q, K[:0], V[:0]), ValueError, "S of k"),
        (lambda: attend_to_part(Q, K.double(), V), TypeError, "q, k, v"),
        (lambda: attend_to_part(Q, K, [1.0]), TypeError, "v is"),
        (lambda: attend_to_part(Q, K, V, mask=MASK.int()), TypeError, "mask"),
        (
            lambda: attend_to_part(Q, K, V, mask=MASK.float()),
            TypeError,
            "mask",
        ),
        (lambda: attend_to_part(Q, K, V, mask=MASK.T), ValueError, "mask"),
        (lambda: tiled_attention(Q, K, V, rows=0), ValueError, "rows"),
        (lambda: tiled_attention(Q, K, V, columns=1.5), TypeError, "columns"),
        (lambda: tiled_attention(Q, K, V[1:]), ValueError, "S is"),
        (lambda: merge(ONE, attend_to_part(Q[:2], K, V)), ValueError, "T is"),
        (
            lambda: merge(ONE, attend_to_part(Q, K, V[:, :4])),
            ValueError,
            "d_v is",
        ),
        (lambda: merge(ONE, Partial(*[[1.0]] * 3)), TypeError, "peak of b"),
        (lambda: merge(FLAT, ONE), ValueError, "peak of a"),
    ],
)
def test_what_is_refused(call, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        call()
