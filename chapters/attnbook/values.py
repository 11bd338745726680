"""Checks of one value: a whole number, a number, or a name, in its range.

Each check returns the value if it is good, so that it can stand where the
value is used::

    self.dropout = number("dropout", dropout, at_least=0, below=1)

and raises otherwise: a TypeError for a value of another type, a ValueError
for one outside its range. All of these messages have one form, in which
"expected" says the range and "got" the value::

    >>> whole("n", 0, at_least=1)
    Traceback (most recent call last):
    ValueError: n is not allowed; expected a whole number, at least 1; got 0

Where something else than a number's range is wrong, the place that finds it
writes a sentence of its own.
"""

import sys
from collections.abc import Iterable, Mapping
from numbers import Real
from operator import ge, gt, index, le, lt
from typing import Any

#: The bounds that a number can be given, as keywords, and what they compare.
BOUNDS = {"at_least": ge, "above": gt, "at_most": le, "below": lt}


def whole(name: str, value: Any, **bounds: float) -> int:
    """The value as an int, if it is a whole number within the bounds.

    Whole numbers of other kinds, such as numpy's, count; a bool and a float
    do not, not even 2.0. `name` is what the message calls the value.

    >>> whole("window", 8, at_least=1)
    8

    Raises:
        TypeError: a value that is no whole number.
        ValueError: one outside the bounds, which are keywords of `BOUNDS`.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        found = index(value)
    except TypeError:
        error = bad_value(TypeError, name, value, "a whole number", bounds)
        raise error from None
    for bound, limit in bounds.items():
        if not BOUNDS[bound](found, limit):
            raise bad_value(ValueError, name, value, "a whole number", bounds)
    return found


def number(name: str, value: Any, **bounds: float) -> Any:
    """The value as it is, if it is a finite real number within the bounds.

    A bool is no number here. `name` is what the message calls the value.

    >>> number("dropout", 0.1, at_least=0, below=1)
    0.1

    Raises:
        TypeError: a value that is no real number.
        ValueError: NaN, an infinity, a whole number too large for a float,
            or a number outside the bounds, which are keywords of `BOUNDS`.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise bad_value(TypeError, name, value, "a finite number", bounds)
    largest = sys.float_info.max
    limits = {"at_least": -largest, "at_most": largest} | bounds
    for bound, limit in limits.items():
        if not BOUNDS[bound](value, limit):  # NaN fails every comparison
            raise bad_value(ValueError, name, value, "a finite number", bounds)
    return value


def check_sizes(**sizes: int) -> None:
    """Check that each size is a whole number from 1 on.

    The keywords are the names that a message uses: ``check_sizes(d_k=d_k)``.

    Raises:
        TypeError: a size that is no whole number.
        ValueError: a size below 1.
    """
    for name, size in sizes.items():
        whole(name, size, at_least=1)


def one_of(name: str, value: Any, choices: Iterable[str]) -> Any:
    """The value as it is, if it is one of the choices, which are names.

    >>> one_of("norm", "rms", ("layer", "rms"))
    'rms'

    Raises:
        ValueError: anything else, of whatever type.
    """
    names = list(choices)
    if not isinstance(value, str) or value not in names:
        expected = f"one of {', '.join(names)}"
        raise bad_value(ValueError, name, value, expected)
    return value


def bad_value(
    error: type[Exception],
    name: str,
    value: Any,
    expected: str,
    bounds: Mapping[str, float] | None = None,
) -> Exception:
    """The error that says that a value is not what it should be; raise it.

    Args:
        error: TypeError if the value is of the wrong type, else ValueError.
        name: what the message calls the value.
        expected: what it should have been, in words.
        bounds: the limits that hold for it, by the names in `BOUNDS`; the
            message says them after `expected`.
    """
    what = "of the wrong type" if error is TypeError else "not allowed"
    for bound, limit in (bounds or {}).items():
        expected += f", {bound.replace('_', ' ')} {limit}"  # ", at least 0"
    return error(f"{name} is {what}; expected {expected}; got {value!r}")
