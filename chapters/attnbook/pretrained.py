"""Published weights: GPT-2's and Llama's checkpoints, read into a `GPT`.

A checkpoint is a folder: `config.json` says the sizes, safetensors files
hold the tensors. Three things lie between it and our model: the names; the
way round of GPT-2's matrices; and which of the projections in attention lie
in one tensor. `rename` sees to them, and nothing is loaded before every
tensor is there in the right shape.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from attnbook import weights
from attnbook.gpt import GPT, GPTConfig

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


class Family(NamedTuple):
    """What the modules of an architecture are called, theirs and ours.

    Where one of theirs stands for several of ours it is split along the
    outputs, where several stand for one they are stacked.
    """

    prefix: str  # of all names but the head's, or left away
    embeddings: dict[str, str]
    blocks: str
    parts: dict[str | tuple[str, str], str | tuple[str, str]]
    norm: str
    steps: tuple[str, str, str, str]  # norm, attention, norm, feed-forward
    conv1d: bool  # whether matrices lie (inputs, outputs)
    ignored: re.Pattern  # buffers that are no weights
    activations: dict[str, str]  # theirs and ours


FAMILIES = {
    "gpt2": Family(
        prefix="transformer.",
        embeddings={"wte": "token_embedding", "wpe": "position_embedding"},
        blocks="h",
        parts={
            "ln_1": "attention_norm",
            "attn.c_attn": ("attention.query", "attention.key_value"),
            "attn.c_proj": "attention.out",
            "ln_2": "feed_forward_norm",
            "mlp.c_fc": "feed_forward.up",
            "mlp.c_proj": "feed_forward.down",
        },
        norm="ln_f",
        steps=("ln_1", "attn", "ln_2", "mlp"),
        conv1d=True,
        ignored=re.compile(r"h\.\d+\.attn\.(bias|masked_bias)"),
        activations={
            "gelu_new": "gelu_tanh",
            "gelu_pytorch_tanh": "gelu_tanh",
            "gelu": "gelu",
            "relu": "relu",
            "silu": "silu",
            "swish": "silu",
        },
    ),
    "llama": Family(
        prefix="model.",
        embeddings={"embed_tokens": "token_embedding"},
        blocks="layers",
        parts={
            "input_layernorm": "attention_norm",
            "self_attn.q_proj": "attention.query",
            ("self_attn.k_proj", "self_attn.v_proj"): "attention.key_value",
            "self_attn.o_proj": "attention.out",
            "post_attention_layernorm": "feed_forward_norm",
            "mlp.gate_proj": "feed_forward.gate",
            "mlp.up_proj": "feed_forward.up",
            "mlp.down_proj": "feed_forward.down",
        },
        norm="norm",
        steps=(
            "input_layernorm",
            "self_attn",
            "post_attention_layernorm",
            "mlp",
        ),
        conv1d=False,
        ignored=re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"),
        activations={"silu": "swiglu", "swish": "swiglu"},
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
}


def config_of(config: dict) -> GPTConfig:
    """Our sizes, from a `config.json` of transformers as a dictionary.

    Dropout and the size of fresh weights are left away: what is loaded is
    there to be used. The sizes must be there; another setting that is not
    has transformers' default.

    Raises:
        ValueError: another architecture than GPT-2 or Llama; a size that is
            missing; a setting that our class does not have, rather than a
            model that computes something else.
        TypeError: a size that is no whole number.
    """
    name = config.get("model_type")
    _family(name)
    for setting, value in _ONLY.items():
        got = config.get(setting, value)
        if got != value and (got or value):  # null, false and {} are no
            raise ValueError(
                f"a {name} with {setting} is not in this book; expected "
                f"{value}; got {got!r}"
            )
    return _gpt2(config) if name == "gpt2" else _llama(config)


def _family(name):
    if name not in FAMILIES:
        raise ValueError(
            "this is another architecture; expected model_type "
            f"{' or '.join(FAMILIES)}; got {name!r}"
        )
    return FAMILIES[name]


def _gpt2(config):
    return GPTConfig(
        vocab_size=_size(config, "vocab_size"),
        context=_size(config, "n_positions"),
        d_model=_size(config, "n_embd"),
        n_heads=_size(config, "n_head"),
        n_layers=_size(config, "n_layer"),
        d_ff=config.get("n_inner"),
        activation=_activation(
            config, "gpt2", "activation_function", "gelu_new"
        ),
        norm_eps=_number(config, "layer_norm_epsilon", 1e-5),
        tied=bool(config.get("tie_word_embeddings", True)),
    )


def _llama(config):
    ours = GPTConfig(
        vocab_size=_size(config, "vocab_size"),
        context=_size(config, "max_position_embeddings"),
        d_model=_size(config, "hidden_size"),
        n_heads=_size(config, "num_attention_heads"),
        n_layers=_size(config, "num_hidden_layers"),
        n_kv_heads=config.get("num_key_value_heads"),
        d_ff=_size(config, "intermediate_size"),
        activation=_activation(config, "llama", "hidden_act", "silu"),
        positions="rotary",
        rotary_base=_rotary_base(config),
        norm="rms",
        norm_eps=_number(config, "rms_norm_eps", 1e-6),
        bias=bool(config.get("attention_bias")),
        tied=bool(config.get("tie_word_embeddings")),
    )
    if bool(config.get("mlp_bias")) != ours.bias:
        raise ValueError(
            "our blocks have biases everywhere or nowhere; expected "
            "attention_bias and mlp_bias the same; got "
            f"{ours.bias} and {not ours.bias}"
        )
    width = ours.d_model // ours.n_heads
    if (got := config.get("head_dim")) not in (None, width) or width % 2:
        raise ValueError(
            "the heads have a width that ours cannot have; expected head_dim "
            "even and hidden_size / num_attention_heads; got "
            f"{width if got is None else got} of {ours.d_model} / "
            f"{ours.n_heads}"
        )
    return ours


def _size(config, name):
    if config.get(name) is None:
        raise ValueError(f"a size is missing; expected {name}; got none")
    return config[name]


def _activation(config, family, name, default):
    known = FAMILIES[family].activations
    got = config.get(name, default)
    if got not in known:
        raise ValueError(
            f"{name} is one that is not in this book; expected "
            f"{' or '.join(known)}; got {got!r}"
        )
    return known[got]


def _rotary_base(config):
    """The base, wherever it stands, if the rotation is the plain one."""
    rope = {}
    for name in ("rope_parameters", "rope_scaling"):  # new and old
        rope |= config.get(name) or {}
    plain = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}
    kinds = {rope.get("rope_type", "default"), rope.get("type", "default")}
    part = rope.get("partial_rotary_factor")
    if part is None:
        part = config.get("partial_rotary_factor", 1)
    if kinds != {"default"} or part != 1 or rope.keys() - plain:
        raise ValueError(
            "this rotation is not in this book; expected rope_type 'default' "
            f"and the whole width rotated; got {rope or part}"
        )
    return _number(config | rope, "rope_theta", 10_000.0, low=1.0)


def _number(config, name, default, low=0.0):
    got = config.get(name, default)
    if type(got) not in (int, float) or not low <= got < math.inf:
        raise ValueError(
            f"{name} is no such number; expected one from {low:g} on; "
            f"got {got!r}"
        )
    return float(got)


class Match(NamedTuple):
    """Tensors of theirs and the tensors of ours that hold the same."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    shape: tuple[int, ...]  # of each of theirs
    sizes: tuple[int, ...]  # of ours, along the outputs
    transposed: bool


