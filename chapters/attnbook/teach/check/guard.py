"""A reader's code under watch: how long it takes, what it leaves behind.

A wrong answer may loop for ever, replace a function of torch, or write into
a tensor of the page. `Clock` stops a call that takes too long. `Guard` notes
what an answer changes outside of itself, sets it back and names it, so that
the next check and the rest of the page find everything as it was.
"""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import threading
import time
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules import module as modules

#: The seconds that one call may take. The slowest right answer needs a
#: hundredth of them. Grading sets what its user asks for.
SECONDS = 30.0


class OutOfTime(BaseException):
    """A call has taken too long.

    It is no `Exception`, because an answer that catches every `Exception` in
    its loop would otherwise go on for ever.
    """


def _cpu_or(device: torch.device) -> torch.device | None:
    """The device whose random state is kept apart; None for the CPU."""
    return None if device.type == "cpu" else device


#: Settings of the whole process that an answer may change, by what they are
#: called in a message: how each is read, and how it is set back.
_SETTINGS: dict[str, tuple[Callable, Callable]] = {
    "torch's default dtype": (
        torch.get_default_dtype,
        torch.set_default_dtype,
    ),
    "torch's default device": (
        torch.get_default_device,
        lambda device: torch.set_default_device(_cpu_or(device)),
    ),
    "the number of torch's threads": (
        torch.get_num_threads,
        torch.set_num_threads,
    ),
    "whether torch follows gradients": (
        torch.is_grad_enabled,
        torch.set_grad_enabled,
    ),
    "torch's anomaly detection": (
        torch.is_anomaly_enabled,
        torch.autograd.set_detect_anomaly,
    ),
    "the working directory": (os.getcwd, os.chdir),
    "where print writes": (
        lambda: sys.stdout,
        lambda stream: setattr(sys, "stdout", stream),
    ),
    "the hooks of all modules": (
        lambda: dict(modules._global_forward_hooks),
        lambda kept: setattr(
            modules, "_global_forward_hooks", OrderedDict(kept)
        ),
    ),
    "Python's recursion limit": (
        sys.getrecursionlimit,
        sys.setrecursionlimit,
    ),
}

#: Modules and classes in which an answer should not replace a function.
_OWNERS = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn": torch.nn,
    "torch.nn.functional": F,
    "torch.autograd": torch.autograd,
    "torch.linalg": torch.linalg,
    "numpy": np,
    "math": math,
}


class Guard:
    """The context in which an answer is tried.

    On the way out everything is set back that the answer has changed: the
    settings of the process, functions of torch and its like, the seeds, and
    the names and tensors of the page that the answer's code mentions.

    Attributes:
        left: what the answer had changed, in words, after it has been set
            back. Random numbers that it has drawn are not counted.
    """

    def __init__(self, fn: Callable) -> None:
        self.left: list[str] = []
        self._page = getattr(fn, "__globals__", {})
        self._used = set(_names(getattr(fn, "__code__", None)))

    def __enter__(self) -> Guard:
        self._ways_out = _close_ways_out(self._page)
        self._settings = {n: _read(get) for n, (get, _) in _SETTINGS.items()}
        self._owned = {n: dict(vars(o)) for n, o in _OWNERS.items()}
        self._kept = {
            n: (value, value.detach().clone() if _is_plain(value) else None)
            for n in self._used
            if (value := self._page.get(n)) is not None
        }
        self._seed, self._drawn = torch.initial_seed(), torch.get_rng_state()
        self._others = np.random.get_state(), random.getstate()
        return self

    def __exit__(self, *_: Any) -> None:
        for name, (get, put) in _SETTINGS.items():
            if _read(get) != self._settings[name]:
                put(self._settings[name])
                self.left.append(name)
        for name, owner in _OWNERS.items():
            self.left += _put_back(name, owner, self._owned[name])
        if torch.initial_seed() != self._seed:
            self.left.append("torch's seed")
        # Drawing random numbers is allowed, and undone without a word.
        torch.set_rng_state(self._drawn)
        np.random.set_state(self._others[0])
        random.setstate(self._others[1])
        for name, (value, before) in self._kept.items():
            changed = self._page.get(name) is not value
            self._page[name] = value
            if before is not None and not _same_tensor(value, before):
                value.data = before
                changed = True
            if changed:
                self.left.append(f"{name} of the page")
        for names, kept in self._ways_out:
            names |= kept


