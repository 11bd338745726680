"""What fewer bits cost: weights, cache and training, on the town and SmolLM2.

Town: the loss of a trained model on 300 other stories, in nats a word, with
its matrices rounded in several ways and with its cache rounded; the truth,
which is the stories' own entropy, is beside it. The stored model is rounded,
and so are others that are trained from more seeds.

SmolLM2: its loss on a text with the weights of its published file, which have
four bits, with these rounded further, and with a rounded cache.

Training: the stored model learns another town, in which four people are on
their way, for a few steps with a small learning rate. Its weights are in
float32; on the grid of bfloat16, to nearest; the same with stochastic
rounding; or on the grid with master weights. The layers compute in float32
in each case, so that nothing differs but what is kept of a weight.

Chapter 22 shows it. All of it takes more than half an hour of one core.

usage: python benchmarks/fewer_bits.py [town] [smollm2] [training] [seeds]
    [gptq]
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from real_texts import COPYING, QUESTIONS, TEXT
from results import CHAPTERS, store
from torch import Tensor, nn

from attnbook.cache import KVCache, Places
from attnbook.formats import FORMATS, GridAdamW, stochastic
from attnbook.gpt import GPT
from attnbook.gptq import gptq_model, input_moments
from attnbook.pretrained import load, load_model, load_tokenizer
from attnbook.quantised import by_range, by_scale, round_matrices
from attnbook.town import TOWN_CONFIG, TOWN_RECIPE, Town, encode
from attnbook.training import (
    Recipe,
    loss_share,
    make_optimizer,
    mean_loss,
    train,
    update,
)

BITS = (8, 6, 5, 4, 3, 2)
CACHE_BITS = (8, 4, 3, 2)
STORIES = 300
SMOLLM2 = "SmolLM2-135M-Instruct"


def town_model() -> GPT:
    """The model of chapter 11, as it is stored."""
    file = CHAPTERS / "attnbook" / "data" / "town.safetensors"
    model = load_model(str(file)).model
    assert isinstance(model, GPT)
    return model.eval()


# Weights.


def row_rule(bits: int, group: int | None, name: str, w: Tensor) -> Tensor:
    """Round by a scale for each row, or each group of a row."""
    return by_scale(w, bits, group).values()


def tensor_rule(bits: int, name: str, w: Tensor) -> Tensor:
    """Round by one scale for the whole matrix."""
    return by_scale(w.reshape(1, -1), bits).values().view_as(w)


def blocks_alone(
    rule: Callable[[str, Tensor], Tensor], name: str, w: Tensor
) -> Tensor:
    """Leave the table of embeddings, and round all other matrices."""
    return w if "token_embedding" in name else rule(name, w)


def rounded(model: GPT, bits: int, moments: dict[str, Tensor]) -> dict:
    """The model in several ways of rounding its matrices to some bits."""
    row = partial(row_rule, bits, None)
    found = {
        "tensor": round_matrices(model, partial(tensor_rule, bits)),
        "row": round_matrices(model, row),
        "group": round_matrices(model, partial(row_rule, bits, 16)),
        "blocks": round_matrices(model, partial(blocks_alone, row)),
    }
    if bits <= 4:
        found["blocks, gptq"] = gptq_model(model, moments, bits)
    return found


def weights_of_town(model: GPT) -> dict:
    """The loss over the truth of a town's model, rounded and not."""
    town = Town()
    stories = town.stories(STORIES, seed=1_000_000)
    truth = town.entropy(stories)
    loss_of = partial(loss_of_stories, stories=encode(stories))
    calibration, _ = encode(town.stories(64, seed=77))
    moments = input_moments(model, calibration)
    exact = loss_of(model)
    found: dict[str, Any] = {
        "truth": round(truth, 5),
        "left by training": round(exact - truth, 5),
    }
    for bits in BITS:
        found[str(bits)] = {
            way: round(loss_of(m) - exact, 5)
            for way, m in rounded(model, bits, moments).items()
        }
    return found


def loss_of_stories(model: nn.Module, stories: tuple[Tensor, Tensor]) -> float:
    """The mean loss over stories, summed in float64."""
    return mean_loss(model, *stories)


# The cache.


