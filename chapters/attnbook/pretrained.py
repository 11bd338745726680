"""Finished models in files: GPT-2's and Llama's checkpoints, and the book's.

A published checkpoint is a folder: `config.json` says the sizes, safetensors
files hold the tensors. There is no model before every one of them fits.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import huggingface_hub
import torch
from torch import Tensor

from attnbook import files
from attnbook.families import FAMILIES, REVISIONS, SIZES, config_of
from attnbook.files import shown
from attnbook.gpt import GPT, GPTConfig
from attnbook.text import OFFLINE
from attnbook.values import one_of
from attnbook.vocabulary import Vocabulary

_TYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


class _Match(NamedTuple):
    """Tensors of theirs and the tensors of ours that hold the same."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    shape: tuple[int, ...]  # of each of theirs
    turned: bool = False  # whether theirs are transposed


def _shapes(config, count, where):
    """The shapes of a model that is to come from `count` tensors, by name."""
    if config.n_layers > count or config.parameter_count() > 2**50:
        raise ValueError(
            f"{where} cannot hold n_layers {config.n_layers}; expected "
            f"{config.parameter_count()} numbers; got {count} tensors"
        )
    with torch.device("meta"):  # one block, without numbers, stands for all
        state = GPT(replace(config, n_layers=1)).state_dict()
    return {
        name.replace("blocks.0.", f"blocks.{n}."): tuple(tensor.shape)
        for n in range(config.n_layers)
        for name, tensor in state.items()
    }


def _matches(family, prefix, shapes):
    """All of a model's, part by part."""
    n_layers = sum(name.endswith("attention.out.weight") for name in shapes)
    names = {prefix + a: b for a, b in family.names.items()}
    for a, b in (names | {"lm_head": "head"}).items():
        theirs, ours = a.replace(" ", f" {prefix}").split(), b.split()
        for n in range(n_layers if "#" in a else 1):
            for end in (".weight", ".bias"):
                p = tuple(t.replace("#", f"{n}") + end for t in theirs)
                q = tuple(t.replace("#", f"blocks.{n}") + end for t in ours)
                if q[0] in shapes:
                    out = sum(shapes[name][0] for name in q) // len(p)
                    shape = (out, *shapes[q[0]][1:])
                    turned = family.conv1d and "#" in a and len(shape) == 2
                    shape = shape[::-1] if turned else shape
                    yield _Match(p, q, shape, turned)


def rename(
    tensors: dict[str, Tensor],
    config: GPTConfig,
    family: str,
    *,
    where: object = "the checkpoint",
) -> dict[str, Tensor]:
    """Their tensors under our names: transposed, cut or stacked as ours are.

    The prefix "transformer." or "model." may be missing; `where` is what
    messages call the file. What need not be stacked comes back as views.

    Raises:
        ValueError: a tensor that is missing, does not belong there or has
            another shape; more than one type of numbers; a head that is to
            be the embedding and is not.
    """
    names = FAMILIES[one_of("family", family, FAMILIES)]
    body = not any(name.startswith(names.prefix) for name in tensors)
    prefix = "" if body else names.prefix
    tensors = {
        name: tensor
        for name, tensor in tensors.items()
        if not re.fullmatch(names.ignored, name.removeprefix(prefix))
    }
    shapes = _shapes(config, len(tensors), where)
    matches = list(_matches(names, prefix, shapes))
    head = tensors.pop("lm_head.weight", None) if config.tied else None
    _check(tensors, matches, where)
    if not (head is None or torch.equal(head, tensors[matches[0].theirs[0]])):
        raise ValueError(
            f"{where} has a head of its own; expected lm_head.weight equal "
            "to the embedding, as tie_word_embeddings says; got another"
        )
    ours: dict[str, Tensor] = {}
    for match in matches:
        parts = [tensors[name] for name in match.theirs]
        if match.turned:
            parts = [part.T for part in parts]
        stacked = parts[0] if len(parts) == 1 else torch.cat(parts)
        sizes = [shapes[name][0] for name in match.ours]
        ours |= zip(match.ours, stacked.split(sizes))
    return ours


