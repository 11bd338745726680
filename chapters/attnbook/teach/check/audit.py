"""What Python itself refuses to a stranger's code, by error messages.

Python tells a hook of what its functions are about to do (see "Audit events
table" in its documentation), and where the hook raises, they do not. No code
can take a hook off again. This wall stands on every system, and what it says
is clear: "open is not allowed …". But it knows only what goes through Python.
A compiled library that opens a file by itself (`torch.save`, safetensors,
tokenizers) asks nobody here; the walls of the system hold that, where there
are any (see `walls`).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import posixpath
import shutil
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

#: Audit events that are refused, by their beginnings: the network, other
#: programs and processes, devices, what calls past Python, and what writes
#: where no path can be looked at.
_REFUSED = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.kill",
    "os.setxattr",
    "os.removexattr",
    "os.chflags",
    "os.lockf",
    "resource.prlimit",
    "fcntl.",
    "msvcrt.",
    "winreg.",
    "syslog.",
    "sqlite3.",
    "ctypes.",
    "sys.remote_exec",
)

#: Events that change files, and at which of their arguments a path and the
#: descriptor of a folder stand. With such a descriptor the path begins there,
#: and not in the folder in which the process is.
_CHANGES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "os.chmod": ((0,), (2,)),
    "os.chown": ((0,), (3,)),
    "os.link": ((0, 1), (2, 3)),
    "os.mkdir": ((0,), (2,)),
    "os.remove": ((0,), (1,)),
    "os.rename": ((0, 1), (2, 3)),
    "os.rmdir": ((0,), (1,)),
    "os.symlink": ((0, 1), (2,)),
    "os.truncate": ((0,), ()),
    "os.utime": ((0,), (3,)),
    "shutil.rmtree": ((0,), (1,)),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC

#: Functions that raise no audit event, by their modules.
_SILENT = {
    "os": (
        "chroot",
        "mkfifo",
        "mknod",
        "pidfd_open",
        "sched_setaffinity",
        "sched_setparam",
        "sched_setscheduler",
        "setns",
        "setpriority",
        "unshare",
    ),
    "signal": ("pidfd_send_signal",),
    "_posixsubprocess": ("fork_exec",),
    "_multiprocessing": ("SemLock", "sem_unlink"),
    "_posixshmem": ("shm_open", "shm_unlink"),
}
#: Modules that write by themselves, and that no answer needs.
_CLOSED = ("_dbm", "_gdbm", "readline")


def refuse_by_hook(empty: str) -> None:
    """Have Python refuse to this process, for good, what it should not do.

    Args:
        empty: the folder, without links in its path, that it may change.
    """
    for module, names in _SILENT.items():
        _take_away(module, names)
    for module in _CLOSED:
        sys.modules[module] = None  # type: ignore[assignment]
    _open_without_descriptors()
    # shutil then works with paths, and the hook looks at each. With
    # descriptors of folders it would be refused even inside the answer's
    # folder.
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    sys.addaudithook(_hook(empty))


def _hook(empty: str) -> Callable[[str, tuple], None]:
    """Make the hook that Python calls before it opens, starts or connects.

    It raises a PermissionError for what is not allowed, which the answer's
    code sees. `empty` is the one folder in which an answer may write.
    """
    check = _only_within(empty)

    def refuse(event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & _WRITING and not isinstance(path, int):
                check(path)
        elif event in _CHANGES:
            paths, descriptors = _CHANGES[event]
            if any(arguments[n] not in (-1, None) for n in descriptors):
                raise PermissionError(
                    f"{event} by the descriptor of a folder (dir_fd) is not "
                    "allowed in an answer"
                )
            for n in paths:
                opened = event == "os.truncate" and type(arguments[n]) is int
                if not opened:  # else it was looked at when it was opened
                    check(arguments[n])
        elif event.startswith(_REFUSED):
            raise PermissionError(f"{event} is not allowed in an answer")

    return refuse


def _only_within(empty: str) -> Callable[[Any], None]:
    """Make a function that raises for each path outside of the folder `empty`.

    It uses nothing that an answer could have replaced in the meantime.
    """
    resolved = _private_realpath()
    in_words = os.fspath

    def check(path: Any) -> None:
        if not isinstance(path, (str, bytes, int)):
            path = in_words(path)  # shutil tells of it as it was given
        if isinstance(path, bytes):
            path = bytes.decode(path, "utf-8", "surrogateescape")
        if not isinstance(path, str):
            raise PermissionError(
                "a file is changed by its name in an answer, and by nothing "
                f"else; expected a path; got a {type(path).__name__}"
            )
        # A subclass of str could answer for itself; a copy cannot.
        plain = str.encode(path, "utf-8", "surrogateescape")
        found = resolved(plain.decode("utf-8", "surrogateescape"))
        if found in (empty, os.devnull) or found.startswith(empty + os.sep):
            return
        raise PermissionError(
            f"{found} is not its to change; an answer may write into the "
            "folder in which it starts and nowhere else"
        )

    return check


def _private_realpath() -> Callable[[str], str]:
    """`os.path.realpath` with functions of its own.

    Python's is made of others that an answer could replace, such as
    `os.getcwd`, and what it finds would then be what the answer likes.
    """
    if os.path is not posixpath:
        return os.path.realpath
    spec = importlib.util.find_spec("posixpath")
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    copy.os = SimpleNamespace(**vars(os))  # type: ignore[attr-defined]
    return copy.realpath


def _take_away(module: str, names: tuple[str, ...]) -> None:
    """Let functions of a module refuse to work, where this system has them."""
    try:
        found = [importlib.import_module(module)]
    except ImportError:
        return
    if module == "os":
        found.append(importlib.import_module(os.name))  # posix, or nt
    for name in names:
        for owner in found:
            if hasattr(owner, name):
                setattr(owner, name, _refusing(f"{module}.{name}"))


def _refusing(name: str) -> Callable[..., NoReturn]:
    """Make a function that takes any arguments and raises a PermissionError.

    `name` is what the message says was called.
    """

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise PermissionError(f"{name} is not allowed in an answer")

    return refused


def _open_without_descriptors() -> None:
    """Let `os.open` refuse `dir_fd`, of which Python tells no hook."""
    real = os.open

    def open_by_path(
        path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if dir_fd is not None:
            raise PermissionError(
                "os.open by the descriptor of a folder (dir_fd) is not "
                "allowed in an answer"
            )
        return real(path, flags, mode)

    for owner in (os, importlib.import_module(os.name)):
        owner.open = open_by_path  # type: ignore[attr-defined]
