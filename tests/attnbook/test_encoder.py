"""An encoder of BERT's kind, held against transformers.

"Theirs" are random BERTs of transformers, and the published MiniLM where it
is installed.
"""

import json

import pytest
import torch
from models import random_tokens
from real_models import MINILM, needs_minilm
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
)

from attnbook.encoder import Encoder, EncoderConfig, mean_of_real
from attnbook.families import config_of
from attnbook.layers import attention_weights
from attnbook.masks import padding_mask
from attnbook.pretrained import load, load_tokenizer
from attnbook.published import find
from attnbook.teach.check.proof import agrees

SIZES = dict(
    vocab_size=37,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=41,
    max_position_embeddings=16,
)
#: What is different from a small model of these sizes.
CONFIGS = {
    "as published": {},
    "one head, one block": {"num_attention_heads": 1, "num_hidden_layers": 1},
    "other sizes": {"hidden_size": 35, "num_attention_heads": 7},
    "three types": {"type_vocab_size": 3},
    "one type": {"type_vocab_size": 1},
    "relu": {"hidden_act": "relu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "eps": {"layer_norm_eps": 0.1},
}


def their_model(kind=BertModel, **changes):
    """A random BERT of theirs, in which nothing is 0 or 1."""
    torch.manual_seed(len(changes))
    model = kind(BertConfig(**SIZES | changes))
    for name, parameter in model.named_parameters():
        scale = parameter.ndim == 1 and name.endswith("weight")
        nn.init.normal_(parameter, mean=float(scale), std=0.3)
    return model.eval()


@pytest.fixture(params=CONFIGS)
def both(request, tmp_path):
    theirs = their_model(**CONFIGS[request.param]).double()
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert ours.token_embedding.weight.dtype == torch.float64
    return ours, theirs


@pytest.mark.parametrize("lengths", [[9, 9], [9, 4, 1]])
@torch.no_grad()
def test_vectors_and_pooled_agree(both, lengths):
    """Without padding and with it, and with types of both kinds."""
    ours, theirs = both
    real = padding_mask(lengths)
    tokens = random_tokens(37, *real.shape)
    types = random_tokens(theirs.config.type_vocab_size, *real.shape, seed=2)
    expected = theirs(tokens, attention_mask=real.long(), token_type_ids=types)
    found = ours(tokens, real=None if real.all() else real, types=types)
    assert expected.last_hidden_state.std() > 0.1
    hidden = expected.last_hidden_state[real]
    agrees(found[real], hidden, name="theirs", within=1e-11)
    pooled = expected.pooler_output
    agrees(ours.pool(found), pooled, name="theirs", within=1e-11)
    plain = theirs(tokens, attention_mask=real.long()).last_hidden_state
    found = ours(tokens, real=real)
    agrees(found[real], plain[real], name="theirs", within=1e-11)


def test_gradients_agree(both):
    ours, theirs = both
    tokens = 1 + random_tokens(36, 2, 9)  # 0 is padding's, and never learns
    theirs(tokens).last_hidden_state.square().sum().backward()
    ours(tokens).square().sum().backward()
    expected = theirs.embeddings.word_embeddings.weight.grad
    found = ours.token_embedding.weight.grad
    assert expected.std() > 1e-3
    agrees(found, expected, name="theirs", within=1e-11)


@torch.no_grad()
def test_padding_is_not_seen_and_a_text_alone_is_the_same():
    torch.manual_seed(0)
    model = Encoder(config_of({"model_type": "bert"} | full())).eval()
    tokens = random_tokens(37, 1, 5)
    alone = model(tokens)
    padded = torch.cat([tokens, torch.full((1, 4), 7)], 1)
    real = padding_mask([5, 9])[:1]
    beside = model(padded, real=real)[:, :5]
    agrees(beside, alone, name="alone", within=1e-6)
    assert not torch.allclose(model(padded)[:, :5], alone, atol=1e-3)


def full():
    return SIZES | {"type_vocab_size": 2}


def test_a_head_on_top_is_left_away_and_a_pooler_may_be_missing(tmp_path):
    theirs = their_model(BertForMaskedLM)
    theirs.save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors")
    assert any(name.startswith("cls.") for name in names)
    ours = load(tmp_path)
    assert ours.pooler is None
    tokens = random_tokens(37, 2, 9)
    with torch.no_grad():
        expected = theirs.bert(tokens).last_hidden_state
        agrees(ours(tokens), expected, name="theirs", within=1e-5)
    with pytest.raises(ValueError, match="has no pooler"):
        ours.pool(expected)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"is_decoder": True}, "is_decoder means a model"),
        ({"add_cross_attention": True}, "add_cross_attention means"),
        ({"position_embedding_type": "relative_key"}, "expected 'absolute'"),
        (
            {"hidden_act": "tanh"},
            "hidden_act means a model which our class cannot be",
        ),
        (
            {"num_attention_heads": 5},
            "d_model cannot be shared out among n_heads",
        ),
        ({"type_vocab_size": 0}, "at least 1"),
    ],
)
def test_what_ours_is_not_is_refused(tmp_path, changes, message):
    their_model().save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_a_wrong_file_is_refused(tmp_path):
    their_model().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "embeddings.token_type_embeddings.weight"
    kept = tensors.pop(name)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"lacks 1 of .* expected {name}"):
        load(tmp_path)
    tensors |= {name: kept.mT.contiguous()}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="has the wrong shape"):
        load(tmp_path)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, x: m(x + 37), "a token"),
        (lambda m, x: m(x - 12), "a token"),
        (lambda m, x: m(x.repeat(1, 9)), "sequence's length"),
        (lambda m, x: m(x, types=x), "a type"),
        (lambda m, x: m(x, types=0 * x - 1), "a type"),
        (lambda m, x: m(x, types=x[:, :1]), "types"),
        (lambda m, x: m(x, real=x[:1] > 0), "real"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    model = Encoder(EncoderConfig(37, 16, 24, 4, 1, 41))
    with pytest.raises(ValueError, match=message):
        call(model, 2 + random_tokens(9, 2, 5))
    with pytest.raises(TypeError, match="tokens"):
        model(torch.randn(2, 5))


def test_the_smallest_encoder_is_one_of_everything():
    smallest = dict.fromkeys(
        "vocab_size context d_model n_heads n_layers d_ff n_types".split(), 1
    )
    x = torch.zeros(1, 1, dtype=torch.long)
    assert Encoder(EncoderConfig(**smallest))(x).shape == (1, 1, 1)
    for name in smallest:
        with pytest.raises(ValueError, match=f"^{name} is not allowed"):
            EncoderConfig(**smallest | {name: 0})


@pytest.mark.parametrize("pooler", [True, False])
def test_the_count_is_the_formulas(pooler):
    config = EncoderConfig(37, 16, 24, 4, 3, 41, 3, pooler=pooler)
    counted = sum(p.numel() for p in Encoder(config).parameters())
    assert counted == config.parameter_count()
    assert EncoderConfig().parameter_count() == 109_482_240  # BERT base


def test_a_mean_leaves_padding_out():
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    x[1, 2] = torch.nan  # padding means nothing
    real = padding_mask([3, 2])
    expected = torch.stack([x[0].mean(0), x[1, :2].mean(0)])
    agrees(mean_of_real(x, real), expected, name="row by row")
    agrees(mean_of_real(x[:1]), expected[:1], name="row by row")
    agrees(mean_of_real(x, real.long()), expected, name="row by row")
    with pytest.raises(ValueError, match="text 1 has no real token"):
        mean_of_real(x, torch.tensor([[1, 0, 0], [0, 0, 0]]))


SENTENCES = (
    "The boat left the river bank",
    "She opened an account at the bank.",
    "Bank",
    "Attention is a weighted average whose weights are computed. " * 9,
)


@needs_minilm
@torch.no_grad()
def test_the_published_encoder_is_transformers():
    ours = load(MINILM)
    theirs = BertModel.from_pretrained(
        find(MINILM), attn_implementation="eager"
    ).eval()
    tokenizer = load_tokenizer(MINILM)
    their_tokenizer = AutoTokenizer.from_pretrained(find(MINILM))
    batch = their_tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
    for row, real, text in zip(
        batch["input_ids"], batch["attention_mask"], SENTENCES
    ):
        assert tokenizer.encode(text).ids == row[real.bool()].tolist()
    tokens = batch["input_ids"]
    real = batch["attention_mask"].bool()
    expected = theirs(**batch, output_attentions=True)
    found = ours(tokens, real=real)
    hidden = expected.last_hidden_state[real]
    agrees(found[real], hidden, name="theirs", within=1e-5)
    weights = attention_weights(ours, tokens, real=real)
    assert len(weights) == 6
    for w, their_w in zip(weights, expected.attentions):
        rows = real[:, None, :, None].expand_as(w)
        agrees(w[rows], their_w[rows], name="theirs", within=1e-5)
    # A text alone has the vector that it has beside longer ones.
    one = ours(tokens[2:3, : real[2].sum()])
    agrees(mean_of_real(one), mean_of_real(found, real)[2:3], within=1e-5)
