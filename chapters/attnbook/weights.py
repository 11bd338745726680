"""Files of published weights: where they are, and what is in them.

A folder holds `config.json` and safetensors files. It is on this machine or
is fetched from the hub, which is asked only if it answers quickly. Nothing
here knows of a model, and nothing that is read is ever run.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from attnbook import text

#: What weights are called, the first of which is taken; the pickle last.
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_PICKLE = "pytorch_model.bin"


def find(
    name_or_path: str | Path,
    *,
    alias: str | None = None,
    allow_pickle: bool = False,
) -> Path:
    """The folder of a model: the one named, a copy of the hub's on this
    machine, or what the hub sends.

    Args:
        name_or_path: a folder, or a name on the hub.
        alias: the full name on the hub, where another is in use.
        allow_pickle: take a copy that has nothing but a pickle.

    Raises:
        FileNotFoundError: nowhere such a model.
    """
    folder, name = Path(name_or_path).expanduser(), str(name_or_path)
    if folder.is_dir():
        return folder
    on_the_hub = re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name)
    if folder.exists() or not on_the_hub:
        raise FileNotFoundError(
            f"there is no folder {name}; expected one with config.json and "
            "model.safetensors, or a name on the hub; got "
            + ("a file" if folder.exists() else "neither")
        )
    names = [name] if alias is None else [name, alias]
    for candidate in names:
        folder, _ = _snapshot(candidate, local=True)
        if folder is not None and _whole(folder, allow_pickle):
            return folder
    why, error = _why_not_asked(), None
    if not why:
        print(f"weights: fetching {names[-1]}")
        folder, error = _snapshot(names[-1], local=False)
        if folder is not None and _weights(folder, allow_pickle):
            return folder
        why = "from the hub none with safetensors"
        if error is not None:
            why = f"from the hub {type(error).__name__}"
    raise FileNotFoundError(
        f"there is no model {name!r}; expected a folder of that name with "
        "config.json and model.safetensors, a copy of the hub's on this "
        f"machine, or the hub to answer; got no folder, no copy, and {why}. "
        f"Where there is a network, `hf download {names[-1]}` makes a copy"
    ) from error


def _why_not_asked():
    """Why the hub is not asked; nothing if it is there to be asked."""
    from huggingface_hub import constants

    if text.OFFLINE in os.environ:
        return f"a hub not asked, as {text.OFFLINE} is set"
    if constants.HF_HUB_OFFLINE:
        return "a hub not asked, as HF_HUB_OFFLINE is set"
    return "" if text._reachable(text.HUB) else "a hub that does not answer"


def _snapshot(name, *, local):
    """A folder from the hub or from its copies here, or None and why."""
    import huggingface_hub
    from huggingface_hub import utils

    silent = utils.are_progress_bars_disabled()
    utils.disable_progress_bars()  # they go to stderr
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name,
                local_files_only=local,
                allow_patterns=[
                    "config.json",
                    *_WEIGHTS,
                    "model-*.safetensors",
                ],
            )
        ), None
    except Exception as error:  # of any kind: those of the network are many
        return None, error
    finally:
        if not silent:
            utils.enable_progress_bars()


def _whole(folder, allow_pickle):
    """Whether a copy has all its files, as after a download to the end."""
    file = _weights(folder, allow_pickle)
    needed = [folder / "config.json", *(_files(file) if file else ())]
    return file is not None and all(path.is_file() for path in needed)


def _weights(folder, allow_pickle):
    """The file with the weights, or their index, or None."""
    for name in (*_WEIGHTS, _PICKLE) if allow_pickle else _WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    return None


def read(
    folder: Path, *, allow_pickle: bool = False
) -> tuple[Path, dict[str, Tensor]]:
    """The file that the weights lie in, for messages, and the tensors by
    name. Those of safetensors are the file itself, mapped.

    Raises:
        FileNotFoundError: no weights; a file that an index names.
        ValueError: a file that is cut off or damaged; nothing but a pickle,
            without `allow_pickle`.
    """
    file = _weights(folder, allow_pickle)
    if file is None and (folder / _PICKLE).is_file():
        raise ValueError(
            f"{folder} holds its weights as a pickle; expected "
            f"{_WEIGHTS[0]}; got {_PICKLE}. A pickle can run any program when "
            "it is read. If you trust where it comes from, allow_pickle=True "
            "reads tensors from it and nothing else"
        )
    if file is None:
        raise FileNotFoundError(
            f"there are no weights in {folder}; expected "
            f"{' or '.join(_WEIGHTS)}; got neither"
        )
    if file.name == _PICKLE:
        return file, _unpickled(file)
    tensors = {}
    for part in _files(file):
        if not part.is_file():
            raise FileNotFoundError(
                f"there is no file {part}; expected it, as {file.name} names "
                "it; got none"
            )
        tensors |= _tensors(part)
    return file, tensors


def _files(file):
    """The file itself, or those that it names if it is an index."""
    if file.suffix != ".json":
        return [file]
    entries = read_json(file).get("weight_map")
    if not isinstance(entries, dict) or not entries:
        raise ValueError(
            f"{file} names no files; expected a weight_map of tensors and "
            f"files; got {entries!r}"
        )
    for name, part in entries.items():
        # A name and no path: nothing is read but what lies beside it.
        if not isinstance(part, str) or not re.fullmatch(
            r"[\w-][\w.-]*\.safetensors", part
        ):
            raise ValueError(
                f"{file} leads elsewhere; expected for {name} the name of a "
                f".safetensors file in the same folder; got {part!r}"
            )
    return [file.parent / part for part in sorted({*entries.values()})]


def _tensors(file):
    """The tensors of one safetensors file."""
    try:
        with safe_open(file, "pt") as opened:
            return {n: opened.get_tensor(n) for n in opened.keys()}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            _damage(file)
            or (
                f"{file} is cut off or damaged; expected a whole safetensors "
                f"file; got {file.stat().st_size} bytes, and reading them {error}"
            )
        ) from error


def _unpickled(file):
    """The tensors of a pickle, in which torch calls nothing unknown."""
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of any kind, as the file says what is done
        raise ValueError(
            f"{file} is cut off, damaged, or has more than tensors in it; "
            "expected a whole PyTorch file of tensors; got "
            f"{type(error).__name__}"
        ) from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor)
        for name, tensor in found.items()
    ):
        raise ValueError(
            f"{file} holds something else; expected tensors by name; got "
            f"{type(found).__name__}"
        )
    return found


def _damage(file):
    """Which tensor is the first not to be whole in a file that was cut off,
    or nothing if its head does not say.

    A head says how long it is, in eight bytes, and then where each tensor
    begins and ends, counted from its own end on.
    """
    size = file.stat().st_size
    try:
        with open(file, "rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length) if length < size else "")
        header.pop("__metadata__", None)
        ends = {
            name: 8 + length + entry["data_offsets"][1]
            for name, entry in header.items()
        }
        first = min(ends, key=lambda n: (ends[n] <= size, ends[n]))
        shape = tuple(header[first]["shape"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    if ends[first] <= size:
        return ""
    return (
        f"{file} is cut off; expected {max(ends.values())} bytes; got {size}: "
        f"{first} {shape} is the first tensor that is not whole"
    )


def read_json(file: Path) -> dict:
    """What a file of JSON says.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no JSON, or another thing than an object.
    """
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no file {file}; expected one that describes the "
            "model; got none"
        )
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{file} is damaged; expected JSON; got {error}"
        ) from error
    if not isinstance(about, dict):
        raise ValueError(
            f"{file} describes nothing; expected a JSON object; got "
            f"{type(about).__name__}"
        )
    return about
