"""What a floating-point format can hold, and training on its grid.

A format has a sign, e bits for an exponent and m bits for a mantissa. Between
two powers of two there are 2^m numbers at equal distances, so the step is
relative: 2^−m of the power below. Below the smallest power the step no longer
shrinks (*subnormal* numbers), down to 0.

`bfloat16` has the exponent of float32 and 7 bits of mantissa; `float16` has
more mantissa and less range; the two kinds of fp8 are E4M3 and E5M2.

Source: Micikevicius et al. (2022), arXiv:2209.05433, for fp8; Gupta et al.
(2015), arXiv:1502.02551, for stochastic rounding; Micikevicius et al. (2017),
arXiv:1710.03740, for master weights.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbook.config import check_fields, option


@dataclass(frozen=True)
class Format:
    """A floating-point format.

    Raises:
        TypeError, ValueError: bits that are no whole number in their range.
    """

    exponent: int = option(8, "bits of the exponent", at_least=2, at_most=8)
    mantissa: int = option(23, "bits of the mantissa", at_least=1, at_most=23)
    infinity: bool = option(True, "keeps the highest exponent for ∞ and NaN")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return 2 - 2 ** (self.exponent - 1)

    @property
    def largest(self) -> float:
        """The largest number.

        Without infinity only one pattern of the highest exponent is lost, to
        NaN, so that the largest mantissa there is one step lower.
        """
        highest = 2 ** (self.exponent - 1) - 1
        if self.infinity:
            return 2.0**highest * (2 - 2.0**-self.mantissa)
        return 2.0 ** (highest + 1) * (2 - 2 * 2.0**-self.mantissa)

    @property
    def smallest(self) -> float:
        """The smallest number above 0, a subnormal one."""
        return 2.0 ** (self.least_exponent - self.mantissa)

    def numbers(self) -> Tensor:
        """All numbers from 0 to the largest in order, float64, (N,).

        They are few only for formats of 8 bits; bfloat16 has 32,640.
        """
        m = 2**self.mantissa
        below = torch.arange(m).double() * self.smallest  # 0 and subnormals
        powers = 2.0 ** torch.arange(
            self.least_exponent, 2 ** (self.exponent - 1) + 1
        )
        normal = powers.double()[:, None] * (1 + torch.arange(m) / m)
        found = torch.cat([below, normal.flatten()])
        return found[found <= self.largest]


FORMATS = {
    "float32": Format(8, 23),
    "bfloat16": Format(8, 7),
    "float16": Format(5, 10),
    "float8_e5m2": Format(5, 2),
    "float8_e4m3fn": Format(4, 3, infinity=False),
}


def step_at(x: Tensor, kind: Format) -> Tensor:
    """The distance of a format's numbers at x: float64, the shape of x."""
    _, exponent = x.double().frexp()  # |x| in [½, 1) · 2^exponent
    exponent = exponent.masked_fill(x == 0, kind.least_exponent)
    power = (exponent - 1).clamp(min=kind.least_exponent) - kind.mantissa
    return torch.ldexp(torch.ones_like(x, dtype=torch.float64), power)


def to_nearest(x: Tensor, kind: Format) -> Tensor:
    """The nearest number of a format; halves go to the even mantissa.

    What is larger than all becomes the largest (it *saturates*). The result
    has the shape and type of x.
    """
    step = step_at(x, kind)
    found = (x.double() / step).round() * step
    return found.clamp(-kind.largest, kind.largest).to(x.dtype)


def stochastic(
    x: Tensor, kind: Format, generator: torch.Generator | None = None
) -> Tensor:
    """One of the two neighbours in a format, by chance, so that the mean is x.

    The upper neighbour is taken with a probability that is x's place between
    the two: three quarters of the way up, three times out of four. What is
    larger than all saturates. The result has the shape and type of x.
    """
    step = step_at(x, kind)
    steps = x.double() / step
    u = torch.rand(
        x.shape, dtype=torch.float64, device=x.device, generator=generator
    )
    found = (steps + u).floor() * step
    return found.clamp(-kind.largest, kind.largest).to(x.dtype)


class GridAdamW(torch.optim.AdamW):
    """AdamW for weights that may only be numbers of a format.

    After each step the weights are rounded. With `masters`, the weights as
    they were before rounding are kept, and the next step goes on from them;
    without, what rounding took off is lost. What AdamW keeps has the
    weights' own type, here float32, in either case.

    Args:
        groups: parameters with their options, as those of an optimizer of
            `make_optimizer`, `.param_groups`.
        rounding: gives the rounded weights; the weights are rounded once at
            the start, too.
        masters: keep the weights before rounding, the *master weights*.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        rounding: Callable[[Tensor], Tensor],
        *,
        masters: bool,
    ) -> None:
        super().__init__(groups)
        self.rounding = rounding
        self._weights = [p for g in self.param_groups for p in g["params"]]
        self.masters = [p.detach().clone() for p in self._weights]
        self._keep = masters
        self._round()

    @torch.no_grad()
    def _round(self) -> None:
        """Round the weights, and keep what they were if that is wanted."""
        for p, master in zip(self._weights, self.masters, strict=True):
            rounded = self.rounding(p)
            master.copy_(p if self._keep else rounded)
            p.copy_(rounded)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step from the master weights, rounded afterwards."""
        for p, master in zip(self._weights, self.masters, strict=True):
            p.copy_(master)
        loss = super().step(closure)
        self._round()
        return loss
