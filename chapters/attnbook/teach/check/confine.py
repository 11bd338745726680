"""A stranger's code in a process of its own, with limits.

Two walls hold it. The first is the operating system's, where it has one: see
`walls`, and `standing` for what holds on this machine. The second is Python's
own, on every system: see `audit`. The memory is limited on Linux alone, where
a process can tell what it has.

It holds accidents and pranks. What you may read, it may read; and where the
system has no wall, code that goes past Python goes past everything.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from attnbook.teach.check import walls
from attnbook.teach.check.audit import refuse_by_hook
from attnbook.teach.check.registry import the_book

if TYPE_CHECKING:  # Windows has the second alone
    from multiprocessing.context import ForkServerContext, SpawnContext

#: The longest result, and the largest file that is written, in bytes. Right
#: answers send up to 0.7 MB.
MOST_RESULT, MOST_FILE = 2**24, 2**24

#: What is limited besides `walls.KEPT_FROM`, in words.
MORE_MEMORY = "taking more memory"
#: The two walls around a process. That of the system is the stronger.
BOTH = "system", "Python"
#: The signal that ends a process which has computed for too long.
OUT_OF_TIME = getattr(signal, "SIGXCPU", 0)
#: The signal that no process can ignore. It comes a second later, or when too
#: much memory is taken.
KILLED = getattr(signal, "SIGKILL", 0)
#: A process that computes nothing, but waits, is given so many times its
#: seconds by the clock.
PATIENCE = 10
#: Seconds that a process has to shut itself in, before `work` begins. It may
#: have to import torch first, on a machine that does much besides.
STARTING = 300
#: Seconds that a process has to end in, after it has sent its result.
LEAVING = 5


class Ended(NamedTuple):
    """How a process of `alone` has ended, and what it has sent.

    Attributes:
        result: what `work` returned; None if the process did not send
            exactly one result, and end by itself.
        late: whether it had to be ended because its time was over.
        exit_code: 0, or what ended it: the negative number of a signal.
        odd: what it did that no process does which merely works, as the end
            of a sentence about it; or "".
    """

    result: Any
    late: bool
    exit_code: int | None
    odd: str = ""


def alone(
    work: Callable[..., Any],
    *arguments: Any,
    seconds: float,
    memory: int,
    prepared: str = __name__,
    kept_by: Sequence[str] = BOTH,
) -> Ended:
    """Call `work` in a process of its own, which cannot harm this one.

    The process is believed to be a stranger's from the moment at which `work`
    begins. Whatever it sends is data (JSON) and no more than that, so what
    calls this must not take its word for anything that it can find out by
    itself.

    Args:
        work: a function of a module; what it returns must be JSON.
        seconds: of computing, after which it is killed; on Windows, and
            where it only waits, `PATIENCE` times as many by the clock.
        memory: megabytes beyond those that the process has at its start.
        prepared: the module that processes have imported, where they are
            forked from one that has: then each starts at once.
        kept_by: the walls that are put up: "system", "Python".

    Raises:
        RuntimeError: if the process does not begin, which is no fault of
            `work`.
    """
    processes = _processes(prepared)
    mine, theirs = processes.Pipe(duplex=False)
    messages: list[bytes] = []
    with mine, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        limits = os.path.realpath(made), seconds, memory, kept_by
        process = processes.Process(
            target=_inside, args=(theirs, limits, work, arguments)
        )
        began = time.monotonic()  # its computing counts from here
        process.start()
        try:
            theirs.close()
            _wait_for_beginning(mine)
            # It may send half a message and stop: so another thread waits.
            listener = threading.Thread(
                target=_listen, args=(mine, messages), daemon=True
            )
            listener.start()
            listener.join(PATIENCE * seconds)
            late = listener.is_alive()
            if not late:
                process.join(LEAVING)
            took = time.monotonic() - began
            lives = process.is_alive()
        finally:
            _end(process)
        listener.join(LEAVING)
    code = process.exitcode
    late |= code == -OUT_OF_TIME
    late |= code == -KILLED and not lives and took >= seconds
    return _how_it_ended(messages, late=late, lives=lives, code=code)


def _processes(prepared: str) -> ForkServerContext | SpawnContext:
    """The way in which processes are started on this system: forked from one
    that has imported the module `prepared`, or else as new ones."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload([prepared])
    return forking


def _how_it_ended(
    messages: Sequence[bytes], *, late: bool, lives: bool, code: int | None
) -> Ended:
    """How a process has ended, and whether that is how honest work ends.

    Args:
        messages: what it has sent.
        late: whether it was out of time.
        lives: whether it still ran when its way back was closed.
        code: its exit code.
    """
    odd = ""
    if len(messages) > 1:
        odd = "sent more than one result"
    elif lives and not late:
        odd = "closed its way back and went on"
    elif messages and code == 0 and not late:
        try:
            # It is read as JSON; a pickle could run here whatever it likes.
            return Ended(json.loads(messages[0]), late, code)
        except (ValueError, RecursionError):
            odd = "sent something else than a result"
    return Ended(None, late, code, odd)