class RoundingCache(KVCache):
    """A cache that rounds all keys or values that it returns.

    It keeps floats: it is there to see what rounding costs.

    Args:
        sizes: what `KVCache` takes.
        bits: of a number.
        of: "keys" or "values".
        per: "token" (a range for each vector) or "channel" (a range for each
            of its numbers over the whole text, which looks ahead).
    """

    def __init__(self, *, bits: int, of: str, per: str, **sizes: Any) -> None:
        super().__init__(1, **sizes)
        self.bits = bits
        self.of = of
        self.per = per

    def write(
        self, index: int, k: Tensor, v: Tensor, places: Places
    ) -> tuple[Tensor, Tensor]:
        keys, values = super().write(index, k, v, places)
        if self.of == "keys":
            return self._rounded(keys), values
        return keys, self._rounded(values)

    def _rounded(self, x: Tensor) -> Tensor:
        if self.per == "token":
            return by_range(x, self.bits).values()
        return by_range(x.mT, self.bits).values().mT


def with_cache(model: GPT, texts: list[Tensor], **options: Any) -> float:
    """The mean loss over texts, each read in one call with a cache."""
    config = model.config
    sizes: dict[str, Any] = {
        "n_layers": config.n_layers,
        "n_heads": config.n_kv_heads or config.n_heads,
        "d_k": config.d_model // config.n_heads,
    }
    total = 0.0
    words = 0
    for text in texts:
        cache = RoundingCache(capacity=len(text), **sizes, **options)
        logits = model(text[None, :-1], cache=cache)[0].double()
        targets = text[1:]
        total += nn.functional.cross_entropy(
            logits, targets, reduction="sum"
        ).item()
        words += len(targets)
    return total / words


@torch.no_grad()
def caches(model: GPT, texts: list[Tensor], exact: float) -> dict:
    """What a rounded cache costs, for keys and values, in both ways."""
    return {
        str(bits): {
            f"{of}, {per}": round(
                with_cache(model, texts, bits=bits, of=of, per=per) - exact, 5
            )
            for of in ("keys", "values")
            for per in ("token", "channel")
        }
        for bits in CACHE_BITS
    }


def cache_of_town(model: GPT) -> dict:
    """The cost of a rounded cache for the town's model, in nats a word."""
    stories = Town().stories(STORIES, seed=1_000_000)
    texts = [encode([story])[0][0] for story in stories]
    # `encode` leaves the last word to the targets; it is not needed here.
    exact = sum(
        loss_share(model, t[None, :-1], t[None, 1:]).item() * (len(t) - 1)
        for t in texts
    ) / sum(len(t) - 1 for t in texts)
    return caches(model, texts, exact)


def more_seeds(seed: int) -> dict:
    """A model that is trained from another seed, and what rounding costs."""
    torch.manual_seed(seed)
    model = GPT(TOWN_CONFIG)
    train(
        model,
        Town().batches,
        dataclasses.replace(TOWN_RECIPE, seed=seed),
    )
    return weights_of_town(model.eval().requires_grad_(False))


# The published model.


def smollm2_weights(model: GPT, loss_of: Callable[[nn.Module], float]) -> dict:
    """SmolLM2's loss with its matrices rounded further."""
    found: dict[str, float] = {"as published": round(loss_of(model), 4)}
    for bits in (8, 6, 4, 3):
        for name, group in (("rows", None), ("groups of 32", 32)):
            rule = partial(row_rule, bits, group)
            loss = loss_of(round_matrices(model, rule))
            found[f"{bits} bits, {name}"] = round(loss, 4)
    return found


def smollm2_gptq(model: GPT, tokenizer, loss_of) -> dict:
    """The blocks in 3 bits by groups of 32: plainly, and by GPTQ.

    GPTQ sees the inputs of other texts: questions, and texts to be copied.
    """
    text = " ".join([*QUESTIONS, *COPYING.values()])
    tokens = torch.tensor([tokenizer.encode(text)])
    moments = input_moments(model, tokens)
    rule = partial(blocks_alone, partial(row_rule, 3, 32))
    return {
        "tokens": tokens.shape[1],
        "plain": round(loss_of(round_matrices(model, rule)), 4),
        "gptq": round(loss_of(gptq_model(model, moments, 3, 32)), 4),
    }


