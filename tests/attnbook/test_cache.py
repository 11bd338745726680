"""The KV cache against the full pass of each row alone, and its errors."""

import contextlib
import copy
import functools
from unittest import mock

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from models import random_model, random_tokens

from attnbook.cache import KVCache, LayerCache
from attnbook.gpt import POSITIONS, GPTConfig
from attnbook.layers import MultiHeadAttention, attention_weights
from attnbook.masks import padding_mask
from attnbook.teach.check.difference import difference
from attnbook.teach.check.proof import agrees

V, CAPACITY = 20, 9  # tokens in the vocabulary; the state machine's room

#: Every kind of model that the theorem is for.
KINDS = {
    "positions": st.sampled_from(POSITIONS),
    "n_kv_heads": st.sampled_from([1, 2, 4]),
    "norm": st.sampled_from(["layer", "rms"]),
}


@functools.cache
def model_of(**changes):
    sizes = dict(
        d_model=16,
        n_heads=4,
        n_kv_heads=2,
        n_layers=2,
        d_ff=24,
        vocab_size=V,
        context=32,
        positions="rotary",
    )
    return random_model(GPTConfig(**(sizes | changes))).requires_grad_(False)


tokens_of = functools.partial(random_tokens, V)


def plainly():
    """Attention by the plain path, every step in the open."""

    def forward(layer, *args, **kwargs):
        return layer.with_weights(*args, **kwargs).out

    return mock.patch.object(MultiHeadAttention, "forward", forward)


PATHS = [contextlib.nullcontext, plainly]  # the fused path, the plain one


def keyless(rows, real):
    """Whether there is not one token to attend to."""
    return not any(rows) and real is not None and not real.any()


def step(
    model,
    cache,
    rows,
    tokens,
    real=None,
    *,
    path=contextlib.nullcontext,
    last=False,
):
    """Feed tokens; require of each real one the logits of its row alone.

    `rows` are the tokens so far, as lists; they take in the new ones.
    """
    if keyless(rows, real):
        return  # it has a test of its own
    with path():
        logits = model(tokens, real=real, cache=cache, last=last)
    if real is None:
        real = torch.ones_like(tokens, dtype=torch.bool)
    for row, new, mine, found in zip(rows, tokens, real.bool(), logits):
        row += new[mine].tolist()
        if n := int(mine.sum()):
            alone = model(torch.tensor([row]))[0]
            expected = alone[-1:] if last else alone[-n:]
            found = found if last else found[mine]
            assert difference(found, expected, within=1e-10) is None
    assert cache.lengths == [len(row) for row in rows]


def started(model, lengths, capacity=8, **options):
    """A cache with tokens in it, and those as lists."""
    cache = model.new_cache(len(lengths), capacity)
    rows = [[] for _ in lengths]
    real = padding_mask(lengths, side="left").long()  # zeros and ones do
    step(model, cache, rows, tokens_of(*real.shape), real, **options)
    return cache, rows


def held(cache):
    """What a cache holds: keys and values of each row's tokens."""
    return [
        part[:, row, :, :n].clone()
        for row, n in enumerate(cache.lengths)
        for part in (cache.keys, cache.values)
    ]


@contextlib.contextmanager
def unchanged(cache):
    lengths = list(cache.lengths)
    before = held(cache)
    yield
    assert cache.lengths == lengths
    assert difference(held(cache), before, within=0) is None


@contextlib.contextmanager
def breaking(model, late=False):
    """Let the second block raise, when the first has filled its part; or
    the last norm, when all have."""

    def fail(layer, args):
        raise InterruptedError("in the middle of a call")

    layer = model.norm if late else model.blocks[1]
    hook = layer.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()


# The theorem: whatever the cuts, a token's logits are those of its row alone.


