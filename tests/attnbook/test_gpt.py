"""The model against itself, its formulas, and its errors.

Against transformers' models it stands in test_pretrained.py.
"""

import dataclasses
import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_model, random_tokens

from attnbook import layers
from attnbook.gpt import GPT, POSITIONS, GPTConfig, last_real
from attnbook.masks import padding_mask
from attnbook.positions import rotation_of, sinusoidal
from attnbook.teach.check.proof import agrees
from attnbook.teach.check.seeded import randn

SMALL = GPTConfig(vocab_size=30, context=12, d_model=16, n_heads=4, n_layers=3)


def small(**changes):
    return random_model(dataclasses.replace(SMALL, **changes))


tokens_of = functools.partial(random_tokens, SMALL.vocab_size)


def test_a_step_computes_the_rotation_once_for_all_blocks(monkeypatch):
    tokens = tokens_of(2, 5)
    asked = []

    def counted(positions, width, **options):
        asked.append(positions)
        return rotation_of(positions, width, **options)

    monkeypatch.setattr(layers, "rotation_of", counted)
    model = small(positions="rotary")
    together = model(tokens)
    assert len(asked) == 1
    x = model.embed(tokens, torch.arange(5))
    alone = model.unembed(model.run_blocks(x, causal=True))
    assert len(asked) == 1 + len(model.blocks)  # each for itself
    assert together.equal(alone)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_batched_equals_alone(positions, side):
    model = small(positions=positions)
    lengths = [4, 9, 1]
    real = padding_mask(lengths, side=side)
    tokens = tokens_of(3, 9)
    batched = model(tokens, real=real)
    for row in range(len(lengths)):
        alone = model(tokens[row][real[row]][None])[0]
        agrees(batched[row][real[row]], alone, name="alone", within=1e-11)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_with_a_cache_and_rows_of_other_lengths_as_alone(positions, side):
    model = small(positions=positions, n_kv_heads=2)
    tokens = tokens_of(3, 9)
    first = padding_mask([4, 6, 1], side=side)  # (3, 6)
    cache = model.new_cache(3, 10)
    room = model.new_cache(1).capacity
    assert (cache.capacity, room) == (10, SMALL.context)
    parts = [model(tokens[:, :6], real=first, cache=cache)]
    parts += [model(t, cache=cache) for t in tokens[:, 6:].split((1, 2), 1)]
    real = torch.cat([first, torch.ones(3, 3).bool()], 1)
    for row in range(3):
        alone = model(tokens[row][real[row]][None])[0]
        found = torch.cat([part[row] for part in parts])[real[row]]
        agrees(found, alone, name="alone", within=1e-11)


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_matter_unless_there_are_none(positions):
    model = small(positions=positions, n_layers=1)
    first = model(torch.tensor([[1, 2, 3, 4]]))[0, -1]
    other = model(torch.tensor([[2, 1, 3, 4]]))[0, -1]
    assert torch.allclose(first, other) == (positions == "none")


def test_the_stream_starts_as_a_sum():
    at = torch.arange(9)
    tokens = tokens_of(2, 9)
    waves = SMALL.initial_std * sinusoidal(at, SMALL.d_model)
    for positions in ("learned", "sinusoidal"):
        model = small(positions=positions)
        learned = getattr(model.position_embedding, "weight", waves)
        expected = model.token_embedding.weight[tokens] + learned[:9]
        agrees(model.embed(tokens, at), expected, name=positions)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    vocab_size=st.integers(1, 9),
    context=st.integers(1, 9),
    heads=st.sampled_from([(1, 1), (2, 1), (4, 2), (3, None), (6, 3)]),
    d_k=st.sampled_from([2, 4]),
    n_layers=st.integers(1, 3),
    d_ff=st.none() | st.integers(1, 9),
    bias=st.booleans(),
    tied=st.booleans(),
    positions=st.sampled_from(POSITIONS),
    norm=st.sampled_from(["layer", "rms"]),
    activation=st.sampled_from(["gelu_tanh", "relu", "swiglu"]),
)
def test_parameters_of_any_model_by_formula(heads, d_k, **sizes):
    n_heads, n_kv_heads = heads
    config = GPTConfig(
        n_heads=n_heads, n_kv_heads=n_kv_heads, d_model=n_heads * d_k, **sizes
    )
    count = sum(p.numel() for p in GPT(config).parameters())
    assert config.parameter_count() == count


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_the_last_real_vector_of_each_row(dtype):
    x = randn(3, 4, 2, seed=1)
    agrees(last_real(x, None), x[:, 3:], name="the last", within=0)
    real = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    expected = torch.stack([x[0, 1:2], x[1, 3:4], x[2, 2:3]])
    found = last_real(x, real.to(dtype))
    agrees(found, expected, name="by hand", within=0)


def test_what_writes_to_the_stream_starts_smaller():
    torch.manual_seed(0)
    model = GPT(GPTConfig(500, 8, 128, 4, 8, initial_std=0.08, tied=False))
    assert abs(model.head.weight.std() / 0.08 - 1) < 0.05
    block = model.blocks[3]
    assert abs(block.attention.query.weight.std() / 0.08 - 1) < 0.05
    for layer in (block.attention.out, block.feed_forward.down):
        assert abs(layer.weight.std() / (0.08 / 4) - 1) < 0.05
        assert not layer.bias.any()


