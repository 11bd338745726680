"""A stranger's code in a process of its own, with limits.

It holds accidents and pranks, and is no sandbox. Memory is limited on
Linux alone, where a process can tell what it has. There it is cut off the
network, too, where the system lets it. Everywhere, Python's own
functions refuse to connect, to start a program, and to write outside of an
empty folder. Code that goes past Python (ctypes, a compiled module) is not
held by that; and what you may read, it may read.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attnbook.teach.check.registry import the_book

#: The longest result, and the largest file that is written, in bytes.
MOST_RESULT, MOST_FILE = 10_000, 2**24

#: Audit events that are refused, by their beginnings.
_REFUSED = (
    *("socket.", "subprocess.", "os.system", "os.exec", "os.fork"),
    *("os.posix_spawn", "os.spawn", "os.startfile", "os.kill", "ctypes."),
)
#: Those that change a file, refused outside of the empty folder.
_CHANGES = {
    *("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove"),
    *("os.rename", "os.rmdir", "os.symlink", "os.truncate", "os.utime"),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


#: The signal that ends a process which has computed for too long.
OUT_OF_TIME = getattr(signal, "SIGXCPU", 0)
#: A process that computes nothing is waited for so many times as long.
PATIENCE = 10


class Ended(NamedTuple):
    """What came of it: a result, or none, and how it ended."""

    result: Any
    late: bool
    exit_code: int | None


def alone(
    work: Callable[..., Any],
    *arguments: Any,
    seconds: float,
    memory: int,
    prepared: str = __name__,
) -> Ended:
    """Call `work` in a process of its own, which cannot harm this one.

    Args:
        work: a function of a module; what it returns must be JSON.
        seconds: of computing, after which it is killed; on Windows, and
            where it only waits, `PATIENCE` times as many by the clock.
        memory: megabytes beyond those that the process has at its start.
        prepared: the module that processes have imported, where they are
            forked from one that has: then each starts at once.
    """
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    processes = multiprocessing.get_context("forkserver" if forks else "spawn")
    if forks:
        processes.set_forkserver_preload([prepared])
    mine, theirs = processes.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
        limits = empty, seconds, memory
        process = processes.Process(
            target=_inside, args=(theirs, limits, work, arguments)
        )
        process.start()
        theirs.close()
        with contextlib.suppress(EOFError, OSError):
            mine.recv_bytes(9)  # nothing of a stranger's has run as yet
        process.join(PATIENCE * seconds)
        late = process.is_alive()
        process.kill()
        process.join()
        late |= process.exitcode == -OUT_OF_TIME
    result = None
    with mine, contextlib.suppress(EOFError, OSError, ValueError):
        # JSON: a pickle would run here what it likes.
        result = json.loads(mine.recv_bytes(MOST_RESULT))
    return Ended(result, late, process.exitcode)


@contextlib.contextmanager
def bare_environment() -> Iterator[None]:
    """No variable of yours for the processes that are started in here."""
    kept, book = dict(os.environ), the_book()
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
    limits: tuple[str, float, int],
    work: Callable[..., Any],
    arguments: tuple,
) -> None:
    keep = pipe.fileno()
    if os.name == "posix":  # nothing else of those it was forked from
        os.closerange(3, keep)
        os.closerange(keep + 1, 4096)
    _confine(*limits)
    send = pipe.send_bytes
    send(b"ready")
    result = json.dumps(work(*arguments)).encode()
    send(result if len(result) < MOST_RESULT else b"")
    os._exit(0)  # not what it has left to be done at the end


def _confine(empty: str, seconds: float, memory: int) -> None:
    os.chdir(empty)
    os.environ |= dict.fromkeys(("HOME", "TMPDIR", "TEMP"), empty)
    tempfile.tempdir, sys.dont_write_bytecode = empty, True
    torch.set_num_threads(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # what it prints, and were it without an end
        os.dup2(nothing, stream)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        def limit(what: int, most: int, more: int = 0) -> None:
            resource.setrlimit(what, (most, most + more))

        limit(resource.RLIMIT_CORE, 0)
        limit(resource.RLIMIT_FSIZE, MOST_FILE)
        limit(resource.RLIMIT_CPU, math.ceil(seconds), 1)
        limit(resource.RLIMIT_AS, _held() + memory * 10**6)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        # A network of its own, with nothing in it: at once, or as a user
        # of its own; where neither may be, the hook is all there is.
        if libc.unshare(_CLONE_NEWNET):
            libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    sys.addaudithook(_hook(os.path.realpath(empty)))


def _held() -> int:
    """The bytes of addresses that this process has."""
    pages = Path("/proc/self/statm").read_text("ascii").split()[0]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _hook(empty: str) -> Callable[[str, tuple], None]:
    """Refuses, by an error that the code sees; no code can take it off."""

    def refuse(event: str, arguments: tuple) -> None:
        changed: tuple = ()
        if event == "open":
            path, _, flags = arguments
            changed = (path,) if flags & _WRITING else ()
        elif event in _CHANGES:
            changed = arguments[:2]
        elif event.startswith(_REFUSED):
            raise PermissionError(f"{event} is not allowed in an answer")
        for path in changed:
            if isinstance(path, (str, bytes, os.PathLike)):
                found = os.path.realpath(os.fsdecode(path))
                inside = found.startswith(empty + os.sep)
                if not inside and found not in (empty, os.devnull):
                    raise PermissionError(f"{found} is not its to change")

    return refuse
