"""What is stored of the two real models is what they do, and is safe to
print: rounding on another processor changes none of it."""

import json

import pytest
import torch
from notebooks import CHAPTERS
from real_models import MINILM, SMOLLM2, needs_minilm, needs_smollm2

from attnbook.generate import complete
from attnbook.pretrained import load, load_tokenizer
from attnbook.published import PUBLISHED

SCRIPT = "real_models"
PATH = CHAPTERS / "attnbook" / "data" / "real_models.json"
STORED = json.loads(PATH.read_text("utf-8"))


def close(found, stored, within=0.0021):
    """Numbers of three digits agree to two, and all else is equal."""
    if isinstance(stored, dict):
        assert found.keys() == stored.keys()
        found, stored = list(found.values()), list(stored.values())
    if isinstance(stored, list):
        assert len(found) == len(stored)
        for one, other in zip(found, stored):
            close(one, other, within)
    elif isinstance(stored, float):
        assert abs(found - stored) < within
    else:
        assert found == stored


def test_the_files_are_those_that_were_measured():
    assert STORED["models"] == {n: m.sha256 for n, m in PUBLISHED.items()}


@needs_minilm
@torch.no_grad()
def test_the_encoders_facts_are_measured_again(script):
    model, words = load(MINILM), load_tokenizer(MINILM)
    close(script.heads_on_the_boat(model, words), STORED["boat"])
    close(script.banks(model, words), STORED["bank"])
    sinks = script.sinks_of_the_encoder(model, words)
    close(sinks, STORED["encoder's sinks"])
    found = script.sentences(model, words)
    close(found | {"texts": list(found["texts"])}, STORED["sentences"])
    assert script.encoded(words, "bank").shape == (1, 3)


@pytest.mark.slow
@needs_smollm2
@torch.no_grad()
def test_the_language_models_facts_are_measured_again(script):
    """The longest texts are left to the benchmark."""
    model, tokenizer = load(SMOLLM2), load_tokenizer(SMOLLM2)
    assert script.cache_bytes(model) == STORED["cache"]
    tokens = torch.tensor([tokenizer.encode(STORED["text"]["text"])])
    close(script.first_token(model, tokens), STORED["first token"])
    close(script.windows(model, tokens), STORED["windows"])
    first = STORED["answers"][0]
    prompt = script.asked(model, tokenizer, first["question"])
    (new,) = complete(model, [prompt], first["tokens"])
    assert tokenizer.decode(new) == first["answer"]
    close(script.margins(model, prompt, new), first["least margin"])


def test_greedy_texts_have_margins():
    """Rounding moves a logit by less than 0.0005; see test_gguf."""
    rows = STORED["answers"] + STORED["guesses"]
    assert len(rows) == 10
    assert min(row["least margin"] for row in rows) > 0.01


def test_served_is_alone_and_guesses_save_calls():
    assert STORED["served"]["as alone"] == STORED["served"]["requests"]
    for row in STORED["guesses"]:
        for k in (4, 8):
            calls = row[f"calls, k {k}"]
            assert row[f"kept, k {k}"] == row["tokens"] - calls
            assert 0 < calls <= row["tokens"]
            assert row[f"kept, k {k}"] <= row[f"guesses, k {k}"]
