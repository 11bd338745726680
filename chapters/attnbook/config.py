"""Options of a dataclass, each with its help and the range it must be in.

A field says all of this in the place where it is declared::

    steps: int = option(1000, "updates of the weights", at_least=1)

and the class calls `check_fields` in its `__post_init__`. A program that
offers the same options on its command line reads the help from
``field.metadata["help"]``.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from attnbook.values import bad_value, number, one_of, whole


def option(default: Any, help: str, **rules: Any) -> Any:
    """A dataclass field with a default, a line of help, and rules.

    The rules are bounds of a number (`at_least`, `above`, `at_most`,
    `below`), or `choices`, the names that are allowed. The field's type is a
    rule as well; see `check_fields`.
    """
    metadata = {"help": help, "rules": rules}
    return dataclasses.field(default=default, metadata=metadata)


def check_fields(self: Any) -> None:
    """Check that every field of a dataclass has its type and keeps its rules.

    A field may be an int, a float, another class, any of these or None, or a
    tuple of a fixed length, whose parts all keep the field's rules. Whole
    numbers of other kinds (numpy's) are stored as int, and lists as tuples.

    Raises:
        TypeError: a value of the wrong type, or a tuple of another length.
        ValueError: a value outside its range, or none of the choices.
    """
    hints = get_type_hints(type(self))
    for field in dataclasses.fields(self):
        value = getattr(self, field.name)
        rules = field.metadata.get("rules", {})
        checked = _checked(field.name, value, hints[field.name], rules)
        object.__setattr__(self, field.name, checked)  # it may be frozen


def _checked(name: str, value: Any, hint: Any, rules: Mapping) -> Any:
    """The value in the form that it is stored in, if it fits the type hint."""
    parts = get_args(hint)  # of a tuple, or of "one type or None"
    if get_origin(hint) is tuple:
        if not isinstance(value, (tuple, list)) or len(value) != len(parts):
            raise bad_value(TypeError, name, value, f"{len(parts)} values")
        pairs = zip(value, parts)
        return tuple(_one_checked(name, x, kind, rules) for x, kind in pairs)
    if type(None) in parts:
        return (
            None if value is None else _checked(name, value, parts[0], rules)
        )
    return _one_checked(name, value, hint, rules)


def _one_checked(name: str, value: Any, kind: type, rules: Mapping) -> Any:
    """A single value, if it is of this kind and keeps the rules."""
    if "choices" in rules:
        return one_of(name, value, rules["choices"])
    if kind is int:
        return whole(name, value, **rules)
    if kind is float:
        return number(name, value, **rules)
    if not isinstance(value, kind):
        raise bad_value(TypeError, name, value, kind.__name__)
    return value
