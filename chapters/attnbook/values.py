"""Checks of one value: a whole number, a number, or a name, in its range."""

import sys
from numbers import Real
from operator import ge, gt, index, le, lt
from typing import Any

BOUNDS = {"at_least": ge, "above": gt, "at_most": le, "below": lt}


def whole(name: str, value: Any, **bounds: float) -> int:
    """The value as an int, if it is a whole number (not a bool) in range."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = index(value)
    except TypeError:
        raise bad_value(
            TypeError, name, value, "a whole number", bounds
        ) from None
    for bound, limit in bounds.items():
        if not BOUNDS[bound](found, limit):
            raise bad_value(ValueError, name, value, "a whole number", bounds)
    return found


def number(name: str, value: Any, **bounds: float) -> Any:
    """The value, if it is a finite real number (not a bool) in range."""
    words = "a finite number"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise bad_value(TypeError, name, value, words, bounds)
    # NaN fails every comparison; 10**400 is no float.
    most = sys.float_info.max
    limits = {"at_least": -most, "at_most": most, **bounds}
    if not all(BOUNDS[b](value, limit) for b, limit in limits.items()):
        raise bad_value(ValueError, name, value, words, bounds)
    return value


def check_sizes(**sizes: int) -> None:
    """Refuse a size that is no whole number from 1 on."""
    for name, size in sizes.items():
        whole(name, size, at_least=1)


def one_of(name: str, value: Any, choices: Any) -> Any:
    """The value, if it is one of the choices, which are names."""
    if not isinstance(value, str) or value not in choices:
        raise bad_value(
            ValueError, name, value, f"one of {', '.join(choices)}"
        )
    return value


def bad_value(
    error: type[Exception], name: str, value: Any, words: Any, bounds: Any = ()
) -> Exception:
    """The error to raise: `words` say what is expected."""
    what = "of the wrong type" if error is TypeError else "not allowed"
    for bound in bounds:  # ", at least 0, below 1"
        words += f", {bound.replace('_', ' ')} {bounds[bound]}"
    return error(f"{name} is {what}; expected {words}; got {value!r}")
