"""Options: numbers and names in their ranges, checked in one grammar.

A field of a dataclass tells its range and its help where it stands::

    steps: int = option(1000, "updates of the weights", at_least=1)

and the class's `__post_init__` calls `check_fields`. A command reads the help
from ``field.metadata["help"]``. All here raise a TypeError for a value of
another type, and a ValueError for one outside its range.
"""

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

from attnbook.values import bad_value, number, one_of, whole


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
                raise bad_value(TypeError, name, value, f"{n} values")
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
        raise bad_value(TypeError, name, value, kind.__name__)
    return value
