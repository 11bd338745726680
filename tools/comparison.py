"""How the outputs of a notebook are compared with those that are stored.

They are compared as text, to the digit. A result that may differ between
machines is printed with its tolerance, as in ``0.770 ± 0.01``; then another
machine's number may differ by that much. Zero and minus zero are the same.
"""

from __future__ import annotations

import re
from decimal import Decimal

NUMBER = r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?"
TOLERANT = re.compile(rf"(?<![\w.])({NUMBER}) ± ({NUMBER})")
NEGATIVE_ZERO = re.compile(r"(?<![\w.])-(?=0(?:\.0*)?(?![\w.]))")


class Output(str):
    """The text of a cell's output. It equals another text if `agree` says so,
    which is how nbval can compare the two."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and agree(str(self), str(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def agree(a: str, b: str) -> bool:
    """Whether two outputs agree: numbers with ± closely, all else exactly.

    >>> agree("loss 0.770 ± 0.01", "loss 0.779 ± 0.01")
    True
    >>> agree("loss 0.770", "loss 0.771")
    False
    """
    a, b = (NEGATIVE_ZERO.sub("", text) for text in (a, b))
    if TOLERANT.sub("±", a) != TOLERANT.sub("±", b):
        return False
    pairs = zip(TOLERANT.findall(a), TOLERANT.findall(b), strict=True)
    return all(
        within == same and abs(Decimal(x) - Decimal(y)) <= Decimal(within)
        for (x, within), (y, same) in pairs
    )
