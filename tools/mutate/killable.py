"""Call a function in other processes, which may hang or die.

Besides, `Lines` notes which lines of a file run.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from types import FrameType, TracebackType
from typing import Any

#: Processes are forked: a fork has all that this process has imported, and to
#: import it anew takes seconds.
FORK = multiprocessing.get_context("fork")

#: The most that a question may take: seconds of a processor, and memory.
SECONDS = 30
BYTES = 6 * 2**30

#: Processes that run at a time.
WORKERS = 2

#: The answer when a question takes too long, or its process dies.
ENDED = "ended"


@dataclass
class _Running:
    """A process that is being asked.

    Attributes:
        process: the process.
        things: what it is still to be asked about.
        until: when its next answer has to be there, by `time.monotonic()`.
    """

    process: ForkProcess
    things: list[Any]
    until: float


def answers_of(
    ask: Callable[[Any], Any],
    things: list[Any],
    seconds: float = SECONDS,
    batch: int = 1,
) -> Iterator[tuple[Any, Any]]:
    """Pairs of a thing and what `ask` says of it in another process.

    Args:
        ask: called with one thing; its answer must be something that can be
            pickled.
        things: what is asked about. The pairs come in another order.
        seconds: how long a question may take of a processor. By the clock it
            may take ten times as long.
        batch: how many things one process is asked about. When a question
            takes too long, or kills its process, the answer is "ended", and
            the rest of its batch is asked in a new process.
    """
    waiting = [things[n : n + batch] for n in range(0, len(things), batch)]
    running: dict[Any, _Running] = {}
    while waiting or running:
        while waiting and len(running) < WORKERS:
            pipe, state = _start(ask, waiting.pop(), seconds)
            running[pipe] = state
        first = min(state.until for state in running.values())
        wait(list(running), max(first - time.monotonic(), 0))
        for pipe, state in list(running.items()):
            if not pipe.poll() and time.monotonic() < state.until:
                continue
            answer: Any = ENDED
            ended = True
            with suppress(EOFError, OSError):
                if pipe.poll():
                    answer = pipe.recv()
                    ended = False
            yield state.things.pop(0), answer
            state.until = time.monotonic() + 10 * seconds
            if ended or not state.things:
                state.process.kill()
                state.process.join()
                pipe.close()
                del running[pipe]
                if state.things:
                    waiting.append(state.things)


def _start(
    ask: Callable[[Any], Any], things: list[Any], seconds: float
) -> tuple[Connection, _Running]:
    """Start a process that is asked about some things.

    Returns:
        the end of the pipe at which its answers come, and what is known of the
        process.
    """
    here, there = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_answer, args=(ask, things, there, seconds))
    process.start()
    there.close()
    until = time.monotonic() + 10 * seconds
    return here, _Running(process, list(things), until)


def _answer(
    ask: Callable[[Any], Any],
    things: list[Any],
    pipe: Connection,
    seconds: float,
) -> None:
    """Answer each question through the pipe. What is printed goes nowhere.

    The system ends this process when it takes too much memory, or when one
    question takes too much time of a processor.
    """
    # What the other process had in memory is kept until the end. A collection
    # of garbage would look through all of it, and have its memory copied.
    gc.freeze()
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    nowhere = open(os.devnull, "w", encoding="utf-8")
    os.dup2(nowhere.fileno(), 1)
    os.dup2(nowhere.fileno(), 2)
    sys.stdout = nowhere
    sys.stderr = nowhere
    for thing in things:
        end = int(time.process_time() + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
        pipe.send(ask(thing))


class Lines:
    r"""The lines of one file that run while this is entered, in `seen`.

    Those count, too, that run in threads which are started meanwhile.

    >>> lines = Lines("<a toy>")
    >>> with lines:
    ...     exec(compile("a = 1\nif a > 1:\n    a = 2", "<a toy>", "exec"))
    >>> 2 in lines.seen, 3 in lines.seen
    (True, False)
    """

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.seen: set[int] = set()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Note a line of the file; Python calls this for each line."""
        if frame.f_code.co_filename != self.filename:
            return None
        self.seen.add(frame.f_lineno)
        return self._trace

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        self.before_in_threads = threading.gettrace()
        sys.settrace(self._trace)
        threading.settrace(self._trace)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.settrace(self.before)
        threading.settrace(self.before_in_threads)  # type: ignore[arg-type]
