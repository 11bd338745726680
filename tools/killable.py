"""Asking in processes that may hang or die, and which lines have run."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

FORK = multiprocessing.get_context("fork")
SECONDS, BYTES, WORKERS = 30, 6 * 2**30, 2


def judged(
    ask: Callable, things: list, seconds: float = SECONDS, batch: int = 1
) -> Iterator[tuple[Any, Any]]:
    """Pairs of a thing and what `ask` says of it in another process.

    One that takes longer than these seconds of a processor, or ten times as
    long by the clock, or that dies, is answered by "ended"; what was to come
    after it is asked in the next process.
    """
    waiting = [things[n : n + batch] for n in range(0, len(things), batch)]
    running: dict[Any, list] = {}
    while waiting or running:
        while waiting and len(running) < WORKERS:
            ours, theirs = FORK.Pipe(duplex=False)
            some = waiting.pop()
            process = FORK.Process(
                target=_answer, args=(ask, some, theirs, seconds)
            )
            process.start()
            theirs.close()
            running[ours] = [process, some, time.monotonic() + 10 * seconds]
        end = min(end for *_, end in running.values())
        wait(running, max(end - time.monotonic(), 0))
        for pipe, state in list(running.items()):
            process, some, end = state
            if not pipe.poll() and time.monotonic() < end:
                continue
            answer, ended = "ended", True
            with suppress(EOFError, OSError):
                if pipe.poll():
                    answer, ended = pipe.recv(), False
            yield some[0], answer
            state[1:] = some[1:], time.monotonic() + 10 * seconds
            if ended or not state[1]:
                process.kill()
                process.join()
                pipe.close()
                del running[pipe]
                waiting += [state[1]] if state[1] else []


def _answer(ask: Callable, things: list, pipe: Any, seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    nowhere = open(os.devnull, "w", encoding="utf-8")
    os.dup2(nowhere.fileno(), 1)
    os.dup2(nowhere.fileno(), 2)
    sys.stdout = sys.stderr = nowhere
    for thing in things:
        end = int(time.process_time() + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
        pipe.send(ask(thing))


class Lines:
    """The lines of one file that run while this is entered."""

    def __init__(self, filename: str) -> None:
        self.filename, self.seen = filename, set()

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != self.filename:
            return None
        self.seen.add(frame.f_lineno)
        return self._trace

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self.before)