def asked(tokens, **options):
    return small()(tokens, **options)


TOKENS = torch.zeros(1, 4).long()


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: GPTConfig(d_model=10, n_heads=4), ValueError, "n_heads"),
        (lambda: small(n_kv_heads=3), ValueError, "n_kv_heads"),
        (lambda: GPTConfig(n_kv_heads=2.0), TypeError, "n_kv_heads"),
        (lambda: GPTConfig(d_ff=0), ValueError, "d_ff"),
        (lambda: GPTConfig(d_model=0), ValueError, "d_model"),
        (lambda: GPTConfig(vocab_size=0), ValueError, "vocab_size"),
        (lambda: GPTConfig(vocab_size=None), TypeError, "vocab_size"),
        (lambda: GPTConfig(norm="batch"), ValueError, "norm"),
        (lambda: GPTConfig(norm_eps=-5), ValueError, "norm_eps"),
        (lambda: GPTConfig(rotary_base=0.5), ValueError, "rotary_base"),
        (lambda: GPTConfig(activation="tanh"), ValueError, "activation"),
        (lambda: GPTConfig(positions="relative"), ValueError, "positions"),
        (lambda: GPTConfig(initial_std=0), ValueError, "initial_std"),
        (lambda: GPTConfig(dropout=1), ValueError, "dropout"),
        (lambda: asked(TOKENS + 30), ValueError, "token"),
        (lambda: asked(TOKENS - 1), ValueError, "token"),
        (lambda: asked(torch.zeros(1, 13).long()), ValueError, "length"),
        (lambda: asked(TOKENS[0]), ValueError, "axis B"),
        (lambda: asked(TOKENS[:, :0]), ValueError, "axis T"),
        (lambda: asked(TOKENS.float()), TypeError, "tokens"),
        (lambda: asked([[1]]), TypeError, "tokens"),
        (lambda: asked(TOKENS, real=TOKENS[:, 1:]), ValueError, "T of real"),
        (lambda: asked(TOKENS, real=TOKENS[[0, 0]]), ValueError, "B of real"),
        (lambda: asked(TOKENS, real=[[1] * 4]), TypeError, "real"),
        (lambda: asked(TOKENS, real=TOKENS + 0j), TypeError, "real"),
    ],
)
def test_bad_input_is_named(call, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        call()


def test_tokens_may_be_of_any_integers():
    model = small()
    tokens = tokens_of(2, 5)
    found = model(tokens.to(torch.uint8))
    agrees(found, model(tokens), name="int64", within=0)


def test_dropout_falls_on_embeddings_and_layers_in_training_only():
    model = small(dropout=0.5, initial_std=1.0).train()
    many = torch.ones(1, 500).long()
    at = torch.zeros(500).long()
    torch.manual_seed(0)
    assert abs((model.embed(many, at) == 0).double().mean() - 0.5) < 0.05
    assert not (model.eval().embed(many, at) == 0).any()
    x, at = model.embed(TOKENS, torch.arange(4)), torch.arange(4)
    for block in model.blocks:
        again = [block(x, causal=True, positions=at) for _ in range(2)]
        agrees(*again, name="itself", within=0)
        block.train()
        again = [block(x, causal=True, positions=at) for _ in range(2)]
        assert not torch.equal(*again)


# ---- packed texts


@pytest.mark.parametrize("positions", POSITIONS)
def test_packed_texts_get_what_each_gets_alone(positions):
    """The second text in a row neither reads the first nor goes on from its
    positions. A row may be longer than the context: no text is."""
    model = small(positions=positions, context=7)
    tokens = tokens_of(2, 12)
    segments = torch.tensor(
        [[0] * 5 + [1] * 7, [4] + [9] * 6 + [4] * 2 + [7] * 3]
    )
    packed = model(tokens, segments=segments)
    for row, start, end in (
        (0, 0, 5),
        (0, 5, 12),
        (1, 0, 1),
        (1, 1, 7),
        (1, 7, 9),
        (1, 9, 12),
    ):
        alone = model(tokens[row : row + 1, start:end])[0]
        found = packed[row, start:end]
        agrees(found, alone, name="alone", within=1e-11)
    other = torch.cat([tokens[:, :5] * 0, tokens[:, 5:]], 1)
    changed = model(other, segments=segments)[0, 5:]
    agrees(changed, packed[0, 5:], name="whatever comes before", within=0)


@pytest.mark.parametrize("beside", ["real", "cache"])
def test_segments_stand_alone(beside):
    model = small()
    tokens = tokens_of(1, 4)
    others = {"real": torch.ones(1, 4).bool(), "cache": model.new_cache(1)}
    others = {beside: others[beside]}
    with pytest.raises(ValueError, match=f"got {beside} beside segments"):
        model(tokens, segments=torch.zeros(1, 4).long(), **others)
    with pytest.raises(ValueError, match="segments"):
        model(tokens, segments=torch.zeros(1, 3).long())
    with pytest.raises(TypeError, match="segments"):
        model(tokens, segments=torch.zeros(1, 4))


# ---- what a mutant once survived


def test_a_row_that_is_too_long_is_refused_wherever_it_is():
    model = small(context=4)
    real = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1]])
    for rows in (real, real.flip(0)):
        with pytest.raises(ValueError, match="4.*5"):
            model(tokens_of(2, 5), real=rows)