def _check(tensors, matches, where):
    """Raise unless names, shapes and types are the expected ones."""
    expected = {name: match for match in matches for name in match.theirs}
    missing = [name for name in expected if name not in tensors]
    extra = [name for name in tensors if name not in expected]
    if missing:
        first, (_, ours, shape, _) = missing[0], expected[missing[0]]
        like = [n for n in extra if tensors[n].shape == shape][:300]
        like = [n for n in like if len(n) < 200]  # it takes its time
        got = "no other tensor of that shape"
        for name in difflib.get_close_matches(first, like, n=1, cutoff=0):
            got = f"{shown(name)[1:-1]} of that shape, perhaps renamed from it"
        raise ValueError(
            f"{where} lacks {len(missing)} of {len(expected)} tensors; "
            f"expected {first} {shape}, for {' and '.join(ours)}; got {got}"
        )
    if extra:
        raise ValueError(
            f"{where} holds more than this model; expected its "
            f"{len(expected)} tensors; got {shown(extra[0])[1:-1]} too"
        )
    for name, match in expected.items():
        got = tuple(tensors[name].shape)
        if got != match.shape:
            turned = match.turned and got == match.shape[::-1]
            raise ValueError(
                f"{name} in {where} has the wrong shape; expected "
                f"{match.shape}, for {' and '.join(match.ours)}; got {got}"
                + (", as in a Linear and not in a Conv1D" if turned else "")
            )
    kinds = {tensor.dtype: name for name, tensor in tensors.items()}
    if len(kinds) > 1 or not kinds.keys() <= _TYPES:
        raise ValueError(
            f"{where} holds numbers of the wrong type; expected all of one "
            "type, and floats of 16 bits or more; got "
            + ", ".join(f"{kind} in {name}" for kind, name in kinds.items())
        )


def load(name_or_path: str | Path) -> GPT:
    """A GPT with published weights, in evaluation mode.

    The numbers are of the type that they have in the file.

    The name is a folder's, as transformers' `save_pretrained` writes it and
    `hf download` fetches it; or one on the hub, such as "gpt2" (of `SIZES`)
    or "HuggingFaceTB/SmolLM2-135M", fetched unless there is a copy here.

    Raises:
        FileNotFoundError: nowhere such a model; a file of it missing.
        ValueError: a file that is cut off or damaged, or a pickle; a model
            that our class cannot be; tensors that do not fit, see `rename`.
    """
    folder = _find(name_or_path)
    about = files.read_json(folder / "config.json")
    try:
        config = config_of(about)
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)[:500]  # a value can be longer
        raise ValueError(f"{folder / 'config.json'}: {reason}") from error
    file, tensors = files.read_weights(folder)
    state = rename(tensors, config, about["model_type"], where=file)
    return _filled(config, state, file)


def _filled(config, state, where):
    """A model with these numbers, of its own, so that no file is needed."""
    for name, tensor in state.items():
        if not tensor.isfinite().all():
            raise ValueError(
                f"{where} is damaged; expected numbers for {name}; got NaN "
                "or infinity among them"
            )
        state[name] = tensor.clone(memory_format=torch.contiguous_format)
    with torch.device("meta"):
        model = GPT(config)
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval()


def _find(name_or_path):
    """The folder of a model, here or from the hub."""
    folder, name = files.locate(name_or_path), str(name_or_path)
    if folder.is_dir():
        return folder
    repository = f"openai-community/{name}" if name in SIZES else name
    try:
        found = huggingface_hub.snapshot_download(
            repository,
            revision=REVISIONS.get(name),
            allow_patterns=["config.json", "model*.safetensors*"],
            local_files_only=OFFLINE in os.environ,
            etag_timeout=2,
        )
    except Exception as error:  # of any kind: those of the network are many
        raise FileNotFoundError(
            f"there is no model {name}; expected a folder of that name, a "
            "copy of the hub's on this machine, or the hub to answer; got "
            f"{'a file' if folder.exists() else type(error).__name__}. Where "
            f"there is a network, `hf download {repository}` makes a copy"
        ) from error
    return Path(found)


class Saved(NamedTuple):
    """What `load_model` finds in a file."""

    model: GPT
    vocabulary: Vocabulary | None
    about: dict  # whatever else the file says of itself


def save_model(
    path: str | Path,
    model: GPT,
    vocabulary: Vocabulary | None = None,
    *,
    about: dict | None = None,
) -> None:
    """Write a model in float32, and what is said `about` it, into a file."""
    tensors = {f"model.{n}": t.float() for n, t in model.state_dict().items()}
    words = None if vocabulary is None else list(vocabulary)
    described = {"config": asdict(model.config), "vocabulary": words}
    files.write(path, tensors, (about or {}) | described)


def load_model(path: str | Path) -> Saved:
    """A model from a file of `save_model`, or from a checkpoint of a run.

    It comes on the CPU, in `eval` mode, in the type that it was stored in.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that is damaged, or of something else.
    """
    path = files.locate(path)
    stored, about = files.read(path)
    with files.reading(path, "a GPTConfig and a vocabulary of its size"):
        config = GPTConfig(**about.pop("config"))
        words = about.pop("vocabulary")
        vocabulary = None if words is None else Vocabulary(words)
        if words is not None and len(words) != config.vocab_size:
            raise ValueError(f"{len(words)} words for {config.vocab_size}")
    state = {
        name.removeprefix("model."): tensor
        for name, tensor in stored.items()
        if name.startswith("model.")  # the rest is a run's
    }
    shapes = _shapes(config, len(state), path)
    same = [_Match((name,), (name,), shapes[name]) for name in shapes]
    _check(state, same, path)
    return Saved(_filled(config, state, path), vocabulary, about)
