"""Values as text, and text for the screen: the same on every machine.

What a verdict quotes of an answer goes through here: arguments and results
are shortened, numbers rounded, and addresses in memory left out, since they
differ from run to run.
"""

from __future__ import annotations

import inspect
import math
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def brief(value: Any, digits: int = 4, *, most: int = 16) -> str:
    """A value on a line or two: small tensors whole, larger ones by shape.

    It never raises, whatever the value is.

    Args:
        value: anything: an argument, or what a reader's function returned.
        digits: how many decimals of a number are kept. Where all numbers of
            a tensor are tiny, they count from the first that is not 0.
        most: a tensor or dictionary of more elements is not shown whole.
    """
    try:
        return _brief(value, digits, most)
    except Exception:  # a reader's object may refuse anything
        return f"a {type(value).__name__}"


def _brief(value: Any, digits: int, most: int) -> str:
    """What `brief` returns, for values whose own code raises no error."""
    if isinstance(value, (tuple, list)) and any(
        isinstance(v, (Tensor, nn.Module)) for v in value
    ):
        inside = [brief(v, digits, most=most) for v in value]
        return "(" + ", ".join(_some(inside, most)) + ")"
    if isinstance(value, Mapping):
        inside = [
            f"{k!r}: {brief(v, digits, most=most)}" for k, v in value.items()
        ]
        return "{" + ", ".join(_some(inside, most)) + "}"
    if not isinstance(value, Tensor):
        if isinstance(value, nn.Module):
            return f"a {type(value).__name__}"
        if inspect.isfunction(value) or inspect.isbuiltin(value):
            return value.__name__
        if isinstance(value, float):
            return f"{value:.{digits + 2}g}"
        return plain_repr(value)
    try:
        if value.numel() > most:
            return f"a tensor of shape {tuple(value.shape)}"
        value = value.detach().cpu()
        if value.is_floating_point():
            size = value.double().abs().max() if value.numel() else 0
            # Rounded to so many decimals it would be 0. So its digits are
            # counted from the first that is not 0.
            tiny = 0 < size < 10**-digits
            more = -math.floor(math.log10(size)) - 1 if tiny else 0
            value = value.double().round(decimals=digits + more) + 0.0
        return str(value.tolist())
    except Exception:  # sparse, quantised or without numbers
        return f"a tensor of {value.dtype}, {value.layout}"


def _some(parts: list[str], most: int) -> list[str]:
    """The first few of some texts, and how many are left out."""
    left = len(parts) - most
    return parts if left <= 0 else [*parts[:most], f"and {left} more"]


def sizes(args: Any) -> str:
    """The shapes of what is in a result or in arguments: ``2×3×4, 5×4``.

    A number stands for itself, and a list of numbers for its length.
    """
    found = []
    for a in args:
        if hasattr(a, "shape"):
            found.append("×".join(str(n) for n in a.shape) or "scalar")
        elif isinstance(a, Mapping):
            found.append(sizes(a.values()))
        elif isinstance(a, (tuple, list)):
            found.append(str(len(a)) if is_numbers(a) else sizes(a))
        elif isinstance(a, (int, float)):
            found.append(f"{a:g}")
    return ", ".join(found)


def listed(words: Iterable[str], most: int = 3) -> str:
    """Words as one lists them: ``one, two and three``.

    Where there are many, those after the first `most` are only counted:
    ``one, two, three and 5 more``.
    """
    words = list(words)
    left = len(words) - most
    if left > 1:
        words[most:] = [f"{left} more"]
    *front, last = words
    return f"{', '.join(front)} and {last}" if front else last


def in_cases(n: int) -> str:
    """The words for how many inputs were tried: ``in 9 cases``."""
    return f"in {n} cases" if n > 1 else "in one case"


def fill(text: str, indent: str = "") -> str:
    """Text wrapped at 79 columns, later lines two columns further in."""
    return textwrap.fill(
        text,
        79,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


#: Numbers with names, beside roots and fractions.
_NAMED = {
    math.pi: "π",
    2 * math.pi: "2π",
    math.e: "e",
    1 / math.log(2): "1/ln 2",
    math.log(10): "ln 10",
}

#: Words for where not every sign can be printed.
_ASCII = str.maketrans(
    {
        "Δ": "D",
        "Σ": "sum of",
        "≤": "<=",
        "×": "x",
        "∞": "inf",
        "−": "-",
        "→": "->",
        "√": "root ",
    }
)


def say(text: str) -> None:
    """Print a text, wrapped at 79 columns.

    On a terminal that cannot show all signs, those of mathematics are
    written out, and others as their codes.
    """
    text = "\n".join(map(fill, text.splitlines()))
    try:
        print(text)
    except UnicodeEncodeError:
        code = sys.stdout.encoding or "ascii"
        text = text.translate(_ASCII)
        print(text.encode(code, "backslashreplace").decode(code))


def plain_repr(x: Any) -> str:
    """What `repr` says of a value.

    Where it raises, or names an address in memory, the type is named instead.
    """
    try:
        text = repr(x)
    except Exception:
        text = " at 0x"
    return f"a {type(x).__name__}" if " at 0x" in text else text


def number_kind(x: Tensor) -> str:
    """The kind of a tensor's numbers, in a word: "float", "integer",
    "boolean" or "complex number"."""
    if x.dtype == torch.bool:
        return "boolean"
    if x.is_complex():
        return "complex number"
    return "float" if x.is_floating_point() else "integer"


def number_name(size: float) -> str:
    """The name of a number above 1, such as "√2", "3/2", "2π" or "7".

    It is for factors by which a result is wrong, because a reader recognises
    √2 and not 1.414. A number without a name gives "".
    """

    if not size < 1e6:  # too large for a name, or infinite
        return ""

    def is_it(number: float) -> bool:
        return abs(number / size - 1) < 1e-6

    for number, name in _NAMED.items():
        if is_it(number):
            return name
    if is_it(round(size)):
        return str(round(size))
    if size**2 < 1024.5 and is_it(math.sqrt(round(size**2))):
        return f"√{round(size**2)}"
    for under in range(2, 13):
        if size < 100 and is_it(round(size * under) / under):
            return f"{round(size * under)}/{under}"
        if size**2 < 100 and is_it(math.sqrt(round(size**2 * under) / under)):
            return f"√({round(size**2 * under)}/{under})"
    return ""


def is_numbers(items: Any) -> bool:
    """Whether a list, nested or not, holds numbers and nothing else.

    An empty list does not.
    """
    return len(items) > 0 and all(
        is_numbers(i)
        if isinstance(i, (tuple, list))
        else isinstance(i, (int, float))
        for i in items
    )
