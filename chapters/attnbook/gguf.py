"""GGUF: a published model in one file, its numbers in four to 32 bits.

It is the format of llama.cpp. A file has, one after the other,

1. a header: the letters GGUF, the version, how many tensors, how many keys;
2. metadata: keys with values, among them sizes and the whole tokenizer;
3. for each tensor a name, its sizes, the type of its numbers, and where they
   begin, counted from the beginning of part 4;
4. the numbers. Each tensor begins at a multiple of 32 bytes (or of
   `general.alignment`).

`read` gives metadata and tensors as they are, `as_checkpoint` puts them under
the names and in the order of a Llama checkpoint, so that `pretrained` can go
on as with any other, and `tokenizer` makes the tokenizer that lies in it. For
that, `read_metadata` is enough, which leaves the tensors packed.

`gguf_layout` finds where everything lies and refuses damaged files; `packed`
knows how numbers of few bits are stored.

Source: the specification, github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnbook.byte_pairs import BytePairs, bytes_of
from attnbook.files import locate, shown
from attnbook.gguf_layout import TensorInfo, layout


class Gguf(NamedTuple):
    """What a GGUF file holds.

    Attributes:
        metadata: its keys and values: numbers, texts and lists of them.
        tensors: its tensors by name, in float32, on the CPU.
    """

    metadata: dict[str, Any]
    tensors: dict[str, Tensor]


def read(path: str | Path) -> Gguf:
    """The metadata of a GGUF file, and its tensors in float32.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that is cut off, damaged or of something else, or
            that stores numbers in a way that this book does not read.
    """
    data, metadata, infos = _opened(path)
    tensors = {name: _numbers(data, info) for name, info in infos.items()}
    return Gguf(metadata, tensors)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a GGUF file alone: all that its tokenizer is made of.

    Unpacking the tensors is most of the work of reading a file, and whoever
    wants the tokenizer does not need them. The file is looked at as closely
    as `read` does it, and what `read` raises is raised here too.
    """
    _, metadata, _ = _opened(path)
    return metadata


def _opened(
    path: str | Path,
) -> tuple[np.ndarray, dict[str, Any], dict[str, TensorInfo]]:
    """A file's bytes, its metadata, and where in it each tensor lies.

    The bytes are mapped into memory, so that only what is read takes any.

    Raises:
        FileNotFoundError, ValueError: see `read`.
    """
    path = locate(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}; expected a GGUF file"
        )
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; expected a GGUF file")
    data = np.asarray(np.memmap(path, np.uint8, "r"))
    try:
        metadata, infos = layout(data)
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be read as a GGUF file: {error}"
        ) from error
    return data, metadata, infos


def _numbers(data: np.ndarray, info: TensorInfo) -> Tensor:
    """The numbers of one tensor, unpacked from the file into a float32 tensor.

    They are a copy, so that the file can be closed afterwards.

    Args:
        data: all bytes of the file, (N,), uint8.
        info: where in them the tensor lies, how it is stored, and its shape.
    """
    raw = data[info.start : info.start + info.n_bytes]
    with np.errstate(all="ignore"):  # NaN and ∞ are for `pretrained` to see
        weights = info.stored.unpack(raw.reshape(-1, info.stored.size))
    # A copy where nothing was computed, since the file is closed afterwards.
    own = np.require(weights, np.float32, ["C", "OWNDATA"])
    return torch.from_numpy(own.reshape(info.shape))


