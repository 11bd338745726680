"""The model against transformers' GPT-2, and its errors."""

import dataclasses
import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from attnbook.gpt import GPT, POSITIONS, GPTConfig
from attnbook.masks import padding_mask
from attnbook.proof import agrees

SMALL = GPTConfig(
    vocab_size=30, context=12, d_model=16, n_heads=4, n_layers=3
)


def small(**changes):
    torch.manual_seed(0)
    model = GPT(dataclasses.replace(SMALL, **changes)).double()
    for parameter in model.parameters():  # so that nothing is 0 or 1
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def tokens_of(*size, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(SMALL.vocab_size, size, generator=generator)


def theirs_of(model):
    """A GPT-2 of transformers with the same weights."""
    c = model.config
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=c.vocab_size, n_positions=c.context, n_embd=c.d_model,
            n_head=c.n_heads, n_layer=c.n_layers, bos_token_id=0,
            eos_token_id=0, attn_implementation="eager",
        )
    ).double().eval()
    body = theirs.transformer
    body.wte.load_state_dict(model.token_embedding.state_dict())
    body.wpe.load_state_dict(model.position_embedding.state_dict())
    body.ln_f.load_state_dict(model.norm.state_dict())
    for ours, block in zip(model.blocks, body.h):
        block.ln_1.load_state_dict(ours.attention_norm.state_dict())
        block.ln_2.load_state_dict(ours.feed_forward_norm.state_dict())
        mine = ours.attention
        pairs = [
            (block.attn.c_attn, (mine.query, mine.key_value)),
            (block.attn.c_proj, (mine.out,)),
            (block.mlp.c_fc, (ours.feed_forward.up,)),
            (block.mlp.c_proj, (ours.feed_forward.down,)),
        ]
        with torch.no_grad():
            for conv, linears in pairs:
                conv.weight.copy_(torch.cat([a.weight for a in linears]).T)
                conv.bias.copy_(torch.cat([a.bias for a in linears]))
    return theirs


def test_logits_agree_with_gpt2():
    model = small()
    theirs = theirs_of(model)
    for size in ((1, 1), (2, 7), (3, 12)):
        tokens = tokens_of(*size)
        expected = theirs(tokens).logits
        agrees(model(tokens), expected, name="GPT-2", within=1e-10)


def test_gradients_agree_with_gpt2():
    model = small()
    theirs, tokens = theirs_of(model), tokens_of(2, 7)
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    logits = theirs(tokens).logits  # its own loss is taken in float32
    F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
    ).backward()
    agrees(
        model.token_embedding.weight.grad, theirs.transformer.wte.weight.grad,
        name="GPT-2, tied", within=1e-10,
    )
    agrees(
        model.blocks[0].attention.out.weight.grad,
        theirs.transformer.h[0].attn.c_proj.weight.grad.T,
        name="GPT-2", within=1e-10,
    )


def test_left_padding_agrees_with_gpt2():
    model = small()
    tokens, real = tokens_of(2, 7), padding_mask([7, 4], side="left")
    positions = (real.long().cumsum(-1) - 1).clamp(min=0)
    expected = theirs_of(model)(
        tokens, attention_mask=real.long(), position_ids=positions
    ).logits
    agrees(
        model(tokens, real=real)[real], expected[real], name="GPT-2",
        within=1e-10,
    )


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_batched_equals_alone(positions, side):
    model = small(positions=positions)
    lengths = [4, 9, 1]
    real = padding_mask(lengths, side=side)
    tokens = tokens_of(3, 9)
    batched = model(tokens, real=real)
    for row, n in enumerate(lengths):
        alone = model(tokens[row][real[row]][None])[0]
        agrees(batched[row][real[row]], alone, name="alone", within=1e-11)
    # Nor do the padding's tokens reach a real one.
    other = torch.where(real, tokens, (tokens + 1) % SMALL.vocab_size)
    agrees(
        model(other, real=real)[real], batched[real], name="other padding",
        within=1e-11,
    )


@pytest.mark.parametrize("positions", POSITIONS)
def test_no_token_sees_a_later_one(positions):
    model, tokens = small(positions=positions), tokens_of(1, 8)
    whole = model(tokens)
    for n in range(1, 8):
        part = model(tokens[:, :n])
        agrees(part, whole[:, :n], name="whole", within=1e-11)


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_matter_unless_there_are_none(positions):
    model = small(positions=positions, n_layers=1)
    first = model(torch.tensor([[1, 2, 3, 4]]))[0, -1]
    other = model(torch.tensor([[2, 1, 3, 4]]))[0, -1]
    assert torch.allclose(first, other) == (positions == "none")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("positions", POSITIONS)