@st.composite
def calls(draw, batch=3):
    """Tokens of one call and which are real: (B, T) each, or no mask."""
    T = draw(st.integers(1, 4))
    tokens = tokens_of(batch, T, seed=draw(st.integers(0, 999)))
    kind = draw(st.sampled_from(["none", "left", "right", "between"]))
    if kind == "none":
        return tokens, None
    if kind == "between":
        flags = st.lists(st.booleans(), min_size=T, max_size=T)
        return tokens, torch.tensor([draw(flags) for _ in range(batch)])
    lengths = [[draw(st.integers(0, T))] for _ in range(batch)]
    real = torch.arange(T) < torch.tensor(lengths)
    return tokens, real.flip(-1) if kind == "left" else real


def some_rows(call, batch):
    tokens, real = call
    return tokens[:batch], real if real is None else real[:batch]


class Requests(RuleBasedStateMachine):
    """Calls, roll-backs, reuse and failures in any order; the truth is a
    list of tokens for each row."""

    @initialize(batch=st.integers(1, 3), kind=st.fixed_dictionaries(KINDS))
    def opened(self, batch, kind):
        self.model = model_of(**kind)
        self.cache = self.model.new_cache(batch, CAPACITY)
        self.rows = [[] for _ in range(batch)]
        self.memory = self.cache.keys, self.cache.values

    @rule(call=calls(), path=st.sampled_from(PATHS), last=st.booleans())
    def fed(self, call, path, last):
        tokens, real = some_rows(call, len(self.rows))
        new = [tokens.shape[1]] * len(tokens)
        new = new if real is None else real.sum(-1).tolist()
        if max(len(row) + n for row, n in zip(self.rows, new)) > CAPACITY:
            with (
                unchanged(self.cache),
                pytest.raises(ValueError, match="the cache is too small"),
            ):
                self.model(tokens, real=real, cache=self.cache)
        else:
            options = {"path": path, "last": last}
            step(self.model, self.cache, self.rows, tokens, real, **options)

    @rule(seed=st.integers(0, 99), path=st.sampled_from(PATHS))
    def one_token_more(self, seed, path):
        one = tokens_of(len(self.rows), 1, seed=seed)
        self.fed((one, None), path, False)

    @rule(call=calls(), late=st.booleans())
    def broken(self, call, late):
        tokens, real = some_rows(call, len(self.rows))
        if keyless(self.rows, real):
            return
        with (
            unchanged(self.cache),
            breaking(self.model, late),
            pytest.raises((InterruptedError, ValueError)),
        ):
            self.model(tokens, real=real, cache=self.cache)

    @rule(less=st.lists(st.integers(0, 4), min_size=3, max_size=3))
    def trimmed(self, less):
        lengths = [max(0, len(row) - n) for row, n in zip(self.rows, less)]
        self.cache.trim(lengths)
        self.rows = [row[:n] for row, n in zip(self.rows, lengths)]

    @rule(n=st.integers(0, CAPACITY))
    def cut_to_one_length(self, n):
        n = min(n, *map(len, self.rows), CAPACITY)
        self.cache.trim(n)
        self.rows = [row[:n] for row in self.rows]

    @rule()
    def forgotten(self):
        self.cache.reset()
        self.rows = [[] for _ in self.rows]

    @rule(some=st.lists(st.integers(0, 2), min_size=1, max_size=3))
    def selected(self, some):
        some = [row % len(self.rows) for row in some]
        self.cache.select(some)
        self.rows = [list(self.rows[row]) for row in some]
        self.memory = self.cache.keys, self.cache.values

    @invariant()
    def in_step(self):
        if hasattr(self, "cache"):
            assert self.cache.lengths == [len(row) for row in self.rows]
            assert self.cache.capacity == CAPACITY
            now = self.cache.keys, self.cache.values
            for ours, before in zip(now, self.memory):
                assert ours.data_ptr() == before.data_ptr()


Requests.TestCase.settings = settings(
    deadline=None, derandomize=True, max_examples=100, stateful_step_count=20
)
TestRequests = Requests.TestCase


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_nothing_but_padding_into_an_empty_cache(positions, path):
    model = model_of(positions=positions)
    cache = model.new_cache(2)
    rows = [[], []]
    with path():
        model(tokens_of(2, 3), real=torch.zeros(2, 3) > 0, cache=cache)
    assert cache.lengths == [0, 0]
    step(model, cache, rows, tokens_of(2, 3), padding_mask([3, 1]), path=path)


