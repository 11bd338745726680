"""Finished models in files: published checkpoints, and the book's own.

A published checkpoint is a folder: its `config.json` says the sizes, and its
safetensors files hold the tensors. `load` reads one; `load_model` reads what
`save_model` has written. Neither gives a model before every tensor is there,
has its shape and holds finite numbers.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from re import fullmatch
from typing import NamedTuple

import huggingface_hub
import torch
from tokenizers import Tokenizer
from torch import Tensor

from attnbook import files, gguf, published
from attnbook.byte_pairs import BytePairs
from attnbook.encoder import Encoder, EncoderConfig
from attnbook.families import FAMILIES, REVISIONS, SIZES, Family, config_of
from attnbook.files import shown
from attnbook.gpt import GPT, GPTConfig
from attnbook.text import OFFLINE
from attnbook.vocabulary import Vocabulary

#: The types of numbers that a model may be stored in.
_TYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
#: A block has at least this many tensors, in every family and in our own.
_TENSORS_A_BLOCK = 6


class _Match(NamedTuple):
    """Tensors of a file, and the tensors of our model that hold the same."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    shape: tuple[int, ...]  # of each tensor in the file
    transposed: bool = False  # whether it is (inputs, outputs) there


def load(name_or_path: str | Path) -> GPT | Encoder:
    """A model with published weights, on the CPU and in evaluation mode.

    It is a `GPT`, or an `Encoder` if it is a BERT. The name is one of

    - `published.PUBLISHED`, two models that come in packages: the language
      model "SmolLM2-135M-Instruct" and the encoder "all-MiniLM-L6-v2";
    - a folder, as transformers' `save_pretrained` writes it and `hf download`
      fetches it, or a GGUF file;
    - a model on the Hugging Face hub, such as "gpt2" (of `SIZES`) or
      "HuggingFaceTB/SmolLM2-135M", which is fetched unless there is a copy on
      this machine.

    The model's numbers have the type that they have in the file; those of a
    GGUF file, which are packed, become float32.

    Raises:
        FileNotFoundError: there is no such model, or a file of it is missing.
        ValueError: a file is cut off or damaged, or is a pickle; the model is
            one that our classes cannot be; the tensors do not fit (see
            `rename`), or are not all finite.
    """
    path = _find(name_or_path)
    if path.is_file():
        about, tensors = _read_gguf(path)
        described = path
        where = path
    else:
        described = path / "config.json"
        about = files.read_json(described)
        where, tensors = files.read_weights(path)
    try:
        config = config_of(about)
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)[:500]  # a value can be longer
        raise ValueError(f"{described}: {reason}") from error
    if isinstance(config, EncoderConfig):  # no setting says if it has one
        has_pooler = any("pooler.dense." in name for name in tensors)
        config = replace(config, pooler=has_pooler)
    model = _empty_model(config, len(tensors), where)
    state = rename(tensors, model, about["model_type"], where=where)
    # This was another reference to the tensors. Without it each is freed as
    # soon as `_filled` has copied it.
    del tensors
    return _filled(model, state, where)


def _read_gguf(path):
    """The settings and tensors of a GGUF file, as a checkpoint has them."""
    file = gguf.read(path)
    try:
        return gguf.as_checkpoint(file)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_tokenizer(name_or_path: str | Path) -> BytePairs | Tokenizer:
    """The tokenizer of a model that `load` takes.

    A GGUF file has it inside, and ours reads it. A folder has it in
    `tokenizer.json`, which the library `tokenizers` reads. There, padding and
    cutting are switched off: MiniLM's file would fill every text up to 128
    tokens, and cut longer ones.

    Raises:
        FileNotFoundError: there is no such model, or no tokenizer with it.
        ValueError: a file that is damaged or of another kind.
    """
    path = _find(name_or_path)
    if path.is_file():
        try:
            metadata = gguf.read_metadata(path)
            return gguf.tokenizer(gguf.Gguf(metadata, {}))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    described = path / "tokenizer.json"
    files.read_json(described)  # says what is wrong with it, if anything
    try:
        found = Tokenizer.from_file(str(described))
    except Exception as error:  # it raises nothing more exact
        raise ValueError(
            f"{described} is no tokenizer that `tokenizers` can read: {error}"
        ) from error
    found.no_padding()
    found.no_truncation()
    return found


