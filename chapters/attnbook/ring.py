"""Attention over one long sequence of which each rank has some tokens.

This is called context parallel, or ring attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnbook.merging import attend_to_part, finish, merge
from attnbook.shapes import expect
from attnbook.wire import Wire


class _Shift(torch.autograd.Function):
    """Send on to the next rank, and the gradient back to the one before."""

    @staticmethod
    def forward(ctx, x, length, wire):
        ctx.wire = wire
        ctx.shape = x.shape
        step_on = (wire.rank + 1) % wire.size
        step_back = (wire.rank - 1) % wire.size
        like = x.new_empty(*x.shape[:-2], length, x.shape[-1])
        return wire.exchange(x, like, to=step_on, source=step_back)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        wire = ctx.wire
        step_on = (wire.rank + 1) % wire.size
        step_back = (wire.rank - 1) % wire.size
        like = gradient.new_empty(ctx.shape)
        found = wire.exchange(gradient, like, to=step_back, source=step_on)
        return found, None, None


def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sizes: Sequence[int],
    wire: Wire,
    *,
    causal: bool = True,
) -> Tensor:
    """Attention over a sequence of which each rank has some tokens.

    The queries stay. Keys and values travel round the ring, and each rank
    merges what they contribute to its queries, as chapter 17 merges parts.
    A rank whose queries may not see a block still passes it on, and passes
    on its gradient.

    Args:
        q, k, v: this rank's tokens, (..., T_r, d_k) and (..., T_r, d_v).
        sizes: how many tokens each rank has, in the order of the sequence.
        causal: no token sees a later one.

    Returns:
        The context of this rank's queries, (..., T_r, d_v).

    Raises:
        TypeError: inputs that are not floating-point tensors of one type.
        ValueError: shapes that do not fit, or a rank without a token.

    Source: Liu, Zaharia and Abbeel (2023), arXiv:2310.01889.
    """
    axes = {
        "q": (q, "... T d_k"),
        "k": (k, "... T d_k"),
        "v": (v, "... T d_v"),
    }
    if len(sizes) != wire.size or min(sizes) < 1:
        raise ValueError(
            "each rank needs a token at least; expected as many sizes as "
            f"ranks, {wire.size}, all from 1 on; got {list(sizes)}"
        )
    expect("float", **axes, T=sizes[wire.rank])
    starts = [sum(sizes[:rank]) for rank in range(wire.size)]
    places = starts[wire.rank] + torch.arange(q.shape[-2], device=q.device)
    found = None
    travelling = torch.cat([k, v], -1)  # one message, not two
    for distance in range(wire.size):
        owner = (wire.rank - distance) % wire.size
        if distance:
            travelling = _Shift.apply(travelling, sizes[owner], wire)
        keys, values = travelling.split([k.shape[-1], v.shape[-1]], -1)
        mask = None
        if causal:
            theirs = starts[owner] + torch.arange(
                sizes[owner], device=q.device
            )
            mask = theirs <= places[:, None]
        part = attend_to_part(q, keys, values, mask=mask)
        found = part if found is None else merge(found, part)
    assert found is not None
    return finish(found).context
