"""Numbers in few bits: a small whole number each, and a scale for several.

To keep a weight in four bits, one keeps a whole number from −7 to 7, its
*code*, and a *scale* that several weights share: weight ≈ code · scale. Where
the numbers of a group are not spread about 0, as keys and values seldom are,
their smallest is kept as well, and the codes count up from it.

The largest number of a group sets its scale, so nothing is cut off, and no
number moves by more than half a step. (The scale itself may be kept in 16
bits. Then the error can be a little more.)

Source: Jacob et al. (2018), arXiv:1712.05877.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from attnbook.values import whole

Model = TypeVar("Model", bound=nn.Module)


class Rounded(NamedTuple):
    """Numbers that were rounded, as they are kept.

    Attributes:
        codes: small whole numbers, (..., groups, size), int16.
        scale: what a step of a code is worth, (..., groups, 1).
        smallest: what code 0 is worth, (..., groups, 1); 0 with a scale alone.
    """

    codes: Tensor
    scale: Tensor
    smallest: Tensor

    def values(self) -> Tensor:
        """The rounded numbers, in the shape of those that were given."""
        return (self.codes * self.scale + self.smallest).flatten(-2)


def by_scale(
    x: Tensor,
    bits: int,
    group: int | None = None,
    *,
    kept: torch.dtype | None = None,
) -> Rounded:
    """Round to multiples of a scale: codes from −(2^(bits−1) − 1) up to it.

    There is one code fewer than the bits allow, so that the codes are the
    same on both sides of 0. Halves go to the even code.

    Args:
        x: floats, (..., n).
        bits: of a code, 2 to 8.
        group: how many neighbours in a row share a scale; the whole row if
            not given. (For one scale for a whole matrix, flatten it first.)
        kept: the type in which the scale is kept, if not that of x. The
            codes are chosen for the scale as it is kept.

    Raises:
        TypeError, ValueError: bits or a group that are no whole number in
            their range, or a group that does not divide the row.
    """
    groups = _in_groups(x, bits, group)
    most = 2 ** (bits - 1) - 1
    scale = _as_kept(groups.abs().amax(-1, keepdim=True) / most, kept)
    codes = (groups / _no_zeros(scale)).round().clamp(-most, most)
    return Rounded(codes.to(torch.int16), scale, torch.zeros_like(scale))


def by_range(
    x: Tensor,
    bits: int,
    group: int | None = None,
    *,
    kept: torch.dtype | None = None,
) -> Rounded:
    """Round to 2^bits numbers between the smallest and the largest.

    Args: those of `by_scale`; `kept` is the type of scale and smallest.

    Raises:
        TypeError, ValueError: as `by_scale`.
    """
    groups = _in_groups(x, bits, group)
    most = 2**bits - 1
    low, high = groups.aminmax(dim=-1, keepdim=True)
    smallest = _as_kept(low, kept)
    scale = _as_kept((high - low) / most, kept)
    codes = ((groups - smallest) / _no_zeros(scale)).round().clamp(0, most)
    return Rounded(codes.to(torch.int16), scale, smallest)


def _in_groups(x, bits, group):
    """Cut the rows into groups, (..., n) → (..., n / group, group)."""
    whole("bits", bits, at_least=2, at_most=8)
    n = x.shape[-1]
    group = n if group is None else whole("group", group, at_least=1)
    if n % group:
        raise ValueError(
            f"the rows cannot be cut into groups of {group}; expected a "
            f"number that divides their length, {n}"
        )
    return x.unflatten(-1, (-1, group))


def _as_kept(x, kept):
    """The numbers after they were kept in another type and read again."""
    return x if kept is None else x.to(kept).to(x.dtype)


def _no_zeros(scale):
    """The scale to divide by: 1 where all numbers of a group are equal."""
    return scale.masked_fill(scale == 0, 1)


def bits_a_weight(bits: int, group: int, shared: int = 16) -> float:
    """How many bits a weight takes with its share of what a group shares.

    `shared` counts the bits that a group keeps besides its codes: 16 for a
    scale in 16 bits, 32 for a scale and a smallest number.

    >>> bits_a_weight(4, 32, shared=32)
    5.0
    """
    return bits + shared / whole("group", group, at_least=1)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Put codes from 0 on into bytes: one a byte in 8 bits, two in 4.

    The first half of a row goes into the low halves of its bytes, the second
    half into the high ones, as GGUF files have it.

    Shapes: (..., n) → (..., n · bits / 8), uint8.

    Raises:
        ValueError: other bits than 4 or 8, or an odd number of 4-bit codes.
    """
    _check_packing(bits, codes.shape[-1])
    codes = codes.to(torch.uint8)
    if bits == 8:
        return codes
    low, high = codes.chunk(2, -1)
    return low + 16 * high


def unpack(packed: Tensor, bits: int) -> Tensor:
    """The codes in some bytes, uint8: what `pack` was given.

    Raises:
        ValueError: other bits than 4 or 8.
    """
    _check_packing(bits)
    if bits == 8:
        return packed
    return torch.cat([packed % 16, packed // 16], -1)


def _check_packing(bits, n=0):
    """Refuse codes that do not fill whole bytes here."""
    if bits not in (4, 8):
        raise ValueError(
            f"codes are packed in 4 or 8 bits here, so that bytes are full; "
            f"got {bits!r}"
        )
    if bits == 4 and n % 2:
        raise ValueError(
            f"two codes of 4 bits share a byte, so a row needs an even "
            f"number of them; got {n}"
        )


@torch.no_grad()
def round_matrices(
    model: Model, rule: Callable[[str, Tensor], Tensor]
) -> Model:
    """A copy of a model whose matrices have been replaced by a rule.

    Args:
        model: stays as it is.
        rule: is given a matrix's name and the matrix, and returns the rounded
            one, in the same shape; or the matrix itself, to leave it.
            Vectors, those of norms and biases, stay: they are few.
    """
    rounded = copy.deepcopy(model)
    for name, weight in rounded.named_parameters():
        if weight.ndim == 2:
            weight.copy_(rule(name, weight))
    return rounded
