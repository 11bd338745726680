"""Options: numbers and names in their ranges, checked in one grammar.

A field of a dataclass tells its range and its help where it stands::

    steps: int = option(1000, "updates of the weights", at_least=1)

and the class's `__post_init__` calls `check_fields`. A command reads the help
from ``field.metadata["help"]``.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import sys
from numbers import Real
from typing import Any, get_args, get_origin, get_type_hints

#: How a bound is called, what holds there, and how it reads.
BOUNDS = {
    "at_least": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "at_most": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}


def option(default: Any, help: str, **rules: Any) -> Any:
    """A field with its help, and the rules that `check_fields` holds it to.

    Args:
        default: the value if none is given.
        help: one line.
        rules: bounds (`at_least`, `above`, `at_most`, `below`), `choices`,
            or ``finite=False`` where infinity is allowed.
    """
    metadata = {"help": help, "rules": rules}
    return dataclasses.field(default=default, metadata=metadata)


def check_fields(self: Any) -> None:
    """Hold a dataclass's fields to their types and rules.

    Whole numbers of other kinds (numpy's) become int, lists become tuples.

    Raises:
        TypeError: a value of another type.
        ValueError: a value outside its range.
    """
    hints = get_type_hints(type(self))
    for field in dataclasses.fields(self):
        value, kinds = getattr(self, field.name), hints[field.name]
        rules = field.metadata.get("rules", {})
        if type(None) in get_args(kinds):
            if value is None:
                continue
            kinds = get_args(kinds)[0]
        if get_origin(kinds) is tuple:
            many = get_args(kinds)
            if not isinstance(value, (tuple, list)) or len(value) != len(many):
                raise TypeError(
                    f"{field.name} is of the wrong type; expected "
                    f"{len(many)} values; got {value!r}"
                )
            value = tuple(
                _checked(field.name, one, kind, rules)
                for one, kind in zip(value, many)
            )
        else:
            value = _checked(field.name, value, kinds, rules)
        object.__setattr__(self, field.name, value)  # it may be frozen


def _checked(name, value, kind, rules):
    if "choices" in rules:
        return one_of(name, value, rules["choices"])
    if kind is int:
        return whole(name, value, **rules)
    if kind is float:
        return number(name, value, **rules)
    if not isinstance(value, kind):
        raise TypeError(
            f"{name} is of the wrong type; expected {kind.__name__}; "
            f"got {value!r}"
        )
    return value


def whole(name: str, value: Any, **bounds: float) -> int:
    """The value as an int, if it is a whole number (not a bool) in range.

    Raises:
        TypeError: of another type.
        ValueError: outside the bounds.
    """
    words = "a whole number" + _words(bounds)
    try:
        if isinstance(value, bool):
            raise TypeError
        value = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} is no whole number; expected {words}; got {value!r}"
        ) from None
    return _in_range(name, value, words, bounds)


def check_sizes(**sizes: int) -> None:
    """Raise a clear error for a size that is no whole number from 1 on."""
    for name, size in sizes.items():
        whole(name, size, at_least=1)


def number(
    name: str, value: Any, *, finite: bool = True, **bounds: float
) -> Any:
    """The value, if it is a real number (not a bool), not NaN, in range.

    Raises:
        TypeError: of another type.
        ValueError: NaN, infinite, or outside the bounds.
    """
    words = ("a finite number" if finite else "a number") + _words(bounds)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"{name} is no number; expected {words}; got {value!r}"
        )
    # NaN fails every comparison; 10**400 is no float.
    most = sys.float_info.max if finite else math.inf
    limits = {"at_least": -most, "at_most": most}
    return _in_range(name, value, words, limits | bounds)


def one_of(name: str, value: Any, choices: Any) -> Any:
    """The value, if it is one of the choices.

    Raises:
        ValueError: another one.
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"there is no {name} {value!r}; expected one of "
            f"{', '.join(choices)}; got {value!r}"
        )
    return value


def _words(bounds):
    """The bounds as they read: ", at least 0, below 1"."""
    return "".join(f", {BOUNDS[b][1]} {most}" for b, most in bounds.items())


def _in_range(name, value, words, bounds):
    if not all(BOUNDS[b][0](value, most) for b, most in bounds.items()):
        raise ValueError(
            f"{name} is out of its range; expected {words}; got {value}"
        )
    return value
