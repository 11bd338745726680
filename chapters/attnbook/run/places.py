"""Where a run writes: looked at before it trains, and then its alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_places(
    written: dict[str, Path], read: Path | None, replace: set[str]
) -> None:
    """Raise unless each file can be written and none is another's.

    Args:
        written: option → file.
        read: the text, if it is a file.
        replace: the options whose file may exist.

    Raises:
        ValueError: one file for two purposes.
        FileNotFoundError: no folder.
        FileExistsError: a file or folder that is there.
    """
    taken = {} if read is None else {read.resolve(): "the text"}
    for option, path in written.items():
        if path.resolve() in taken:
            raise ValueError(
                f"{option} is {taken[path.resolve()]} too; expected a file "
                f"of its own; got {path}"
            )
        taken[path.resolve()] = option
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"there is no folder {path.parent}; expected one for "
                f"{path.name}; got none"
            )
        if path.is_dir() or (path.exists() and option not in replace):
            raise FileExistsError(
                f"{path} exists; expected a new name, --resume to go on "
                "from it, or --overwrite for a file; got none of them"
            )


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Keep other runs from a file until the end, however it comes.

    The lock on a file beside it is the system's, which takes it from a
    process that is killed.

    Raises:
        BlockingIOError: another run writes there.
        OSError: nothing can be written there.
    """
    beside = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise OSError(
            f"{path} cannot be written; expected leave to write in its "
            f"folder; got {error.strerror}"
        ) from None
    with os.fdopen(handle):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(handle), os.stat(beside)):
                raise BlockingIOError  # its owner took it away meanwhile
        except (BlockingIOError, FileNotFoundError):
            raise BlockingIOError(
                f"another run writes {path}; expected a file for each run; "
                f"got the lock {beside.name}"
            ) from None
        try:
            yield
        finally:
            os.unlink(beside)  # while it is still ours
