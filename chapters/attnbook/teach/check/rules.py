"""What an exercise asks an answer to do without, watched as it runs.

A rule is a context that looks on and notes in `broken` what was against it.
It raises nothing itself: an answer could catch that.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.finding import Finding, Kind
from attnbook.teach.check.telling import headline


class RuleBroken(ValueError):
    """An answer did what its exercise does without.

    Attributes:
        finding: what it did, as data; the error's text is made of it.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(headline(finding))
        self.finding = finding


class NoAutograd(TorchFunctionMode):
    """The rule of exercises that are solved without torch's autograd.

    No gradient may be followed while the answer runs, neither backwards nor
    forwards.
    """

    broken: Finding | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        given = [*args, *(kwargs or {}).values()]
        leaves = [x for x in tree_leaves(given) if isinstance(x, Tensor)]
        if (kwargs or {}).get("requires_grad") or any(map(_followed, leaves)):
            self.broken = Finding(Kind.USES_AUTOGRAD)
        return func(*args, **(kwargs or {}))


def _followed(x: Tensor) -> bool:
    """Whether torch records what is computed from a tensor, for gradients."""
    if torch._C._functorch.is_gradtrackingtensor(x):  # torch.func
        return True
    return x.requires_grad or unpack_dual(x).tangent is not None


class NoProduct(TorchFunctionMode):
    """The rule of exercises that are solved without a product of matrices.

    No function of torch that makes one may be called, under whatever name.
    """

    NAMES = (
        "matmul einsum inner tensordot linear mm bmm mv addmm addmv".split()
    )
    NAMES += "addbmm baddbmm chain_matmul multi_dot linalg_multi_dot".split()
    broken: Finding | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ in self.NAMES:
            self.broken = Finding(Kind.USES_FUNCTION, name=func.__name__)
        return func(*args, **(kwargs or {}))


class AtMost(TorchDispatchMode):
    """No more than so many new numbers at once, in all tensors together.

    Several small tensors that are kept count like a large one.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.numbers = numbers
        self.broken: Finding | None = None
        self._held: dict[StorageWeakRef, int] = {}
        self._total = 0

    def __enter__(self) -> AtMost:
        # Torch imports this at the first call that is watched. That takes
        # seconds, and they should not be the answer's.
        importlib.import_module("torch._dynamo")
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {_storage(x) for x in tree_leaves((args, kwargs or {}))}
        made = func(*args, **(kwargs or {}))
        for x in () if self.broken else filter(_strided, tree_leaves(made)):
            storage = _storage(x)
            if storage not in given and storage not in self._held:
                size = x.untyped_storage().nbytes() // x.element_size()
                self._held[storage] = size
                self._total += size
        if self._total > self.numbers and not self.broken:
            self._look()
        return made

    def _look(self) -> None:
        """Count the numbers that are held now, without tensors that are gone.

        This takes time, so it is done only when the sum seems too large.
        """
        held = {s: n for s, n in self._held.items() if not s.expired()}
        self._held = held
        self._total = sum(held.values())
        if self._total > self.numbers:
            self.broken = Finding(
                Kind.HOLDS_TOO_MUCH, count=self._total, total=self.numbers
            )

    def __exit__(self, *error: Any) -> None:
        self._held.clear()
        super().__exit__(*error)


def _storage(x: Any) -> StorageWeakRef | None:
    """The memory in which a tensor has its numbers; None if there is none."""
    return StorageWeakRef(x.untyped_storage()) if _strided(x) else None


def _strided(x: Any) -> bool:
    """Whether something is a tensor whose numbers lie in memory."""
    return isinstance(x, Tensor) and x.layout == torch.strided


#: A rule, made anew for each run: `NoAutograd`, or a function of nothing.
Rule = Callable[[], Any]


@contextmanager
def following(rules: Sequence[Rule]) -> Iterator[None]:
    """Raise `RuleBroken` at the end if one of the rules was not kept."""
    watching = [rule() for rule in rules]
    with ExitStack() as stack:
        for rule in watching:
            stack.enter_context(rule)
        yield
    for rule in watching:
        if rule.broken:
            raise RuleBroken(rule.broken)
