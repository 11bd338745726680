"""Results as plain data, which can be looked at without running anything.

An answer may return an object of its own, and comparing or printing that
would run its code. `settled` makes plain tensors, numbers, texts, lists and
dictionaries of a result once, where the answer has just run. Whatever else
there is becomes a `Foreign`, which knows how to name itself and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.teach.check.words import brief, plain_repr

#: The largest tensor that is compared, in numbers. What is larger takes more
#: memory than a computer has: a view of one number may have any shape.
LARGEST = 5 * 10**7

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True, eq=False)
class Foreign:
    """An object that is none of the plain kinds of results.

    Attributes:
        value: the object itself.
        told: its type and a few words, for a message about types.
        short: as it is printed where a value is expected.
        fields: of a dataclass, its fields by name, each as it is printed.
    """

    value: Any
    told: str
    short: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.short

    def same(self, other: Foreign) -> bool:
        """Whether the two objects say that they are equal.

        This runs the objects' own code. If it raises, they are not equal.
        """
        try:
            if type(self.value) is not type(other.value):
                return False
            return bool(self.value == other.value)
        except Exception:
            return False


def settled(x: Any) -> Any:
    """A result as plain data: tensors, numbers, texts, lists, dictionaries.

    What is none of these, or raises when it is looked at, becomes a `Foreign`.
    """
    try:
        return _settled(x)
    except Exception:  # its own code raises, or it has itself inside
        return _foreign(x)


def _settled(x: Any) -> Any:
    """The same as `settled`, but errors of an object's code go through."""
    if isinstance(x, Tensor):
        return _plain_tensor(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return x if x.dtype.kind in "biufc" else _foreign(x)
    if type(x) in _PLAIN:
        return x
    if isinstance(x, Mapping):
        return {_settled(key): _settled(x[key]) for key in x}
    if isinstance(x, (tuple, list)):
        parts = [_settled(part) for part in x]
        return parts if isinstance(x, list) else tuple(parts)
    if type(x) is set and all(type(part) in _PLAIN for part in x):
        return x
    return _foreign(x)


def _plain_tensor(x: Tensor) -> Any:
    """A tensor of torch's own class, on the CPU, with the same numbers.

    One that has no numbers in memory, or too many, becomes a `Foreign`.
    """
    # A class of tensors may answer for itself whether it is equal.
    with torch._C.DisableTorchFunctionSubclass():
        plain = x.detach().as_subclass(Tensor)
        strided = plain.layout == torch.strided and not plain.is_nested
        if not strided or plain.is_meta or plain.is_quantized:
            return _foreign(x)
        if plain.numel() > LARGEST:
            told = f"a tensor of shape {tuple(plain.shape)}"
            return Foreign(x, told, told)
        return plain.resolve_conj().resolve_neg().cpu()


def _foreign(x: Any) -> Foreign:
    """An object as a `Foreign`, described by its type and a few words."""
    if isinstance(x, Tensor):
        told = f"a tensor of {x.dtype}, {x.layout}"
    else:
        told = f"{type(x).__name__} {plain_repr(x)}"[:60]
    return Foreign(x, told, brief(x), _fields(x))


def _fields(x: Any) -> dict[str, str]:
    """A dataclass object's fields, each as text; {} for anything else."""
    if not is_dataclass(x) or isinstance(x, type):
        return {}
    return {f.name: brief(getattr(x, f.name)) for f in fields(x)}
