"""The town's model, language and view as one script, for the built pages.

usage: python tools/town_page.py FILE

The weights are rounded to whole numbers of `BITS` bits, times a step of their
tensor, and packed. The script holds its logits against those of the unrounded
model before it shows anything; `CHECKS` are what it computes for that.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from notebooks import CHAPTERS, ROOT, write_text

SCRIPTS = ROOT / "site" / "town"
#: The files of the script, in the order in which they need each other.
PARTS = ("grammar", "model", "reading", "view")
#: Bits of a weight. Each one less doubles the error of the logits.
BITS = 24
#: Nats a word, of the whole language; chapter 11 computes it.
ENTROPY = 0.7374

import torch  # noqa: E402
from attnbook import town  # noqa: E402
from attnbook.gpt import GPT  # noqa: E402
from attnbook.positions import alibi_bias  # noqa: E402
from attnbook.pretrained import load_model  # noqa: E402

STORY = (
    "<s> mira went to the mill . omar ran to the library . "
    "lena walked to the station . omar is going back to the"
)


def load() -> GPT:
    """The book's model, as the notebooks load it."""
    path = CHAPTERS / "attnbook" / "data" / "town.safetensors"
    return load_model(path).model.to(torch.float64)


@torch.no_grad()
def logits(
    model: GPT,
    words: Sequence[str],
    *,
    heads: Collection[str] = (),
    blocks: Collection[int] = (),
    hidden: Collection[int] = (),
    window: float = math.inf,
    sinks: int = 0,
) -> torch.Tensor:
    """What the page shall find, by torch: (T, V).

    Args:
        heads: whose contexts are zeros, "block.head".
        blocks: that are left out.
        hidden: the places of words that no word sees, themselves included.
        window, sinks: how many of the last and of the first words are seen.
    """
    tokens = torch.tensor(town.vocabulary().encode(" ".join(words)))
    at = torch.arange(len(tokens))
    distance = at[:, None] - at  # (T, T), of query and key
    seen = (distance >= 0) & ((distance < window) | (at < sinks))
    seen &= ~torch.isin(at, torch.tensor([*hidden], dtype=torch.long))
    mask = alibi_bias(model.config.n_heads, at, at)  # (H, T, T)
    mask = mask.masked_fill(~seen, -math.inf)
    x = model.token_embedding(tokens)[None]  # (1, T, d)
    for n, block in enumerate(model.blocks):
        if n in blocks:
            continue
        out = {int(name[2:]) for name in heads if name.startswith(f"{n}.")}

        def cut(layer, args, out=out):
            contexts = args[0].unflatten(-1, (model.config.n_heads, -1)).clone()
            contexts[..., [*out], :] = 0  # (1, T, H, d_k)
            return (contexts.flatten(-2),)

        hook = block.attention.out.register_forward_pre_hook(cut)
        x = block(x, mask=mask)
        hook.remove()
    return model.unembed(x)[0]


def pack(tensors: dict[str, np.ndarray], bits: int = BITS) -> dict:
    """Weights as whole numbers side by side, in base64; `unpack` of model.js
    is the other way."""
    most = 2 ** (bits - 1) - 1
    sizes, wholes = {}, []
    for name, tensor in tensors.items():
        step = float(np.abs(tensor).max()) / most or 1.0
        sizes[name] = [tensor.size, step]
        wholes.append(np.rint(tensor.ravel() / step).astype(int) + most + 1)
    each = np.concatenate(wholes)[:, None] >> np.arange(bits)[::-1] & 1
    data = np.packbits(each.astype(np.uint8).ravel()).tobytes()
    return {
        "bits": bits,
        "tensors": sizes,
        "packed": base64.b64encode(data).decode("ascii"),
    }


def check(model: GPT, words: Sequence[str], **switches) -> dict:
    """A text, and what the model shall find: the loss of each word, and the
    logits after the last, (V)."""
    found = logits(model, words, **switches)  # (T, V)
    numbers = town.vocabulary().encode(" ".join(words))
    paid = -found.log_softmax(-1)[range(len(words) - 1), numbers[1:]]
    return {
        "words": list(words),
        **{name: list(value) for name, value in switches.items()},
        "losses": rounded(paid),
        "logits": rounded(found[-1]),
    }


def rounded(numbers: torch.Tensor) -> list[float]:
    return [round(x, 7) for x in numbers.tolist()]


def checks(model: GPT) -> list[dict]:
    """Texts that say all words, and one text with something taken out."""
    stories = town.Town().stories(4, seed=1)
    story = STORY.split()
    return [
        *(check(model, each) for each in stories),
        check(model, town.WORDS[1:60]),
        check(model, town.WORDS[59:]),
        check(model, story),
        check(model, story, heads=["1.3"], hidden=[7]),
        check(model, story, blocks=[0]),
    ]


def grammar() -> dict:
    """The language's words and numbers, for grammar.js."""
    rules = town.Town()
    return {
        "start": town.START,
        "end": town.END,
        "people": town.PEOPLE,
        "places": town.PLACES,
        "when": town.WHEN,
        "walked": town.WALKED,
        "walking": town.WALKING,
        "usual_place": town.USUAL_PLACE,
        "usual_when": town.USUAL_WHEN,
        "usually": town.USUALLY,
        "colours": town.COLOURS,
        "nouns": town.NOUNS,
        "near": town.NEAR,
        "sizes": town.SIZES,
        "leavers": town.LEAVERS,
        "left": town.LEFT,
        "times": town.TIMES,
        "go": rules.people,
        "return": rules.returns,
        "asides": rules.asides,
        "aside": rules.aside,
    }


def pairs() -> list[list[int]]:
    """How often each word followed each in the stories that chapter 11 counts:
    a list for each first word, of seconds and numbers in turn."""
    counts = torch.zeros(len(town.WORDS), len(town.WORDS), dtype=torch.long)
    for story in town.Town().stories(3000, seed=1):
        numbers = town.vocabulary().encode(" ".join(story))
        for first, second in zip(numbers, numbers[1:]):
            counts[first, second] += 1
    return [
        [n for second in row.nonzero()[:, 0].tolist()
         for n in (second, int(row[second]))]
        for row in counts
    ]  # fmt: skip


def data(model: GPT) -> dict:
    """All that the script is about."""
    config = model.config
    tensors = {name: t.numpy() for name, t in model.state_dict().items()}
    return {
        "config": {
            "n_heads": config.n_heads,
            "n_layers": config.n_layers,
            "norm_eps": config.norm_eps,
        },
        "words": town.WORDS,
        "grammar": grammar(),
        "pairs": pairs(),
        "entropy": ENTROPY,
        "story": STORY,
        "checks": checks(model),
        "weights": pack(tensors),
    }


def script(about: dict) -> str:
    """One function, so that nothing is global; without lines of comment."""
    sources = "".join(
        (SCRIPTS / f"{name}.js").read_text("utf-8") for name in PARTS
    )
    sources = re.sub(r"(?m)^\s*//.*\n", "", sources)
    packed = json.dumps(about, ensure_ascii=False, separators=(",", ":"))
    return (
        f"(() => {{\nconst DATA = {packed};\n{sources}"
        "start(document.querySelectorAll('[data-town]'), DATA);\n})();\n"
    )


def main(path: str) -> None:
    write_text(Path(path), script(data(load())))


if __name__ == "__main__":
    main(sys.argv[1])