def _find(name_or_path):
    """The folder or GGUF file of a model: one on this machine, one that a
    package has brought, or a copy of the hub's."""
    path = files.locate(name_or_path)
    name = str(name_or_path)
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if name in published.PUBLISHED:
        return published.find(name)
    repository = f"openai-community/{name}" if name in SIZES else name
    try:
        found = huggingface_hub.snapshot_download(
            repository,
            revision=REVISIONS.get(name),
            allow_patterns=[
                "config.json",
                "model*.safetensors*",
                "tokenizer.json",
            ],
            local_files_only=OFFLINE in os.environ,
            etag_timeout=2,
        )
    except Exception as error:  # of any kind: those of the network are many
        got = "a file" if path.exists() else type(error).__name__
        raise FileNotFoundError(
            f"there is no model {name}; expected a folder of that name, a "
            "GGUF file, a copy of the hub's on this machine, or the hub to "
            f"answer; got {got}. Where there is a network, `hf download "
            f"{repository}` makes a copy"
        ) from error
    return Path(found)


def _empty_model(config, n_tensors, where):
    """A model on the device "meta": it has names and shapes but no numbers.

    A file can claim any size. One that `n_tensors` tensors cannot hold is
    refused before it costs time or memory.
    """
    n_layers = config.n_layers
    count = config.parameter_count()
    if n_layers * _TENSORS_A_BLOCK > n_tensors or count > 2**50:
        raise ValueError(
            f"{where} cannot hold the model that is described beside it, with "
            f"n_layers {n_layers}; expected {count} numbers, in at least "
            f"{n_layers * _TENSORS_A_BLOCK} tensors; got {n_tensors} tensors"
        )
    with torch.device("meta"):
        encoder = isinstance(config, EncoderConfig)
        return Encoder(config) if encoder else GPT(config)


def rename(
    tensors: dict[str, Tensor],
    model: GPT | Encoder,
    family: str,
    *,
    where: object = "the checkpoint",
) -> dict[str, Tensor]:
    """A checkpoint's tensors, under the names and in the shapes of `model`.

    They are transposed, split or stacked where our layers need it; only what
    is stacked is copied, everything else comes back as views. `family` is the
    checkpoint's row in `FAMILIES`. The prefix of its names, "transformer.",
    "model." or "bert.", may be missing. `model` gives the names and shapes and
    can be on "meta"; nothing is written into it. `where` is what messages call
    the file.

    Raises:
        ValueError: an unknown family; a tensor that is missing, does not
            belong there or has another shape; numbers of several types, or
            of a type that is none of a model's; a head that should be the
            embedding and is not.
    """
    if family not in FAMILIES:
        raise ValueError(
            "there is no such family of models; expected one of "
            f"{', '.join(FAMILIES)}; got {family!r}"
        )
    theirs = FAMILIES[family]
    prefix = theirs.prefix
    if not any(name.startswith(prefix) for name in tensors):
        prefix = ""
    weights = {
        name: tensor
        for name, tensor in tensors.items()
        if not fullmatch(theirs.ignored, name.removeprefix(prefix))
    }
    shapes = {n: tuple(t.shape) for n, t in model.state_dict().items()}
    matches = list(_matches(theirs, prefix, shapes))
    head = None
    if isinstance(model, GPT) and model.config.tied:
        # Some files have the head although it is the embedding.
        head = weights.pop("lm_head.weight", None)
    _check_names(weights, matches, where)
    _check_tensors(weights, matches, where, head)
    ours: dict[str, Tensor] = {}
    for match in matches:
        parts = [weights[name] for name in match.theirs]
        if match.transposed:
            parts = [part.T for part in parts]
        stacked = parts[0] if len(parts) == 1 else torch.cat(parts)
        sizes = [shapes[name][0] for name in match.ours]
        ours |= zip(match.ours, stacked.split(sizes))
    return ours


