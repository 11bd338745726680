"""Other people's architectures: which of them our `GPT` can be.

A published model comes with a `config.json`, in which transformers' names
stand for its sizes and settings, and with tensors that have transformers'
names. `FAMILIES` is the table that translates both into ours, one row for
each architecture. `config_of` reads a `config.json`, and refuses one that
describes a model which our class cannot be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from attnbook.encoder import EncoderConfig
from attnbook.gpt import GPTConfig
from attnbook.values import whole

_PUBLISHED = (  # name, blocks, width, heads, state of the repository
    ("gpt2", 12, 768, 12, "607a30d783dfa663caf39e06633721c8d4cfcd7e"),
    ("gpt2-medium", 24, 1024, 16, "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"),
    ("gpt2-large", 36, 1280, 20, "32b71b12589c2f8d625668d2335a01cac3249519"),
    ("gpt2-xl", 48, 1600, 25, "15ea56dee5df4983c59b2538573817e1667135e2"),
)
#: The sizes of the four GPT-2s that OpenAI published.
SIZES = {
    name: GPTConfig(n_layers=n_layers, d_model=d_model, n_heads=n_heads)
    for name, n_layers, d_model, n_heads, _ in _PUBLISHED
}
#: The commit of each on the Hugging Face hub, so that what is fetched is
#: what was tested.
REVISIONS = {name: revision for name, *_, revision in _PUBLISHED}


class Family(NamedTuple):
    """One architecture: what it calls its parts and its settings.

    `names` pairs the names of layers, theirs with ours, without ".weight" and
    ".bias"; # stands for the number of a block. Several names on one side
    have a space between them: if one of their tensors holds several of ours,
    it is split along its outputs, and if several of theirs make up one of
    ours, they are stacked.
    """

    #: How all names in a file begin, except the head's. Some files leave it
    #: out.
    prefix: str
    #: A regular expression for the names of tensors that are no weights.
    ignored: str
    #: Their layers and ours, in the order of computation.
    names: dict[str, str]
    #: Fields of `GPTConfig`, and the names that each may have in theirs.
    sizes: dict[str, tuple[str, ...]]
    #: Their name for the norms' epsilon, and transformers' default.
    norm_eps: tuple[str, float]
    #: Their name for the activation, and transformers' default.
    activation: tuple[str, str]
    #: Their names of activations, and ours.
    activations: dict[str, str]
    #: Whether the blocks' matrices lie as (inputs, outputs), transposed.
    conv1d: bool = False
    #: Whether the embedding is the head too, if the file does not say.
    tied: bool = False
    #: Fields of `GPTConfig` that are the same for the whole family.
    options: dict[str, Any] = {}
    #: How many tokens a token sees, if the file does not say; None is all.
    window: int | None = None
    #: The width of a head, if the file does not say; None is a share.
    d_head: int | None = None
    #: Whether it is an `Encoder`, and its fields those of `EncoderConfig`.
    encoder: bool = False


_GPT2 = Family(
    prefix="transformer.",
    ignored=r"h\.\d+\.attn\.(bias|masked_bias)",
    names={
        "wte": "token_embedding",
        "wpe": "position_embedding",
        "h.#.ln_1": "blocks.#.attention_norm",
        "h.#.attn.c_attn": (
            "blocks.#.attention.query blocks.#.attention.key_value"
        ),
        "h.#.attn.c_proj": "blocks.#.attention.out",
        "h.#.ln_2": "blocks.#.feed_forward_norm",
        "h.#.mlp.c_fc": "blocks.#.feed_forward.up",
        "h.#.mlp.c_proj": "blocks.#.feed_forward.down",
        "ln_f": "norm",
    },
    # transformers takes GPT-2's own names and those of later models alike.
    sizes={
        "vocab_size": ("vocab_size",),
        "context": ("n_positions", "max_position_embeddings"),
        "d_model": ("n_embd", "hidden_size"),
        "n_heads": ("n_head", "num_attention_heads"),
        "n_layers": ("n_layer", "num_hidden_layers"),
        "d_ff": ("n_inner",),
    },
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
        "layers.#.input_layernorm": "blocks.#.attention_norm",
        "layers.#.self_attn.q_proj": "blocks.#.attention.query",
        "layers.#.self_attn.k_proj layers.#.self_attn.v_proj": (
            "blocks.#.attention.key_value"
        ),
        "layers.#.self_attn.q_norm": "blocks.#.attention.query_norm",
        "layers.#.self_attn.k_norm": "blocks.#.attention.key_norm",
        "layers.#.self_attn.o_proj": "blocks.#.attention.out",
        "layers.#.post_attention_layernorm": "blocks.#.feed_forward_norm",
        "layers.#.mlp.gate_proj": "blocks.#.feed_forward.gate",
        "layers.#.mlp.up_proj": "blocks.#.feed_forward.up",
        "layers.#.mlp.down_proj": "blocks.#.feed_forward.down",
        "norm": "norm",
    },
    sizes={
        "vocab_size": ("vocab_size",),
        "context": ("max_position_embeddings",),
        "d_model": ("hidden_size",),
        "n_heads": ("num_attention_heads",),
        "n_layers": ("num_hidden_layers",),
        "d_ff": ("intermediate_size",),
        "n_kv_heads": ("num_key_value_heads",),
        "d_head": ("head_dim",),
    },
    norm_eps=("rms_norm_eps", 1e-6),
    activation=("hidden_act", "silu"),
    activations={"silu": "swiglu"},
    options={"positions": "rotary", "norm": "rms"},
)
# On top of its encoder a published BERT has `cls`, which guesses masked words.
# Our class ends with the encoder's vectors, so `cls` is left out.
_BERT = Family(
    prefix="bert.",
    ignored=r"embeddings\.position_ids|cls\..*",
    names={
        "embeddings.word_embeddings": "token_embedding",
        "embeddings.position_embeddings": "position_embedding",
        "embeddings.token_type_embeddings": "type_embedding",
        "embeddings.LayerNorm": "embedding_norm",
        "encoder.layer.#.attention.self.query": "blocks.#.attention.query",
        "encoder.layer.#.attention.self.key "
        "encoder.layer.#.attention.self.value": "blocks.#.attention.key_value",
        "encoder.layer.#.attention.output.dense": "blocks.#.attention.out",
        "encoder.layer.#.attention.output.LayerNorm": (
            "blocks.#.attention_norm"
        ),
        "encoder.layer.#.intermediate.dense": "blocks.#.feed_forward.up",
        "encoder.layer.#.output.dense": "blocks.#.feed_forward.down",
        "encoder.layer.#.output.LayerNorm": "blocks.#.feed_forward_norm",
        "pooler.dense": "pooler",
    },
    sizes={
        "vocab_size": ("vocab_size",),
        "context": ("max_position_embeddings",),
        "d_model": ("hidden_size",),
        "n_heads": ("num_attention_heads",),
        "n_layers": ("num_hidden_layers",),
        "d_ff": ("intermediate_size",),
        "n_types": ("type_vocab_size",),
    },
    norm_eps=("layer_norm_eps", 1e-12),
    activation=("hidden_act", "gelu"),
    activations={
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "relu": "relu",
        "silu": "silu",
    },
    encoder=True,
)
#: What can be loaded, by the `model_type` of its `config.json`. A new family
#: is a new row, which says what it does differently.
FAMILIES = {
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _LLAMA._replace(window=4096),
    "qwen2": _LLAMA._replace(options=_LLAMA.options | {"qkv_bias": True}),
    "qwen3": _LLAMA._replace(
        options=_LLAMA.options | {"qk_norm": True}, d_head=128
    ),
    "bert": _BERT,
}
#: Well-known architectures that our classes cannot compute, and why. They, and
#: mixtures of experts, are the majority of what is published today.
OTHERS = {
    "gemma2": "norms before and after each layer, and scores that are capped",
    "gemma3_text": (
        "norms before and after each layer, embeddings multiplied by the root "
        "of their width, and in most blocks a window with another rotation"
    ),
    "gpt_oss": "experts, windows in every other block, and learned sinks",
    "mixtral": "experts",
    "olmo2": (
        "norms after each layer instead of before, and one over the queries "
        "and keys of all heads together"
    ),
    "phi3": "queries, keys and values in one matrix",
    "qwen3_moe": "experts",
    "deepseek_v3": "experts, and keys made from latents",
}
#: Sizes that may be null or missing, and then follow from others.
_OPTIONAL = ("n_inner", "num_key_value_heads", "head_dim")
#: Settings of which our class can do one value only: this one. A setting that
#: is null or missing counts as False.
_ONLY = {
    "is_causal": True,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "attention_chunk_size": False,
    "is_decoder": False,
    "layer_types": False,
    "pruned_heads": False,
    "quantization_config": False,
}
#: The four numbers of Llama 3.1's rotation, in the order of ours.
_SCALING = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)


def config_of(config: dict) -> GPTConfig | EncoderConfig:
    """Our sizes and settings, from transformers' `config.json`.

    `config` is the file's content as a dictionary. Dropout, and the spread of
    fresh weights, are left at our defaults: a finished model needs neither. A
    setting that the file does not have, and that is no size, gets the default
    which transformers gives it. Whether an encoder has a pooler stands in no
    setting: here it has one.

    Raises:
        ValueError: an architecture that is not in `FAMILIES`; a size that is
            missing; a setting which our class does not have, or two settings
            that disagree.
        TypeError: a value of the wrong type.
    """
    name = config.get("model_type")
    if isinstance(name, str) and name in OTHERS:
        raise ValueError(
            f"this model has {OTHERS[name]}, which our classes have not; "
            f"expected a model_type of {', '.join(FAMILIES)}; got {name!r}"
        )
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(
            "the model_type is not one that this book can load; expected one "
            f"of {', '.join(FAMILIES)}; got {name!r}"
        )
    family = FAMILIES[name]
    _check_settings(config)
    fields: dict[str, Any] = {
        our_name: _size(config, *their_names)
        for our_name, their_names in family.sizes.items()
    }
    if "head_dim" not in config and family.d_head is not None:
        fields["d_head"] = family.d_head
    if fields.get("d_head", 0) == fields["d_model"] / fields["n_heads"]:
        fields["d_head"] = None  # which is the default
    fields["activation"] = _activation(config, family)
    fields["norm_eps"] = config.get(*family.norm_eps)
    if family.encoder:
        kind = config.get("position_embedding_type", "absolute")
        if kind != "absolute":
            raise ValueError(
                "position_embedding_type means a model which our class cannot "
                f"be; expected 'absolute' or no such field; got {kind!r}"
            )
        return EncoderConfig(**fields)
    tied = config.get("tie_word_embeddings", family.tied)
    ours = GPTConfig(**fields, tied=tied, **family.options)
    if ours.positions != "rotary":
        return ours
    return _rotary(config, name, ours)


def _activation(config, family):
    """Our name of the activation, if it is one that the family can have."""
    setting, default = family.activation
    theirs = config.get(setting, default)
    if not isinstance(theirs, str) or theirs not in family.activations:
        raise ValueError(
            f"{setting} means a model which our class cannot be; expected one "
            f"of {', '.join(family.activations)}; got {theirs!r}"
        )
    return family.activations[theirs]


def _rotary(config, name, ours):
    """The configuration of a model with rotary positions, made complete.

    These models may have windows, biases and heads of any width; ours have
    what is checked here.
    """
    family = FAMILIES[name]
    window = config.get("sliding_window", family.window)
    # Of transformers' classes only Qwen's ask `use_sliding_window`: Mistral
    # slides whatever that field says.
    slides = "qwen" not in name or config.get("use_sliding_window", False)
    if window is not None:
        whole("sliding_window", window, at_least=1)
    if window is not None and slides and window <= ours.context:
        # Rotary positions have no last one, so a text may be longer than the
        # context, and a window of that length would hide its beginning.
        raise ValueError(
            "a token of this model sees only the last tokens, and our class "
            "has no such window; expected no sliding_window, or one of more "
            f"than the context, {ours.context}; got {window}"
        )
    attention_bias = config.get("attention_bias", False)
    if attention_bias != config.get("mlp_bias", False):
        raise ValueError(
            "attention_bias and mlp_bias differ, and our class has biases in "
            "both places or in neither; expected the same for both; got "
            f"{attention_bias!r} and {config.get('mlp_bias', False)!r}"
        )
    if ours.head_width() % 2:
        raise ValueError(
            "heads whose width is odd cannot be rotated; expected an even "
            "head_dim, or hidden_size / num_attention_heads; got "
            f"{ours.head_width()}"
        )
    return replace(ours, bias=attention_bias, **_rotation(config, ours))


def _check_settings(config):
    """Raise if a `config.json` has a setting that our class cannot follow.

    Some settings change what a model computes (scaled weights, a bias in the
    feed-forward layer). Our classes have one value of each, `_ONLY`.

    Raises:
        ValueError: a setting with another value; the message names it.
    """
    # A list of "full_attention" for each block says what our class does.
    full = ["full_attention"] * len(config.get("layer_types") or ())
    for setting, expected in _ONLY.items():
        got = config.get(setting, expected)
        if (got or False) != expected and got != full:
            wanted = "True" if expected else "False, null or no such field"
            raise ValueError(
                f"{setting} means a model which our class cannot be; expected "
                f"{wanted}; got {got!r}"
            )


def _size(config, *names):
    """A size of theirs, which may stand under any of these names."""
    given = {name: config[name] for name in names if name in config}
    first = names[0]
    if not given and first not in _OPTIONAL:
        raise ValueError(
            f"a size is missing; expected a whole number under "
            f"{' or '.join(names)}; got no such field"
        )
    got = list(given.values()) or [None]
    if any(value != got[0] for value in got):
        raise ValueError(
            f"{' and '.join(given)} are names of the same size; expected one "
            f"number; got {' and '.join(map(repr, got))}"
        )
    if got[0] is None and first in _OPTIONAL:
        return None
    return whole(first, got[0], at_least=1, at_most=2**31 - 1)


def _rotation(config, ours):
    """Fields of `GPTConfig` that say how queries and keys are rotated.

    The base, `rope_theta`, may stand in the configuration itself or in a
    table, which older versions of transformers called `rope_scaling`. The one
    kind of scaling that our class has is Llama 3.1's.
    """
    rope = {
        "rope_theta": config.get("rope_theta", 10_000.0),
        "partial_rotary_factor": config.get("partial_rotary_factor"),
    }
    given = [config.get(n) for n in ("rope_parameters", "rope_scaling")]
    tables = [table for table in given if table]
    for table in tables:
        if not isinstance(table, dict) or table != tables[0]:
            raise ValueError(
                "rope_parameters and rope_scaling cannot be read; expected "
                "one table, in either place or the same in both; got "
                f"{' and '.join(map(repr, tables))}"
            )
        rope |= table
    allowed = {
        "rope_type": "default",
        "type": "default",
        "partial_rotary_factor": 1,
        "rope_theta": rope["rope_theta"],
    }
    found = {"rotary_base": rope["rope_theta"]}
    if rope.get("rope_type") == "llama3":
        numbers = {"original_max_position_embeddings": ours.context} | rope
        scaling = {name: numbers.get(name) for name in _SCALING}
        found["rotary_scaling"] = tuple(scaling.values())
        allowed |= scaling | {"rope_type": "llama3", "type": "llama3"}
    for name, got in rope.items():
        if got is not None and got != allowed.get(name):
            wanted = "no such field"
            if name in allowed:
                wanted = repr(allowed[name])
            raise ValueError(
                f"{name} asks for a rotation that our class does not have; "
                f"expected {wanted}; got {got!r}"
            )
    return found
