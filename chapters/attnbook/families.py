"""Other people's architectures: GPT-2's and Llama's names and settings.

`FAMILIES` says what they call what we have too, `config_of` reads their
configuration, and refuses one that means another model than ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from attnbook.config import one_of, whole
from attnbook.files import shown
from attnbook.gpt import GPTConfig

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
    conv1d: bool  # whether the blocks' matrices lie (inputs, outputs)
    names: dict[str, str]  # theirs and ours, in the order of computation
    sizes: dict[str, str]  # ours and theirs, beside those of `_SIZES`
    norm_eps: tuple[str, float]  # with transformers' default
    activation: tuple[str, str]
    activations: dict[str, str]  # theirs and ours
    tied: bool  # the default


FAMILIES = {
    "gpt2": Family(
        prefix="transformer.",
        ignored=r"h\.\d+\.attn\.(bias|masked_bias)",
        conv1d=True,
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
        tied=True,
    ),
    "llama": Family(
        prefix="model.",
        ignored=r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
        conv1d=False,
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
        tied=False,
    ),
}
#: Sizes of both: ours, GPT-2's name, and Llama's, which GPT-2 may have too.
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
    "quantization_config pruned_heads add_cross_attention sliding_window "
    "scale_attn_by_inverse_layer_idx layer_types attention_chunk_size"
).split()


def config_of(config: dict) -> GPTConfig:
    """Our sizes, from a `config.json` of transformers as a dictionary.

    Dropout and the size of fresh weights are left away. A setting that is
    missing, and is no size, has transformers' default.

    Raises:
        ValueError: another architecture than GPT-2 or Llama; a size that is
            missing; a setting that our class does not have, or two that
            disagree.
        TypeError: a value of another type.
    """
    name = one_of("model_type", config.get("model_type"), FAMILIES)
    family, llama = FAMILIES[name], name == "llama"
    for setting in (*_TRUE, *_FALSE):
        expected = setting in _TRUE
        got = config.get(setting, expected)
        if (got or False) != expected:
            raise ValueError(
                f"a {name} with {setting} is not in this book; expected "
                f"{expected}; got {shown(got)}"
            )
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
    )
    if not llama:
        return ours
    biases = [config.get(f"{n}_bias", False) for n in ("attention", "mlp")]
    if biases[0] != biases[1]:
        raise ValueError(
            "our blocks have biases everywhere or nowhere; expected "
            f"attention_bias and mlp_bias the same; got {shown(biases)}"
        )
    width = ours.d_model // ours.n_heads
    got = _size(config, "head_dim") or width
    if got != width or width % 2:
        raise ValueError(
            "our heads cannot have this width; expected head_dim even and "
            f"hidden_size / num_attention_heads; got {got} of {ours.d_model} "
            f"/ {ours.n_heads}"
        )
    base = _rotary_base(config)
    return replace(
        ours, positions="rotary", rotary_base=base, norm="rms", bias=biases[0]
    )


def _size(config, *names):
    """A size, under whichever of its names."""
    given = _MAY_BE_NULL | config
    got = [given[name] for name in names if name in given]
    if not got or any(value != got[0] for value in got):
        raise ValueError(
            f"{' and '.join(names)} must be one size; expected one value; "
            f"got {shown(got)}"
        )
    if got[0] is None and names[0] in _MAY_BE_NULL:
        return None
    return whole(names[0], got[0], at_least=1, at_most=2**31 - 1)


def _rotary_base(config):
    """The base, wherever it stands, if the rotation is the plain one."""
    rope = {"rope_theta": config.get("rope_theta", 10_000.0)}
    rope["partial_rotary_factor"] = config.get("partial_rotary_factor")
    tables = [config.get(n) for n in ("rope_parameters", "rope_scaling")]
    tables = [table for table in tables if table]
    for table in tables:
        if not isinstance(table, dict) or table != tables[0]:
            raise ValueError(
                "rope_parameters and rope_scaling are two names for a table; "
                f"expected one, or the same twice; got {shown(tables)}"
            )
        rope |= table
    plain = {"rope_type": "default", "type": "default"}
    plain |= {"partial_rotary_factor": 1, "rope_theta": rope["rope_theta"]}
    for name, got in rope.items():
        if got is not None and got != plain.get(name):
            raise ValueError(
                f"this rotation is not in this book; expected {name} "
                f"{plain.get(name, 'left away')}; got {shown(got)}"
            )
    return rope["rope_theta"]
