"""Where a run writes: check a path before training, then lock it.

A training of many hours must not end with "cannot be written", and no two
runs may write one file in turns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from attnbook import files

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None


def check_place(
    path: Path, text: Path | None, *, replace: bool, instead: str
) -> None:
    """Raise unless a file can be written at a path without losing another.

    Args:
        path: the file that will be written.
        text: the text that is trained on, which must never be overwritten.
        replace: whether a file that exists may be replaced.
        instead: what one can do if it exists, for the message.

    Raises:
        FileNotFoundError: no folder to write in.
        FileExistsError: the path is the text, a folder, or a file that must
            not be replaced.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.parent}; expected one for "
            f"{path.name}; got none"
        )
    if text is not None and path.resolve() == text.resolve():
        raise FileExistsError(
            f"{path} is the text itself, which would be lost; expected the "
            "name of another file, which --out chooses"
        )
    if path.is_dir():
        raise FileExistsError(
            f"{path} is a folder; expected the name of a file, which --out "
            "chooses"
        )
    if path.exists() and not replace:
        raise FileExistsError(
            f"{path} exists; expected a name that is free. {instead}"
        )


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Keep other runs from writing a file, until this block ends.

    It locks a file beside it. The lock is the system's, which takes it from
    a process that is killed. Windows has no such lock, but there the file
    itself goes away with its process. What a killed run has left of `path`,
    half written and under another name, is removed.

    Raises:
        BlockingIOError: another run writes the file.
        OSError: nothing can be written there.
    """
    beside = path.with_name(f".{path.name}.lock")
    taken = BlockingIOError(
        f"another run writes {path}; expected a file for each run; "
        f"got the lock {beside.name}"
    )
    if fcntl is not None:
        alone = os.O_NOFOLLOW
    else:
        alone = os.O_EXCL | getattr(os, "O_TEMPORARY", 0)
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
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                same = os.path.samestat(os.fstat(handle), os.stat(beside))
            except (BlockingIOError, FileNotFoundError):
                raise taken from None
            if not same:  # its owner has removed it and ended
                raise taken
        files.remove_leftovers(path)
        try:
            yield
        finally:
            if fcntl is not None:
                # Removed while the lock is held, so that nobody else's is. The
                # folder may be gone already.
                with suppress(FileNotFoundError):
                    os.unlink(beside)
