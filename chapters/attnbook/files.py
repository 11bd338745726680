"""Files, written whole or not at all; nothing that is read is ever run."""

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

#: The longest description of a model that is read, in bytes.
MOST_JSON = 2**25

#: What a file that is not what it should be makes Python and torch raise.
_WRONG = (SafetensorError, OSError, RuntimeError, ValueError, TypeError)
_SHARD = r"[\w-][\w.-]{,200}\.safetensors"
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200


def shown(value: object) -> str:
    """A value in one short line without control characters."""
    return _SHORT.repr(value)


def locate(path: str | Path) -> Path:
    """The path, "~" being the user's folder; a FileNotFoundError for none."""
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

    Until then it lies beside it, under a name of its own. If anything goes
    wrong it is removed, and `path` is what it was; an OSError names it.
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
            f"{path} cannot be written; expected room and leave to write in "
            f"its folder; got {error.strerror or error}"
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
    """Write tensors and what `about` says of them; see `replacing`."""
    owned = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in tensors.items()
    }
    # One entry: safetensors does not keep the order of several.
    with replacing(path) as file:
        file.write(save(owned, {"attnbook": json.dumps(about)}))


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Whatever goes wrong inside is one error about this file."""
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
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError(f"a {type(found).__name__}")
    return found


def read(path: str | Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors of a file of `write`, and what it says about them."""
    path = locate(path)
    tensors, metadata = read_tensors(path)
    with reading(path, "a description under 'attnbook'"):
        about = _parsed(metadata.get("attnbook", "null"))
    # Copies: the originals are the file itself, mapped.
    return {name: t.clone() for name, t in tensors.items()}, about


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, mapped, and its metadata."""
    with reading(path, "a whole safetensors file"):
        # A head says how long it is, in eight bytes, and then where each
        # tensor begins and ends, counted from its own end on.
        with open(path, "rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            head = _parsed(opened.read(min(length, MOST_JSON)))
        head.pop("__metadata__", None)
        size = path.stat().st_size
        ends = {n: 8 + length + t["data_offsets"][1] for n, t in head.items()}
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
    """The JSON object in a file of at most `MOST_JSON` bytes."""
    with reading(path, "a JSON object"):
        if path.stat().st_size > MOST_JSON:
            raise ValueError(f"more than {MOST_JSON} bytes")
        return _parsed(path.read_text(encoding="utf-8"))


def read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """The file that a folder's weights lie in, for messages, and the tensors.

    An index must name what its files hold. A pickle is left unread.
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
    """Each tensor from the file that the index names, which lies beside."""
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