def _matches(
    family: Family, prefix: str, shapes: dict[str, tuple[int, ...]]
) -> Iterator[_Match]:
    """A `_Match` for each weight and bias of a model, as they are computed.

    `shapes` are those of our model, by name; a layer that it does not have,
    such as a bias or a table of positions, is left out.
    """
    n_layers = sum(name.endswith("attention.out.weight") for name in shapes)
    names = family.names | {"lm_head": "head"}
    for their_names, our_names in names.items():
        theirs = their_names.split()
        if their_names != "lm_head":
            theirs = [prefix + name for name in theirs]
        ours = our_names.split()
        in_block = "#" in their_names
        for n in range(n_layers if in_block else 1):
            for kind in (".weight", ".bias"):
                targets = [name.replace("#", str(n)) + kind for name in ours]
                if targets[0] not in shapes:
                    continue
                sources = [name.replace("#", str(n)) + kind for name in theirs]
                outputs = sum(shapes[name][0] for name in targets)
                shape = (outputs // len(sources), *shapes[targets[0]][1:])
                transposed = family.conv1d and in_block and len(shape) == 2
                if transposed:
                    shape = shape[::-1]
                yield _Match(tuple(sources), tuple(targets), shape, transposed)


def _check_names(tensors, matches, where):
    """Refuse a file in which a tensor is missing, or one is too many."""
    expected = {name: match for match in matches for name in match.theirs}
    missing = [name for name in expected if name not in tensors]
    extra = [name for name in tensors if name not in expected]
    if missing:
        first = missing[0]
        _, ours, shape, _ = expected[first]
        # Comparing names takes long, so 300 are compared at most.
        alike = [n for n in extra if tensors[n].shape == shape][:300]
        alike = [name for name in alike if len(name) < 200]
        got = "no other tensor of that shape"
        for name in difflib.get_close_matches(first, alike, n=1, cutoff=0):
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


def _check_tensors(tensors, matches, where, head=None):
    """Refuse tensors of another shape, or of types that a model has not.

    `head` is a head that lies beside the tensors although it is tied to the
    embedding, the first of them. It must equal it.
    """
    expected = {name: match for match in matches for name in match.theirs}
    for name, match in expected.items():
        got = tuple(tensors[name].shape)
        if got == match.shape:
            continue
        hint = ""
        if match.transposed and got == match.shape[::-1]:
            hint = ", as in a Linear and not in a Conv1D"
        raise ValueError(
            f"{name} in {where} has the wrong shape; expected {match.shape}, "
            f"for {' and '.join(match.ours)}; got {got}{hint}"
        )
    kinds = {tensor.dtype: name for name, tensor in tensors.items()}
    if len(kinds) > 1 or not kinds.keys() <= _TYPES:
        found = ", ".join(f"{kind} in {name}" for kind, name in kinds.items())
        raise ValueError(
            f"{where} holds numbers of the wrong type; expected all of one "
            f"type, and floats of 16 bits or more; got {found}"
        )
    embedding = tensors[matches[0].theirs[0]]
    if head is not None and not torch.equal(head, embedding):
        raise ValueError(
            f"{where} has a head of its own; expected lm_head.weight equal "
            "to the embedding, as tie_word_embeddings says; got another"
        )


def _filled(model, state, where):
    """The empty model, with these numbers as its own.

    They are copied, because what was read is the file itself, mapped into
    memory: the model must live on when the file is gone.
    """
    for name, tensor in state.items():
        # If there is a NaN, both are NaN; so these two numbers tell of all.
        extremes = torch.stack(tensor.aminmax())
        if not extremes.isfinite().all():
            raise ValueError(
                f"{where} is damaged; expected numbers for {name}; got NaN "
                "or infinity among them"
            )
        state[name] = tensor.clone(memory_format=torch.contiguous_format)
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval()


class Saved(NamedTuple):
    """Everything that `load_model` finds in the file of a trained model."""

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
    """Write a model into a file, in float32, with its configuration.

    Its vocabulary can be written beside it, and whatever else is to be known
    `about` it, as long as JSON can say it. The file appears when it is
    complete: one that is already there is replaced, or stays as it is.

    Raises:
        OSError: the file cannot be written.
    """
    tensors = {f"model.{n}": t.float() for n, t in model.state_dict().items()}
    words = None if vocabulary is None else list(vocabulary)
    described = {"config": asdict(model.config), "vocabulary": words}
    files.write(path, tensors, (about or {}) | described)


def load_model(path: str | Path) -> Saved:
    """A model from a file of `save_model`, or from a checkpoint of a run.

    It comes on the CPU, in evaluation mode, and in the type of numbers that
    it was stored in.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or of something else.
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
    model = _empty_model(config, len(state), path)
    matches = [
        _Match((name,), (name,), tuple(tensor.shape))
        for name, tensor in model.state_dict().items()
    ]
    _check_names(state, matches, path)
    _check_tensors(state, matches, path)
    return Saved(_filled(model, state, path), vocabulary, about)
