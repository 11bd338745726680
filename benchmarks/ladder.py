"""Time nine ways to write multi-head attention, and store the ratios to SDPA.

All rungs of this ladder have the same weights and give the same answer. They
take turns, so that a machine that gets slower for a while slows all of them,
and the ratio is taken within a round. The processor's time on one thread is
counted, because other programs disturb it least. Chapter 6 shows three rungs.

usage: python benchmarks/ladder.py [ROUNDS]     30 if not given
"""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any

if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it is timed on a CPU

import torch
import torch.nn.functional as F
from results import here, n_rounds, now, quartiles, store
from torch import Tensor, nn
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

from attnbook.attention import merge_heads, softmax, split_heads
from attnbook.layers import SelfAttention
from attnbook.teach.check.seeded import randn

REFERENCE = "SDPA"

#: (B, T, d_model, n_heads) of the two inputs. The large one is a sequence
#: of full length in GPT-2 small.
SIZES = {"small": (2, 32, 64, 4), "large": (1, 1024, 768, 12)}
#: The rungs that are left out at a size, because they would take hours.
TOO_SLOW = {"large": ["Python loops"]}
#: Each rung is repeated in a round until it has taken about this long.
LEAST_SECONDS = 0.02


Matrix = Sequence[Sequence[float]]
Layer = Callable[[Tensor], Tensor]
#: W_q, W_k, W_v (H, d_in, d_k) and W_O (H·d_k, d_model).
Weights = Sequence[Tensor]


def times(a: Matrix, b: Matrix) -> list[list[float]]:
    """The product of two matrices that are lists of rows."""
    columns = list(zip(*b))
    return [
        [sum(p * r for p, r in zip(row, col)) for col in columns] for row in a
    ]


def python_loops(
    x: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor, w_out: Tensor
) -> Tensor:
    """Multi-head attention in Python's lists, number by number."""
    heads = list(zip(w_query.tolist(), w_key.tolist(), w_value.tolist()))
    out = []
    for tokens in x.tolist():  # one sequence
        merged: list[list[float]] = [[] for _ in tokens]
        for w_q, w_k, w_v in heads:
            q = times(tokens, w_q)
            k = times(tokens, w_k)
            v = times(tokens, w_v)
            for i, scores in enumerate(times(q, list(zip(*k)))):
                exp = [math.exp(s / math.sqrt(len(k[0]))) for s in scores]
                total = sum(exp)
                merged[i] += times([[e / total for e in exp]], v)[0]
        out.append(times(merged, w_out.tolist()))
    return torch.tensor(out, dtype=x.dtype, device=x.device)


def one_by_one(
    x: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor, w_out: Tensor
) -> Tensor:
    """Multi-head attention in matrices, sequence by sequence, head by head."""
    out = []
    for tokens in x:  # (T, d_model)
        merged = []
        for w_q, w_k, w_v in zip(w_query, w_key, w_value):
            q, k, v = tokens @ w_q, tokens @ w_k, tokens @ w_v  # (T, d_k)
            weights = softmax(q @ k.T / math.sqrt(k.shape[1]))  # (T, T)
            merged.append(weights @ v)
        out.append(torch.cat(merged, dim=1) @ w_out)
    return torch.stack(out)


def list_of_heads(
    x: Tensor,
    memory: Tensor,
    w_query: Tensor,
    w_key: Tensor,
    w_value: Tensor,
    w_out: Tensor,
) -> Tensor:
    """Multi-head attention head by head, all sequences at once."""
    contexts = []
    for w_q, w_k, w_v in zip(w_query, w_key, w_value):
        q, k, v = x @ w_q, memory @ w_k, memory @ w_v  # (..., T, d_k), …
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
        contexts.append(softmax(scores) @ v)  # (..., T, d_v)
    return torch.cat(contexts, dim=-1) @ w_out  # (..., T, d_model)


def list_of_modules(
    w_query: Tensor, w_key: Tensor, w_value: Tensor, w_out: Tensor
) -> Layer:
    """Multi-head attention with a module for each head."""
    heads = nn.ModuleList()
    for w in zip(w_query, w_key, w_value):
        head = SelfAttention(*w[0].shape, bias=False).to(w_out)
        for linear, weight in zip(head.children(), w):
            linear.weight.data = weight.T.contiguous()
        heads.append(head)
    return lambda x: torch.cat([h(x) for h in heads], dim=-1) @ w_out