@pytest.mark.parametrize("how", ["made", "selected", "grown"])
def test_under_inference_mode_and_then_outside(how):
    model = model_of()
    rows = [[], []]
    cache = model.new_cache(2, 5)
    with torch.inference_mode():
        if how == "made":
            cache = model.new_cache(2, 5)
        step(model, cache, rows, tokens_of(2, 3))
        cache.trim([2, 1])
        rows = [rows[0][:2], rows[1][:1]]
        if how == "selected":
            cache.select([1, 0])
            rows = rows[::-1]
        if how == "grown":
            with unchanged(cache):
                cache.grow(9)
            assert cache.keys.shape == cache.values.shape == (2, 2, 2, 9, 4)
        step(model, cache, rows, tokens_of(2, 2))
    step(model, cache, rows, tokens_of(2, 1))
    cache.reset()
    step(model, cache, [[], []], tokens_of(2, cache.capacity))


def test_the_weights_are_seen_without_writing_twice():
    model = model_of()
    tokens = tokens_of(2, 5)
    cache = model.new_cache(2)
    whole = attention_weights(model, tokens)
    attention_weights(model, tokens[:, :3], cache=cache)
    found = attention_weights(model, tokens[:, 3:], cache=cache)
    rows = [w[:, :, 3:] for w in whole]
    agrees(found, rows, name="the whole", within=1e-11)
    assert cache.lengths == [5, 5]


# The last token alone.


def test_last_spares_the_head_its_other_rows():
    model = model_of(tied=False)
    seen = []
    hook = model.head.register_forward_pre_hook(
        lambda head, args: seen.append(args[0].shape)
    )
    assert model(tokens_of(2, 5), last=True).shape == (2, 1, V)
    hook.remove()
    assert seen == [(2, 1, 16)]


# What it costs.


def test_the_bytes_of_keys_and_values_are_counted():
    model = model_of()
    n = 7
    cache = model.new_cache(2)
    for one in tokens_of(2, n).split(1, dim=1):
        model(one, cache=cache)
    each = 2 * 2 * 2 * 2 * 4 * 8  # K and V, L, B, H_kv, d_k, float64
    assert cache.bytes_copied == n * each


@pytest.mark.parametrize(
    "dtype, size", [(torch.float64, 8), (torch.bfloat16, 2)]
)
@pytest.mark.parametrize("n_kv_heads", [None, 1, 2])
def test_the_memory_by_formula(n_kv_heads, dtype, size):
    model = copy.deepcopy(model_of(n_kv_heads=n_kv_heads)).to(dtype)
    cache = model.new_cache(3, 7)
    H_kv = n_kv_heads or 4
    assert cache.keys.shape == cache.values.shape == (2, 3, H_kv, 7, 4)
    assert cache.keys.dtype == cache.values.dtype == dtype
    assert cache.nbytes == 2 * 2 * 3 * H_kv * 7 * 4 * size
    assert cache.capacity == 7 and cache.lengths == [0, 0, 0]
    assert model(tokens_of(3, 2), cache=cache).dtype == dtype
    assert model.new_cache(1).capacity == model.config.context


# What is forgotten is gone, a NaN too.


def poisoned():
    """A model that makes NaN of token 7, and of no other."""
    model = copy.deepcopy(model_of(tied=False))
    model.token_embedding.weight[7] = torch.nan
    return model


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("left", [[0, 0], [2, 1], "a failed call"])
def test_a_nan_that_is_forgotten_does_not_come_back(left, path):
    model = poisoned()
    rows = [[], []]
    cache = model.new_cache(2, 16)
    bad = torch.full((2, 6), 7)
    step(model, cache, rows, torch.tensor([[1, 2], [3, 4]]), path=path)
    if left == "a failed call":
        with breaking(model), pytest.raises(InterruptedError):
            model(bad, cache=cache)
    else:
        assert model(bad, cache=cache).isnan().all()
        cache.trim(left)
        rows = [row[:n] for row, n in zip(rows, left)]
    tokens = torch.tensor([[1, 2, 3, 4, 5], [6, 8, 0, 0, 0]])
    step(model, cache, rows, tokens, padding_mask([5, 2]), path=path)
    step(model, cache, rows, torch.tensor([[9], [10]]), path=path)


