"""Positions: four ways to tell attention where a token stands.

Added to the embeddings (`sinusoidal`, or a learned `nn.Embedding`), turned
into queries and keys (`rotate`), or added to the scores (`alibi_bias`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.masks import expect_convention
from attnbook.shapes import expect
from attnbook.values import number, one_of, whole

#: The two layouts of rotary pairs: components i and i + d/2 ("half", as in
#: GPT-NeoX and Llama), or 2i and 2i + 1 ("interleaved", as in the paper).
LAYOUTS = ("half", "interleaved")
#: The `scaling` of a rotation that is as it was first published.
UNSCALED = (1.0, 1.0, 4.0, 8192.0)


def sinusoidal(
    positions: Tensor, width: int, *, base: float = 10_000.0
) -> Tensor:
    """Sines in the even components, cosines in the odd ones.

    Component pair i of position p is sin and cos of p / base^(2i / width).
    Shapes: positions (..., T), integers → (..., T, width), float64.
    Source: Vaswani et al. (2017), arXiv:1706.03762, section 3.5.
    """
    angles = rotary_angles(positions, width, base=base)  # (..., T, width/2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def rotary_angles(
    positions: Tensor,
    width: int,
    *,
    base: float = 10_000.0,
    scaling: tuple[float, float, float, float] = UNSCALED,
) -> Tensor:
    """The angle of each pair of components, p · base^(−2i / width), radians.

    `scaling` is Llama 3.1's (factor, low, high, context): slower by the factor
    below `low` turns in `context` tokens, as before above `high`, or between.

    Shapes: positions (..., T), integers → (..., T, width / 2), float64.
    Source: Su et al. (2021), arXiv:2104.09864, equation 15.
    """
    expect("integer", positions=(positions, "..."))
    _check_even(width)
    number("base", base, at_least=1)
    pair = torch.arange(0, width, 2, device=positions.device)  # 2i
    speed = base ** (-pair.double() / width)  # radians a token
    factor, low, high, context = scaling
    if factor != 1:
        turns = speed * context / (2 * torch.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        speed = speed * (kept + (1 - kept) / factor)
    return positions[..., None] * speed


def rotate(x: Tensor, angles: Tensor, *, layout: str = "half") -> Tensor:
    """Turn each pair of components of x by its angle (rotary positions).

    The product of a rotated query and key knows of their distance alone.
    Shapes: x (..., T, d), angles broadcast to (..., T, d / 2) → as x.
    Source: Su et al. (2021), arXiv:2104.09864, equation 34.
    """
    one_of("layout", layout, LAYOUTS)
    expect("float", x=(x, "... d"))
    pairs = x.shape[-1] // 2
    shapes = dict(x=(x, "... d"), angles=(angles, "... pairs"))
    expect(**shapes, d=2 * pairs, pairs=pairs)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, -1) if layout == "half" else (x[..., 0::2], x[..., 1::2])
    turned = [a * cos - b * sin, a * sin + b * cos]  # (..., T, d/2) each
    if layout == "half":
        return torch.cat(turned, -1)
    return torch.stack(turned, -1).flatten(-2)  # (..., T, d)


def half_order(width: int) -> Tensor:
    """The permutation from the interleaved layout to the half one: 0, 2, …"""
    _check_even(width)
    return torch.arange(width).view(-1, 2).T.flatten()


def _check_even(width):
    if whole("width", width, at_least=2) % 2:
        raise ValueError(f"width is odd; expected pairs; got {width}")


def alibi_slopes(n_heads: int) -> Tensor:
    """One slope a head, a geometric sequence: (H,), float64.

    For 8 heads 1/2, 1/4, …, 1/256. Where n_heads is no power of two, those of
    the power below come first, then every other one of the power above.

    Source: Press, Smith and Lewis (2022), arXiv:2108.12409, section 3.
    """
    n_heads = whole("n_heads", n_heads, at_least=1)
    below = 2 ** (n_heads.bit_length() - 1)  # a power of two

    def geometric(n):
        return 2 ** (-8 * torch.arange(1, n + 1).double() / n)

    more = geometric(2 * below)[0::2][: n_heads - below]
    return torch.cat([geometric(below), more])


def alibi_bias(n_heads: int, queries: Tensor, keys: Tensor) -> Tensor:
    """−slope × distance, added to the scores; positive for later keys.

    Shapes: positions queries (..., T), keys (..., S) → (..., H, T, S),
    float64. Source: as for the slopes.
    """
    expect("integer", queries=(queries, "... T"), keys=(keys, "... S"))
    slopes = alibi_slopes(n_heads).to(queries.device)  # (H,)
    distance = queries[..., :, None] - keys[..., None, :]  # (..., T, S)
    return -slopes[:, None, None] * distance[..., None, :, :]


def token_positions(real: Tensor) -> Tensor:
    """The position of each real token among the real ones, from 0: (B, S).

    `real` is boolean or 0/1, (B, S). Padding gets 0, which nothing may read.
    """
    boolean = isinstance(real, Tensor) and real.dtype == torch.bool
    expect_convention(real, "sdpa" if boolean else "transformers")
    expect(real=(real, "B S"))
    return (real.long().cumsum(-1) - 1) * real