# The keys of an architecture that we know, with transformers' names.
_CONFIG = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
_MAY_BE_MISSING = ("vocab_size", "rope.freq_base")
# Keys that may be there too, if their value is the width of a head.
_HEAD_WIDTHS = (
    "rope.dimension_count",
    "attention.key_length",
    "attention.value_length",
)
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def as_checkpoint(file: Gguf) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a Llama's `config.json` would say, and its tensors by its names.

    Raises:
        ValueError: another architecture than "llama"; a key of it that means
            something that our model has not, such as experts; sizes that are
            missing or do not fit. (Whether the tensors fit the sizes is for
            `pretrained.rename` to say.)
    """
    about = file.metadata
    name = about.get("general.architecture")
    if name != "llama":
        raise ValueError(
            f"the file is of architecture {shown(name)}; this book reads "
            "'llama' from GGUF files, and others from a folder with "
            "config.json and safetensors"
        )
    config = _config(about)
    tokens = file.tensors.get("token_embd.weight")
    if tokens is not None:
        config.setdefault("vocab_size", len(tokens))
    config["tie_word_embeddings"] = "output.weight" not in file.tensors
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    tensors = {}
    for name, tensor in file.tensors.items():
        part, _, end = name.rpartition(".")
        block = ""
        if part.startswith("blk.") and part.count(".") >= 2:
            _, number, part = part.split(".", 2)
            block = f"model.layers.{number}."
        if part in heads:
            tensor = in_halves(tensor, heads[part])
        tensors[f"{block}{_NAMES.get(part, part)}.{end}"] = tensor
    return config, tensors


def _config(about: dict[str, Any]) -> dict[str, Any]:
    """What the `config.json` of this Llama would say, without its vocabulary.

    A GGUF file has these settings among its metadata, under names of its own
    (`_CONFIG` translates them).

    Raises:
        ValueError: a setting is missing or no number, or the file has one that
            the book's model does not have.
    """
    config: dict[str, Any] = {"model_type": "llama", "hidden_act": "silu"}
    widths = {}
    for key, value in about.items():
        setting = key.removeprefix("llama.")
        if setting in _CONFIG:
            config[_CONFIG[setting]] = value
        elif setting in _HEAD_WIDTHS:
            widths[key] = value
        elif key.startswith("llama."):
            raise ValueError(
                f"the file sets {shown(key)} to {shown(value)}, which the "
                "book's model does not have"
            )
    for setting, name in _CONFIG.items():
        if setting not in _MAY_BE_MISSING and name not in config:
            raise ValueError(f"the file does not say llama.{setting}")
    config["rms_norm_eps"] = _short(config["rms_norm_eps"])
    config["rope_theta"] = _short(config.get("rope_theta", 10_000.0))
    for setting in ("attention.head_count", "attention.head_count_kv"):
        n = config[_CONFIG[setting]]
        if type(n) is not int or n < 1:
            raise ValueError(
                f"llama.{setting} has to be a number from 1 on; it is "
                f"{shown(n)}"
            )
    for key, width in widths.items():
        expected = config["hidden_size"] // config["num_attention_heads"]
        if width != expected:
            raise ValueError(
                f"{key} is {shown(width)}; expected the width of a head, "
                f"{expected}"
            )
    return config


def in_halves(weight: Tensor, n_heads: int) -> Tensor:
    """Rows of queries or keys in Llama's order, from llama.cpp's.

    Rotary positions turn pairs of components. llama.cpp has the two of a pair
    side by side, 0 and 1, 2 and 3; a Llama checkpoint has them half a head
    apart. A converter therefore put the rows in another order, and this puts
    them back.

    Shapes: (n_heads · d, ...) → the same. Rows that cannot be cut into heads
    of pairs come back as they are, for `pretrained.rename` to refuse.
    """
    if len(weight) % (2 * n_heads):
        return weight
    pairs = weight.unflatten(0, (n_heads, -1, 2))  # (H, d/2, 2, ...)
    return pairs.transpose(1, 2).flatten(0, 2)  # (H·d, ...)


def _short(value):
    """A number of 32 bits as one would write it: 1e-05 and not
    9.999999747378752e-06, so that it is what the checkpoint said."""
    return float(str(np.float32(value))) if type(value) is float else value


#: How texts are cut before pairs are joined, by the file's name for it:
#: whether each digit is a piece of its own.
_CUTS = {"gpt-2": False, "smollm": True}
_NORMAL = 1
_CONTROL = 3


def tokenizer(file: Gguf) -> BytePairs:
    """The tokenizer that lies in a file, if it is one of byte pairs.

    Raises:
        ValueError: another kind of tokenizer, or lists that do not fit.
    """
    about = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in file.metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    kind = about.get("model")
    cut = about.get("pre")
    if kind != "gpt2" or cut not in _CUTS:
        raise ValueError(
            f"the file has a tokenizer of kind {shown(kind)} that cuts texts "
            f"as {shown(cut)} does; this book reads byte pairs, 'gpt2', cut "
            f"as one of {', '.join(_CUTS)}"
        )
    tokens = about.get("tokens", [])
    kinds = about.get("token_type", [_NORMAL] * len(tokens))
    merges = about.get("merges", [])
    for name, value in (("tokens", tokens), ("merges", merges)):
        if not isinstance(value, list) or {type(t) for t in value} != {str}:
            raise ValueError(
                f"tokenizer.ggml.{name} has to be a list of texts; it is "
                f"{shown(value)}"
            )
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise ValueError(
            f"tokenizer.ggml.token_type has to say the type of all "
            f"{len(tokens)} tokens; it is {shown(kinds)}"
        )
    return _byte_pairs(tokens, kinds, merges, _CUTS[cut], about)


def _byte_pairs(tokens, kinds, merges, digits_alone, about):
    """Make a `BytePairs` of a file's lists, whose types have been checked.

    Args:
        tokens: the tokens in the order of their numbers, in GPT-2's letters
            for bytes.
        kinds: of each token whether it is normal or a control token.
        merges: pairs of tokens in the order in which they were learned, each
            as a text with a space between the two.
        digits_alone: whether each digit is a piece of its own.
        about: the file's metadata.

    Raises:
        ValueError: a token of another kind, or merges that cannot be.
    """
    other = {shown(kind) for kind in kinds} - {str(_NORMAL), str(_CONTROL)}
    if other:
        raise ValueError(
            f"tokenizer.ggml.token_type has {sorted(other)[0]}; expected "
            f"{_NORMAL} (normal) or {_CONTROL} (control)"
        )
    special = {
        token: number
        for number, token in enumerate(tokens)
        if kinds[number] == _CONTROL
    }
    if len(special) != kinds.count(_CONTROL):
        raise ValueError("tokenizer.ggml.tokens has a control token twice")
    pairs = []
    for merge in merges:
        first, space, second = merge.partition(" ")
        if not space or " " in second:
            raise ValueError(
                f"a merge has to be two tokens with a space between them; "
                f"got {shown(merge)}"
            )
        pairs.append((bytes_of(first), bytes_of(second)))
    known = {
        bytes_of(token): number
        for number, token in enumerate(tokens)
        if kinds[number] == _NORMAL
    }
    return BytePairs(
        known,
        pairs,
        special=special,
        digits_alone=digits_alone,
        unknown=about.get("unknown_token_id"),
    )