def test_parameters_by_formula(positions, bias):
    config = dataclasses.replace(SMALL, positions=positions, bias=bias)
    model = GPT(config)
    count = sum(p.numel() for p in model.parameters())
    assert config.parameter_count() == count


def test_gpt2_small_has_124_million():
    assert GPTConfig().parameter_count() == 124_439_808


def test_the_head_is_tied():
    model, tokens = small(), tokens_of(2, 5)
    stream = model.embed(tokens, torch.arange(5).expand(2, 5))
    for block in model.blocks:
        stream = block(stream, causal=True)
    expected = model.norm(stream) @ model.token_embedding.weight.T
    agrees(model(tokens), expected, name="the embeddings, transposed")


def test_the_loss_is_the_mean_over_what_is_asked():
    model, tokens = small(), tokens_of(2, 6)
    targets = tokens_of(2, 6, seed=2)
    targets[0, 3:] = -100
    logs = model(tokens).log_softmax(-1)
    asked = [(b, t) for b in range(2) for t in range(6) if targets[b, t] >= 0]
    expected = -sum(logs[b, t, targets[b, t]] for b, t in asked) / len(asked)
    agrees(model.loss(tokens, targets), expected, name="one by one")


def test_the_first_guess_is_nearly_uniform():
    torch.manual_seed(0)
    model = GPT(dataclasses.replace(SMALL, d_model=64, vocab_size=100))
    tokens = tokens_of(8, 12)
    loss = model.loss(tokens[:, :-1], tokens[:, 1:]).item()
    assert abs(loss - math.log(100)) < 0.05


def test_what_writes_to_the_stream_starts_smaller():
    torch.manual_seed(0)
    model = GPT(GPTConfig(50, 8, 128, 4, 8, initial_std=0.08))
    block = model.blocks[3]
    assert abs(block.attention.query.weight.std() / 0.08 - 1) < 0.05
    for layer in (block.attention.out, block.feed_forward.down):
        assert abs(layer.weight.std() / (0.08 / 4) - 1) < 0.05
        assert not layer.bias.any()


def test_dropout_is_on_in_training_only():
    model, tokens = small(dropout=0.3), tokens_of(2, 5)
    agrees(model(tokens), model(tokens), name="itself", within=0)
    model.train()
    torch.manual_seed(0)
    assert not torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: GPTConfig(d_model=10, n_heads=4), ValueError,
         "the heads do not divide the width; expected d_model a multiple of "
         "n_heads; got 10 and 4"),
        (lambda: GPTConfig(n_layers=0), ValueError,
         "a size is below 1; expected positive sizes; got {'vocab_size': "
         "50257, 'context': 1024, 'd_model': 768, 'n_heads': 12, "
         "'n_layers': 0}"),
        (lambda: GPTConfig(context=32.0), TypeError,
         "context is no whole number; expected an int; got 32.0"),
        (lambda: GPTConfig(positions="relative"), ValueError,
         "there are no positions 'relative'; expected one of learned, "
         "sinusoidal, rotary, alibi, none"),
        (lambda: GPTConfig(initial_std=0), ValueError,
         "initial_std is no size of a weight; expected a number above 0; "
         "got 0"),
        (lambda: GPTConfig(dropout=1), ValueError,
         "dropout is a probability below 1; expected one; got 1"),
        (lambda: small()(torch.tensor([[3, 30]])), ValueError,
         "a token is not in the vocabulary; expected numbers from 0 to 29; "
         "got 30"),
        (lambda: small()(torch.tensor([[-1, 3]])), ValueError,
         "a token is not in the vocabulary; expected numbers from 0 to 29; "
         "got -1"),
        (lambda: small()(torch.zeros(1, 13).long()), ValueError,
         "the sequence is longer than the context; expected at most 12 "
         "tokens; got 13"),
        (lambda: small()(torch.zeros(4).long()), ValueError,
         "the tokens have the wrong shape; expected (B, T), both at least "
         "1; got (4,)"),
        (lambda: small()(torch.zeros(1, 0).long()), ValueError,
         "the tokens have the wrong shape; expected (B, T), both at least "
         "1; got (1, 0)"),
        (lambda: small()(torch.zeros(1, 4)), TypeError,
         "the tokens are of the wrong type; expected a tensor of integers; "
         "got torch.float32"),
        (lambda: small()(torch.zeros(1, 4).long(), real=padding_mask([3])),
         ValueError,
         "the padding mask does not fit the tokens; expected (1, 4); got "
         "(1, 3)"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
