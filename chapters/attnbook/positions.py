"""Positions: four ways to tell attention where in the text a token is.

They can be added to the embeddings (`sinusoidal`, or a learned table, which
is an `nn.Embedding`), turned into queries and keys (`rotate`), or added to
the scores (`alibi_bias`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.masks import expect_convention
from attnbook.shapes import expect
from attnbook.values import number, one_of, whole

#: Which components of a vector form a rotary pair: i and i + d/2 ("half", as
#: in GPT-NeoX and Llama), or 2i and 2i + 1 ("interleaved", as in the paper).
LAYOUTS = ("half", "interleaved")
#: The `scaling` with which a rotation is as it was first published.
UNSCALED = (1.0, 1.0, 4.0, 8192.0)


def sinusoidal(
    positions: Tensor, width: int, *, base: float = 10_000.0
) -> Tensor:
    """A vector for each position: sines in the even places, cosines beside.

    The pair of components 2i and 2i + 1 of position p is the sine and the
    cosine of p / base^(2i / width).

    Shapes: positions (..., T), integers → (..., T, width), float64.

    Raises:
        TypeError: positions that are no integers.
        ValueError: a width that is odd or below 2, or a base below 1.

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
    """The angle of each pair of components: p · base^(−2i / width) radians.

    Args:
        positions: p, integers (..., T).
        width: how many components a vector has; two of them make a pair.
        base: θ, `rope_theta` in other people's configurations.
        scaling: Llama 3.1's (factor, low, high, context), for texts longer
            than those of the first training. A pair that makes at most `low`
            turns within `context` tokens is slowed down by the factor; one
            that makes `high` turns or more stays as it was; those in between
            are mixed.

    Shapes: positions (..., T) → (..., T, width / 2), float64.

    Raises:
        TypeError: positions that are no integers.
        ValueError: a width that is odd or below 2, or a base below 1.

    Source: Su et al. (2021), arXiv:2104.09864, equation 15.
    """
    expect("integer", positions=(positions, "..."))
    _check_even(width)
    number("base", base, at_least=1)
    pair = torch.arange(
        0, width, 2, dtype=torch.float64, device=positions.device
    )  # 2i
    speed = base ** (pair / -width)  # radians a token
    factor, low, high, context = scaling
    if factor != 1:
        turns = speed * context / (2 * torch.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        speed = speed * (kept + (1 - kept) / factor)
    return positions[..., None] * speed


def rotation_of(
    positions: Tensor,
    width: int,
    *,
    base: float = 10_000.0,
    scaling: tuple[float, float, float, float] = UNSCALED,
) -> tuple[Tensor, Tensor]:
    """The cosines and the sines of `rotary_angles`, which has these arguments.

    Shapes: positions (..., T) → two tensors (..., T, width / 2), float64.
    """
    angles = rotary_angles(positions, width, base=base, scaling=scaling)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, angles: Tensor, *, layout: str = "half") -> Tensor:
    """Turn each pair of components of x by its angle: rotary positions, RoPE.

    If queries and keys are both turned, their product depends on the distance
    of the two positions alone. `layout` is one of `LAYOUTS`.

    Shapes: x (..., T, d); angles broadcast to (..., T, d / 2); the result has
    the shape and the type of x.

    Raises:
        TypeError: x is no floating-point tensor.
        ValueError: an odd width, angles that do not fit x, another layout.

    Source: Su et al. (2021), arXiv:2104.09864, equation 34.
    """
    one_of("layout", layout, LAYOUTS)
    expect("float", x=(x, "... d"))
    pairs = x.shape[-1] // 2
    expect(
        x=(x, "... d"), angles=(angles, "... pairs"), d=2 * pairs, pairs=pairs
    )
    cos = angles.cos().to(x.dtype)
    sin = angles.sin().to(x.dtype)
    if layout == "half":
        return turn_halves(x, cos, sin)
    a, b = x[..., 0::2], x[..., 1::2]  # (..., T, d/2) each
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
    return turned.flatten(-2)  # (..., T, d)


def turn_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`rotate` in the half layout, where cosines and sines are there already.

    All blocks of a model turn by the same angles, so it computes these two
    tensors once for all of them. They must have the type of x.

    Shapes: x (..., T, d); cos and sin broadcast to (..., T, d / 2) → as x.
    """
    a, b = x.chunk(2, -1)  # (..., T, d/2) each
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def half_order(width: int) -> Tensor:
    """The order of components that makes one rotary layout of the other.

    ``x[..., half_order(d)]`` brings the even components of x to the front.
    Rotating that in the half layout gives the interleaved rotation of x, in
    the same new order.

    >>> half_order(6).tolist()
    [0, 2, 4, 1, 3, 5]

    Raises:
        TypeError: a width that is no whole number.
        ValueError: a width that is odd or below 2.
    """
    _check_even(width)
    return torch.arange(width).view(-1, 2).T.flatten()


def _check_even(width):
    """Refuse a width that cannot be cut into pairs of components."""
    if whole("width", width, at_least=2) % 2:
        raise ValueError(
            "width is odd, but components are turned in pairs; expected an "
            f"even number; got {width}"
        )


def alibi_slopes(n_heads: int) -> Tensor:
    """One slope a head, in a geometric sequence: (H,), float64.

    For 8 heads they are 1/2, 1/4, …, 1/256. Where the number of heads is no
    power of two, the slopes for the next lower power come first, and then
    every other one of those for the next higher power.

    Raises:
        TypeError, ValueError: n_heads is no whole number from 1 on.

    Source: Press, Smith and Lewis (2022), arXiv:2108.12409, section 3.
    """
    n_heads = whole("n_heads", n_heads, at_least=1)
    below = 2 ** (n_heads.bit_length() - 1)  # a power of two

    def geometric(n):
        return 2 ** (-8 * torch.arange(1, n + 1).double() / n)

    more = geometric(2 * below)[0::2][: n_heads - below]
    return torch.cat([geometric(below), more])


def alibi_bias(n_heads: int, queries: Tensor, keys: Tensor) -> Tensor:
    """What ALiBi adds to the scores: −slope × how far back the key is.

    For keys that are later than the query it is positive; a causal mask has
    to forbid them.

    Shapes: positions of queries (..., T) and of keys (..., S), integers →
    (..., H, T, S), float64.

    Raises:
        TypeError: positions that are no integers.
        ValueError: no position, or n_heads below 1.

    Source: Press, Smith and Lewis (2022), arXiv:2108.12409, section 3.
    """
    expect("integer", queries=(queries, "... T"), keys=(keys, "... S"))
    slopes = alibi_slopes(n_heads).to(queries.device)  # (H,)
    distance = queries[..., :, None] - keys[..., None, :]  # (..., T, S)
    return -slopes[:, None, None] * distance[..., None, :, :]


def token_positions(real: Tensor) -> Tensor:
    """The position of each token, counting real tokens only: (B, S).

    `real` (B, S) is boolean or 0/1, and False or 0 at padding. Wherever the
    padding is, the first real token of a row has position 0. Padding gets
    position 0 too: what is computed there may never be read.

    >>> token_positions(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])).tolist()
    [[0, 0, 0, 1], [0, 1, 2, 0]]

    Raises:
        TypeError: `real` holds neither booleans nor integers.
        ValueError: it has other numbers than 0 and 1, or not two axes.
    """
    boolean = isinstance(real, Tensor) and real.dtype == torch.bool
    expect_convention(real, "sdpa" if boolean else "transformers", "real")
    expect(real=(real, "B S"))
    return (real.long().cumsum(-1) - 1) * real
