"""Where a run writes: looked at before it trains, and then its alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: there two runs can meet
    fcntl = None  # type: ignore[assignment]


def check_places(
    written: dict[str, Path], read: Path | None, *, replace: set[str]
) -> None:
    """Raise unless each file can be written and none is another's.

    Args:
        written: option → file.
        read: the text, if it is a file.
        replace: the options whose file may exist.

    Raises:
        ValueError: one file for two purposes.
        FileNotFoundError, FileExistsError: no folder; a file that is there.
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
                f"there is no folder {path.parent}; expected one to write "
                f"{path.name} into; got none"
            )
        if path.is_dir():
            raise FileExistsError(
                f"{path} is a folder; expected the name of a file; got a "
                "folder"
            )
        if path.exists() and option not in replace:
            raise FileExistsError(
                f"{path} exists; expected a new name, --resume to go on "
                "from it, or --overwrite; got none of them"
            )


@contextmanager
def reserved(paths: list[Path]) -> Iterator[None]:
    """Keep other runs from these files until the end, however it comes.

    A lock stands in a file beside each. It is the system's, which takes it
    from a process that is killed.

    Raises:
        BlockingIOError: another run writes there.
        OSError: nothing can be written there.
    """
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(_locked(path))
        yield


@contextmanager
def _locked(path):
    beside = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise OSError(
            f"{path} cannot be written; expected leave to write in its "
            f"folder; got {error.strerror}"
        ) from None
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(handle), os.stat(beside)):
                raise BlockingIOError  # taken away by its owner meanwhile
    except (BlockingIOError, FileNotFoundError):
        os.close(handle)
        raise BlockingIOError(
            f"another run writes {path}; expected a file for each run; got "
            f"the lock {beside.name}"
        ) from None
    try:
        yield
    finally:
        os.unlink(beside)  # while it is still ours
        os.close(handle)
