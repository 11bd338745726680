"""How fast is it? The book's model beside its peers, in one process.

Every comparison runs on the same inputs, and where results are compared on
the same weights; the contenders take turns, in another order each round. What
is kept is the ratio within a round: its median and quartiles. The page "How
fast is it" shows the result. It takes about ten minutes on two cores; on a
machine that does other things at the same time the spread grows.

usage: python benchmarks/speed.py [--rounds N] [SECTION ...]

SECTION: one or more of decode, limit, uncached, layouts, attention,
explicit, training, memory, whose results then replace the stored ones of the
same machine; all if none is given.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from agreement import int8_loss, same_tokens
from int8 import Int8Linear
from peaks import attention_paths, extra_memory, memory
from peers import PlainGPT
from results import CHAPTERS, quartiles, store
from rounds import THREADS, against, machine, report, rounds_of, seconds
from torch import nn
from writers import (
    draw_prompts,
    moved_bytes,
    ours,
    pair,
    read_bandwidth,
    theirs,
)

from attnbook.fast import PackedLinear, pack, replace_linear
from attnbook.gpt import GPT
from attnbook.layers import MultiHeadAttention
from attnbook.masks import causal_mask
from attnbook.town import TOWN_CONFIG, TOWN_RECIPE, Town
from attnbook.training import loss_share, make_optimizer

#: Prompts of these lengths in a batch of eight, for the padded one.
UNEQUAL = (64, 128, 192, 256, 320, 384, 448, 512)


# ---- decoding


def decode(rounds: int) -> dict:
    """The speed of writing, in tokens a second and over transformers'.

    The book's model writes as it is, packed, and in 8 bits. How many of its
    tokens are those of transformers, and what 8 bits cost, is measured, too.
    """
    model, peer = pair()
    packed = pack(model)
    int8 = pack(model, Int8Linear)
    cases = {
        "1 × 32": draw_prompts(32),
        "1 × 512": draw_prompts(512),
        "8 × 32": draw_prompts(*[32] * 8),
        "8 × 512": draw_prompts(*[512] * 8),
        "8 × 64…512, padded": draw_prompts(*UNEQUAL),
    }
    rows: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name, prompts in cases.items():
        contenders = {
            "transformers": theirs(peer, prompts),
            "plain": ours(model, prompts),
            "packed": ours(packed, prompts),
            "int8": ours(int8, prompts),
        }
        found = rounds_of(contenders, rounds)
        rows[name] = {
            "tokens_per_second": {
                who: quartiles([len(prompts) / s for s in found[who]])
                for who in ("transformers", "plain", "packed", "int8")
            },
            "ratio": {
                who: against(found, "transformers", who)
                for who in ("plain", "packed", "int8")
            },
        }
        report(name, rows[name]["ratio"])
    return {
        "rows": rows,
        "same_tokens": same_tokens(model, packed, peer, cases),
        "int8_loss": int8_loss(model, int8),
    }


def limit(rounds: int) -> dict:
    """How near decoding comes to the speed at which memory can be read.

    Beside it runs a model of as many layers and next to no width: its time is
    that of the calls alone.
    """
    model, peer = pair()
    packed = pack(model)
    narrow = dataclasses.replace(model.config, vocab_size=16, d_model=12)
    calls = pack(GPT(narrow).eval())
    result: dict[str, dict[str, Any]] = {}
    for n_prompt in (32, 512):
        prompts = draw_prompts(n_prompt)
        contenders = {
            "transformers": theirs(peer, prompts),
            "plain": ours(model, prompts),
            "packed": ours(packed, prompts),
            "calls": ours(calls, [[token % 16 for token in prompts[0]]]),
            "read": read_bandwidth,
        }
        found = rounds_of(contenders, 2 * rounds)
        moved = moved_bytes(model, n_prompt)
        result[f"1 × {n_prompt}"] = {
            "bytes": moved,
            "share": {
                who: quartiles(
                    [moved / s / b for s, b in zip(found[who], found["read"])]
                )
                for who in ("transformers", "plain", "packed")
            },
            "calls": quartiles(
                [a / b for a, b in zip(found["calls"], found["packed"])]
            ),
        }
        report(f"limit, 1 × {n_prompt}", result[f"1 × {n_prompt}"]["share"])
    return result


def uncached(rounds: int) -> dict:
    """How many times faster it is to write with the cache than without."""
    model, _ = pair()
    packed = pack(model)
    prompts = draw_prompts(512)
    found = rounds_of(
        {
            "plain, no cache": ours(model, prompts, cached=False),
            "plain": ours(model, prompts),
            "packed, no cache": ours(packed, prompts, cached=False),
            "packed": ours(packed, prompts),
        },
        max(3, rounds // 2),
    )
    ratio = {
        who: against(found, f"{who}, no cache", who)
        for who in ("plain", "packed")
    }
    report("cached over uncached", ratio)
    return {"prompt": 512, "ratio": ratio}


def layouts(rounds: int) -> dict:
    """One product of decoding, with its matrix laid out in three ways.

    So many matrices are multiplied in turn that they do not fit into the
    processor's caches together, because a model's do not either.
    """
    result: dict[str, dict[str, list[float]]] = {}
    for out, width, count in ((2304, 768, 24), (50_257, 768, 2)):
        torch.manual_seed(0)
        matrices = [torch.randn(out, width) for _ in range(count)]
        layouts: dict[str, list[nn.Module]] = {
            "rows": [_linear(w) for w in matrices],
            "columns": [_linear(w.t().contiguous().t()) for w in matrices],
            "packed": [PackedLinear(w, None) for w in matrices],
        }
        for batch in (1, 8):
            x = torch.randn(batch, 1, width)
            with torch.inference_mode():
                contenders = {
                    name: partial(seconds, partial(_multiply, modules, x))
                    for name, modules in layouts.items()
                }
                found = rounds_of(contenders, 6 * rounds)
            name = f"{out} × {width}, {batch} rows"
            result[name] = {
                who: against(found, "rows", who)
                for who in ("columns", "packed")
            }
            report(name, result[name])
    return result


def _linear(weight: torch.Tensor) -> nn.Linear:
    """A linear layer with this weight (out, in), which is not copied."""
    out, width = weight.shape
    layer = nn.Linear(width, out, bias=False)
    layer.weight = nn.Parameter(weight)
    return layer


def _multiply(modules: list[nn.Module], x: torch.Tensor) -> None:
    """Multiply x by the matrix of each layer in turn."""
    for module in modules:
        module(x)


# ---- attention


def attention(rounds: int) -> dict:
    """A causal forward pass of attention beside `nn.MultiheadAttention`.

    The peer runs as it comes, and with its "fast path" switched off, which is
    faster. All contenders have the same weights, and must agree.
    """
    torch.manual_seed(0)
    block = MultiHeadAttention(768, 12).eval()
    peer = nn.MultiheadAttention(768, 12, batch_first=True).eval()
    with torch.no_grad():
        _copy_weights(peer, block)
        laid_out = replace_linear(block, PackedLinear)
    result: dict[int, dict[str, list[float]]] = {}
    for T in (128, 256, 512, 1024, 2048):
        x = torch.randn(1, T, 768)
        hidden = ~causal_mask(T)  # True: may not attend, the peer's way
        contenders: dict[str, Callable[[], torch.Tensor]] = {
            "as it comes": partial(_run_peer, peer, x, hidden, fast=True),
            "fast path off": partial(_run_peer, peer, x, hidden, fast=False),
            "plain": partial(block, x, causal=True),
            "packed": partial(laid_out, x, causal=True),
        }
        with torch.inference_mode():
            first, *others = (contender() for contender in contenders.values())
            for other in others:
                torch.testing.assert_close(other, first, atol=1e-4, rtol=1e-4)
            timed = {
                n: partial(seconds, contender)
                for n, contender in contenders.items()
            }
            found = rounds_of(timed, 3 * rounds)
        result[T] = {
            f"{who} over {other}": against(found, other, who)
            for other in ("as it comes", "fast path off")
            for who in ("plain", "packed")
        }
        report(f"attention, T = {T}", result[T])
    torch.backends.mha.set_fastpath_enabled(True)
    return result


def _copy_weights(
    peer: nn.MultiheadAttention, block: MultiHeadAttention
) -> None:
    """Give the book's layer the weights and biases of torch's."""
    for kind in ("weight", "bias"):
        q, k, v = getattr(peer, f"in_proj_{kind}").chunk(3)
        getattr(block.query, kind).copy_(q)
        getattr(block.key_value, kind).copy_(torch.cat([k, v]))
        getattr(block.out, kind).copy_(getattr(peer.out_proj, kind))


def _run_peer(
    peer: nn.MultiheadAttention,
    x: torch.Tensor,
    hidden: torch.Tensor,
    *,
    fast: bool,
) -> torch.Tensor:
    """A causal forward pass of torch's layer, on its fast path or off it."""
    torch.backends.mha.set_fastpath_enabled(fast)
    return peer(x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)[
        0
    ]


