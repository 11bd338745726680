"""Finished models in files: GPT-2's and Llama's checkpoints, and the book's.

A published checkpoint is a folder: `config.json` says the sizes, safetensors
files hold the tensors. Three things lie between it and our model: the names;
the way round of GPT-2's matrices; and which of the projections in attention
lie in one tensor. `rename` sees to them, and there is no model before every
tensor is there in the right shape.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import huggingface_hub
import torch
from torch import Tensor

from attnbook import files
from attnbook.config import number, one_of, whole
from attnbook.files import shown
from attnbook.gpt import GPT, GPTConfig
from attnbook.text import OFFLINE, Vocabulary

#: The four GPT-2 that were published.
SIZES = {
    name: GPTConfig(d_model=d_model, n_heads=n_heads, n_layers=n_layers)
    for name, n_layers, d_model, n_heads in (
        ("gpt2", 12, 768, 12),
        ("gpt2-medium", 24, 1024, 16),
        ("gpt2-large", 36, 1280, 20),
        ("gpt2-xl", 48, 1600, 25),
    )
}
#: Which state of their repositories on the hub is meant.
REVISIONS = {
    "gpt2": "607a30d783dfa663caf39e06633721c8d4cfcd7e",
    "gpt2-medium": "6dcaa7a952f72f9298047fd5137cd6e4f05f41da",
    "gpt2-large": "32b71b12589c2f8d625668d2335a01cac3249519",
    "gpt2-xl": "15ea56dee5df4983c59b2538573817e1667135e2",
}


class Family(NamedTuple):
    """What an architecture calls its parts and its settings, beside ours.

    In the names # is the number of a block. Where one of theirs stands for
    several of ours it is split along the outputs, where several stand for
    one they are stacked.
    """

    prefix: str  # of all names but the head's, or left away
    names: dict[str, str]  # theirs and ours, in the order of computation
    conv1d: bool  # whether the blocks' matrices lie (inputs, outputs)
    ignored: str  # buffers that are no weights
    sizes: dict[str, str]  # ours and theirs, which may have two names
    activation: str
    activations: dict[str, str]  # theirs and ours
    norm_eps: str
    defaults: dict[str, Any]


FAMILIES = {
    "gpt2": Family(
        prefix="transformer.",
        names={
            "wte": "token_embedding",
            "wpe": "position_embedding",
            "h.#.ln_1": "#.attention_norm",
            "h.#.attn.c_attn": "#.attention.query #.attention.key_value",
            "h.#.attn.c_proj": "#.attention.out",
            "h.#.ln_2": "#.feed_forward_norm",
            "h.#.mlp.c_fc": "#.feed_forward.up",
            "h.#.mlp.c_proj": "#.feed_forward.down",
            "ln_f": "norm",
        },
        conv1d=True,
        ignored=r"h\.\d+\.attn\.(bias|masked_bias)",
        sizes={
            "vocab_size": "vocab_size",
            "context": "n_positions max_position_embeddings",
            "d_model": "n_embd hidden_size",
            "n_heads": "n_head num_attention_heads",
            "n_layers": "n_layer num_hidden_layers",
            "d_ff": "n_inner",
        },
        activation="activation_function",
        activations={
            "gelu_new": "gelu_tanh",
            "gelu_pytorch_tanh": "gelu_tanh",
            "gelu": "gelu",
            "relu": "relu",
            "silu": "silu",
            "swish": "silu",
        },
        norm_eps="layer_norm_epsilon",
        defaults={
            "n_inner": None,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
        },
    ),
    "llama": Family(
        prefix="model.",
        names={
            "embed_tokens": "token_embedding",
            "layers.#.input_layernorm": "#.attention_norm",
            "layers.#.self_attn.q_proj": "#.attention.query",
            "layers.#.self_attn.k_proj layers.#.self_attn.v_proj": (
                "#.attention.key_value"
            ),
            "layers.#.self_attn.o_proj": "#.attention.out",
            "layers.#.post_attention_layernorm": "#.feed_forward_norm",
            "layers.#.mlp.gate_proj": "#.feed_forward.gate",
            "layers.#.mlp.up_proj": "#.feed_forward.up",
            "layers.#.mlp.down_proj": "#.feed_forward.down",
            "norm": "norm",
        },
        conv1d=False,
        ignored=r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
        sizes={
            "vocab_size": "vocab_size",
            "context": "max_position_embeddings",
            "d_model": "hidden_size",
            "n_heads": "num_attention_heads",
            "n_layers": "num_hidden_layers",
            "n_kv_heads": "num_key_value_heads",
            "d_ff": "intermediate_size",
        },
        activation="hidden_act",
        activations={"silu": "swiglu", "swish": "swiglu"},
        norm_eps="rms_norm_eps",
        defaults={
            "num_key_value_heads": None,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
        },
    ),
}

#: Settings that our class has one value of.
_ONLY = {
    "is_causal": True,
    "quantization_config": None,
    "pruned_heads": {},
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "sliding_window": None,
    "layer_types": None,
    "attention_chunk_size": None,
}
_TYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def config_of(config: dict) -> GPTConfig:
    """Our sizes, from a `config.json` of transformers as a dictionary.

    Dropout and the size of fresh weights are left away: what is loaded is
    there to be used. The sizes must be there; another setting that is not
    has transformers' default.

    Raises:
        ValueError: another architecture than GPT-2 or Llama; a size that is
            missing; a setting that our class does not have, or two that
            disagree, rather than a model that computes something else.
        TypeError: a value of another type.
    """
    name = config.get("model_type")
    family = _family(name)
    config = family.defaults | config
    for setting, value in _ONLY.items():
        got = config.get(setting, value)
        if got != value and (got or value):  # null, false and {} are no
            raise ValueError(
                f"a {name} with {setting} is not in this book; expected "
                f"{value}; got {shown(got)}"
            )
    activation = one_of(
        family.activation, config[family.activation], family.activations
    )
    ours = GPTConfig(
        **{n: _size(config, *s.split()) for n, s in family.sizes.items()},
        activation=family.activations[activation],
        norm_eps=_number(config, family.norm_eps, at_least=0),
        tied=_flag(config, "tie_word_embeddings"),
    )
    return ours if name == "gpt2" else _llama(config, ours)


def _family(name):
    return FAMILIES[one_of("model_type", name, FAMILIES)]


def _size(config, *names):
    """A size, which may be null where that is the default."""
    got = [config[name] for name in names if name in config]
    if any(value != got[0] for value in got):
        raise ValueError(
            f"{' and '.join(names)} are one size; expected one value; got "
            f"{shown(got)}"
        )
    if not got or (got[0] is None and names[0] not in _MAY_BE_NULL):
        raise ValueError(f"a size is missing; expected {names[0]}; got none")
    if got[0] is None:
        return None
    return whole(names[0], got[0], at_least=1, at_most=2**31 - 1)


_MAY_BE_NULL = ("n_inner", "num_key_value_heads", "head_dim")


def _number(config, name, **bounds):
    return float(number(name, config[name], **bounds))


def _flag(config, name):
    got = config.get(name)
    if got is not None and not isinstance(got, bool):
        raise TypeError(
            f"{name} is yes or no; expected true or false; got {shown(got)}"
        )
    return bool(got)


def _llama(config, ours):
    bias = _flag(config, "attention_bias")
    if _flag(config, "mlp_bias") != bias:
        raise ValueError(
            "our blocks have biases everywhere or nowhere; expected "
            f"attention_bias and mlp_bias the same; got {bias} and {not bias}"
        )
    width = ours.d_model // ours.n_heads
    got = _size({"head_dim": None} | config, "head_dim") or width
    if got != width or width % 2:
        raise ValueError(
            "the heads have a width that ours cannot have; expected head_dim "
            "even and hidden_size / num_attention_heads; got "
            f"{got} of {ours.d_model} / {ours.n_heads}"
        )
    return replace(
        ours,
        positions="rotary",
        rotary_base=_rotary_base(config),
        norm="rms",
        bias=bias,
    )


def _rotary_base(config):
    """The base, wherever it stands, if the rotation is the plain one."""
    tables = [config.get(n) or {} for n in ("rope_parameters", "rope_scaling")]
    if not all(isinstance(t, dict) for t in tables) or (
        all(tables) and tables[0] != tables[1]
    ):
        raise ValueError(
            "rope_parameters and rope_scaling are two names for one table; "
            f"expected one, or the same twice; got {shown(tables)}"
        )
    rope = {"rope_theta": config.get("rope_theta", 10_000.0)}
    rope["partial_rotary_factor"] = config.get("partial_rotary_factor")
    rope |= tables[0] or tables[1]
    plain = {"rope_type": "default", "type": "default"}
    plain |= {"partial_rotary_factor": 1, "rope_theta": rope["rope_theta"]}
    for name, got in rope.items():
        if got is not None and got != plain.get(name):
            raise ValueError(
                f"this rotation is not in this book; expected {name} "
                f"{plain.get(name, 'left away')}; got {shown(got)}"
            )
    return _number(rope, "rope_theta", at_least=1)


class Match(NamedTuple):
    """Tensors of theirs and the tensors of ours that hold the same."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    shape: tuple[int, ...]  # of each of theirs
    sizes: tuple[int, ...]  # of ours, along the outputs
    transposed: bool


