"""Where the heads of a published encoder look, in eighteen short sentences.

Nine sentences are one with two words that a reader chooses, nine are others.
For each of them the attention weights of all heads in three of MiniLM's six
blocks are stored, in hundredths, so that the first page can show them without
the model. It takes a few seconds.

usage: python benchmarks/encoder_heads.py
"""

from __future__ import annotations

from typing import Any

import torch
from results import store
from tokenizers import Tokenizer

from attnbook.encoder import Encoder
from attnbook.layers import attention_weights
from attnbook.pretrained import load, load_tokenizer
from attnbook.published import PUBLISHED

MINILM = "all-MiniLM-L6-v2"

#: The blocks that are stored: the first, a middle one, and the last.
BLOCKS = (0, 2, 5)

#: The reader's own sentence: "The <first> left the <second> bank".
FIRST = ("boat", "robber", "fish")
SECOND = ("river", "savings", "old")

OTHERS = (
    "He sat on the bank and fished",
    "The bank raised its interest rates",
    "The cat chased the mouse because it was hungry",
    "Mira gave Omar her book",
    "The doctor said that she was late",
    "Time flies like an arrow",
    "New York is not in England",
    "I liked the music but not the film",
    "The keys to the old cabinet are on the table",
)


def sentences() -> list[str]:
    """The reader's sentence with each pair of words, then the others."""
    own = [f"The {a} left the {b} bank" for a in FIRST for b in SECOND]
    return [*own, *OTHERS]


def heads(model: Encoder, tokenizer: Tokenizer, sentence: str) -> dict:
    """The words of a sentence, and the weights of the stored blocks.

    The weights of a head are one text: T · T whole numbers, row by row, in
    hundredths, with spaces between them.
    """
    found = tokenizer.encode(sentence)
    weights = torch.cat(attention_weights(model, torch.tensor([found.ids])))
    in_hundredths = (100 * weights[list(BLOCKS)]).round().int()  # (3, H, T, T)
    return {
        "words": found.tokens,
        "weights": [
            [" ".join(map(str, head)) for head in block]
            for block in in_hundredths.flatten(2).tolist()
        ],
    }


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    model, tokenizer = load(MINILM), load_tokenizer(MINILM)
    assert isinstance(model, Encoder) and isinstance(tokenizer, Tokenizer)
    found: dict[str, Any] = {
        "model": {MINILM: PUBLISHED[MINILM].sha256},
        "blocks": list(BLOCKS),
        "first": list(FIRST),
        "second": list(SECOND),
        "sentences": [heads(model, tokenizer, s) for s in sentences()],
    }
    store("encoder_heads", found)


if __name__ == "__main__":
    main()
