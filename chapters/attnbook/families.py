"""Other people's architectures: GPT-2's, Llama's and more, in a table.

`FAMILIES` says what they call what we have too, `config_of` reads their
configuration, and refuses one that means another model than ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from attnbook.gpt import GPTConfig
from attnbook.values import bad_value, one_of, whole

_PUBLISHED = (  # name, blocks, width, heads, state of the repository
    ("gpt2", 12, 768, 12, "607a30d783dfa663caf39e06633721c8d4cfcd7e"),
    ("gpt2-medium", 24, 1024, 16, "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"),
    ("gpt2-large", 36, 1280, 20, "32b71b12589c2f8d625668d2335a01cac3249519"),
    ("gpt2-xl", 48, 1600, 25, "15ea56dee5df4983c59b2538573817e1667135e2"),
)
#: The four GPT-2 that were published, and their commits on the hub.
SIZES = {
    name: GPTConfig(n_layers=n_layers, d_model=d_model, n_heads=n_heads)
    for name, n_layers, d_model, n_heads, _ in _PUBLISHED
}
REVISIONS = {name: revision for name, *_, revision in _PUBLISHED}


class Family(NamedTuple):
    """What an architecture calls its parts and its settings.

    In the names of parts # is the number of a block. Where one of theirs
    stands for several of ours it is split along the outputs, where several
    stand for one they are stacked.
    """

    prefix: str  # of all names but the head's, or left away
    ignored: str  # buffers that are no weights
    names: dict[str, str]  # theirs and ours, in the order of computation
    sizes: dict[str, str]  # ours and theirs, beside those of `_SIZES`
    norm_eps: tuple[str, float]  # with transformers' default
    activation: tuple[str, str]  # the setting's name, and its default
    activations: dict[str, str]  # theirs and ours
    conv1d: bool = False  # whether the blocks' matrices lie (inputs, outputs)
    tied: bool = False  # the default
    options: dict[str, Any] = {}  # of ours, the same for all of the family
    window: int | None = None  # the default of sliding_window


_GPT2 = Family(
    prefix="transformer.",
    ignored=r"h\.\d+\.attn\.(bias|masked_bias)",
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
    sizes={"d_ff": "n_inner"},
    norm_eps=("layer_norm_epsilon", 1e-5),
    activation=("activation_function", "gelu_new"),
    activations={"gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu"},
    conv1d=True,
    tied=True,
)
_LLAMA = Family(
    prefix="model.",
    ignored=r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
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
    sizes=dict(d_ff="intermediate_size", n_kv_heads="num_key_value_heads"),
    norm_eps=("rms_norm_eps", 1e-6),
    activation=("hidden_act", "silu"),
    activations={"silu": "swiglu"},
    options={"positions": "rotary", "norm": "rms"},
)
#: What can be loaded. A new family is a row: what it has otherwise.
FAMILIES = {
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _LLAMA._replace(window=4096),
    "qwen2": _LLAMA._replace(options=_LLAMA.options | {"qkv_bias": True}),
}
#: Sizes of all: ours, GPT-2's name, and Llama's, which GPT-2 may have too.
_SIZES = {
    "vocab_size": "vocab_size",
    "context": "n_positions max_position_embeddings",
    "d_model": "n_embd hidden_size",
    "n_heads": "n_head num_attention_heads",
    "n_layers": "n_layer num_hidden_layers",
}
_MAY_BE_NULL = {"n_inner": None, "num_key_value_heads": None, "head_dim": None}
#: Settings that our class has one value of: true, and false, null or nothing.
_TRUE = ("is_causal", "scale_attn_weights")
_FALSE = (
    "quantization_config pruned_heads add_cross_attention layer_types "
    "scale_attn_by_inverse_layer_idx attention_chunk_size"
).split()
#: What a table of Llama 3.1's rotation says, in the order of ours.
_SCALING = (
    "factor low_freq_factor high_freq_factor original_max_position_embeddings"
).split()


def config_of(config: dict) -> GPTConfig:
    """Our sizes, from a `config.json` of transformers as a dictionary.

    Dropout and the size of fresh weights are left away. A setting that is
    missing, and is no size, has transformers' default.

    Raises:
        ValueError: an architecture that is not in the table; a size that is
            missing; a setting not of our class, or two that disagree.
        TypeError: a value of another type.
    """
    name = one_of("model_type", config.get("model_type"), FAMILIES)
    family, llama = FAMILIES[name], "gpt" not in name
    full = ["full_attention"] * len(config.get("layer_types") or ())
    for setting in (*_TRUE, *_FALSE):
        expected = setting in _TRUE
        got = config.get(setting, expected)
        if (got or False) != expected and got != full:
            raise bad_value(ValueError, setting, got, expected)
    activation = config.get(*family.activation)
    one_of(family.activation[0], activation, family.activations)
    ours = GPTConfig(
        **{
            ours: _size(config, *theirs.split()[-1 if llama else 0 :])
            for ours, theirs in (_SIZES | family.sizes).items()
        },
        activation=family.activations[activation],
        norm_eps=config.get(*family.norm_eps),
        tied=config.get("tie_word_embeddings", family.tied),
        **family.options,
    )
    if not llama:
        return ours
    window = config.get("sliding_window", family.window)
    if config.get("use_sliding_window", name != "qwen2") and window:
        whole("sliding_window", window, at_least=ours.context)
    biases = [config.get(f"{n}_bias", False) for n in ("attention", "mlp")]
    if biases[0] != biases[1]:
        both = "attention_bias and mlp_bias"
        raise bad_value(ValueError, both, biases, "the same for both")
    width = ours.d_model // ours.n_heads
    got = _size(config, "head_dim") or width
    if got != width or width % 2:
        words = f"even, and hidden_size / num_attention_heads, {width}"
        raise bad_value(ValueError, "head_dim", got, words)
    return replace(ours, bias=biases[0], **_rotation(config, ours.context))


def _size(config, *names):
    """A size, under whichever of its names."""
    given = _MAY_BE_NULL | config
    got = [given[name] for name in names if name in given]
    if not got or any(value != got[0] for value in got):
        raise bad_value(ValueError, " and ".join(names), got, "one size")
    if got[0] is None and names[0] in _MAY_BE_NULL:
        return None
    return whole(names[0], got[0], at_least=1, at_most=2**31 - 1)


def _rotation(config, context):
    """The base, wherever it stands, and the scaling, if it is Llama 3.1's."""
    rope = {"rope_theta": config.get("rope_theta", 10_000.0)}
    rope["partial_rotary_factor"] = config.get("partial_rotary_factor")
    tables = [config.get(n) for n in ("rope_parameters", "rope_scaling")]
    tables = [table for table in tables if table]
    for table in tables:
        if not isinstance(table, dict) or table != tables[0]:
            both = "rope_parameters and rope_scaling"
            raise bad_value(
                ValueError, both, tables, "one table, in one or both"
            )
        rope |= table
    plain = {"rope_type": "default", "type": "default"}
    plain |= {"partial_rotary_factor": 1, "rope_theta": rope["rope_theta"]}
    found = {"rotary_base": rope["rope_theta"]}
    if rope.get("rope_type") == "llama3":
        given = {_SCALING[3]: context} | rope
        found["rotary_scaling"] = tuple(given.get(n) for n in _SCALING)
        plain |= {n: given.get(n) for n in (*_SCALING, "rope_type")}
        plain["type"] = "llama3"
    for name, got in rope.items():
        if got is not None and got != plain.get(name):
            raise bad_value(ValueError, name, got, plain.get(name, "nothing"))
    return found
