"""Other people's architectures: GPT-2's and Llama's names and settings.

`FAMILIES` says what they call what we have too, `config_of` reads their
configuration, and refuses one that means another model than ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from attnbook.config import number, one_of, whole
from attnbook.files import shown
from attnbook.gpt import GPTConfig

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
_ONLY: dict[str, Any] = {
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
    family = family_of(name)
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


def family_of(name: Any) -> Family:
    """A family by its name; a ValueError for another than the two."""
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


def pairs_of(family: str, n_layers: int) -> list[tuple[str, str, str]]:
    """What to compare of two models, in the order of computation.

    Each (label, our module, their module), for `divergence.record` and
    `divergence.compare`.

    Raises:
        ValueError: another family than "gpt2" or "llama".
    """
    names = family_of(family)
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