def explicit(rounds: int) -> dict:
    """Attention with its whole matrix of weights, over the fused kernel.

    Time and memory are compared.
    """
    result = {}
    for T in (256, 512, 1024, 2048, 4096):
        with torch.inference_mode():
            contenders = {
                name: partial(seconds, contender)
                for name, contender in attention_paths(T).items()
            }
            found = rounds_of(contenders, max(3, rounds // 2))
        peaks = {
            path: extra_memory(f"{path}:{T}") for path in ("explicit", "fused")
        }
        result[T] = {
            "time": against(found, "explicit", "fused"),
            "extra_megabytes": peaks,
        }
        print(f"explicit, T = {T}: {result[T]}", flush=True)
    return result


# ---- training


def stepper(model: nn.Module) -> Callable[[], float]:
    """A training step on one batch of stories, which gives its seconds."""
    tokens, targets = Town().batches(
        TOWN_RECIPE.batch_size, torch.Generator().manual_seed(0)
    )
    labels = torch.cat([tokens[:, :1], targets[:, :-1]], 1)
    total = int((targets != -100).sum())
    optimizer = make_optimizer(model, TOWN_RECIPE)
    # A model of transformers computes its loss itself.
    computes_loss = hasattr(model, "generation_config")

    def step() -> None:
        if computes_loss:
            loss = model(input_ids=tokens, labels=labels, use_cache=False).loss
        else:
            loss = loss_share(model, tokens, targets, total=total)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), TOWN_RECIPE.clip)
        optimizer.step()

    return partial(seconds, step)


