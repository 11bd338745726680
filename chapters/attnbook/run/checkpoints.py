"""Files that hold tensors and say of themselves what they are.

One safetensors file holds the tensors, and as metadata a format version, a
checksum of everything and whatever the writer says about them. Nothing in it
is ever run. A file is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

#: The version of the files written here; another one is refused.
FORMAT = 1


def check_free(path: str | Path, *, overwrite: bool = False) -> None:
    """Raise a clear error if a file may not be written here."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.parent}; expected one to write "
            f"{path.name} into; got none"
        )
    if path.is_dir():
        raise FileExistsError(
            f"{path} is a folder; expected the name of a file; got a folder"
        )
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{path} exists; expected a new name, or leave to resume from "
            "it or to overwrite it; got neither"
        )


def write(path: Path, tensors: dict[str, Tensor], about: dict) -> None:
    """Write tensors and what `about` says of them, all of it or nothing,
    whatever happens meanwhile.
    """
    tensors = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in tensors.items()
    }
    about = {"format": FORMAT, **about}
    about["sha256"] = _digest(tensors, about)
    # One entry: safetensors does not keep the order of several.
    data = to_bytes(tensors, {"attnbook": json.dumps(about)})
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read(path: Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors of a file and what it says about them."""
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}; expected a model or a checkpoint; "
            "got none"
        )
    try:
        with safe_open(path, "pt") as file:
            about = (file.metadata() or {}).get("attnbook")
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            # Copies: the originals are the file itself, mapped.
            tensors = {name: t.clone() for name, t in tensors.items()}
        about = None if about is None else json.loads(about)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path} is corrupt; expected a whole safetensors file; "
            f"got {error}"
        ) from error
    version = about.get("format") if isinstance(about, dict) else None
    if version != FORMAT:
        raise ValueError(
            f"{path} has another format; expected version {FORMAT} of this "
            f"book's; got {'none' if version is None else version}"
        )
    stored = about.pop("sha256", None)
    if stored != _digest(tensors, about):
        raise ValueError(
            f"{path} is corrupt; expected contents with the checksum "
            f"{stored}; got others"
        )
    del about["format"]
    return tensors, about


def _digest(tensors, about):
    """A checksum of everything in a file."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_same(path, expected, got):
    """Raise if a checkpoint is of another run, and say in what."""
    for name in expected:
        ours, theirs = expected[name], got.get(name)
        if ours == theirs:
            continue
        if isinstance(ours, dict) and isinstance(theirs, dict):
            keys = [k for k in ours | theirs if ours.get(k) != theirs.get(k)]
            ours = {k: ours.get(k) for k in keys}
            theirs = {k: theirs.get(k) for k in keys}
        elif isinstance(ours, list) and isinstance(theirs, list):
            ours, theirs = (
                f"{len(words)} words, without "
                f"{sorted(set(others) - set(words))[:3]}"
                for words, others in ((ours, theirs), (theirs, ours))
            )
        raise ValueError(
            f"{path} is of another run; expected {name} {ours}; got {theirs}"
        )


def check_tensors(path, expected, got):
    """Raise if tensors are missing, too many, or of another shape or type."""
    missing = sorted(expected.keys() - got.keys())
    extra = sorted(got.keys() - expected.keys())
    if missing or extra:
        raise ValueError(
            f"{path} does not hold the right tensors; expected also "
            f"{missing[:3] or 'none'}; got instead {extra[:3] or 'none'}"
        )
    for name, tensor in expected.items():
        wanted, found = (
            f"{tuple(t.shape)} {t.dtype}" for t in (tensor, got[name])
        )
        if wanted != found:
            raise ValueError(
                f"{name} in {path} does not fit; expected {wanted}; "
                f"got {found}"
            )
