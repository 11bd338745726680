"""Where a run writes: looked at before it trains, and then its alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

fcntl: Any = None
with suppress(ImportError):  # on Windows
    import fcntl


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
    process that is killed. Windows has no such lock, but takes away the file.

    Raises:
        BlockingIOError: another run writes there.
        OSError: nothing can be written there.
    """
    beside = path.with_name(f".{path.name}.lock")
    taken = BlockingIOError(
        f"another run writes {path}; expected a file for each run; "
        f"got the lock {beside.name}"
    )
    windows = os.O_EXCL | getattr(os, "O_TEMPORARY", 0)
    alone = os.O_NOFOLLOW if fcntl else windows
    try:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | alone, 0o644)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        raise OSError(
            f"{path} cannot be written; expected leave to write in its "
            f"folder; got {error.strerror}"
        ) from None
    with os.fdopen(handle, "rb"):
        try:
            if fcntl:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(handle), os.stat(beside)):
                    raise BlockingIOError  # its owner took it away meanwhile
        except (BlockingIOError, FileNotFoundError):
            raise taken from None
        try:
            yield
        finally:
            if fcntl:
                os.unlink(beside)  # while it is still ours