@pytest.mark.parametrize("path", PATHS)
def test_a_nan_stays_in_its_row(path):
    model = poisoned()
    tokens = torch.tensor([[7, 7, 7], [1, 2, 0]])
    cache = model.new_cache(2)
    with path():
        logits = model(tokens, real=padding_mask([3, 2]), cache=cache)
    assert logits[0].isnan().all()
    cache.select([1])
    step(model, cache, [[1, 2]], torch.tensor([[5, 6]]), path=path)


def test_padding_is_not_kept():
    model = poisoned()
    cache = model.new_cache(2)
    rows = [[], []]
    tokens = torch.tensor([[7, 1, 7, 2], [3, 4, 5, 6]])
    step(model, cache, rows, tokens, tokens != 7)
    agrees(cache.keys.isnan().any(), False, name="no NaN")
    tokens = torch.tensor([[7, 1], [2, 7]])
    step(model, cache, rows, tokens, tokens != 7)


# What is refused, and leaves the cache as it was.


FULL = padding_mask([1, 4], side="left")
ONE = torch.ones(2, 2, 1, 4).double()


def other(**changes):
    """A call of another model."""
    return lambda cache: model_of(**changes)(tokens_of(2, 1), cache=cache)


def fed_with(*size, real=None):
    return lambda cache: model_of()(tokens_of(*size), real=real, cache=cache)


def written(index=0, *, device=None, **changes):
    """A call of `write` itself, with one thing wrong in the keys or in the
    values."""

    def call(cache):
        new = torch.ones(2, 2, 1, 4, dtype=torch.float64, device=device)
        k, v = changes.get("k", new), changes.get("v", new)
        cache.write(index, k, v, cache.place(2, 1))

    return call


def with_gradients(cache):
    model = copy.deepcopy(model_of()).requires_grad_()
    model(tokens_of(2, 1), cache=cache)


def with_a_memory(cache):
    layer = model_of(positions="none").blocks[0].attention
    x = torch.ones(2, 1, 16).double()
    layer(x, x, cache=LayerCache(cache, 0, cache.place(2, 1)))


@pytest.mark.parametrize(
    "call, error, named",
    [
        (fed_with(2, 3), ValueError, "too small.*row 0"),
        (fed_with(2, 4, real=FULL), ValueError, "too small.*row 1"),
        (fed_with(3, 1), ValueError, "batch"),
        (fed_with(2, 1, real=FULL), ValueError, "T of real"),
        (fed_with(2, 1, real=[[1], [1]]), TypeError, "real"),
        (fed_with(2, 1, real=torch.tensor([[1], [2]])), ValueError, "mask"),
        (fed_with(2, 1, real=torch.ones(2, 1)), TypeError, "real"),
        (other(n_kv_heads=1), ValueError, "keys"),
        (other(d_model=32), ValueError, "keys"),
        (other(n_layers=3), ValueError, "layer"),
        (with_gradients, TypeError, "keys record gradients"),
        (with_a_memory, ValueError, "memory"),
        (written(device="meta"), ValueError, "keys.*device"),
        (written(-1), ValueError, "layer"),
        (written(2), ValueError, "layer"),
        (written(v=torch.ones(2, 2, 2, 4).double()), ValueError, "values"),
        (written(v=ONE.to("meta")), ValueError, "values.*device"),
        (written(v=ONE.float()), TypeError, "values"),
        (written(k=ONE[:1]), ValueError, "keys"),  # of one row
        (written(v=ONE.clone().requires_grad_()), TypeError, "values record"),
        (lambda cache: cache.place(2, 0), ValueError, "n_tokens"),
        (lambda cache: cache.trim(3), ValueError, "length"),
        (lambda cache: cache.trim([-1, 0]), ValueError, "length"),
        (lambda cache: cache.trim([1, 3]), ValueError, "length"),
        (lambda cache: cache.trim([1]), ValueError, "length"),
        (lambda cache: cache.trim([1, 1, 1]), ValueError, "length"),
        (lambda cache: cache.trim(True), TypeError, "length"),
        (lambda cache: cache.select([]), ValueError, "row"),
        (lambda cache: cache.select([0, 2]), ValueError, "row"),
        (lambda cache: cache.select([-1]), ValueError, "row"),
        (lambda cache: cache.grow(5), ValueError, "capacity"),
        (lambda cache: cache.grow(6.5), TypeError, "capacity"),
    ],
)
def test_what_is_refused_changes_nothing(call, error, named):
    model = model_of()
    cache, rows = started(model, [3, 2], capacity=5)
    with (
        unchanged(cache),
        pytest.raises(error, match=f"(?=.*{named}).*; expected .*; got "),
    ):
        call(cache)
    step(model, cache, rows, tokens_of(2, 1))
    step(model, cache, rows, tokens_of(2, 2), padding_mask([1, 2]))


