"""Options: numbers and names in their ranges, checked in one grammar.

A field of a dataclass tells its range and its help where it stands::

    steps: int = option(1000, "updates of the weights", at_least=1)

and the class's `__post_init__` calls `check_fields`. A command reads the help
from ``field.metadata["help"]``. All here raise a TypeError for a value of
another type, and a ValueError for one outside its range.
"""

import dataclasses
import sys
from numbers import Real
from operator import ge, gt, index, le, lt
from typing import Any, get_args, get_origin, get_type_hints

BOUNDS = {"at_least": ge, "above": gt, "at_most": le, "below": lt}


def option(default: Any, help: str, **rules: Any) -> Any:
    """A field with its help (one line), and the rules that hold for it:
    `BOUNDS` or `choices`."""
    metadata = {"help": help, "rules": rules}
    return dataclasses.field(default=default, metadata=metadata)


def check_fields(self: Any) -> None:
    """Hold a dataclass's fields to their types and rules.

    Whole numbers of other kinds (numpy's) become int, lists become tuples.
    """
    hints = get_type_hints(type(self))
    for field in dataclasses.fields(self):
        name, kind = field.name, hints[field.name]
        value = getattr(self, name)
        rules, parts = field.metadata.get("rules", {}), get_args(kind)
        if get_origin(kind) is tuple:
            n = len(parts)
            if not isinstance(value, (tuple, list)) or len(value) != n:
                raise wrong(TypeError, name, value, f"{n} values")
            value = tuple(_checked(name, *p, rules) for p in zip(value, parts))
        elif value is not None or type(None) not in parts:
            kind = parts[0] if parts else kind
            value = _checked(name, value, kind, rules)
        object.__setattr__(self, name, value)  # it may be frozen


def _checked(name, value, kind, rules):
    if "choices" in rules:
        return one_of(name, value, rules["choices"])
    if kind in (int, float):
        return (whole if kind is int else number)(name, value, **rules)
    if not isinstance(value, kind):
        raise wrong(TypeError, name, value, kind.__name__)
    return value


def whole(name: str, value: Any, **bounds: float) -> int:
    """The value as an int, if it is a whole number (not a bool) in range."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = index(value)
    except TypeError:
        raise wrong(TypeError, name, value, "a whole number", bounds) from None
    for bound, limit in bounds.items():
        if not BOUNDS[bound](found, limit):
            raise wrong(ValueError, name, value, "a whole number", bounds)
    return found


def number(name: str, value: Any, **bounds: float) -> Any:
    """The value, if it is a finite real number (not a bool) in range."""
    words = "a finite number"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong(TypeError, name, value, words, bounds)
    # NaN fails every comparison; 10**400 is no float.
    most = sys.float_info.max
    limits = {"at_least": -most, "at_most": most, **bounds}
    if not all(BOUNDS[b](value, limit) for b, limit in limits.items()):
        raise wrong(ValueError, name, value, words, bounds)
    return value


def check_sizes(**sizes: int) -> None:
    """Refuse a size that is no whole number from 1 on."""
    for name, size in sizes.items():
        whole(name, size, at_least=1)


def one_of(name: str, value: Any, choices: Any) -> Any:
    """The value, if it is one of the choices, which are names."""
    if not isinstance(value, str) or value not in choices:
        raise wrong(ValueError, name, value, f"one of {', '.join(choices)}")
    return value


def wrong(
    error: type[Exception], name: str, value: Any, words: Any, bounds: Any = ()
) -> Exception:
    """The error to raise: `words` say what is expected."""
    what = "of the wrong type" if error is TypeError else "not allowed"
    for bound in bounds:  # ", at least 0, below 1"
        words += f", {bound.replace('_', ' ')} {bounds[bound]}"
    return error(f"{name} is {what}; expected {words}; got {value!r}")
