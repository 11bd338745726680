"""A graphics card that is only pretended: it computes on the CPU.

`Pretended` remembers which tensors were put on `CARD` and raises torch's
errors when tensors of two devices meet, or when NumPy reaches for one of them.
"""

from __future__ import annotations

from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

#: Tensors made with this device are on the card. To torch it is the CPU.
CARD = torch.device("cpu", 0)

#: Work across devices.
ACROSS = {"copy_", "__set__", "to", "_has_compatible_shallow_copy_type"}
NUMPY = {"numpy", "__array__"}
INDEXING = {"__getitem__", "__setitem__", "index_put_"}


class Pretended(TorchFunctionMode):
    """Inside this context, `CARD` behaves as a second device."""

    def __init__(self) -> None:
        super().__init__()
        self.on_card = WeakIdKeyDictionary()

    def __enter__(self):
        make = nn.Parameter.__new__

        def parameter(cls, data=None, requires_grad=True):
            made = make(cls, data, requires_grad)
            self._mark(made, data is not None and data in self.on_card)
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
        leaves = tree_leaves((args, kwargs))
        tensors = [a for a in leaves if isinstance(a, Tensor)]
        if func == Tensor.device.__get__:
            return CARD if args[0] in self.on_card else func(*args)
        self._object(name, tensors)
        result = func(*args, **kwargs)
        if name in ("cpu", "to") and result is args[0]:
            result = result.view_as(result)  # a copy, as between devices
        if func == Tensor.data.__set__:
            self._mark(args[0], args[1] in self.on_card)
        elif name not in NUMPY | {"__set__"}:
            devices = [a for a in leaves if isinstance(a, torch.device)]
            self._mark(result, self._goes_to_card(name, tensors, devices))
        return result

    def _object(self, name, tensors):
        """Raise what torch would, if these may not meet."""
        here = [t for t in tensors if t in self.on_card]
        there = [t for t in tensors if t not in self.on_card]
        if name in NUMPY and here:
            raise TypeError("can't convert a tensor on a card to numpy")
        if not here or name in ACROSS or all(t.ndim == 0 for t in there):
            return
        # A tensor on the card takes indices that are on the CPU.
        if name in INDEXING and tensors[0] in self.on_card:
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
            return tensors[0] in self.on_card
        return any(t in self.on_card for t in tensors)

    def _mark(self, result, card):
        def mark(tensor):
            if card:
                self.on_card[tensor] = True
            else:
                self.on_card.pop(tensor, None)
            return tensor

        tree_map_only(Tensor, mark, result)
