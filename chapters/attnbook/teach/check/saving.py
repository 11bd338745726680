"""Writing files so that they are whole or not there at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the place of `path` at the end.

    Until then it lies beside `path`, under a name of its own. If anything
    goes wrong it is removed, and `path` is what it was.

    Raises:
        OSError: naming `path`, if it cannot be written.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp("", ".new-", path.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if not isinstance(error, OSError):
            raise
        raise OSError(
            f"{path} cannot be written; expected room and leave to write in "
            f"its folder; got {error.strerror or error}"
        ) from error
