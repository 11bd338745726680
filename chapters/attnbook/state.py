"""A state in the place of keys: linear attention and the gated delta rule.

A head keeps a matrix, its state S, that turns a key into a value. Each token
does four things with it::

    S ← α S                  fade what is there, 0 ≤ α ≤ 1
    e = v − k S              the error: what the state lacks at this key
    S ← S + β kᵀ e           write a share β of it there
    o = q S                  read with the query

Without the error, e = v, this is linear attention. There are three ways to
compute it, which give the same numbers: token by token, for a whole text by
one triangular system of equations, and in chunks.

Axis names: B rows, H heads, T tokens; widths d_k of a key and d_v of a value.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.shapes import expect
from attnbook.values import whole


class Read(NamedTuple):
    """What reading some tokens gives: `out` (..., T, d_v) for each of them,
    and the `state` (..., d_k, d_v) after the last."""

    out: Tensor
    state: Tensor


def step_by_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor | None = None,
    *,
    delta: bool = True,
    fresh: Tensor | None = None,
) -> Read:
    """Read tokens one after the other, as a model does that writes.

    Args:
        q, k: queries and keys, (..., T, d_k). The keys should have length 1:
            then β = 1 replaces what the state holds at a key.
        v: values, (..., T, d_v).
        beta: the share β that is written, (..., T).
        log_alpha: log α of what is kept at each token, (..., T), at most 0.
        state: what earlier tokens have left, (..., d_k, d_v); zeros if not
            given.
        delta: write the error (the delta rule), else the value itself.
        fresh: True where a new text begins, (..., T): there the state is
            emptied before the token is read.

    Raises:
        TypeError, ValueError: tensors that do not fit together.

    Source: Yang, Kautz and Hatamizadeh (2025), arXiv:2412.06464, equation 10.
    """
    state, _ = _start(q, k, v, beta, log_alpha, state, fresh)
    outs = []
    for t in range(k.shape[-2]):
        alpha = log_alpha[..., t].exp()
        if fresh is not None:
            alpha = alpha.masked_fill(fresh[..., t], 0)
        state = alpha[..., None, None] * state
        key = k[..., t, :]
        error = v[..., t, :]
        if delta:
            error = error - (key[..., None, :] @ state)[..., 0, :]
        written = beta[..., t, None] * error  # (..., d_v)
        state = state + key[..., :, None] * written[..., None, :]
        outs.append((q[..., t, None, :] @ state)[..., 0, :])
    return Read(torch.stack(outs, -2), state)


def in_one_solve(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor | None = None,
    *,
    delta: bool = True,
    fresh: Tensor | None = None,
) -> Read:
    """Read all tokens at once, by products of matrices and one solve.

    What token i writes, its row u_i, depends on what earlier tokens have
    written at keys like its own::

        u_i + β_i Σ_{j<i} (α_i … α_{j+1}) (k_i · k_j) u_j = β_i v_i

    That is a triangular system of T equations for all the u. Arguments,
    result and errors are those of `step_by_step`.
    """
    state, text = _start(q, k, v, beta, log_alpha, state, fresh)
    T = k.shape[-2]
    total = log_alpha.cumsum(-1)  # (..., T): log of α_1 … α_i
    faded = total[..., :, None] - total[..., None, :]  # (..., T, T)
    earlier = torch.ones(T, T, dtype=torch.bool, device=k.device).tril()
    from_before = total.exp()  # what is left of the first state, (..., T)
    if text is not None:
        earlier = earlier & (text[..., :, None] == text[..., None, :])
        from_before = from_before.masked_fill(text != 0, 0)
    # Hidden before exp: there the exponents are positive, and exp of a large
    # one would be infinite.
    decay = faded.masked_fill(~earlier, -torch.inf).exp()
    written = beta[..., None] * v  # (..., T, d_v), the rows u
    if delta:
        held = from_before[..., None] * (k @ state)  # found at the keys
        system = beta[..., None] * (k @ k.mT) * decay
        wanted = beta[..., None] * (v - held)
        # Only what is below the diagonal is read; on it, ones are assumed.
        written = torch.linalg.solve_triangular(
            system, wanted, upper=False, unitriangular=True
        )
    out = from_before[..., None] * (q @ state) + (q @ k.mT * decay) @ written
    at_end = k * decay[..., -1, :, None]  # (..., T, d_k)
    kept = from_before[..., -1, None, None] * state
    return Read(out, kept + at_end.mT @ written)


def in_chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor | None = None,
    *,
    delta: bool = True,
    fresh: Tensor | None = None,
    size: int = 64,
) -> Read:
    """Read `size` tokens at a time, each chunk by one solve.

    Only the state goes from chunk to chunk, so time grows with T and not
    with T². The other arguments, the result and the errors are those of
    `step_by_step`; a last chunk may be shorter.
    """
    size = whole("size", size, at_least=1)
    state, _ = _start(q, k, v, beta, log_alpha, state, fresh)
    outs = []
    for start in range(0, k.shape[-2], size):
        part = slice(start, start + size)
        out, state = in_one_solve(
            q[..., part, :],
            k[..., part, :],
            v[..., part, :],
            beta[..., part],
            log_alpha[..., part],
            state,
            delta=delta,
            fresh=None if fresh is None else fresh[..., part],
        )
        outs.append(out)
    return Read(torch.cat(outs, -2), state)


def _start(q, k, v, beta, log_alpha, state, fresh):
    """Check what is read, and say what it begins with.

    Returns:
        The state before the first token, and the number of each token's text,
        (..., T), where 0 is the text that the state belongs to; None if no
        text begins anew.
    """
    named = {
        "q": (q, "... T d_k"),
        "k": (k, "... T d_k"),
        "v": (v, "... T d_v"),
        "beta": (beta, "... T"),
        "log_alpha": (log_alpha, "... T"),
    }
    if state is not None:
        named["state"] = state, "... d_k d_v"
    leading = expect("float", **named)
    if fresh is not None:
        expect("bool", fresh=(fresh, "... T"), T=k.shape[-2])
        fresh = fresh.cumsum(-1)
    if state is None:
        state = k.new_zeros(*leading, k.shape[-1], v.shape[-1])
    return state, fresh


def short_convolution(
    x: Tensor,
    weight: Tensor,
    before: Tensor,
    fresh: Tensor | None = None,
) -> Tensor:
    """Mix each number of a token with that of the last few tokens.

    Channel c of token t becomes Σ_i weight[c, w − 1 − i] · x[t − i, c] over
    i = 0 … w − 1; no channel sees another.

    Args:
        x: the tokens, (B, T, C).
        weight: (C, w); its last column is the token's own.
        before: the w − 1 tokens before x, (B, w − 1, C); zeros at a start.
        fresh: True where a new text begins, (B, T): what is before it counts
            as zeros.

    Returns:
        The tokens after the convolution, (B, T, C).
    """
    T, w = x.shape[1], weight.shape[1]
    seen = torch.cat([before, x], 1)  # (B, w − 1 + T, C)
    text = None
    if fresh is not None:
        text = F.pad(fresh.cumsum(-1), (w - 1, 0))  # (B, w − 1 + T)
    out = torch.zeros_like(x)
    for i in range(w):
        shifted = slice(w - 1 - i, w - 1 - i + T)
        earlier = seen[:, shifted]
        if text is not None:
            same = text[:, shifted] == text[:, w - 1 :]
            earlier = earlier * same[..., None]
        out = out + weight[:, w - 1 - i] * earlier
    return out
