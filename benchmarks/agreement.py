"""How far models that write agree: in tokens, in logits, in what they know."""

from __future__ import annotations

from typing import Any

import torch
from int8 import Int8Linear
from results import CHAPTERS
from writers import NEW_TOKENS, draw_prompts, padded

from attnbook.fast import pack
from attnbook.generate import generate
from attnbook.gpt import GPT
from attnbook.pretrained import load_model
from attnbook.town import Town, accuracy, encode
from attnbook.training import mean_loss


def same_tokens(
    model: GPT, packed: GPT, peer: Any, cases: dict[str, list[list[int]]]
) -> dict[str, float]:
    """How many of the tokens are those that transformers' `generate` writes.

    Args:
        model, packed: the book's model, as it is and packed.
        peer: the same model of transformers.
        cases: prompts, by the name of the case.

    Returns:
        the share for each model and case, from 0 to 1.
    """
    shares = {}
    for name, prompts in cases.items():
        tokens, real = padded(prompts)
        expected = peer.generate(
            tokens,
            attention_mask=real,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
        )[:, tokens.shape[1] :].tolist()
        for who, one in {"plain": model, "packed": packed}.items():
            steps = list(generate(one, prompts, NEW_TOKENS))
            rows = [list(row) for row in zip(*steps)]
            pairs = [
                (a, b) for x, y in zip(rows, expected) for a, b in zip(x, y)
            ]
            same = sum(a == b for a, b in pairs) / len(pairs)
            shares[f"{who}, {name}"] = round(same, 4)
    return shares


@torch.inference_mode()
def int8_loss(model: GPT, int8: GPT) -> dict[str, Any]:
    """What rounding the weights to 8 bits changes.

    Returns:
        of a model with random weights, "relative_error", the standard
        deviation of the differences of the logits over that of the logits, and
        "same_choice", how often the likeliest token stays the same; of the
        town's model, before and after, the loss on stories and the share of
        right answers about returning.
    """
    tokens = torch.tensor(draw_prompts(256, 256))
    exact = model(tokens)
    rounded = int8(tokens)
    trained = load_model(
        CHAPTERS / "attnbook" / "data" / "town.safetensors"
    ).model.eval()
    small = pack(trained, Int8Linear)
    town = Town()
    stories = encode(town.stories(300, seed=1_000_000))
    questions = Town(people=(4, 4)).questions("returning", 300, seed=2_000_000)
    return {
        "relative_error": float(
            f"{((exact - rounded).std() / exact.std()).item():.3g}"
        ),
        "same_choice": round(
            (exact.argmax(-1) == rounded.argmax(-1)).float().mean().item(), 3
        ),
        "town_loss": [
            round(mean_loss(m, *stories), 4) for m in (trained, small)
        ],
        "town_returning": [
            round(accuracy(m, questions), 4) for m in (trained, small)
        ],
    }
