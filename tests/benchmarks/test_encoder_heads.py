"""What the first page shows of a published encoder is what it does."""

import json

import torch
from notebooks import CHAPTERS
from real_models import MINILM, needs_minilm

from attnbook.pretrained import load, load_tokenizer
from attnbook.published import PUBLISHED

SCRIPT = "encoder_heads"
PATH = CHAPTERS / "attnbook" / "data" / "encoder_heads.json"
STORED = json.loads(PATH.read_text("utf-8"))


def numbers(text):
    return torch.tensor(
        [[[int(w) for w in head.split()] for head in b] for b in text]
    )


@needs_minilm
@torch.no_grad()
def test_the_stored_weights_are_the_models(script):
    """To a hundredth: rounding may fall on either side."""
    assert STORED["model"] == {MINILM: PUBLISHED[MINILM].sha256}
    assert STORED["blocks"] == list(script.BLOCKS)
    model, words = load(MINILM), load_tokenizer(MINILM)
    listed = script.sentences()
    assert len(listed) == len(STORED["sentences"]) == 18
    for sentence, stored in zip(listed, STORED["sentences"]):
        found = script.heads(model, words, sentence)
        assert found["words"] == stored["words"]
        apart = numbers(found["weights"]) - numbers(stored["weights"])
        assert apart.abs().max() <= 1


def test_each_row_is_an_average():
    for stored in STORED["sentences"]:
        T = len(stored["words"])
        rows = numbers(stored["weights"]).unflatten(-1, (T, T)).sum(-1)
        assert ((rows - 100).abs() <= T / 2).all()


def test_the_readers_sentences_come_first_in_the_order_of_their_words():
    both = [(a, b) for a in STORED["first"] for b in STORED["second"]]
    for (a, b), stored in zip(both, STORED["sentences"]):
        assert stored["words"][2] == a and stored["words"][5] == b