@torch.no_grad()
def smollm2(with_gptq: bool) -> None:
    """Measure SmolLM2, and store each part at once.

    GPTQ takes longer than all the rest, so it is done if asked for.
    """
    model = load(SMOLLM2)
    tokenizer = load_tokenizer(SMOLLM2)
    assert isinstance(model, GPT)
    tokens = torch.tensor(tokenizer.encode(TEXT))

    def loss_of(m: nn.Module) -> float:
        return loss_share(m, tokens[None, :-1], tokens[None, 1:]).item()

    if with_gptq:
        found = smollm2_gptq(model, tokenizer, loss_of)
        keep("smollm2", "three bits, blocks", result=found)
        return
    keep("smollm2", "tokens", result=len(tokens))
    keep("smollm2", "weights", result=smollm2_weights(model, loss_of))
    keep("smollm2", "cache", result=caches(model, [tokens], loss_of(model)))


# Training.


def to_bfloat16(x: Tensor) -> Tensor:
    """The nearest number of bfloat16, in the type of x."""
    return x.to(torch.bfloat16).to(x.dtype)


def _by_chance(dice: torch.Generator, x: Tensor) -> Tensor:
    """One of the two neighbours in bfloat16, so that the mean is x."""
    return stochastic(x, FORMATS["bfloat16"], dice)


WAYS = ("float32", "nearest", "stochastic", "masters")
LEARN = Recipe(
    steps=300, batch_size=16, peak=1e-4, warmup=30, weight_decay=0.01
)


def learned(way: str, seed: int) -> dict:
    """Let the stored model learn another town, with its weights kept so.

    Returns:
        the loss on other stories of that town over their entropy, before and
        after, and the share of all weights that are not what they were.
    """
    model = town_model().requires_grad_(True)
    recipe = dataclasses.replace(LEARN, seed=seed)
    town = Town(people=(4, 4))
    stories = town.stories(200, seed=1_000_000)
    truth = town.entropy(stories)
    pairs = encode(stories)
    before = [to_bfloat16(p.detach().clone()) for p in model.parameters()]
    if way == "float32":
        before = [p.detach().clone() for p in model.parameters()]
    generator = torch.Generator().manual_seed(seed)
    dice = torch.Generator().manual_seed(1000 + seed)
    optimizer: torch.optim.Optimizer = make_optimizer(model, recipe)
    start = mean_loss(model, *pairs)
    if way != "float32":
        rounding: Callable[[Tensor], Tensor] = to_bfloat16
        if way == "stochastic":
            rounding = partial(_by_chance, dice)
        optimizer = GridAdamW(
            optimizer.param_groups, rounding, masters=way == "masters"
        )
    model.train()
    for step in range(recipe.steps):
        batch = town.batches(recipe.batch_size, generator)
        update(model, optimizer, batch, step, recipe)
    model.eval()
    changed = sum(
        int((p != old).sum()) for p, old in zip(model.parameters(), before)
    )
    return {
        "before": round(start - truth, 5),
        "after": round(mean_loss(model, *pairs) - truth, 5),
        "changed": round(
            changed / sum(p.numel() for p in model.parameters()), 4
        ),
    }


def stored() -> dict:
    """What has been stored so far."""
    file = CHAPTERS / "attnbook" / "data" / "fewer_bits.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def keep(*path: str, result: Any) -> None:
    """Store a result under a path of names, beside all that is stored."""
    found = stored()
    place = found
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = result
    store("fewer_bits", found)
    print(path, result, flush=True)


def main(parts: list[str], seeds: range = range(5)) -> None:
    """Measure the parts that are asked for, and store each at once."""
    torch.set_num_threads(1)
    if "town" in parts:
        model = town_model()
        keep("town", "weights", result=weights_of_town(model))
        keep("town", "cache", result=cache_of_town(model))
    if "smollm2" in parts:
        smollm2(with_gptq=False)
    if "gptq" in parts:
        smollm2(with_gptq=True)
    if "training" in parts:
        keep("training", "recipe", result=dataclasses.asdict(LEARN))
        for seed in seeds:
            for way in WAYS:
                result = learned(way, seed)
                keep("training", way, str(seed), result=result)
    if "seeds" in parts:
        for seed in seeds:
            keep("town", "seeds", str(seed), result=more_seeds(seed))


if __name__ == "__main__":
    every = ["town", "smollm2", "training", "seeds", "gptq"]
    main(sys.argv[1:] or every)
