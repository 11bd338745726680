"""The forms in which people write what a task asks for.

A task has one signature: its tensors are laid out in one way, its masks mean
one thing. Other people's functions do the same with other axes, other masks,
other names, or as a module whose matrices are its own. A `Form` says which
arguments of a task are what, so that a call can be translated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attnbook.teach.check.running import Case


@dataclass(frozen=True)
class Role:
    """What an argument or a result is, and its axes from the first to the
    last: B texts, H heads, T queries, S keys, d components."""

    kind: str
    axes: str = ""


HEADS = Role("heads", "BHTd")
#: Heads whose last axis is a row of pairs, which rotary positions turn.
PAIRS = Role("pairs", "BHTd")
#: The weights of attention.
WEIGHTS = Role("weights", "BHTS")
TOKENS = Role("tokens", "BTd")
POSITIONS = Role("positions", "BT")
#: For each token the number of the text that it belongs to.
DOCUMENTS = Role("documents", "BT")
MASK = Role("mask", "TS")
BATCH_MASK = Role("mask", "BTS")
PLAIN = Role("plain")


@dataclass(frozen=True)
class AsModule:
    """How a task is done by a module that has matrices of its own.

    Attributes:
        sizes: what the module is built from, by name, of a case's arguments.
        parameters: the values of its parameters by name, those of a matrix
            as `nn.Linear` keeps it, (out, in).
        given: the arguments that the module is called with.
    """

    sizes: Callable[[Mapping[str, Any]], dict[str, Any]]
    parameters: Callable[[Mapping[str, Any]], dict[str, Tensor]]
    given: tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """What of a task may come in another form.

    Attributes:
        topic: the heading under which a list of all tasks has it.
        arguments: the roles of arguments, by name.
        results: the roles of the parts of the result.
        module: how a module does it, if one may.
        settings: the arguments that are settings of an optimizer, where the
            task is done by a class of optimizers (see `optimizers`).
        draw: makes the arguments of a case of any size; the names of its
            arguments are the sizes that one may choose.
        free: cases on which right programs go separate ways, by label, and
            what they differ in. They are tried, and do not decide.
        among: for some of these cases a function that is told the case, a
            result and the reference's, and says whether the result is among
            those that right programs give. One that is not counts.
        alone: whether the first of several results may be compared alone,
            where a function returns nothing else, such as the context of
            attention without the weights.
        implied: arguments that a function may lack, and whether the others
            of a case imply the one that it has.
        instead: arguments that a function may have in place of one of the
            task's, by name: that of the task's, and what makes the one from
            the other. It is told whether texts have an axis, and raises
            `Unfit` where there is no such thing.
        in_float32: arguments of whole numbers with which a right program
            computes in float32 or better.
        exact: whether the cases hang on single digits, so that they say
            something in float64 alone.
        also: other references by which right programs go, by what is to be
            said of a program that agrees with one of them.
    """

    topic: str
    arguments: Mapping[str, Role] = field(default_factory=dict)
    results: tuple[Role, ...] = (PLAIN,)
    module: AsModule | None = None
    settings: tuple[str, ...] = ()
    draw: Callable[..., tuple] | None = None
    free: Mapping[str, str] = field(default_factory=dict)
    among: Mapping[str, Callable[[Case, Any, Any], bool]] = field(
        default_factory=dict
    )
    alone: bool = False
    implied: Mapping[str, Callable[[Mapping[str, Any]], bool]] = field(
        default_factory=dict
    )
    instead: Mapping[str, tuple[str, Callable[[Any, bool], Any]]] = field(
        default_factory=dict
    )
    in_float32: tuple[str, ...] = ()
    exact: bool = False
    also: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


#: The other names that arguments and sizes have in other people's code.
#: Names are compared in lower case.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "q": ("query", "queries", "xq", "query_states", "query_layer"),
    "k": ("key", "keys", "xk", "key_states", "key_layer"),
    "v": ("value", "values", "xv", "value_states", "value_layer"),
    "mask": ("attn_mask", "attention_mask", "att_mask", "src_mask", "masks"),
    "scale": ("softmax_scale", "scaling", "sm_scale"),
    "x": (
        "input",
        "inputs",
        "hidden_states",
        "hidden",
        "inp",
        "embeddings",
        "src",
    ),
    "scores": ("logits", "x", "input", "a", "s"),
    "logits": ("scores", "input", "pred", "preds", "outputs"),
    "targets": ("target", "labels", "y"),
    "positions": ("position_ids", "pos", "input_pos", "position", "offsets"),
    "base": ("theta", "rope_theta", "rope_base", "freqs_base"),
    "k_largest": ("top_k",),
    "eps": ("epsilon", "norm_eps", "variance_epsilon", "layer_norm_eps"),
    "weight": ("gamma", "g", "scale"),
    "bias": ("beta",),
    "temperature": ("temp", "t"),
    "documents": (
        "document_ids",
        "doc_ids",
        "document_id",
        "docs",
        "segment_ids",
        "segments",
        "segment_id",
        "seq_ids",
        "sequence_ids",
        "sequence_id",
        "ids",
    ),
    "lengths": (
        "seq_lens",
        "seqlens",
        "seq_lengths",
        "document_lengths",
        "doc_lens",
        "lens",
    ),
    "cu_seqlens": ("cu_seq_lens", "cu_lengths", "cumulative_lengths"),
    "lr": ("learning_rate", "rate", "alpha", "step_size"),
    "weight_decay": ("decay", "wd", "weight_decay_rate"),
    "n_heads": (
        "num_heads",
        "n_head",
        "heads",
        "nhead",
        "h",
        "num_head",
        "num_attention_heads",
        "num_query_heads",
        "n_q_heads",
    ),
    "n_kv_heads": (
        "num_key_value_heads",
        "num_kv_heads",
        "n_kv_head",
        "kv_heads",
        "n_query_groups",
        "num_query_groups",
        "num_kv_groups",
        "n_kv_groups",
        "kv_groups",
        "n_groups",
        "num_groups",
    ),
    "d_k": ("head_dim", "dim_head", "d_head", "head_size", "head_width"),
    "d_model": (
        "dim",
        "d",
        "width",
        "hidden_size",
        "n_embd",
        "embed_dim",
        "emb_dim",
        "size",
        "features",
        "normalized_shape",
        "ndim",
        "d_in",
        "n_state",
        "in_features",
        "model_dim",
    ),
    "d_ff": (
        "hidden_dim",
        "intermediate_size",
        "ffn_dim",
        "inner_dim",
        "d_hidden",
        "d_inner",
        "mlp_dim",
        "n_hidden",
    ),
    "d_out": ("out_features", "output_size", "d_v"),
    "n_queries": ("size", "t", "seq_len", "n", "length", "sz", "q_len"),
    "n_keys": ("s", "k_len", "kv_len", "total_len"),
    "block": ("block_size", "chunk_size", "block_k", "bk", "b_c"),
    "rows": ("block_q", "block_m", "q_block_size", "bq", "b_r"),
    "columns": ("block_k", "block_n", "k_block_size", "bk", "b_c"),
    "causal": ("is_causal",),
    "window": ("window_size", "sliding_window"),
}

#: The names that parts of a module have in other people's code. Of a name
#: with a dot the end is compared.
PARTS: dict[str, tuple[str, ...]] = {
    "query": ("q_proj", "wq", "to_q", "w_query", "q", "q_lin", "w_q", "w_qs"),
    "key": ("k_proj", "wk", "to_k", "w_key", "k", "k_lin", "w_k", "w_ks"),
    "value": ("v_proj", "wv", "to_v", "w_value", "v", "v_lin", "w_v", "w_vs"),
    "query+key+value": (
        "qkv",
        "c_attn",
        "qkv_proj",
        "to_qkv",
        "in_proj",
        "wqkv",
        "w_qkv",
    ),
    "out": (
        "out_proj",
        "o_proj",
        "wo",
        "c_proj",
        "to_out",
        "proj",
        "w_o",
        "fc",
        "w_concat",
        "output_linear",
        "output_proj",
        "output",
        "dense",
    ),
    "up": (
        "up_proj",
        "w3",
        "c_fc",
        "fc1",
        "w_1",
        "linear1",
        "fc_2",
        "layer1",
        "w_up",
    ),
    "gate": ("gate_proj", "w1", "fc_1", "w_gate"),
    "down": (
        "down_proj",
        "w2",
        "c_proj",
        "fc2",
        "w_2",
        "linear2",
        "proj",
        "layer2",
        "fc_3",
        "fc3",
        "w_down",
    ),
    "attention_norm": ("ln_1", "ln1", "norm1", "norm_1", "attn_norm"),
    "feed_forward_norm": ("ln_2", "ln2", "norm2", "norm_2", "ffn_norm"),
    "weight": ("scale", "gamma", "g", "a_2"),
    "bias": ("shift", "beta", "b_2"),
}
