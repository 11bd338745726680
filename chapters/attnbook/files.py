"""Files that are written whole or not at all, and read without being run.

A file of weights is a safetensors file: its head says in JSON where each
tensor is, and nothing in it is a program. What is read comes from elsewhere,
so every size is checked before it costs memory, and whatever is wrong becomes
one error that names the file.
"""

import glob
import json
import os
import re
import reprlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

#: The longest description of a model, in bytes, that is read at all.
MOST_JSON = 2**25

#: What Python and torch raise on a file that is not what it should be.
_WRONG = (SafetensorError, OSError, RuntimeError, ValueError, TypeError)
#: The name of a file with a part of the tensors: no folder, nothing hidden.
_SHARD = r"[\w-][\w.-]{,200}\.safetensors"
_SHORT = reprlib.Repr()
_SHORT.maxstring = 200
_SHORT.maxother = 200
_SHORT.maxlong = 200


def shown(value: object) -> str:
    """A value as one line of at most 200 characters or so.

    Control characters are escaped. It is for messages that quote a file.
    """
    return _SHORT.repr(value)


def locate(path: str | Path) -> Path:
    """The path of a file or folder, with "~" as the user's folder.

    Nothing need be there.

    Raises:
        FileNotFoundError: this cannot be a path: it is empty, too long, or
            names a user who does not exist.
    """
    with suppress(OSError, RuntimeError, ValueError):  # no such path or user
        found = Path(path).expanduser()
        found.exists()
        if str(path):
            return found
    raise FileNotFoundError(
        f"this is no path; expected that of a file or a folder; got "
        f"{shown(path)}"
    )


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the place of `path` at the end.

    Until everything is written it lies beside `path` under another name. If
    anything goes wrong it is removed, and what was at `path` is still there.

    Raises:
        OSError: the file cannot be written; the message names `path`.
    """
    temporary = ""
    try:
        folder = Path(path).parent
        handle, temporary = tempfile.mkstemp("", _new_prefix(path), folder)
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
            f"{path} cannot be written; expected a folder that has room and "
            f"may be written to; got: {error.strerror or error}"
        ) from error


def _new_prefix(path: str | Path) -> str:
    """How the name of a file begins that is to replace `path`."""
    return f".{Path(path).name[:100]}.new-"


def remove_leftovers(path: str | Path) -> None:
    """Remove what `replacing` left beside a file when it was killed.

    Only for a caller who knows that nobody else is writing the file now.
    """
    path = Path(path)
    for left in path.parent.glob(f"{glob.escape(_new_prefix(path))}*"):
        with suppress(OSError):
            left.unlink()


def write(
    path: str | Path, tensors: Mapping[str, Tensor], about: dict
) -> None:
    """Write tensors, and what is to be known `about` them, into one file.

    `about` must be such that JSON can say it. The file is complete or is not
    there; `read` reads it.

    Raises:
        OSError: the file cannot be written.
        TypeError: something in `about` that JSON cannot say.
    """
    owned = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in tensors.items()
    }
    # All of it is one entry, because safetensors does not keep the order of
    # several.
    with replacing(path) as file:
        file.write(save(owned, {"attnbook": json.dumps(about)}))


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever goes wrong inside the block into one error on this file.

    `expected` says what the file should hold.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: anything else went wrong; its message is quoted.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}; expected {expected}; got none"
        )
    try:
        yield
    except (*_WRONG, LookupError, AttributeError) as error:
        raise ValueError(
            f"{path} is cut off, damaged or of something else; expected "
            f"{expected}; got {shown(str(error))[1:-1]}"
        ) from error


def _parsed(text):
    """The dictionary that a JSON text says.

    Raises:
        TypeError: it says something else, such as a list; `reading` makes one
            message of this and of all other errors.
        ValueError: it is no JSON.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError(f"a {type(found).__name__}")
    return found


def read(path: str | Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors of a file of `write`, and what it says about them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is cut off, damaged, or of something else.
    """
    path = locate(path)
    tensors, metadata = read_tensors(path)
    with reading(path, "a description under 'attnbook'"):
        about = _parsed(metadata.get("attnbook", "null"))
    # Copied, because what was read is the file itself, mapped into memory.
    return {name: t.clone() for name, t in tensors.items()}, about


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, and its metadata.

    The tensors are the file itself, mapped into memory: they cost nothing
    until they are used, and must not outlive the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or of something else; of one that is
            cut off, the message names the first tensor that is not whole.
    """
    with reading(path, "a whole safetensors file"):
        # The first eight bytes say how long the header is. The header says
        # where each tensor begins and ends, counted from the header's end.
        with open(path, "rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            head = _parsed(opened.read(min(length, MOST_JSON)))
        head.pop("__metadata__", None)
        size = path.stat().st_size
        start = 8 + length
        ends = {n: start + t["data_offsets"][1] for n, t in head.items()}
        cut = [name for name in ends if ends[name] > size]
        if cut:
            first = min(cut, key=lambda name: ends[name])
            raise ValueError(
                f"{size} bytes of {max(ends.values())}: {shown(first)[1:-1]} "
                f"{tuple(head[first]['shape'])} is the first tensor that is "
                "not whole"
            )
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            return tensors, file.metadata() or {}


def read_json(path: Path) -> dict:
    """The JSON object in a file of at most `MOST_JSON` bytes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is longer, or does not hold a JSON object.
    """
    with reading(path, "a JSON object"):
        if path.stat().st_size > MOST_JSON:
            raise ValueError(f"more than {MOST_JSON} bytes")
        return _parsed(path.read_text(encoding="utf-8"))


def read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """The tensors of a published model, which lie in this folder.

    They are in `model.safetensors`, or in several files that an index names.
    A pickle is never read, because reading one can run any program.

    Returns:
        The file that lists the tensors (for messages), and the tensors.

    Raises:
        FileNotFoundError: the folder has no weights, or a file is missing.
        ValueError: a file is damaged; the index and the files differ; there
            is only a pickle.
    """
    whole = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if whole.is_file():
        return whole, read_tensors(whole)[0]
    if index.is_file():
        return index, _sharded(index)
    if (folder / "pytorch_model.bin").is_file():
        raise ValueError(
            f"{folder} holds its weights as a pickle, which can run any "
            f"program when it is read; expected {whole.name}; got "
            "pytorch_model.bin. If you trust it, convert it there, once: "
            "safetensors.torch.save_file({n: t.clone() for n, t in torch."
            'load("pytorch_model.bin", weights_only=True).items()}, '
            '"model.safetensors")'
        )
    raise FileNotFoundError(
        f"there are no weights in {folder}; expected {whole.name} or "
        f"{index.name}; got neither"
    )


def _sharded(index):
    """The tensors of an index, each from the file that it names for it.

    The files must lie beside the index, and hold just what it says.
    """
    about = read_json(index)
    with reading(index, "a weight_map of .safetensors files beside it"):
        entries = about["weight_map"]
        for name, part in entries.items() or [("", None)]:
            if not re.fullmatch(_SHARD, str(part)):
                raise ValueError(f"{shown(part)} for {shown(name)}")
    tensors = {}
    for part in sorted({*entries.values()}):
        found, _ = read_tensors(index.parent / part)
        named = {name for name, file in entries.items() if file == part}
        for odd in sorted(found.keys() ^ named)[:1]:
            raise ValueError(
                f"{index} and {part} differ; expected the same tensors in "
                f"both; got {shown(odd)} in one alone"
            )
        tensors |= found
    return tensors
