"""The town's model, language and view as one script, for the built pages.

usage: python tools/town_page.py FILE

The script may weigh 300 kB as a web host sends it, so the weights are rounded:
each is a whole number of some bits times a step of its tensor. What rounding a
weight loses, those beside it make good. Before the script shows anything, it
holds its logits on `checks` against those of the model as it is.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from notebooks import CHAPTERS, ROOT, write_text

from attnbook import town
from attnbook.gpt import GPT
from attnbook.positions import alibi_bias
from attnbook.pretrained import load_model

SCRIPTS = ROOT / "site" / "town"
#: The files of the script, in the order in which they need each other.
PARTS = ("grammar", "model", "reading", "view")
#: Bits of a weight, by how a tensor's name begins. Found by trying: one less
#: doubles what a tensor's rounding does to the logits. A part of a bit is less
#: of the range, which gzip finds.
BITS = {
    "token": 23,
    "blocks.0.attention.key_value.": 23,
    "blocks.0.attention.": 22,
    "blocks.0.feed_forward.": 21.5,
    "blocks.1.": 20.8,
}
BITS_OF_VECTORS = 24
#: Of these the first come apart: they are alike often, and gzip finds it.
HIGH = 6
#: Nats a word, of the whole language; chapter 11 computes it.
ENTROPY = 0.7374

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
            contexts = (
                args[0].unflatten(-1, (model.config.n_heads, -1)).clone()
            )
            contexts[..., [*out], :] = 0  # (1, T, H, d_k)
            return (contexts.flatten(-2),)

        hook = block.attention.out.register_forward_pre_hook(cut)
        x = block(x, mask=mask)
        hook.remove()
    return model.unembed(x)[0]


def bits_of(name: str, tensor: np.ndarray) -> float:
    if tensor.ndim == 1:
        return BITS_OF_VECTORS
    return next(n for start, n in BITS.items() if name.startswith(start))


def inputs(model: GPT) -> dict[str, np.ndarray]:
    """What each linear layer reads, as the sum of x xᵀ: (in, in); in stories,
    in words in any order, and with a head or a block out."""
    sums: dict[str, np.ndarray] = {}
    rng = random.Random(0)

    def watch(name):
        def add(layer, args):
            x = args[0].detach().flatten(0, -2).numpy()  # (T, in)
            sums[name] = sums.get(name, 0) + x.T @ x

        return add

    hooks = [
        layer.register_forward_pre_hook(watch(name))
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    for n, story in enumerate(town.Town().stories(150, seed=7)):
        logits(model, story)
        if n < 15:
            logits(model, rng.choices(town.WORDS, k=50))
        if n < 30:
            head = f"{rng.randrange(2)}.{rng.randrange(4)}"
            logits(model, story, heads=[head])
            logits(model, story, blocks=[rng.randrange(2)])
    for hook in hooks:
        hook.remove()
    return sums


def rounded_together(
    weight: np.ndarray, step: float, seen: np.ndarray
) -> np.ndarray:
    """The weights (out, in) as whole numbers of steps: column by column, and
    what is lost in one is made good in the later ones, as far as the inputs
    go together, whose products are `seen` (in, in).

    Source: Frantar et al. (2023), arXiv:2210.17323, GPTQ.
    """
    order = np.argsort(-np.diag(seen))  # the largest inputs first
    seen = seen[np.ix_(order, order)] * len(seen) / np.trace(seen)
    seen = seen + 1e-5 * np.eye(len(seen))  # it may be singular
    upper = np.linalg.cholesky(np.linalg.inv(seen)).T
    left, wholes = weight[:, order], np.empty(weight.shape, int)
    for n, column in enumerate(order):
        wholes[:, column] = np.rint(left[:, n] / step)
        lost = left[:, n] - wholes[:, column] * step  # (out,)
        left[:, n:] -= np.outer(lost / upper[n, n], upper[n, n:])
    return wholes


def pack(model: GPT) -> dict:
    """The weights; `unpack` of model.js is the other way.

    A tensor is [its size, bits, step]. The first `HIGH` bits of all weights
    stand side by side in one text, the others in a second, in base64.
    """
    seen, about = inputs(model), {}
    streams: tuple[list, list] = [], []
    for name, values in model.state_dict().items():
        tensor, layer = values.numpy(), name.removesuffix(".weight")
        share = bits_of(name, tensor)
        step = float(np.abs(tensor).max()) / (2 ** (share - 1) - 1)
        bits = math.ceil(share)
        if tensor.ndim == 2 and layer in seen:
            wholes = rounded_together(tensor, step, seen[layer])
        else:
            wholes = np.rint(tensor / step).astype(int)
        wholes = (wholes + 2 ** (bits - 1)).clip(0, 2**bits - 1).ravel()
        each = wholes[:, None] >> np.arange(bits)[::-1] & 1  # (size, bits)
        streams[0].append(each[:, :HIGH].ravel())
        streams[1].append(each[:, HIGH:].ravel())
        about[name] = [tensor.size, bits, step]
    high, low = (
        base64.b64encode(
            np.packbits(np.concatenate(stream)).tobytes()
        ).decode()
        for stream in streams
    )
    return {"tensors": about, "high": high, "low": low}


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
    return [round(x, 6) for x in numbers.tolist()]


def checks(model: GPT) -> list[dict]:
    """Stories, and one with something taken out."""
    story = STORY.split()
    return [
        *(check(model, each) for each in town.Town().stories(2, seed=1)),
        check(model, story, heads=["1.3"], hidden=[7]),
        check(model, story, blocks=[1]),
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
    numbers = {word: n for n, word in enumerate(town.WORDS)}
    counts: list[Counter] = [Counter() for _ in numbers]
    for story in town.Town().stories(3000, seed=1):
        for first, second in itertools.pairwise(story):
            counts[numbers[first]][numbers[second]] += 1
    return [[*itertools.chain(*sorted(row.items()))] for row in counts]


def data(model: GPT) -> dict:
    """All that the script is about."""
    config = model.config
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
        "weights": pack(model),
    }


def script(about: dict) -> str:
    """One function, so that nothing is global; without comments' lines."""
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
    write_text(Path(path), script(data(load())))


if __name__ == "__main__":
    main(sys.argv[1])
