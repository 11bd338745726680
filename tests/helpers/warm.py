"""What many pages want first, once for all of them: libraries and models.

A page runs in a process that is forked from the tests', and finds there what
that one has in memory; what it changes is its own. Each time SmolLM2 and its
tokenizer would take four seconds, transformers two.
"""

from __future__ import annotations

import contextlib
import cProfile
import ctypes
import functools
import importlib
import inspect
import tempfile
from collections.abc import Callable, Iterator
from types import CodeType
from unittest import mock

import torch
from kernels import LIBRARIES
from torch import nn

from attnbook import pretrained, published

LOADS = {
    kind: getattr(pretrained, kind) for kind in ("load", "load_tokenizer")
}

#: What this process, or one that it is forked from, has handed out.
_given: set[tuple[str, str]] = set()


@contextlib.contextmanager
def running() -> Iterator[set[CodeType]]:
    """Which code runs in here; it is known at the end."""
    ran: set[CodeType] = set()
    profile = cProfile.Profile(builtins=False, subcalls=False)
    profile.enable()
    try:
        yield ran
    finally:
        profile.disable()
        codes = [entry.code for entry in profile.getstats()]
        ran.update(code for code in codes if isinstance(code, CodeType))


@functools.cache
def _loaded(kind: str, name: str):
    """A published model or its tokenizer, and all code that ran for it."""
    with running() as ran:
        found = LOADS[kind](name)
    if isinstance(found, nn.Module):
        map_to_a_file(found)
    return found, frozenset(ran)


def map_to_a_file(model: nn.Module) -> None:
    """Lay the numbers of a model into a file that is mapped into memory and
    has no name any more.

    Memory of a file that a process has not changed need not be listed for a
    fork of it. What a process changes is its own, as in other memory."""
    parameters = list(model.parameters())
    with tempfile.NamedTemporaryFile() as file:
        for parameter in parameters:
            file.write(parameter.detach().numpy().tobytes())
        file.flush()
        [dtype] = {parameter.dtype for parameter in parameters}
        sizes = [parameter.numel() for parameter in parameters]
        numbers = torch.from_file(
            file.name, shared=False, size=sum(sizes), dtype=dtype
        )
    for parameter, part in zip(parameters, numbers.split(sizes), strict=True):
        parameter.data = part.view_as(parameter)
    with contextlib.suppress(AttributeError):  # only Linux's library has it
        ctypes.CDLL(None).malloc_trim(0)  # give back where they were


def warm(source: str) -> None:
    """Have the libraries in memory, and the published models that a source
    names."""
    for library in LIBRARIES:
        importlib.import_module(library)
    for name in published.PUBLISHED:
        if name in source and published.missing(name) is None:
            for kind in LOADS:
                _loaded(kind, name)


@contextlib.contextmanager
def loaded_before(wrong: Callable | None = None) -> Iterator[None]:
    """Here a published model is there at once, for a forked process.

    Each is handed out once, since whoever has it may change it; then it is
    loaded. It is also loaded where another takes the place of the book's
    function `wrong`, if loading has to do with that: if it is a class, or
    code that ran for the model is its code, or names it.
    """

    def instead(kind, name):
        key = kind, str(name)
        if key in _given or key[1] not in published.PUBLISHED:
            return LOADS[kind](name)
        found, ran = _loaded(*key)
        if wrong is not None and concerns(wrong, ran):
            return LOADS[kind](name)
        _given.add(key)
        return found

    with contextlib.ExitStack() as stack:
        for kind in LOADS:
            stub = functools.partial(instead, kind)
            stack.enter_context(mock.patch.object(pretrained, kind, stub))
        yield


def concerns(fn: Callable, ran: frozenset[CodeType]) -> bool:
    """Whether what has run may have used a function or class."""
    if inspect.isclass(fn):
        return True
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return code is None or code in ran or fn.__name__ in _names(ran)


@functools.cache
def _names(codes: frozenset[CodeType]) -> set[str]:
    """The names that codes use, with the functions inside them."""
    found: set[str] = set()
    waiting = [*codes]
    while waiting:
        code = waiting.pop()
        found |= {*code.co_names}
        waiting += [c for c in code.co_consts if isinstance(c, CodeType)]
    return found