SIZES = dict(n_layers=1, batch=2, n_heads=3, capacity=4, d_k=5)


@pytest.mark.parametrize("wrong", SIZES)
def test_a_size_below_one_is_named(wrong):
    with pytest.raises(ValueError, match=f"{wrong} .*; expected .*; got 0"):
        KVCache(**(SIZES | {wrong: 0}))
    with pytest.raises(ValueError, match="capacity"):
        model_of().new_cache(2, 0)  # nothing is not the context


def test_learned_positions_end_with_the_context():
    model = model_of(positions="learned", context=6)
    cache, rows = started(model, [4, 2], capacity=10)
    for T, real in ((3, None), (5, padding_mask([1, 5]))):
        with (
            unchanged(cache),
            pytest.raises(
                ValueError, match="length.* at most 6 tokens; got 7"
            ),
        ):
            model(tokens_of(2, T), real=real, cache=cache)
    step(model, cache, rows, tokens_of(2, 2))
    # A row that is full may wait while another goes on.
    step(model, cache, rows, tokens_of(2, 2), padding_mask([0, 2]))
    assert cache.lengths == [6, 6]


def test_other_positions_go_on_beyond_the_context():
    for positions in set(POSITIONS) - {"learned"}:
        model = model_of(positions=positions, context=6)
        cache, rows = started(model, [4, 2], capacity=10)
        step(model, cache, rows, tokens_of(2, 5))


def test_what_is_written_is_returned_as_a_view():
    """A copy of all keys at every step is what a cache is there to avoid."""
    cache = KVCache(2, 5, n_layers=2, n_heads=1, d_k=3)
    x = torch.ones(2, 1, 2, 3)
    for real in (None, padding_mask([1, 2])):
        keys, values = cache.write(1, x, x, cache.place(2, 2, real))
        assert keys.data_ptr() == cache.keys[1].data_ptr()
        assert values.data_ptr() == cache.values[1].data_ptr()


def test_placing_changes_nothing():
    cache, _ = started(model_of(), [3, 1])
    with unchanged(cache):
        reals = None, padding_mask([2, 1])
        places = [cache.place(2, 2, real) for real in reals]
    assert [p.lengths for p in places] == [[5, 3], [5, 2]]
    agrees(places[0].positions, [[3, 4], [1, 2]], name="by hand")
    agrees(places[1].positions[:, 0], [3, 1], name="by hand")


def test_equal_rows_have_places_in_one_run():
    """The fast way: one start for all rows, no index of slots."""
    cache, _ = started(model_of(), [3, 3])
    for real in (None, padding_mask([2, 2])):
        places = cache.place(2, 2, real)
        assert places.start == 3 and places.slots is None
        agrees(places.positions, [3, 4], name="by hand")
    assert cache.place(2, 2, padding_mask([2, 1])).slots is not None