def side_by_side(heads: Tensor) -> Tensor:
    """The heads' matrices as one: (H, d_in, d_k) → (d_in, H·d_k)."""
    return torch.cat(tuple(heads), dim=-1)  # (d_in, H·d_k)


def linear_weight(heads: Tensor) -> Tensor:
    """What nn.Linear stores: (H, d_in, d_k) → (H·d_k, d_in)."""
    return side_by_side(heads).T


def multi_head_attention(
    x: Tensor,
    memory: Tensor,
    w_query: Tensor,
    w_key: Tensor,
    w_value: Tensor,
    w_out: Tensor,
    n_heads: int,
) -> Tensor:
    """Multi-head attention with one product for all heads, split afterwards.

    Args:
        x: where the queries come from, (..., T, d_model).
        memory: where keys and values come from, (..., S, d_memory).
        w_query, w_key, w_value: the heads' matrices side by side, (d_in,
            H·d_k).
        w_out: (H·d_k, d_model).
        n_heads: how many heads there are, H.
    """
    q = split_heads(x @ w_query, n_heads)  # (..., H, T, d_k)
    k = split_heads(memory @ w_key, n_heads)  # (..., H, S, d_k)
    v = split_heads(memory @ w_value, n_heads)  # (..., H, S, d_v)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    context = softmax(scores) @ v  # (..., H, T, d_v)
    return merge_heads(context) @ w_out  # (..., T, d_model)


def by_einsum(
    x: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor, w_out: Tensor
) -> Tensor:
    """Multi-head attention for all heads at once, by sums over named axes."""
    q, k, v = (
        torch.einsum("btm,hmd->bthd", x, w) for w in (w_query, w_key, w_value)
    )
    scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(k.shape[-1])
    context = torch.einsum("bhts,bshd->bthd", softmax(scores), v)
    return context.flatten(2) @ w_out


def by_sdpa(
    x: Tensor,
    w_query: Tensor,
    w_key: Tensor,
    w_value: Tensor,
    w_out: Tensor,
    n_heads: int,
) -> Tensor:
    """Multi-head attention with one product and torch's fused attention."""
    q, k, v = (split_heads(x @ w, n_heads) for w in (w_query, w_key, w_value))
    context = F.scaled_dot_product_attention(q, k, v)  # (B, H, T, d_k)
    return context.transpose(1, 2).flatten(2) @ w_out


def torch_layer(
    w_query: Tensor, w_key: Tensor, w_value: Tensor, w_out: Tensor
) -> Layer:
    """torch's own layer of multi-head attention, with these weights."""
    layer = (
        nn.MultiheadAttention(
            len(w_out), len(w_query), bias=False, batch_first=True
        )
        .to(w_out.device, w_out.dtype)
        .eval()
    )
    parts = [linear_weight(w) for w in (w_query, w_key, w_value)]
    layer.in_proj_weight.data = torch.cat(parts)
    layer.out_proj.weight.data = w_out.T.contiguous()
    return lambda x: layer(x, x, x, need_weights=False)[0]


def gpt2_layer(
    w_query: Tensor, w_key: Tensor, w_value: Tensor, w_out: Tensor
) -> Layer:
    """The attention layer of transformers' GPT-2, with these weights."""
    settings: dict[str, Any] = {
        "n_embd": len(w_out),
        "n_head": len(w_query),
        "attn_implementation": "sdpa",
    }
    config = GPT2Config(**settings)
    layer = GPT2Attention(config, layer_idx=0).eval()
    layer.to(w_out.device, w_out.dtype)
    parts = [side_by_side(w) for w in (w_query, w_key, w_value)]
    layer.c_attn.weight.data = torch.cat(parts, dim=-1)
    layer.c_proj.weight.data = w_out
    return lambda x: layer(x, is_causal=False)[0]


