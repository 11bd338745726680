"""Where a run writes: looked at before it trains, and then its alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_place(path: Path, text: Path | None, *, replace: bool) -> None:
    """Raise unless a file can be written there, and no other one is lost.

    Raises:
        FileNotFoundError: no folder.
        FileExistsError: the text, a folder, a file not to be replaced.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.parent}; expected one for "
            f"{path.name}; got none"
        )
    is_text = text is not None and path.resolve() == text.resolve()
    if is_text or path.is_dir() or (path.exists() and not replace):
        raise FileExistsError(
            f"{path} {'is the text' if is_text else 'exists'}; expected a new "
            "name, --resume to go on from it, or --overwrite for a file; got "
            "none of them"
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
