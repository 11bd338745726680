"""What the operating system itself refuses to a stranger's code.

Python can refuse what goes through Python (see `audit`), but `torch.save` or
`ctypes` write past it. What stands in here is held by the kernel, for the
process and for whatever it starts, in whatever language it is written:

- On Linux, Landlock (since 5.13) forbids to write, remove or create a file
  outside of one folder and to start a program; newer ones also forbid TCP
  connections (6.7) and signals to others (6.12). A mount namespace in which
  everything but that folder is read-only forbids what Landlock does not know,
  such as chmod; a network namespace has no network in it; and what a process
  of root may do beyond others is given up.
- On macOS, the sandbox that `sandbox-exec` uses (Seatbelt).
- On Windows nothing.

Each of these may be switched off or missing on a given machine. So nothing
is believed: `refused` tries what should be impossible, and `confine.standing`
reports what it found.

Sources: the manual pages landlock(7), landlock_create_ruleset(2),
mount_setattr(2), mount_namespaces(7), capabilities(7); the numbers from
include/uapi/linux/landlock.h, mount.h and capability.h of Linux 6.18; for
macOS sandbox_init(3). There are bindings of Landlock on PyPI, but none that
has left its first versions, and what is needed of it fits on a page.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# unshare(2) and mount(2)
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_BIND = 2, 4, 4096
_MS_REC, _MS_PRIVATE = 16384, 1 << 18

# System calls since Linux 5.1 have the same number on all architectures.
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_PR_SET_NO_NEW_PRIVS = 38

# What Landlock can forbid, and since which version of it.
_EXECUTE, _WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE = 1, 1 << 1, 1 << 4, 1 << 5
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK = 1 << 6, 1 << 7, 1 << 8, 1 << 9
_MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = 1 << 10, 1 << 11, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_VERSION = (
    _EXECUTE
    | _WRITE_FILE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_CHAR
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_SOCK
    | _MAKE_FIFO
    | _MAKE_BLOCK
    | _MAKE_SYM
)
_LATER = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
_NEVER = _EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV
_BIND_AND_CONNECT_TCP = 1 | 2
_SIGNALS_AND_ABSTRACT_SOCKETS = 1 | 2

#: The one capability that root keeps: to read what belongs to others, such
#: as the book's package in a home.
_CAP_DAC_READ_SEARCH = 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522

#: The most that an answer may write in all, where its folder can be made one
#: of memory.
_ROOM = b"size=64m"

#: What `refused` tries, in words and in its order.
KEPT_FROM = (
    "writing files elsewhere",
    "changing the rights of files",
    "using the network",
    "starting programs",
    "sending signals to other processes",
)

_SEATBELT = """(version 1)
(allow default)
(deny network*)
(deny process-exec*)
(deny signal)
(allow signal (target self))
(deny file-write*)
(allow file-write* (subpath "{empty}") (literal "/dev/null"))
"""


class _Ruleset(ctypes.Structure):
    """What Landlock is asked to forbid: `struct landlock_ruleset_attr`."""

    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    """What is allowed in a folder: `struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _fields_ = [
        ("allowed_access", ctypes.c_uint64),
        ("parent_fd", ctypes.c_int32),
    ]


class _MountAttributes(ctypes.Structure):
    """How what is mounted is to be changed: `struct mount_attr`."""

    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


class _CapabilityHeader(ctypes.Structure):
    """Whose rights are meant: `struct __user_cap_header_struct`."""

    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Capabilities(ctypes.Structure):
    """Which rights of root a process has: `struct __user_cap_data_struct`."""

    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def put_up(empty: str) -> None:
    """Put up all the walls that this system has round the calling process.

    There is no way back, for this process and for those that it starts.
    What the system lacks or does not let us do is left out without a word;
    `refused` finds out what holds.

    Args:
        empty: the folder, without links in its path, that the process may
            change. The process has to step into it afterwards, because
            another folder may have been put in its place.
    """
    if sys.platform == "linux":
        _in_namespaces_of_its_own(empty)
        for wall in (_give_up_capabilities, lambda: _landlock(empty)):
            with contextlib.suppress(OSError, AttributeError):
                wall()
    elif sys.platform == "darwin":
        with contextlib.suppress(OSError, AttributeError):
            _seatbelt(empty)


def refused(place: str, port: int, process: int) -> dict[str, bool]:
    """What the system refuses to the calling process, found out by trying.

    Where nothing is refused, it leaves a file in `place`, makes the folder
    unreadable for others, and starts a program that does nothing.

    Args:
        place: a folder outside of the one that it may change.
        port: one of this machine at which somebody listens.
        process: another one, of the same user.
    """

    def write() -> None:
        with open(Path(place) / "written", "w", encoding="utf-8"):
            pass

    def change_rights() -> None:
        os.chmod(place, 0o750)

    def connect() -> None:
        with socket.socket() as one:
            one.settimeout(5)
            one.connect(("127.0.0.1", port))

    def start() -> None:
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)

    def signal() -> None:
        os.kill(process, 0)

    attempts = write, change_rights, connect, start, signal
    return dict(zip(KEPT_FROM, map(_is_refused, attempts), strict=True))


def _is_refused(attempt: Callable[[], None]) -> bool:
    """Whether the system answers an attempt with an error."""
    try:
        attempt()
    except OSError:
        return True
    return False


def _checked(result: int) -> int:
    """What a call of the C library returned; an OSError where it failed."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _libc() -> ctypes.CDLL:
    """The C library of this process, by which the system is called."""
    return ctypes.CDLL(None, use_errno=True)


def _system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number, and return its result.

    Raises:
        OSError: the kernel refuses it.
    """
    return _checked(_libc().syscall(ctypes.c_long(number), *arguments))


def _in_namespaces_of_its_own(empty: str) -> None:
    """Leave the network, and see all files but those in `empty` read-only.

    Root may do so at once. Anybody else needs a user namespace first, in
    which they may, where the system allows them that.
    """
    unshare = _libc().unshare
    user = os.geteuid()
    group = os.getegid()
    for kinds in (
        _CLONE_NEWNET | _CLONE_NEWNS,
        _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWNS,
        _CLONE_NEWNET,
        _CLONE_NEWUSER | _CLONE_NEWNET,
    ):
        if unshare(kinds) != 0:
            continue
        known = not kinds & _CLONE_NEWUSER or _stay(user, group)
        if kinds & _CLONE_NEWNS:
            with contextlib.suppress(OSError, AttributeError):
                _read_only_but(empty, in_memory=known)
        return


def _stay(user: int, group: int) -> bool:
    """Be the same user in a new user namespace, where one is nobody else.

    Returns:
        Whether it could be done. If not, one can still write to files that
        were there before, but not to a file system that one makes oneself.
    """
    about = Path("/proc/self")
    try:
        (about / "setgroups").write_bytes(b"deny")
        (about / "uid_map").write_bytes(b"%d %d 1" % (user, user))
        (about / "gid_map").write_bytes(b"%d %d 1" % (group, group))
    except OSError:
        return False
    return True


def _read_only_but(empty: str, *, in_memory: bool) -> None:
    """Make every mount read-only, and `empty` one that can be written to.

    Args:
        in_memory: put a new file system of limited size in its place, so that
            nothing fills the disk.
    """
    mount = _libc().mount
    place = os.fsencode(empty)
    # What is mounted from here on is seen in this namespace only.
    _checked(mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    flags = _MS_NOSUID | _MS_NODEV
    if not in_memory or mount(b"tmpfs", place, b"tmpfs", flags, _ROOM):
        _checked(mount(place, place, None, _MS_BIND, None))
    _set_mounts(b"/", _AT_RECURSIVE, attr_set=_MOUNT_ATTR_RDONLY)
    _set_mounts(place, 0, attr_clr=_MOUNT_ATTR_RDONLY)


def _set_mounts(place: bytes, flags: int, **what: int) -> None:
    """Change how everything below a folder is mounted, see mount_setattr(2).

    Args:
        place: the folder.
        flags: `AT_RECURSIVE` and its like.
        what: the fields of `_MountAttributes`; the others are 0.

    Raises:
        OSError: the kernel refuses it.
    """
    wanted = _MountAttributes(**what)
    _system_call(
        _MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        place,
        ctypes.c_uint(flags),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )


def _give_up_capabilities() -> None:
    """Give up for good what root may do beyond others, but reading."""
    libc = _libc()
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    held = (_Capabilities * 2)()
    _checked(libc.capget(ctypes.byref(header), held))
    for part, kept in zip(held, (_CAP_DAC_READ_SEARCH, 0)):
        part.effective &= kept
        part.permitted &= kept
        part.inheritable = 0
    _checked(libc.capset(ctypes.byref(header), held))


def _landlock(empty: str) -> None:
    """Forbid to change anything but what is in `empty`.

    Raises:
        OSError: where the kernel has no Landlock, or it is switched off.
    """
    nothing = ctypes.c_void_p(None)
    none, one = ctypes.c_size_t(0), ctypes.c_uint32(1)
    version = _system_call(_LANDLOCK_CREATE, nothing, none, one)
    handled = _FIRST_VERSION
    for since, right in _LATER.items():
        handled |= right if version >= since else 0
    wanted = _Ruleset(
        handled_access_fs=handled,
        handled_access_net=_BIND_AND_CONNECT_TCP if version >= 4 else 0,
        scoped=_SIGNALS_AND_ABSTRACT_SOCKETS if version >= 6 else 0,
    )
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    flags = ctypes.c_uint32(0)
    rules = _system_call(_LANDLOCK_CREATE, ctypes.byref(wanted), size, flags)
    try:
        _allow(rules, empty, handled & ~_NEVER)
        _allow(rules, os.devnull, handled & (_WRITE_FILE | _TRUNCATE))
        _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _system_call(_LANDLOCK_RESTRICT, ctypes.c_int(rules), flags)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    """Add a rule to a ruleset of Landlock: what may be done below a path."""
    beneath = 1  # LANDLOCK_RULE_PATH_BENEATH
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(allowed_access=rights, parent_fd=place)
        _system_call(
            _LANDLOCK_ADD,
            ctypes.c_int(rules),
            ctypes.c_int(beneath),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(place)


def _seatbelt(empty: str) -> None:
    """Forbid on macOS to change anything but what is in `empty`.

    Raises:
        OSError: if the sandbox refuses the profile.
    """
    quoted = empty.replace("\\", "\\\\").replace('"', '\\"')
    profile = _SEATBELT.format(empty=quoted)
    why = ctypes.c_char_p()
    library = ctypes.CDLL("/usr/lib/libsandbox.1.dylib")
    flags = ctypes.c_uint64(0)
    if library.sandbox_init(profile.encode(), flags, ctypes.byref(why)):
        raise OSError((why.value or b"").decode("utf-8", "replace"))