def _wait_for_beginning(pipe: Connection) -> None:
    """Wait until the process has shut itself in and is about to work.

    Nothing of a stranger's has run until then; but a process may get stuck
    all the same, for example one forked from another that has threads.
    """
    if not pipe.poll(STARTING):
        raise RuntimeError(
            "the process in which an answer is tried did not begin within "
            f"{STARTING} seconds; expected a machine with less to do: grade "
            "again later"
        )
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes(9)


def _listen(pipe: Connection, messages: list[bytes]) -> None:
    """Collect what a process sends, to its end or until there is too much.

    One message is expected. A message that is too long counts as two.
    """
    try:
        while len(messages) < 2:
            messages.append(pipe.recv_bytes(MOST_RESULT))
    except EOFError:
        return
    except OSError:
        messages += [b"", b""]


def _end(process: BaseProcess) -> None:
    """End a process, if it has not ended, and all that it has started."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        os.killpg(process.pid, KILLED)  # type: ignore[arg-type]
    process.kill()
    process.join()


def standing(prepared: str = __name__) -> dict[str, bool]:
    """What this system keeps a process from by itself, found out by trying.

    A process is given every wall but that of Python, and tries to get past.

    Args:
        prepared: as for `alone`.

    Returns:
        Whether each thing is held, by what it is, in words.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            ended = alone(
                _tried,
                place,
                port,
                os.getpid(),
                seconds=30,
                memory=1000,
                prepared=prepared,
                kept_by=BOTH[:1],
            )
    return dict(ended.result or {})


def _tried(place: str, port: int, process: int) -> dict[str, bool]:
    """Try what an answer must not do, and say of each whether it was refused.

    This runs in a process that is shut in, as an answer would be.

    Args:
        place: a folder in which nothing may be written.
        port: a port of this machine at which something listens.
        process: the number of a process that may not be signalled.
    """
    limited = False
    with contextlib.suppress(ImportError, OSError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        limited = most != resource.RLIM_INFINITY
    return {
        **walls.refused(place, port, process),
        MORE_MEMORY: limited,
    }


@contextlib.contextmanager
def bare_environment() -> Iterator[None]:
    """A context in which new processes get none of your environment variables.

    An answer could read a password there. Only what Python needs to start is
    kept, and what the book asks for (`Book.environment`).
    """
    kept = dict(os.environ)
    book = the_book()
    needed = ("PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "LD_LIBRARY_PATH")
    os.environ.clear()
    os.environ |= {name: kept[name] for name in needed if name in kept}
    os.environ |= {
        "PYTHONPATH": str(book.folder),
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": tempfile.gettempdir(),
        **book.environment,
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= kept


def _inside(
    pipe: Connection,
    limits: tuple[str, float, int, Sequence[str]],
    work: Callable[..., Any],
    arguments: tuple,
) -> None:
    """What the new process does: shut itself in, work, send the result, end.

    Args:
        pipe: its way back to the process that has started it.
        limits: what `_confine` takes.
        work: the function that is called with `arguments`, in here.
        arguments: its arguments.
    """
    if os.name == "posix":
        # Away from the terminal, and at the head of a group of its own, so
        # that whatever it starts can be ended with it.
        os.setsid()
        _close_all_but(pipe.fileno())
    _confine(*limits)
    send = pipe.send_bytes
    send(b"ready")
    result = json.dumps(work(*arguments)).encode()
    send(result if len(result) < MOST_RESULT else b"")
    os._exit(0)  # not what it has left to be done at the end


def _close_all_but(keep: int) -> None:
    """Close the files that it has of the process it was forked from."""
    opened: Sequence[int] = range(3, 4096)
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            opened = [int(name) for name in os.listdir(folder)]
            break
    for handle in opened:
        if handle > 2 and handle != keep:
            with contextlib.suppress(OSError):
                os.close(handle)


def _confine(
    empty: str, seconds: float, memory: int, kept_by: Sequence[str]
) -> None:
    """Shut the calling process in, so that it cannot get out again.

    Args:
        empty: an empty folder, which is the only place for its files.
        seconds, memory, kept_by: as for `alone`.
    """
    if "system" in kept_by:
        walls.put_up(empty)
    os.chdir(empty)
    os.environ |= dict.fromkeys(("HOME", "TMPDIR", "TEMP"), empty)
    tempfile.tempdir = empty
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # what it prints, however much, goes nowhere
        os.dup2(nothing, stream)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        def limit(what: int, most: int, more: int = 0) -> None:
            resource.setrlimit(what, (most, most + more))

        limit(resource.RLIMIT_CORE, 0)
        limit(resource.RLIMIT_FSIZE, MOST_FILE)
        limit(resource.RLIMIT_CPU, math.ceil(seconds), 1)
        limit(resource.RLIMIT_AS, _held() + memory * 10**6)
    if "Python" in kept_by:
        refuse_by_hook(empty)


def _held() -> int:
    """How many bytes of memory addresses this process has already (on Linux).

    The limit is set that much higher, since it counts what torch has taken,
    too.
    """
    pages = Path("/proc/self/statm").read_text("ascii").split()[0]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
