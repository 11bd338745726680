"""Files, read and written safely: nothing that is read is ever run.

What is written is there whole or not at all. Whatever is wrong with what is
read is one `ValueError`, or `FileNotFoundError` if it is not there.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

#: The longest description of a model that is read, in bytes.
MOST_JSON = 2**25

#: What Python raises where JSON is not what it should be.
_NO_HEAD = ValueError, LookupError, TypeError, AttributeError, RecursionError

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def shown(value: object) -> str:
    """A value in one short line without control characters."""
    return _SHORT.repr(value)


def locate(path: str | Path) -> Path:
    """The path; "~" is the user's folder, and "" is none.

    Raises:
        FileNotFoundError: what no file can be called.
    """
    with suppress(OSError, RuntimeError, ValueError):  # too long; no user
        found = Path(path).expanduser()
        found.exists()
        if str(path):
            return found
    raise FileNotFoundError(
        f"this is no path; expected a file's or a folder's; got {shown(path)}"
    )


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write into, which replaces `path` when all is written.

    Until then it has a name of its own beside it. If anything goes wrong it
    is removed, and `path` is what it was.

    Raises:
        OSError: it cannot be written; the message names `path`.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(
            dir=Path(path).parent, prefix=".writing-"
        )
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


def write(
    path: str | Path, tensors: Mapping[str, Tensor], about: dict
) -> None:
    """Write tensors and what `about` says of them; see `replacing`."""
    owned = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in tensors.items()
    }
    # One entry: safetensors does not keep the order of several.
    data = save(owned, {"attnbook": json.dumps(about)})
    with replacing(path) as file:
        file.write(data)


def read(path: str | Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors of a file of `write`, and what it says about them.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, or one of something else.
    """
    path = locate(path)
    tensors, metadata = read_tensors(path)
    about = None
    with suppress(ValueError, RecursionError):
        about = json.loads(metadata.get("attnbook", "null"))
    if not isinstance(about, dict):
        raise ValueError(
            f"{path} is of something else; expected a description under "
            f"'attnbook'; got metadata {shown(metadata)}"
        )
    # Copies: the originals are the file itself, mapped.
    return {name: t.clone() for name, t in tensors.items()}, about


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, mapped, and its metadata.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that is cut off or damaged.
    """
    _require(path)
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            return tensors, file.metadata() or {}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            _cut_off(path)
            or f"{path} is cut off or damaged; expected a whole safetensors "
            f"file; got {path.stat().st_size} bytes, and {shown(str(error))}"
        ) from error


def _cut_off(path):
    """The first tensor not to be whole in a file that was cut off, or
    nothing if its head does not say.

    A head says how long it is, in eight bytes, and then where each tensor
    begins and ends, counted from its own end on.
    """
    size = path.stat().st_size
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, MOST_JSON)))
        header.pop("__metadata__", None)
        ends = {
            n: 8 + length + t["data_offsets"][1] for n, t in header.items()
        }
        first = min(ends, key=lambda n: (ends[n] <= size, ends[n]))
        shape = tuple(header[first]["shape"])
    except _NO_HEAD:
        return ""
    return (ends[first] > size) and (
        f"{path} is cut off; expected {max(ends.values())} bytes; got {size}: "
        f"{shown(first)[1:-1]} {shape} is the first tensor that is not whole"
    )


def read_json(path: Path) -> dict:
    """The JSON object in a file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no JSON, or more than 32 MiB; another thing than an object.
    """
    _require(path)
    try:
        if path.stat().st_size > MOST_JSON:
            raise ValueError(f"more than {MOST_JSON} bytes")
        about = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(about, dict):
            raise ValueError(f"a {type(about).__name__}")
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged; expected a JSON object; got {error}"
        ) from error
    return about


def _require(path):
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}; expected one of that name; got none"
        )


def read_weights(
    folder: Path, *, allow_pickle: bool = False
) -> tuple[Path, dict[str, Tensor]]:
    """The file that a folder's weights lie in, for messages, and the tensors.

    Raises:
        FileNotFoundError: no weights; a file that an index names.
        ValueError: a file that is cut off or damaged; an index and files
            that differ; a pickle, without `allow_pickle`.
    """
    kinds = {
        "model.safetensors": lambda file: read_tensors(file)[0],
        "model.safetensors.index.json": _sharded,
        "pytorch_model.bin": _unpickled,
    }
    *_, pickle = kinds
    there = [name for name in kinds if (folder / name).is_file()]
    if not there:
        raise FileNotFoundError(
            f"there are no weights in {folder}; expected "
            f"{' or '.join(list(kinds)[:2])}; got neither"
        )
    if there == [pickle] and not allow_pickle:
        raise ValueError(
            f"{folder} holds its weights as a pickle; expected "
            f"model.safetensors; got {pickle}. A pickle can run any program "
            "when it is read. If you trust where it comes from, "
            "allow_pickle=True reads tensors from it and nothing else"
        )
    return folder / there[0], kinds[there[0]](folder / there[0])


def _sharded(index):
    """Each tensor from the file that the index names, which lies beside."""
    entries = read_json(index).get("weight_map")
    entries = entries if isinstance(entries, dict) and entries else {"": None}
    for name, part in entries.items():
        if not re.fullmatch(r"[\w-][\w.-]{,200}\.safetensors", str(part)):
            raise ValueError(
                f"{index} leads elsewhere; expected a weight_map with the "
                "name of a .safetensors file in the same folder for every "
                f"tensor; got {shown(part)} for {shown(name)}"
            )
    tensors = {}
    for part in sorted({*entries.values()}):
        found, _ = read_tensors(index.parent / part)
        odd = found.keys() ^ {n for n, file in entries.items() if file == part}
        if odd:
            raise ValueError(
                f"{index} and {part} differ; expected the same tensors in "
                f"both; got {shown(min(odd))} in one alone"
            )
        tensors |= found
    return tensors


def _unpickled(file):
    """The tensors of a pickle, in which torch calls nothing unknown."""
    size = file.stat().st_size
    try:
        if zipfile.is_zipfile(file):  # packed, it could be a bomb
            with zipfile.ZipFile(file) as archive:
                if sum(part.file_size for part in archive.infolist()) > size:
                    raise ValueError
        found = torch.load(file, map_location="cpu", weights_only=True)
        if not all(isinstance(n, str) and _own(t) for n, t in found.items()):
            raise ValueError
        if sum(tensor.nbytes for tensor in found.values()) > 2 * size:
            raise ValueError  # the same numbers under many names
    except Exception as error:  # of any kind, as the file says what is done
        raise ValueError(
            f"{file} is cut off, damaged, or has more than tensors in it; "
            "expected a whole PyTorch file of plain tensors by name, with "
            f"numbers of their own; got {type(error).__name__}"
        ) from error
    return found


def _own(tensor):
    """Whether it is a plain tensor with numbers of its own."""
    return (
        isinstance(tensor, Tensor)
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and tensor.untyped_storage().nbytes() >= tensor.nbytes
    )