def _matches(config: GPTConfig, names: Family, prefix: str) -> Iterator[Match]:
    """All of a model's, in the order of computation."""
    pairs = [(prefix + a, b, False) for a, b in names.embeddings.items()]
    for n in range(config.n_layers):
        for theirs, ours in names.parts.items():
            pairs.append(
                (
                    _each(theirs, f"{prefix}{names.blocks}.{n}."),
                    _each(ours, f"blocks.{n}."),
                    names.conv1d,
                )
            )
    pairs.append((prefix + names.norm, "norm", False))
    if not config.tied:
        pairs.append(("lm_head", "head", False))
    shapes = {name: tuple(t.shape) for name, t in _empty(config).items()}
    for theirs, ours, conv1d in pairs:
        for kind in ("weight", "bias"):
            mine = _each(ours, "", f".{kind}")
            if mine[0] not in shapes:
                continue
            others = _each(theirs, "", f".{kind}")
            sizes = tuple(shapes[name][0] for name in mine)
            shape = (sum(sizes) // len(others), *shapes[mine[0]][1:])
            transposed = conv1d and len(shape) == 2
            yield Match(
                others,
                mine,
                shape[::-1] if transposed else shape,
                sizes,
                transposed,
            )


def _each(names, before, after=""):
    names = (names,) if isinstance(names, str) else names
    return tuple(f"{before}{name}{after}" for name in names)


def _empty(config):
    """The tensors of a model, with shapes and without numbers."""
    with torch.device("meta"):
        return GPT(config).state_dict()


def rename(
    tensors: dict[str, Tensor], config: GPTConfig, family: str
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

    Returns:
        Views of `tensors` wherever nothing has to be stacked.

    Raises:
        ValueError: a tensor that is missing, perhaps because it has another
            name, one that does not belong there, one of another shape; more
            than one type of numbers; a head that is to be the embedding and
            is not.
    """
    return _rename(tensors, config, family, "the checkpoint")


def _rename(tensors, config, family, where):
    names = _family(family)
    prefix = names.prefix
    if not any(name.startswith(prefix) for name in tensors):
        prefix = ""
    matches = list(_matches(config, names, prefix))
    tensors = {
        name: tensor
        for name, tensor in tensors.items()
        if not names.ignored.fullmatch(name.removeprefix(prefix))
    }
    head = None
    if config.tied:
        head = tensors.pop("lm_head.weight", None)
    _check_names(tensors, matches, where)
    _check_shapes(tensors, matches, where)
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
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        ours |= zip(match.ours, whole.split(match.sizes))
    return ours


_TYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def _check_names(tensors, matches, where):
    """Raise unless the names are the expected ones."""
    expected = {name: match for match in matches for name in match.theirs}
    missing = [name for name in expected if name not in tensors]
    extra = [name for name in tensors if name not in expected]
    if missing:
        first = missing[0]
        shape, ours = expected[first].shape, expected[first].ours
        like = [n for n in extra if tuple(tensors[n].shape) == shape]
        like = difflib.get_close_matches(first, like, n=1, cutoff=0)
        raise ValueError(
            f"{where} lacks {_count(missing)}; expected {first} {shape}, "
            f"for {' and '.join(ours)}; got "
            + (
                f"{like[0]} of that shape, perhaps renamed from it"
                if like
                else "no other tensor of that shape"
            )
            + (f" (missing too: {_some(missing[1:])})" if missing[1:] else "")
        )
    if extra:
        raise ValueError(
            f"{where} holds {_count(extra)} too many; expected the "
            f"{len(expected)} of these sizes; got "
            + _some([f"{n} {tuple(tensors[n].shape)}" for n in extra])
        )


def _check_shapes(tensors, matches, where):
    """Raise unless shapes and types are the expected ones."""
    for match in matches:
        for name in match.theirs:
            got = tuple(tensors[name].shape)
            if got == match.shape:
                continue
            turned = match.transposed and got == match.shape[::-1]
            raise ValueError(
                f"{name} in {where} has the wrong shape; expected "
                f"{match.shape}, for {' and '.join(match.ours)}; got {got}"
                + (", as in a Linear and not in a Conv1D" if turned else "")
            )
    kinds = {}
    for name, tensor in tensors.items():
        kinds.setdefault(tensor.dtype, name)
    if len(kinds) > 1 or not kinds.keys() <= _TYPES:
        raise ValueError(
            f"{where} holds numbers of the wrong type; expected all of one "
            "type, and floats of 16 bits or more; got "
            + ", ".join(f"{kind} in {name}" for kind, name in kinds.items())
        )


def _count(names):
    return "a tensor" if len(names) == 1 else f"{len(names)} tensors"


def _some(names, most=3):
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def load(name_or_path: str | Path, *, allow_pickle: bool = False) -> GPT:
    """A GPT with published weights, in evaluation mode.

    Args:
        name_or_path: a folder, as transformers' `save_pretrained` writes it
            and `hf download` fetches it; or a name on the hub, such as
            "gpt2" (one of `SIZES`) or "HuggingFaceTB/SmolLM2-135M". A copy
            on this machine is taken if there is one. Else the hub is asked,
            if it answers within one and a half seconds.
        allow_pickle: read `pytorch_model.bin` where a folder or a copy has
            nothing else. From the hub it is never fetched.

    The numbers are of the type that they have in the file. All is checked
    before the model is made.

    Raises:
        FileNotFoundError: nowhere such a model; a file of it missing.
        ValueError: a file that is cut off or damaged; a model that our
            class cannot be; tensors that do not fit, see `rename`.
    """
    alias = None
    if str(name_or_path) in SIZES:
        alias = f"openai-community/{name_or_path}"
    folder = weights.find(name_or_path, alias=alias, allow_pickle=allow_pickle)
    about = weights.read_json(folder / "config.json")
    try:
        config = config_of(about)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error
    file, tensors = weights.read(folder, allow_pickle=allow_pickle)
    state = _rename(tensors, config, about["model_type"], file)
    del tensors
    for name, tensor in state.items():  # copies, so that no file is needed
        state[name] = tensor.clone(memory_format=torch.contiguous_format)
    with torch.device("meta"):
        model = GPT(config)
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval()


def pairs_of(family: str, n_layers: int) -> list[tuple[str, str, str]]:
    """What to compare of two models, in the order of computation.

    Each (label, our module, their module), for `divergence.record` and
    `divergence.compare`.

    Raises:
        ValueError: another family than "gpt2" or "llama".
    """
    names = _family(family)
    prefix, ours = (
        names.prefix,
        ("attention_norm", "attention", "feed_forward_norm", "feed_forward"),
    )
    labels = ("first norm", "attention", "second norm", "feed-forward")
    first = f"{prefix}{names.blocks}.0:input"
    pairs = [("embedding", "blocks.0:input", first)]
    for n in range(n_layers):
        block = f"{prefix}{names.blocks}.{n}"
        for label, mine, other in zip(labels, ours, names.steps):
            pairs.append(
                (
                    f"block {n}: {label}",
                    f"blocks.{n}.{mine}",
                    f"{block}.{other}",
                )
            )
        pairs.append((f"block {n}: output", f"blocks.{n}", block))
    pairs.append(("final norm", "norm", prefix + names.norm))
    pairs.append(("logits", ":output", "lm_head"))
    return pairs