def _small_gpt2(activation: str) -> nn.Module:
    """A GPT-2 of transformers in the sizes of chapter 11's model."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=TOWN_CONFIG.vocab_size,
        n_positions=TOWN_CONFIG.context,
        n_embd=TOWN_CONFIG.d_model,
        n_layer=TOWN_CONFIG.n_layers,
        n_head=TOWN_CONFIG.n_heads,
        activation_function=activation,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    return GPT2LMHeadModel(config)


def training(rounds: int) -> dict:
    """A training step of chapter 11's model beside those of its peers."""
    torch.set_num_threads(1)  # for matrices this small two are slower
    config = TOWN_CONFIG
    learned = dataclasses.replace(config, positions="learned")
    models = {
        "transformers": _small_gpt2("gelu_new"),  # as GPT-2 comes
        "its GELU in one call": _small_gpt2("gelu_pytorch_tanh"),
        "nanoGPT-style": PlainGPT(
            config.vocab_size,
            config.context,
            config.d_model,
            config.n_heads,
            config.n_layers,
        ),
        "ours": GPT(config),
        "ours, learned positions": GPT(learned),
        "ours, exact GELU too": GPT(
            dataclasses.replace(learned, activation="gelu")
        ),
    }
    found = rounds_of(
        {name: stepper(model) for name, model in models.items()}, 20 * rounds
    )
    torch.set_num_threads(THREADS)
    peers = [name for name in models if not name.startswith("ours")]
    result = {
        who: {other: against(found, other, who) for other in peers}
        for who in models
        if who not in peers
    }
    for who, ratio in result.items():
        report(f"training, {who}", ratio)
    return result


# ---- the whole


SECTIONS: dict[str, Callable[[int], dict]] = {
    "decode": decode,
    "limit": limit,
    "uncached": uncached,
    "layouts": layouts,
    "attention": attention,
    "explicit": explicit,
    "training": training,
    "memory": memory,
}


def main() -> int:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown or arguments.rounds < 2:
        parser.error(
            f"expected sections among {', '.join(SECTIONS)} and at least 2 "
            f"rounds; got {sorted(unknown) or arguments.rounds}"
        )
    about = {"machine": machine(), "rounds": arguments.rounds}
    results = dict(about)
    if arguments.sections:
        data = CHAPTERS / "attnbook" / "data" / "speed.json"
        results = json.loads(data.read_text(encoding="utf-8"))
        if results["machine"] != about["machine"]:
            parser.error(
                "the stored results are another machine's; expected "
                f"{about['machine']}; got {results['machine']}: measure all"
            )
    for name in arguments.sections or SECTIONS:
        results[name] = SECTIONS[name](arguments.rounds)
    store("speed", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
