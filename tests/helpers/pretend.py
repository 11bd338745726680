"""A graphics card that is only pretended: it computes on the CPU.

`Pretended` remembers which tensors were put on `CARD` and raises torch's
errors when tensors of two devices meet, or when NumPy reaches for one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

#: Tensors made with this device are on the card. To torch it is the CPU.
CARD = torch.device("cpu", 0)

#: Work across devices.
ACROSS = {"copy_", "__set__", "to", "_has_compatible_shallow_copy_type"}
NUMPY = {"numpy", "__array__"}
UNMARKED = NUMPY | {"__set__"}
INDEXING = {"__getitem__", "__setitem__", "index_put_"}

DEVICE_OF = Tensor.device.__get__
SET_DATA = Tensor.data.__set__


def on_card(tensor: Tensor) -> bool:
    return getattr(tensor, "_on_card", False)


def mark(result: Any, card: bool) -> None:
    if isinstance(result, Tensor):
        result._on_card = card
    elif isinstance(result, (tuple, list, dict)):
        for leaf in _leaves([result]):
            if isinstance(leaf, Tensor):
                leaf._on_card = card


def _leaves(values: Iterable[Any]) -> list[Any]:
    """Tensors and devices in tuples, lists and dictionaries."""
    found = []
    for value in values:
        if isinstance(value, (Tensor, torch.device)):
            found.append(value)
        elif isinstance(value, dict):
            found += _leaves(value.values())
        elif isinstance(value, (tuple, list)):
            found += _leaves(value)
    return found


class Pretended(TorchFunctionMode):
    """Inside this context, `CARD` behaves as a second device."""

    def __enter__(self):
        make = nn.Parameter.__new__

        def parameter(cls, data=None, requires_grad=True):
            made = make(cls, data, requires_grad)
            mark(made, data is not None and on_card(data))
            return made

        # The one way to make a tensor that a mode is not told of.
        self.patch = mock.patch.object(nn.Parameter, "__new__", parameter)
        self.patch.start()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.patch.stop()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func == DEVICE_OF:
            return CARD if on_card(args[0]) else func(*args)
        leaves = _leaves(args)
        if kwargs:
            leaves += _leaves(kwargs.values())
        tensors = [a for a in leaves if isinstance(a, Tensor)]
        self._object(name, tensors)
        generator = kwargs.get("generator")
        if generator and generator.device != CARD == kwargs.get("device"):
            raise RuntimeError(f"{name}: a generator of the CPU for a card")
        result = func(*args, **kwargs)
        if name in ("cpu", "to") and result is args[0]:
            result = result.view_as(result)  # a copy, as between devices
        if func == SET_DATA:
            mark(args[0], on_card(args[1]))
        elif name not in UNMARKED:
            devices = [a for a in leaves if isinstance(a, torch.device)]
            mark(result, self._goes_to_card(name, tensors, devices))
        return result

    def _object(self, name, tensors):
        """Raise what torch would, if these may not meet."""
        here = [t for t in tensors if on_card(t)]
        there = [t for t in tensors if not on_card(t)]
        if name in NUMPY and here:
            raise TypeError("can't convert a tensor on a card to numpy")
        if not here or name in ACROSS or all(t.ndim == 0 for t in there):
            return
        # A tensor on the card takes indices that are on the CPU.
        if name in INDEXING and on_card(tensors[0]):
            return
        raise RuntimeError(
            f"{name}: expected all tensors on the same device; got "
            f"{[tuple(t.shape) for t in here]} on the card and "
            f"{[tuple(t.shape) for t in there]} on the CPU"
        )

    def _goes_to_card(self, name, tensors, devices):
        if name == "cpu":
            return False
        if devices:
            return devices[-1] == CARD
        if name == "copy_":
            return on_card(tensors[0])
        return any(map(on_card, tensors))