def ladder(weights: Weights) -> dict[str, Layer]:
    """The same attention nine times, each a function of x alone."""
    w_query, w_key, w_value, w_out = weights
    n_heads = len(w_query)
    heads = (w_query, w_key, w_value, w_out)
    q, k, v = (side_by_side(part) for part in weights[:3])
    return {
        "Python loops": lambda x: python_loops(x, *heads),
        "matrices": lambda x: one_by_one(x, *heads),
        "batch": lambda x: list_of_heads(x, x, *heads),
        "list of modules": list_of_modules(*heads),
        "fused": lambda x: multi_head_attention(x, x, q, k, v, w_out, n_heads),
        "einsum": lambda x: by_einsum(x, *heads),
        "SDPA": lambda x: by_sdpa(x, q, k, v, w_out, n_heads),
        "nn.MultiheadAttention": torch_layer(*heads),
        "GPT2Attention": gpt2_layer(*heads),
    }


def draw_heads(
    n_heads: int, d_in: int, d_memory: int, d_model: int, seed: int
) -> Weights:
    """W_q, W_k and W_v of every head, and W_O, drawn in float64."""
    d_k = d_model // n_heads
    sizes = [(d_in, d_k), (d_memory, d_k), (d_memory, d_k)]
    of_heads = [
        randn(n_heads, *size, seed=seed + n) / math.sqrt(size[0])
        for n, size in enumerate(sizes)
    ]
    w_out = randn(d_model, d_model, seed=seed + 3) / math.sqrt(d_model)
    return *of_heads, w_out


def check_rungs() -> None:
    """Make sure that all rungs give the same result, before they are timed.

    Raises:
        AssertionError: one of them gives another; its name is the message.
    """
    x = randn(2, 5, 12, seed=57)
    rungs = ladder(draw_heads(3, 12, 12, 12, seed=58))
    for name, rung in rungs.items():
        torch.testing.assert_close(rung(x), rungs[REFERENCE](x), msg=name)


def measure(
    rungs: dict[str, Layer], x: Tensor, rounds: int
) -> dict[str, list[float]]:
    """For each rung the quartiles of its time over the reference's."""
    repeats = {name: _repeats(rung, x) for name, rung in rungs.items()}
    ratios: dict[str, list[float]] = {name: [] for name in rungs}
    for number in range(rounds):
        # Each round begins with another rung than the one before.
        order = list(rungs)[number % len(rungs) :]
        order += list(rungs)[: number % len(rungs)]
        seconds = {n: _time(rungs[n], x, repeats[n]) for n in order}
        for name, taken in seconds.items():
            ratios[name].append(taken / seconds[REFERENCE])
    return {name: quartiles(found) for name, found in ratios.items()}


def _repeats(rung: Layer, x: Tensor) -> int:
    """How often a rung is repeated to take `LEAST_SECONDS`."""
    _time(rung, x, 3 if x.numel() < 10_000 else 1)  # warm
    return max(1, round(LEAST_SECONDS / _time(rung, x, 1)))


def _time(rung: Layer, x: Tensor, repeats: int) -> float:
    """The mean seconds of a call, of so many in a row."""
    start = now()
    for _ in range(repeats):
        rung(x)
    return (now() - start) / repeats


def ratios(size: str, rounds: int) -> dict[str, list[float]]:
    """The times of the rungs over SDPA's, for inputs of one size.

    Args:
        size: a key of `SIZES`.
        rounds: how often each rung is timed.

    Returns:
        the quartiles of the ratio, by the rung's name.
    """
    B, T, d_model, n_heads = SIZES[size]
    weights = draw_heads(n_heads, d_model, d_model, d_model, seed=58)
    rungs = ladder([here(w.float()) for w in weights])
    for name in TOO_SLOW.get(size, []):
        del rungs[name]
    with torch.no_grad():
        x = here(randn(B, T, d_model, seed=57).float())
        return measure(rungs, x, rounds)


def main(arguments: list[str]) -> int:
    rounds = n_rounds(arguments, 30)
    torch.set_num_threads(1)
    check_rungs()
    results: dict[str, Any] = {
        "what": "time of each rung over SDPA's: the three quartiles of the "
        "ratios within one round",
        "machine": "one core of a CPU",
        "kind": platform.machine(),
        "torch": torch.__version__.split("+")[0],
        "dtype": "float32",
        "rounds": rounds,
    }
    for size, (B, T, d_model, n_heads) in SIZES.items():
        ratio = ratios(size, rounds)
        results[size] = {
            "shape": {"B": B, "T": T, "d_model": d_model, "heads": n_heads},
            "ratio": ratio,
        }
        for name, row in ratio.items():
            print(f"{size:6} {name:22}", *(f"{q:10.4g}" for q in row))
    store("ladder", results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