def _shapes(config, count, where):
    """The shapes of a model that is to come from `count` tensors, by name."""
    if config.n_layers > count or config.parameter_count() > 2**50:
        raise ValueError(
            f"{where} cannot hold this model; expected tensors for n_layers "
            f"{config.n_layers}, {config.parameter_count()} numbers; "
            f"got {count} tensors"
        )
    with torch.device("meta"):  # one block, without numbers, stands for all
        state = GPT(replace(config, n_layers=1)).state_dict()
    return {
        name.replace("blocks.0.", f"blocks.{n}."): tuple(tensor.shape)
        for n in range(config.n_layers)
        for name, tensor in state.items()
    }


def _matches(config, family, prefix, shapes) -> Iterator[Match]:
    """All of a model's, in the order of computation."""
    parts = [(prefix + a, b) for a, b in family.names.items() if "#" not in a]
    blocks = [(a, b) for a, b in family.names.items() if "#" in a]
    parts[-1:-1] = [
        (
            " ".join(prefix + name for name in a.split()).replace("#", str(n)),
            b.replace("#", f"blocks.{n}"),
        )
        for n in range(config.n_layers)
        for a, b in blocks
    ]
    for a, b in [*parts, ("lm_head", "head")]:
        for kind in ("weight", "bias"):
            theirs = tuple(f"{name}.{kind}" for name in a.split())
            ours = tuple(f"{name}.{kind}" for name in b.split())
            if ours[0] not in shapes:
                continue
            sizes = tuple(shapes[name][0] for name in ours)
            shape = (sum(sizes) // len(theirs), *shapes[ours[0]][1:])
            turned = family.conv1d and "blocks." in b and len(shape) == 2
            shape = shape[::-1] if turned else shape
            yield Match(theirs, ours, shape, sizes, turned)


def rename(
    tensors: dict[str, Tensor],
    config: GPTConfig,
    family: str,
    *,
    where: object = "the checkpoint",
) -> dict[str, Tensor]:
    """Their tensors under our names, the way round that ours have.

    GPT-2's matrices are those of a `Conv1D`, which computes x W + b: they
    lie (inputs, outputs). A `Linear` computes x Wᵀ + b, so its matrix lies
    (outputs, inputs), and each is transposed here. `c_attn` holds queries,
    keys and values side by side, our `query` the first and `key_value` the
    other two. Llama has a matrix for each of the three.

    Args:
        tensors: with or without the prefix "transformer." or "model.".
        config: as from `config_of`.
        family: "gpt2" or "llama".
        where: what messages call the place of the tensors.

    Returns:
        Views of `tensors` wherever nothing has to be stacked.

    Raises:
        ValueError: a tensor that is missing, perhaps because it has another
            name, one that does not belong there, one of another shape; more
            than one type of numbers; a head that is to be the embedding and
            is not.
    """
    names = _family(family)
    prefix = names.prefix
    if not any(name.startswith(prefix) for name in tensors):
        prefix = ""
    tensors = {
        name: tensor
        for name, tensor in tensors.items()
        if not re.fullmatch(names.ignored, name.removeprefix(prefix))
    }
    shapes = _shapes(config, len(tensors), where)
    matches = list(_matches(config, names, prefix, shapes))
    head = tensors.pop("lm_head.weight", None) if config.tied else None
    _check(tensors, matches, where)
    embedding = matches[0].theirs[0]
    if head is not None and not torch.equal(head, tensors[embedding]):
        raise ValueError(
            f"{where} has a head of its own; expected lm_head.weight equal "
            f"to {embedding}, as tie_word_embeddings says; got another"
        )
    ours = {}
    for match in matches:
        parts = [tensors[name] for name in match.theirs]
        if match.transposed:
            parts = [part.T for part in parts]
        stacked = parts[0] if len(parts) == 1 else torch.cat(parts)
        ours |= zip(match.ours, stacked.split(match.sizes))
    return ours


def _check(tensors, matches, where):
    """Raise unless names, shapes and types are the expected ones."""
    expected = {name: match for match in matches for name in match.theirs}
    missing = [name for name in expected if name not in tensors]
    extra = [name for name in tensors if name not in expected]
    if missing:
        first, (_, ours, shape, *_) = missing[0], expected[missing[0]]
        like = [n for n in extra if tuple(tensors[n].shape) == shape]
        like = [n for n in like[:300] if len(n) < 200]  # it takes its time
        got = "no other tensor of that shape"
        for name in difflib.get_close_matches(first, like, n=1, cutoff=0):
            got = f"{shown(name)[1:-1]} of that shape, perhaps renamed from it"
        raise ValueError(
            f"{where} lacks {_count(missing)}; expected {first} {shape}, "
            f"for {' and '.join(ours)}; got {got}"
        )
    if extra:
        raise ValueError(
            f"{where} holds {_count(extra)} too many; expected the "
            f"{len(expected)} of these sizes; got {shown(extra[0])[1:-1]}"
        )
    for name, match in expected.items():
        got = tuple(tensors[name].shape)
        if got != match.shape:
            turned = match.transposed and got == match.shape[::-1]
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


def _count(names):
    return "a tensor" if len(names) == 1 else f"{len(names)} tensors"


def load(name_or_path: str | Path, *, allow_pickle: bool = False) -> GPT:
    """A GPT with published weights, in evaluation mode.

    Args:
        name_or_path: a folder, as transformers' `save_pretrained` writes it
            and `hf download` fetches it; or a name on the hub, such as
            "gpt2" (one of `SIZES`) or "HuggingFaceTB/SmolLM2-135M", which is
            fetched unless there is a copy on this machine.
        allow_pickle: read `pytorch_model.bin` where a folder or a copy has
            nothing else. From the hub it is never fetched.

    The numbers are of the type that they have in the file. All is checked
    before the model is made.

    Raises:
        FileNotFoundError: nowhere such a model; a file of it missing.
        ValueError: a file that is cut off or damaged; a model that our
            class cannot be; tensors that do not fit, see `rename`.
    """
    folder = _find(name_or_path)
    about = files.read_json(folder / "config.json")
    try:
        config = config_of(about)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error
    file, tensors = files.read_weights(folder, allow_pickle=allow_pickle)
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
    """Write a model into one file, in float32, whole or not at all.

    Args:
        about: what else the file is to say of itself, for JSON.

    Raises:
        OSError: it cannot be written.
    """
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
    stored, about = files.read(path)
    try:
        config = GPTConfig(**about.pop("config"))
        words = about.pop("vocabulary")
        vocabulary = None if words is None else Vocabulary(words)
        if words is not None and len(words) != config.vocab_size:
            raise ValueError(f"{len(words)} words for {config.vocab_size}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} does not describe a model; expected a GPTConfig and a "
            f"vocabulary of its size; got {error}"
        ) from error
    state = {
        name.removeprefix("model."): tensor
        for name, tensor in stored.items()
        if name.startswith("model.")  # the rest is a run's
    }
    shapes = _shapes(config, len(state), path)
    same = [Match((n,), (n,), shape, (), False) for n, shape in shapes.items()]
    _check(state, same, path)
    return Saved(_filled(config, state, path), vocabulary, about)


def pairs_of(family: str, n_layers: int) -> list[tuple[str, str, str]]:
    """What to compare of two models, in the order of computation.

    Each (label, our module, their module), for `divergence.record` and
    `divergence.compare`.

    Raises:
        ValueError: another family than "gpt2" or "llama".
    """
    names = _family(family)
    pairs, steps = [], {}  # of a block: ours and theirs
    for theirs, ours in names.names.items():
        if "#" in theirs:
            theirs, ours = theirs.split()[0], ours.split()[0]
            block, theirs = theirs.split("#.")
            steps[ours.split(".")[1]] = theirs.split(".")[0]
    block = names.prefix + block
    labels = ("first norm", "attention", "second norm", "feed-forward")
    pairs = [("embedding", "blocks.0:input", f"{block}0:input")]
    for n in range(n_layers):
        pairs += [
            (f"block {n}: {label}", f"blocks.{n}.{a}", f"{block}{n}.{b}")
            for label, (a, b) in zip(labels, steps.items())
        ]
        pairs.append((f"block {n}: output", f"blocks.{n}", f"{block}{n}"))
    final = names.prefix + list(names.names)[-1]
    return [
        *pairs,
        ("final norm", "norm", final),
        ("logits", ":output", "lm_head"),
    ]
