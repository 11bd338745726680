"""Attention with the whole matrix, in tiles, and by torch: bytes and time.

One head of width 64 reads causal texts of up to 16,384 tokens, forward alone
and with the gradients. Two things are measured: the bytes of all tensors that
are alive at once, without the inputs; and the processor's seconds on one
thread, the least of some rounds. Where there is Triton, its kernel is compared
with the loop in Python, too. It takes some minutes, and 8 GB of memory.

usage: python benchmarks/tiles.py [LONGEST]     16384 if not given
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # it is timed on a CPU

import torch
import torch.nn.functional as F
from results import here, now, store
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnbook import kernel
from attnbook.attention import weigh
from attnbook.masks import causal_mask
from attnbook.merging import tiled_attention
from attnbook.teach.check.seeded import randn

WIDTH, SHORTEST, LONGEST = 64, 256, 16384
#: A measurement is repeated until it has taken about this long.
LEAST_SECONDS = 1.0


def explicit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention with its whole matrix of weights."""
    return weigh(q, k, mask=causal_mask(len(q))) @ v


def tiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in tiles, without the whole matrix."""
    return tiled_attention(q, k, v, causal=True).context


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention by torch's fused kernel."""
    q, k, v = (x[None, None] for x in (q, k, v))  # (1, 1, T, d), it must be
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]


KINDS = {"explicit": explicit, "tiled": tiled, "fused": fused}


class Alive(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive, and their maximum.

    Only tensors that are made while this is entered are counted, so the inputs
    are not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.most = 0
        self.known: set[int] = set()

    def free(self, name: int, size: int) -> None:
        """Called when the memory of a counted tensor is given back."""
        self.known.discard(name)
        self.now -= size

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = tree_leaves((args, kwargs))
        old = {storage(x)._cdata for x in given if isinstance(x, Tensor)}
        made = function(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if not isinstance(x, Tensor):
                continue
            memory = storage(x)
            name = memory._cdata
            size = memory.nbytes()
            if name not in self.known | old:
                self.known.add(name)
                self.now += size
                self.most = max(self.most, self.now)
                weakref.finalize(memory, self.free, name, size)
        return made


def storage(x: Tensor) -> torch.UntypedStorage:
    """The memory that a tensor is in, and may share with other tensors."""
    return x.untyped_storage()


def inputs(T: int) -> list[Tensor]:
    """Random queries, keys and values, each (T, WIDTH) in float32."""
    found = [randn(T, WIDTH, seed=n, dtype=torch.float32) for n in range(3)]
    return [x.requires_grad_() for x in found]


def steps(kind: Callable, T: int) -> dict[str, Callable[[], object]]:
    """The steps that are measured: the forward pass, and both passes."""
    q, k, v = inputs(T)

    def forward() -> Tensor:
        with torch.no_grad():
            return kind(q, k, v)

    def both() -> tuple:
        out = kind(q, k, v)
        return torch.autograd.grad(out, (q, k, v), torch.ones_like(out))

    return {"forward": forward, "both": both}


def seconds(step: Callable[[], object]) -> float:
    """The least seconds of a step, of several that are timed."""
    found: list[float] = []
    while not found or sum(found) < LEAST_SECONDS:
        start = now()
        step()
        found.append(now() - start)
    return min(found)


def measure(longest: int) -> dict:
    """Bytes and seconds of each kind, for lengths that double."""
    lengths = [SHORTEST]
    while 2 * lengths[-1] <= longest:
        lengths.append(2 * lengths[-1])
    found: dict = {"width": WIDTH, "lengths": lengths}
    for name, kind in KINDS.items():
        rows: dict[str, list] = {}
        for T in lengths:
            for way, step in steps(kind, T).items():
                with Alive() as alive:
                    step()
                rows.setdefault(f"{way} bytes", []).append(alive.most)
                taken = float(f"{seconds(step):.3g}")
                rows.setdefault(f"{way} seconds", []).append(taken)
            print(name, T, {key: row[-1] for key, row in rows.items()})
        found[name] = rows
    return found


def held_against_the_loop() -> dict | None:
    """How far the kernel in float32 is from the loop in float64.

    Returns:
        the sizes that were tried, and the largest error; None if there is no
        Triton.
    """
    if kernel.MISSING:
        print(f"skipped: {kernel.MISSING}")
        return None
    worst = 0.0
    sizes = [[33, 57], [5, 40], [40, 5], [70, 70], [128, 128]]
    for T, S in sizes:
        q, k, v = (
            here(randn(n, 16, seed=n, dtype=torch.float32)) for n in (T, S, S)
        )
        for causal in (False, True):
            ours = kernel.kernel_attention(q, k, v, causal=causal)
            exact = tiled_attention(
                q.double(), k.double(), v.double(), causal=causal
            )
            for a, b in zip(ours, exact):
                gap = (a - b).abs().masked_fill(a == b, 0)  # −∞ is −∞
                worst = max(worst, gap.max().item())
    return {"sizes": sizes, "largest error": float(f"{worst:.2g}")}


def main() -> None:
    torch.set_num_threads(1)
    longest = int(sys.argv[1]) if len(sys.argv) > 1 else LONGEST
    results = measure(longest) | {"kernel": held_against_the_loop()}
    store("tiles", results)


if __name__ == "__main__":
    main()
