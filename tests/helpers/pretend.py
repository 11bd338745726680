"""A graphics card that is only pretended: it computes on the CPU.

`Pretended` remembers which tensors were put on `CARD` and raises torch's
errors when tensors of two devices meet, or when NumPy reaches for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from unittest import mock

import torch
from nbformat import NotebookNode
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

#: What is asked of one tensor most often, and is the same on every device.
#: These calls are handed on as they are, since a page makes millions.
SAME_ANYWHERE = {
    Tensor.shape.__get__,
    Tensor.dtype.__get__,
    Tensor.ndim.__get__,
    Tensor.requires_grad.__get__,
    Tensor.is_leaf.__get__,
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
    Tensor.__len__,
}
#: Types of arguments that are no tensor and no device, and hold none.
SIMPLE = {int, float, bool, str, type(None), torch.dtype, torch.Size, slice}
SIMPLE |= {type(...), torch.layout}


def names_a_card(cells: Iterable[NotebookNode]) -> bool:
    """Whether a page can compute on a card: a code cell after its set-up
    names the device, or `randn`, which draws there."""
    return any(
        re.search("device|randn|setup", cell.source, re.I)
        for cell in cells
        if "setup" not in cell.metadata.get("tags", [])
    )


def on_card(tensor: Tensor) -> bool:
    return getattr(tensor, "_on_card", False)


def may_concern(values: Iterable[Any]) -> bool:
    """Whether values hold a tensor on the card, a device, or anything else
    but tensors of the CPU and what is no tensor.

    Where they do not, a call is one on a CPU alone. Most calls are, and so
    nothing else is asked of them."""
    for value in values:
        if type(value) in SIMPLE:
            continue
        if isinstance(value, Tensor):
            if getattr(value, "_on_card", False):
                return True
        elif type(value) not in (tuple, list) or may_concern(value):
            return True
    return False


def mark(result: Any, card: bool) -> None:
    """Remember of each tensor in a result whether it is on the card."""
    if isinstance(result, Tensor):
        if on_card(result) != card:
            result._on_card = card
    elif isinstance(result, (tuple, list, dict)):
        tensors, _ = _leaves([result])
        for tensor in tensors:
            tensor._on_card = card


def _leaves(values: Iterable[Any]) -> tuple[list[Tensor], list[torch.device]]:
    """Tensors and devices in tuples, lists and dictionaries."""
    tensors: list[Tensor] = []
    devices: list[torch.device] = []
    waiting = [iter(values)]
    while waiting:
        for value in waiting[-1]:
            if type(value) in SIMPLE:
                continue
            if isinstance(value, Tensor):
                tensors.append(value)
            elif isinstance(value, torch.device):
                devices.append(value)
            elif isinstance(value, dict):
                waiting.append(iter(value.values()))
                break
            elif isinstance(value, (tuple, list)):
                waiting.append(iter(value))
                break
        else:
            waiting.pop()
    return tensors, devices


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
        if func in SAME_ANYWHERE:
            return func(*args, **(kwargs or {}))
        if not (may_concern(args) or kwargs and may_concern(kwargs.values())):
            return func(*args, **(kwargs or {}))
        if func == DEVICE_OF:
            return CARD if on_card(args[0]) else func(*args)
        name = getattr(func, "__name__", "")
        tensors, devices = _leaves(args)
        if kwargs:
            more = _leaves(kwargs.values())
            tensors += more[0]
            devices += more[1]
            generator = kwargs.get("generator")
            if generator and generator.device != CARD == kwargs.get("device"):
                raise RuntimeError(
                    f"{name}: a generator of the CPU for a card"
                )
        else:
            kwargs = {}
        cards = [on_card(tensor) for tensor in tensors]
        if any(cards):
            self._object(name, tensors, cards)
        result = func(*args, **kwargs)
        if name in ("cpu", "to") and result is args[0]:
            result = result.view_as(result)  # a copy, as between devices
        if func == SET_DATA:
            mark(args[0], on_card(args[1]))
        elif name not in UNMARKED:
            mark(result, self._goes_to_card(name, cards, devices))
        return result

    def _object(self, name, tensors, cards):
        """Raise what torch would, if these may not meet.

        `cards` says of each tensor whether it is on the card; one is.
        """
        if name in NUMPY:
            raise TypeError("can't convert a tensor on a card to numpy")
        if all(cards) or name in ACROSS:
            return
        here = [t for t, card in zip(tensors, cards) if card]
        there = [t for t, card in zip(tensors, cards) if not card]
        if all(t.ndim == 0 for t in there):
            return
        # A tensor on the card takes indices that are on the CPU.
        if name in INDEXING and cards[0]:
            return
        raise RuntimeError(
            f"{name}: expected all tensors on the same device; got "
            f"{[tuple(t.shape) for t in here]} on the card and "
            f"{[tuple(t.shape) for t in there]} on the CPU"
        )

    def _goes_to_card(self, name, cards, devices):
        """Whether the result of a call is on the card."""
        if name == "cpu":
            return False
        if devices:
            return devices[-1] == CARD
        if name == "copy_":
            return cards[0]
        return any(cards)