def _close_ways_out(page: dict[str, Any]) -> list[tuple[dict, dict]]:
    """Let Jupyter's `exit` and `quit` raise, as `sys.exit` does.

    They only ask the kernel to end after the cell, so that an answer which
    calls them is right, and then the page is gone.

    Returns:
        Where they were, and what they were.
    """
    found = []
    for names in (page, vars(sys.modules["__main__"])):
        kept = {n: names[n] for n in ("exit", "quit") if n in names}
        names |= dict.fromkeys(kept, _leave)
        found.append((names, kept))
    # Mostly both are the same page. So they are put back in reverse order, and
    # what was there first is there again.
    return found[::-1]


def _leave(*_: Any, **__: Any) -> NoReturn:
    """Stand in for `exit` and `quit`, and raise what `sys.exit` raises."""
    raise SystemExit("exit() and quit() would end the page")


class Clock:
    """The context of one call: raises `OutOfTime` after some seconds.

    It works by the signal of a timer. Where there is none (on Windows), and
    outside of the main thread, which alone receives signals, it does nothing.

    Args:
        seconds: by the clock; `SECONDS` if not given.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = SECONDS if seconds is None else seconds

    def __enter__(self) -> Clock:
        self._runs = hasattr(signal, "setitimer") and (
            threading.current_thread() is threading.main_thread()
        )
        if self._runs:
            self._began, self._tracer = time.monotonic(), sys.gettrace()
            self._handler = signal.signal(signal.SIGALRM, self._stop)
            # The timer goes on ringing, in case the answer catches the
            # first `OutOfTime`.
            self._other = signal.setitimer(
                signal.ITIMER_REAL, self.seconds, 0.1
            )
        return self

    def _stop(self, _: int, frame: Any) -> None:
        # A bare `except` in a loop would catch this and go on. So the next
        # line that runs, which is the first of its handler, raises once
        # more, and that leaves the loop.
        """Raise `OutOfTime` in the code that runs; called by the timer.

        Args:
            frame: where the program is at that moment.
        """

        def once_more(_: Any, event: str, __: Any) -> None:
            if event == "line":
                raise out

        out = OutOfTime(f"no result after {self.seconds:g} seconds")
        frame.f_trace = once_more
        sys.settrace(once_more)
        raise out

    def __exit__(self, *_: Any) -> None:
        if self._runs:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler)
            sys.settrace(self._tracer)
            left, again = self._other
            if left:  # another timer ran before: let it run on
                left -= time.monotonic() - self._began
                signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), again)


def _read(get: Callable) -> Any:
    """The value that `get` returns, or None if the system does not know it."""
    try:
        return get()
    except OSError:  # the working directory is gone
        return None


def _put_back(name: str, owner: Any, before: dict[str, Any]) -> list[str]:
    """Undo what was replaced in a module or class, and name it."""
    found: list[str] = []
    if [*map(id, vars(owner).values())] == [*map(id, before.values())]:
        return found  # nearly always, and fast
    for key, now in list(vars(owner).items()):
        old = before.get(key, before)  # `before` itself means: there was none
        if old is now or _torchs_own(now, key):
            continue
        if key.startswith("__") and not callable(now):
            continue  # what Python notes there itself
        if old is not before and callable(old):
            setattr(owner, key, old)
            found.append(f"{name}.{key}")
        elif old is before and isinstance(owner, type):
            delattr(owner, key)
            found.append(f"{name}.{key}")
    for key in before.keys() - vars(owner).keys():
        setattr(owner, key, before[key])
        found.append(f"{name}.{key}")
    return found


def _torchs_own(now: Any, key: str) -> bool:
    """Whether torch itself has put it there: it wraps some when first used."""
    home = getattr(now, "__module__", None) or ""
    return home.startswith("torch") and getattr(now, "__name__", "") == key


def _names(code: types.CodeType | None) -> Iterator[str]:
    """The global names that a function's code uses, in inner functions too."""
    if code is not None:
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from _names(constant)


def _is_plain(x: Any) -> bool:
    """Whether something is a tensor whose numbers lie in memory."""
    strided = isinstance(x, Tensor) and x.layout == torch.strided
    return strided and not x.is_meta


def _same_tensor(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit, so that a NaN that was there is no change."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
