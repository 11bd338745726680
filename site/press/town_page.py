"""The town's model, language and view as one script, for the built pages.

usage: python -m press.town_page FILE

The script may weigh 300 kB as a web host sends it. It has the model's weights
to the bit: tools/town_model.py makes them whole numbers of a step. Before the
script shows anything, it holds its logits on `checks` against the model's.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch

from attnbook import grammar, town
from attnbook.files import replacing
from attnbook.gpt import GPT
from attnbook.positions import alibi_bias
from attnbook.pretrained import load_model
from press.places import CHAPTERS, SITE

SCRIPTS = SITE / "town"
#: The files of the script, in the order in which they need each other.
PARTS = ("grammar", "model", "reading", "view")
#: So many first bits of each weight are stored apart from its other bits,
#: since they are often the same as in other weights, which gzip makes use of.
HIGH = 6
#: Each weight is a whole number of these. One bit fewer moves the logits twice
#: as far from what was trained; one more, and the page has no room for them.
STEP = 2.0**-21
#: The entropy of the language in nats a word, which chapter 11 computes.
ENTROPY = 0.7374

STORY = (
    "<s> mira went to the mill . omar ran to the library . "
    "lena walked to the station . omar is going back to the"
)


def load() -> GPT:
    """The town's model as the notebooks load it, in float64."""
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
    """The logits after each word, (T, V), which the page has to find too.

    Args:
        words: a text of the town, T words.
        heads: those whose contexts are made zero, each as "block.head".
        blocks: the numbers of the blocks that are left out.
        hidden: the places of words that no word sees, not even they
            themselves.
        window: how many of the last words a word sees.
        sinks: how many of the first words a word sees besides these.
    """
    tokens = torch.tensor(town.vocabulary().encode(" ".join(words)))
    seen = seen_words(len(tokens), hidden, window, sinks)
    at = torch.arange(len(tokens))
    mask = alibi_bias(model.config.n_heads, at, at)  # (H, T, T)
    mask = mask.masked_fill(~seen, -math.inf)
    x = model.token_embedding(tokens)[None]  # (1, T, d)

    def run_block(n: int, block: Any, x: torch.Tensor) -> torch.Tensor:
        """One block of the model with some heads taken out, or left out."""
        if n in blocks:
            return x
        out = [int(name[2:]) for name in heads if name.startswith(f"{n}.")]

        def cut(layer: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            """Make the contexts of the heads that are taken out zero."""
            heads_apart = args[0].unflatten(-1, (model.config.n_heads, -1))
            contexts = heads_apart.clone()  # (1, T, H, d_k)
            contexts[..., out, :] = 0
            return (contexts.flatten(-2),)

        hook = block.attention.out.register_forward_pre_hook(cut)
        x = block(x, mask=mask)
        hook.remove()
        return x

    x = model.run_blocks(x, run_block)
    return model.unembed(x)[0]


def seen_words(
    length: int, hidden: Collection[int], window: float, sinks: int
) -> torch.Tensor:
    """Which word sees which, (T, T): True where the query sees the key.

    The arguments are those of `logits`.
    """
    at = torch.arange(length)
    distance = at[:, None] - at  # of query and key
    near = (distance < window) | (at < sinks)
    shown = ~torch.isin(at, torch.tensor([*hidden], dtype=torch.long))
    return (distance >= 0) & near & shown


def pack(model: GPT) -> dict:
    """All weights of a model as text, which `unpack` in model.js reads.

    A weight is a whole number of steps of size `STEP`. The first `HIGH` bits
    of all weights stand side by side in one text, the others in a second, in
    base64. Of each tensor its size and its number of bits a weight are told.

    Raises:
        ValueError: a weight is no whole number of steps.
    """
    about: dict[str, list[int]] = {}
    high_bits: list[np.ndarray] = []
    low_bits: list[np.ndarray] = []
    for name, values in model.state_dict().items():
        steps = values.numpy().ravel() / STEP
        wholes = steps.astype(int)
        if (wholes != steps).any():
            raise ValueError(
                f"{name} cannot be packed; expected whole numbers of {STEP}; "
                f"got {steps[wholes != steps][0]}"
            )
        bits = max(HIGH, int(np.abs(wholes).max()).bit_length() + 1)
        wholes += 2 ** (bits - 1)
        each = wholes[:, None] >> np.arange(bits)[::-1] & 1  # (size, bits)
        high_bits.append(each[:, :HIGH].ravel())
        low_bits.append(each[:, HIGH:].ravel())
        about[name] = [len(wholes), bits]
    return {
        "tensors": about,
        "step": STEP,
        "high": as_text(high_bits),
        "low": as_text(low_bits),
    }


def as_text(bits: list[np.ndarray]) -> str:
    """Bits (arrays of 0 and 1) as text: eight of them a byte, in base64."""
    packed = np.packbits(np.concatenate(bits))
    return base64.b64encode(packed.tobytes()).decode()


def check(model: GPT, words: Sequence[str], **switches: Any) -> dict:
    """A text, and the numbers that the script has to find for it.

    They are the loss of each word, and the logits after the last one, (V).

    Args:
        model: the town's model.
        words: the text.
        **switches: which parts of the model are taken out, see `logits`.
    """
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
    """Numbers as the script stores them, to six decimals."""
    return [round(x, 6) for x in numbers.tolist()]


def checks(model: GPT) -> list[dict]:
    """The texts on which the script tests itself before it shows anything.

    There are two stories, and one story with parts of the model taken out.
    """
    story = STORY.split()
    return [
        *(check(model, each) for each in town.Town().stories(2, seed=1)),
        check(model, story, heads=["1.3"], hidden=[7]),
        check(model, story, blocks=[1]),
    ]


def words_and_rules() -> dict:
    """The words of the language and the numbers of its rules."""
    rules = town.Town()
    return {
        "start": grammar.START,
        "end": grammar.END,
        "people": grammar.PEOPLE,
        "places": grammar.PLACES,
        "when": grammar.WHEN,
        "walked": grammar.WALKED,
        "walking": grammar.WALKING,
        "usual_place": grammar.USUAL_PLACE,
        "usual_when": grammar.USUAL_WHEN,
        "usually": grammar.USUALLY,
        "colours": grammar.COLOURS,
        "nouns": grammar.NOUNS,
        "near": grammar.NEAR,
        "sizes": grammar.SIZES,
        "leavers": grammar.LEAVERS,
        "left": grammar.LEFT,
        "times": grammar.TIMES,
        "go": rules.people,
        "return": rules.returns,
        "asides": rules.asides,
        "aside": rules.aside,
    }


def pairs() -> list[list[int]]:
    """How often each word followed each in the stories that chapter 11 counts.

    There is a list for each first word; in it the numbers of the words that
    followed and how often they did take turns.
    """
    numbers = {word: n for n, word in enumerate(town.WORDS)}
    counts: list[Counter] = [Counter() for _ in numbers]
    for story in town.Town().stories(3000, seed=1):
        for first, second in itertools.pairwise(story):
            counts[numbers[first]][numbers[second]] += 1
    return [[*itertools.chain(*sorted(row.items()))] for row in counts]


def data(model: GPT) -> dict:
    """All that the script knows of the model and of the language."""
    config = model.config
    return {
        "config": {
            "n_heads": config.n_heads,
            "n_layers": config.n_layers,
            "norm_eps": config.norm_eps,
        },
        "words": town.WORDS,
        "grammar": words_and_rules(),
        "pairs": pairs(),
        "entropy": ENTROPY,
        "story": STORY,
        "checks": checks(model),
        "weights": pack(model),
    }


def script(about: dict) -> str:
    """The script: one function, so that nothing in it is global.

    Lines of comments and indents are left out.
    """
    sources = "".join(
        (SCRIPTS / f"{name}.js").read_text("utf-8") for name in PARTS
    )
    sources = re.sub(r"(?m)^\s*//.*\n|^\s+", "", sources)
    packed = json.dumps(about, ensure_ascii=False, separators=(",", ":"))
    return (
        f"(() => {{\nconst DATA = {packed};\n{sources}"
        "start(document.querySelectorAll('[data-town]'), DATA);\n})();\n"
    )


def main(path: str) -> None:
    """Write the script to a path, whole or not at all."""
    with replacing(path) as file:
        file.write(script(data(load())).encode())


if __name__ == "__main__":
    main(sys.argv[1])
