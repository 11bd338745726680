"""Tiled attention as a kernel in Triton, for graphics cards; optional.

One run of the kernel computes one tile of queries and walks over the tiles of
keys, as `merging.tiled_attention` does. Where there is no card, Triton's
interpreter runs it on the processor, slowly. Products are computed in
"tf32x3", which NVIDIA's cards have; others would need "ieee" in its place.
"""

import math
import os
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor

from attnbook.merging import Finished, ready
from attnbook.values import whole

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read by the import
#: Why the kernel cannot run here, in words; "" if it can.
MISSING = ""
try:
    import triton
    import triton.language as tl

    if type(tl.max) is triton.JITFunction and not torch.cuda.is_available():
        raise ImportError("imported for a card; set TRITON_INTERPRET=1 first")
except ImportError as error:
    MISSING = (
        "the kernel needs Triton and cannot use it here; expected it to be "
        f"imported (pip install triton, on Linux); got: {error}"
    )
    tl = SimpleNamespace(constexpr=int)


def tile_of_queries(
    q, k, v, out, lse, T, S, d_k, d_v, causal: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Context and log-sum-exp of one tile of queries, into out and lse."""
    first = tl.program_id(0) * ROWS
    n = tl.program_id(1)  # the head, counted over all texts
    i = first + tl.arange(0, ROWS)
    w = tl.arange(0, WIDTH)
    real = (i < T)[:, None]
    at = (n * T + i)[:, None] * d_k + w  # addresses of the queries
    rows = tl.load(q + at, mask=real & (w < d_k), other=0.0)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    context = tl.zeros([ROWS, WIDTH], tl.float32)
    end = tl.minimum(S, first + ROWS + S - T) if causal else S
    for start in range(0, end, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        key = (n * S + j)[:, None]
        there = (j < S)[:, None]
        keys = tl.load(k + key * d_k + w, mask=there & (w < d_k), other=0.0)
        values = tl.load(v + key * d_v + w, mask=there & (w < d_v), other=0.0)
        scores = tl.dot(rows, tl.trans(keys), input_precision="tf32x3")
        last = i + S - T if causal else i * 0 + S  # the last key seen
        seen = (j[None, :] <= last[:, None]) & (j < S)[None, :]
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        top = tl.where(higher == -float("inf"), 0.0, higher)
        keep = tl.exp(peak - top)
        exp = tl.exp(scores - top[:, None])
        total = total * keep + tl.sum(exp, 1)
        products = tl.dot(exp, values, input_precision="tf32x3")
        context = context * keep[:, None] + products
        peak = higher
    some = tl.where(total == 0, 1.0, total)
    at = (n * T + i)[:, None] * d_v + w
    tl.store(out + at, context / some[:, None], mask=real & (w < d_v))
    tl.store(lse + n * T + i, peak + tl.log(some), mask=i < T)


@cache
def _compiled():
    """The kernel, made once: so it remembers the sizes it was compiled for."""
    return triton.jit(tile_of_queries)


def kernel_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, tile: int = 16
) -> Finished:
    """`merging.tiled_attention` by the kernel, in float32, without gradients.

    It takes no mask but the causal one. `tile` is the number of queries, and
    of keys, in a tile: a power of 2 from 16 on.

    Shapes: q (..., T, d_k), k (..., S, d_k), v (..., S, d_v) → context
    (..., T, d_v) and lse (..., T, 1).

    Raises:
        RuntimeError: Triton is not there, or not for this machine.
        TypeError, ValueError: inputs that do not fit, as in
            `merging.attend_to_part`, or another size of a tile.
    """
    if MISSING:
        raise RuntimeError(MISSING)
    if whole("tile", tile, at_least=16).bit_count() != 1:
        raise ValueError(
            f"tile must be a power of 2, as Triton wants it; expected 16, 32, "
            f"64 and so on; got {tile}"
        )
    q, k, v, _ = ready(q, k, v)
    q, k, v = (x.float().contiguous() for x in (q, k, v))
    *batch, T, d_k = q.shape
    S, d_v = v.shape[-2:]
    out = q.new_empty(*batch, T, d_v)
    lse = q.new_empty(*batch, T, 1)
    width = max(16, triton.next_power_of_2(max(d_k, d_v)))
    launch = _compiled()[triton.cdiv(T, tile), math.prod(batch)]
    launch(q, k, v, out, lse, T, S, d_k, d_v, causal, tile, tile, width)
    return Finished(out, lse)
