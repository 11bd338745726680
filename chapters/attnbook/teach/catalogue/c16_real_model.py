"""Chapter 16, a real model: tasks and known mistakes."""

import math
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from attnbook.gpt import GPT, GPTConfig
from attnbook.layers import TransformerBlock
from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.c10_block import gpt2_block
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import drawn, f64, ints, randns
from attnbook.teach.check.seeded import randn

task = tasks_of(16)

_JOINT = f64([1, 0, 10, 0, 100, 0], [0, 1, 0, 10, 0, 100])


def _joint(B, T, d, n_heads, *, seed):
    """Tokens, the joint matrix for q, k and v, its bias, and n_heads."""
    return *randns((B, T, d), (d, 3 * d), (3 * d,), seed=seed), n_heads


@task(
    against="torch's F.linear, part by part",
    gradients=True,
    cases={
        "two heads of width one": (f64([[1, 2]]), _JOINT, f64(*[0] * 6), 2),
        "one head": _joint(1, 3, 4, 1, seed=1),
        "as many heads as components": _joint(3, 1, 5, 5, seed=3),
        "twelve heads": _joint(2, 5, 36, 12, seed=2),
        "as many heads as tokens": _joint(2, 3, 6, 3, seed=6),
        "17 texts, 17 heads": _joint(17, 1, 136, 17, seed=4),
        "131 tokens": _joint(1, 131, 6, 3, seed=5),
    },
)
def queries_keys_values(x, weight, bias, n_heads):
    """queries, keys and values, (B, H, T, d_k) each, of tokens x (B, T, d) by
    GPT-2's joint matrix, (d, 3 d): all queries, then all keys, then all
    values"""
    d = x.shape[-1]
    found = []
    for part in range(3):
        columns = slice(part * d, (part + 1) * d)
        y = F.linear(x, weight[:, columns].T, bias[columns])
        heads = y.chunk(n_heads, dim=-1)  # H times (B, T, d_k)
        found.append(torch.stack(heads, dim=1))
    return tuple(found)


@queries_keys_values.mistake(
    "awslabs/slapo #46",
    symptom=(symptoms.WRONG_NUMBERS, symptoms.LOADED_WEIGHTS),
)
def cuts_head_by_head(x, weight, bias, n_heads):
    """All shapes are right. The queries of one head are made of queries, keys
    and values of several; with a single head nothing is wrong.
    cause: The outputs are taken to lie head by head, (H, 3, d_k), as in
    GPT-NeoX. In GPT-2 they lie part by part, (3, H, d_k).
    fix: Cut into three parts first, then each part into heads."""
    y = x @ weight + bias
    y = y.unflatten(-1, (n_heads, 3, -1))  # (B, T, H, 3, d_k)
    q, k, v = y.transpose(1, 2).unbind(-2)
    return q, k, v


def _checkpoint(d, context, n_layers, *, seed, prefix="transformer."):
    """Tensors as GPT2LMHeadModel saves them, or as they were published: with
    no prefix, and with the causal mask of each block."""
    vectors = randns((11, d), (context, d), (d,), (d,), seed=seed)
    names = "wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"
    found = {prefix + name: p for name, p in zip(names, vectors)}
    mask = torch.ones(1, 1, context, context).tril()
    for n in range(n_layers):
        found |= gpt2_block(d, seed=seed + n, at=f"{prefix}h.{n}.")
        found |= {} if prefix else {f"h.{n}.attn.bias": mask}
    return found


@cache
def _names_with_one_block():
    """The names of the parameters of transformers' GPT2Model with one block,
    and of those among them that are matrices of a Conv1D."""
    from transformers import GPT2Config, GPT2Model
    from transformers.pytorch_utils import Conv1D

    with torch.device("meta"):
        model = GPT2Model(GPT2Config(n_layer=1))
    matrices = [
        f"{name}.weight"
        for name, layer in model.named_modules()
        if isinstance(layer, Conv1D)
    ]
    return [name for name, _ in model.named_parameters()], matrices


@task(
    against="the Conv1Ds of transformers' GPT2Model",
    cases={
        "one block": (_checkpoint(17, 3, 1, seed=1),),
        "as published": (_checkpoint(4, 7, 11, seed=3, prefix=""),),
        "a context as long as the width": (_checkpoint(5, 5, 2, seed=2),),
        "130 wide, a context of 131": (
            _checkpoint(130, 131, 1, seed=4, prefix=""),
        ),
    },
)
def to_linear(tensors):
    """the weights of a GPT-2 file under their names without the prefix, with
    every Conv1D's matrix as nn.Linear keeps it, (out, in); the rest as it is,
    and no causal masks"""
    names, matrices = _names_with_one_block()
    bare = {n.removeprefix("transformer."): p for n, p in tensors.items()}
    n_layers = sum(n.endswith("ln_1.bias") for n in bare)
    found = {}
    for name in names:
        for n in range(n_layers):  # all blocks are like the first
            own = name.replace("h.0.", f"h.{n}.")
            p = bare[own]
            found[own] = torch.einsum("io->oi", p) if name in matrices else p
    return found


def _weights(tensors):
    """Pairs of names and tensors, without prefix and without causal masks.

    Old files of GPT-2 keep a causal mask, of four axes, in every block.
    """
    named = ((n.removeprefix("transformer."), tensors[n]) for n in tensors)
    return [each for each in named if each[1].ndim < 4]


@to_linear.mistake(symptom=symptoms.LOADED_WEIGHTS)
def leaves_the_square_ones(tensors):
    """The weights load without an error and the logits are wrong.
    cause: Only matrices that would not fit are transposed. Attention's output,
    (d_model, d_model), fits either way.
    fix: Transpose by the kind of layer, not by the shape: all four Conv1Ds of
    every block."""
    return {
        bare: p.T if bare[:2] == "h." and p.shape != p.shape[::-1] else p
        for bare, p in _weights(tensors)
    }


@to_linear.mistake(symptom=(symptoms.SIZES, symptoms.LOADED_WEIGHTS))
def transposes_the_embeddings_too(tensors):
    """An error about the shape of the token embedding; and where the context
    is as long as a token is wide, positions that are wrong without a word.
    cause: Everything with two axes is transposed. The two embeddings are
    tables with one row a token or a position, and no Conv1Ds.
    fix: Transpose the matrices inside the blocks only."""
    weights = _weights(tensors)
    return {bare: p.T if p.ndim == 2 else p for bare, p in weights}


@to_linear.mistake("liaoyuhua/GPT-TS #5", symptom=symptoms.LOADED_WEIGHTS)
def looks_for_the_prefix(tensors):
    """A file that transformers wrote loads rightly. From the published one no
    matrix is transposed, and those that are not square do not fit.
    cause: All names are taken to begin with "transformer.", and a block to
    have ".h." in its own. The published names begin with "h.".
    fix: Take the prefix away first; then a block's names begin with "h."."""
    found = {}
    for name, p in tensors.items():
        if not name.endswith(".attn.bias"):
            bare = name.removeprefix("transformer.")
            found[bare] = p.T if ".h." in name and p.ndim == 2 else p
    return found


@task(
    against="a loop over names",
    cases={
        "one missing": ({"a": (2,), "b": (3,)}, {"a": (2,)}),
        "one too many": ({"a": (2,)}, {"a": (2,), "b": (3,)}),
        "transposed": ({"a": (2, 3)}, {"a": (3, 2)}),
        "all there": ({"b": (4,), "a": (2,)}, {"a": (2,), "b": (4,)}),
        "renamed, and another of a wrong shape": (
            {
                "layers.0.q_proj.weight": (8, 8),
                "layers.0.q_proj.bias": (8,),
                "layers.1.q_proj.bias": (8,),
                "layers.1.k_proj.weight": (8, 8),
                "layers.1.scale": (),  # a number without axes
                "norm.weight": (300,),
            },
            {
                "layers.0.q_proj.weight": (8, 8),
                "layers.1.q_proj.bias": (4,),
                "layers.1.k_proj.weight": (8, 1),
                "q_proj.bias": (8,),
                "norm.weight": (300,),
            },
        ),
        "an empty file": ({"a": (2,)}, {}),
        "forty tensors, four of them wrong": (
            {f"h.{n}.weight": (n, 8) for n in range(40)},
            {f"h.{n}.weight": (n - n % 13 // 12, 8) for n in range(1, 41)},
        ),
    },
)
def what_differs(expected, found):
    """a dictionary with an entry for every tensor that is missing, left over
    or of another shape: its name, and the pair (shape expected, shape found),
    None for a shape that there is not"""
    wrong = {}
    for name in sorted({*expected, *found}):
        pair = expected.get(name), found.get(name)
        if pair[0] != pair[1]:
            wrong[name] = pair
    return wrong


@what_differs.mistake(
    "Blaizzy/mlx-audio #902, PIQuIL/QuCumber #18, pytorch/examples #1029",
    symptom=(symptoms.LOADED_WEIGHTS, symptoms.TEST_ALWAYS_PASSES),
    not_looked_up="pytorch/examples #1029",
)
def looks_at_common_names_alone(expected, found):
    """Nothing is reported for a file whose names are all wrong. The model
    keeps the random numbers that it began with, and runs.
    cause: Only names on both sides are looked at, which is what
    load_state_dict does with strict=False.
    fix: Look at every name that stands on one side or on the other."""
    return {
        name: (expected[name], found[name])
        for name in expected
        if name in found and expected[name] != found[name]
    }


@what_differs.mistake(
    "vllm-project/vllm #51063", symptom=symptoms.LOADED_WEIGHTS
)
def forgets_what_is_left_over(expected, found):
    """A tensor that the model has no place for is dropped without a word: a
    bias, or an output head that is not tied.
    cause: Only what the model asks for is looked up; what the file has beyond
    that is never seen.
    fix: Report what is left over as well."""
    return {
        name: (shape, found.get(name))
        for name, shape in expected.items()
        if found.get(name) != shape
    }


_GPT2 = dict(
    model_type="gpt2",
    vocab_size=11,
    n_positions=7,
    n_embd=6,
    n_head=2,
    n_layer=1,
    n_inner=None,
    layer_norm_epsilon=1e-5,
    activation_function="gelu_new",
)
_LLAMA = dict(
    model_type="llama",
    vocab_size=11,
    hidden_size=8,
    max_position_embeddings=7,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    intermediate_size=9,
    hidden_act="silu",
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    attention_bias=False,
    tie_word_embeddings=False,
)
_SCALING = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)


@task(
    against="a table of names",
    home="families.config_of",
    cases={
        "a GPT-2": (_GPT2,),
        "another epsilon": (_GPT2 | {"layer_norm_epsilon": 1e-6},),
        "exact GELU, 10 inside": (
            _GPT2 | {"activation_function": "gelu", "n_inner": 10},
        ),
        "a Llama": (_LLAMA,),
        "another epsilon and base": (
            _LLAMA | {"rms_norm_eps": 1e-6, "rope_theta": 500.0},
        ),
        "two heads of keys, a tied head": (
            _LLAMA | {"num_key_value_heads": 2, "tie_word_embeddings": True},
        ),
        "the base as newer files have it": (
            {n: x for n, x in _LLAMA.items() if n != "rope_theta"}
            | {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 500.0,
                }
            },
        ),
        "a Llama with biases": (
            _LLAMA | {"attention_bias": True, "mlp_bias": True},
        ),
        "scaled rotary angles, factor 8": (
            _LLAMA | {"rope_scaling": _SCALING, "rope_theta": 500_000.0},
        ),
        "factor 32, another length": (
            _LLAMA
            | {
                "rope_scaling": _SCALING
                | {
                    "factor": 32.0,
                    "low_freq_factor": 2.0,
                    "high_freq_factor": 3.0,
                    "original_max_position_embeddings": 64,
                },
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            },
        ),
    },
)
def config_of(config):
    """the GPTConfig of a config.json, given as a dictionary"""
    return _config(config)


def _config(config, **other):
    """The sizes by name; `other` says what is taken from elsewhere."""
    llama = config["model_type"] == "llama"
    names = {
        "context": ("n_positions", "max_position_embeddings"),
        "d_model": ("n_embd", "hidden_size"),
        "n_heads": ("n_head", "num_attention_heads"),
        "n_layers": ("n_layer", "num_hidden_layers"),
        "d_ff": ("n_inner", "intermediate_size"),
        "norm_eps": ("layer_norm_epsilon", "rms_norm_eps"),
    }
    found = {ours: config[pair[llama]] for ours, pair in names.items()}
    found["vocab_size"] = config["vocab_size"]
    if llama:
        found |= {
            "n_kv_heads": config["num_key_value_heads"],
            "positions": "rotary",
            "norm": "rms",
            "activation": "swiglu",
            "bias": config["attention_bias"],
        }
        rope = config.get("rope_parameters") or config
        found["rotary_base"] = rope.get("rope_theta", 10_000.0)
        if scaling := config.get("rope_scaling"):
            found["rotary_scaling"] = (
                scaling["factor"],
                scaling["low_freq_factor"],
                scaling["high_freq_factor"],
                scaling["original_max_position_embeddings"],
            )
    elif config["activation_function"] != "gelu_new":
        found["activation"] = config["activation_function"]
    if "tie_word_embeddings" in config:
        found["tied"] = config["tie_word_embeddings"]
    return GPTConfig(**found | other)


@config_of.mistake(
    "Lightning-AI/lit-llama #322, huggingface/candle #271",
    symptom=symptoms.LOADED_WEIGHTS,
)
def keeps_the_books_epsilon(config):
    """Everything loads, all shapes are right, and the logits are off by a
    little. Only where the inputs of a norm are small does it show.
    cause: The epsilon of the norms is a fixed number in the code, not the one
    of the checkpoint.
    fix: Read it from the configuration, like the sizes."""
    return _config(config, norm_eps=1e-5)


@config_of.mistake(
    "huggingface/transformers #29557, hiyouga/LlamaFactory #459",
    symptom=symptoms.SIZES,
)
def gives_every_head_its_own_keys(config):
    """A model with grouped queries cannot be loaded: the matrices of its keys
    and values are smaller than expected.
    cause: num_key_value_heads is not read; the number of queries' heads is
    taken for that of the keys'.
    fix: Read it, and give the keys and values that many heads."""
    heads = config.get("num_attention_heads", config.get("n_head"))
    llama = config["model_type"] == "llama"
    return _config(config, **({"n_kv_heads": heads} if llama else {}))


@task(
    against="the shapes of all matrices",
    cases={
        "two queries' heads, one of keys": (5, 4, 6, 1, 2, 1),
        "all heads of their own": (7, 6, 10, 2, 3, 3),
        "four groups of two": (11, 16, 24, 3, 8, 4),
        "as large as Llama 2 70B": (32_000, 8192, 28_672, 80, 64, 8),
        "as large as Llama 2 7B": (32_000, 4096, 11_008, 32, 32, 32),
    },
)
def llama_parameters(vocab_size, d_model, d_ff, n_layers, n_heads, n_kv_heads):
    """the number of parameters of a Llama-style model whose output head is not
    tied, a whole number"""
    d_k = d_model // n_heads
    queries, shared = (n_heads * d_k, d_model), (n_kv_heads * d_k, d_model)
    # query, out, key, value; gate, up, down; two norms
    block = [queries, queries[::-1], shared, shared]
    block += [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)]
    block += [(d_model,), (d_model,)]
    table = (vocab_size, d_model)
    shapes = [table, *block * n_layers, (d_model,), table]
    return sum(math.prod(shape) for shape in shapes)


def _count(V, d, d_ff, L, *, shared, matrices):
    """How many numbers a Llama has; V and d are those of its embedding.

    Args:
        V, d, d_ff, L: tokens, width, inner width and blocks.
        shared: the width of all keys, or of all values.
        matrices: how many a feed-forward layer has.
    """
    return (
        2 * V * d
        + L * (2 * d * d + 2 * d * shared)
        + L * (matrices * d * d_ff + 2 * d)
        + d
    )


@llama_parameters.mistake(
    "meta-llama/llama #1111, whittle-org/whittle #123",
    symptom=symptoms.WRONG_COUNT,
)
def counts_keys_for_every_head(
    vocab_size, d_model, d_ff, n_layers, n_heads, n_kv_heads
):
    """Right without groups; a model of 70 billion parameters comes out at 78.
    cause: Keys and values are counted as d_model by d_model each. With grouped
    queries they have n_kv_heads heads, not n_heads.
    fix: Count d_model · n_kv_heads · d_k for each of the two.
    hint: How wide are all keys of one token together?"""
    return _count(
        vocab_size, d_model, d_ff, n_layers, shared=d_model, matrices=3
    )


@llama_parameters.mistake(
    "TransformerLensOrg/TransformerLens #448", symptom=symptoms.WRONG_COUNT
)
def forgets_the_gate(vocab_size, d_model, d_ff, n_layers, n_heads, n_kv_heads):
    """The count is too small by a third of the feed-forward layers.
    cause: SwiGLU is counted like a feed-forward layer with two matrices; the
    gate is a third.
    fix: Count 3 · d_model · d_ff.
    hint: How many matrices does the feed-forward layer have now?"""
    shared = d_model // n_heads * n_kv_heads
    return _count(
        vocab_size, d_model, d_ff, n_layers, shared=shared, matrices=2
    )


@task(
    against="what the layers make of the identity",
    cases={
        "width one": randns((1, 1), (2, 1), seed=1),
        "width two": randns((2, 2), (4, 2), seed=3),
        "width six": randns((6, 6), (12, 6), seed=5),
        "131 wide": randns((131, 131), (262, 131), seed=7),
    },
)
def to_c_attn(query, key_value):
    """GPT-2's joint matrix, (d, 3 d), of the book's query, (d, d), and
    key_value, (2 d, d)"""
    d = query.shape[1]
    eye = torch.eye(d, dtype=query.dtype, device=query.device)
    return torch.cat([F.linear(eye, query), F.linear(eye, key_value)], -1)


@to_c_attn.mistake("karpathy/nanoGPT #190", symptom=symptoms.SIZES)
def stacks_and_forgets_to_transpose(query, key_value):
    """The matrix has the shape (3 d, d), which GPT-2 refuses.
    cause: The matrices are stacked as nn.Linear keeps them, (out, in). A
    Conv1D keeps (in, out).
    fix: Transpose what has been stacked.
    hint: Which axis of a Conv1D's matrix is multiplied with the token?"""
    return torch.cat([query, key_value])


@to_c_attn.mistake(symptom=symptoms.WRONG_NUMBERS)
def reshapes_where_it_should_transpose(query, key_value):
    """The shape is right, and the numbers are in the wrong places.
    cause: reshape keeps the order of the numbers in memory and cuts the rows
    anew; it does not turn rows into columns.
    fix: Use .T, which exchanges the axes.
    hint: Where should the number in row 0, column 1 of query stand?"""
    return torch.cat([query, key_value]).reshape(len(query), -1)


@task(
    against="torch.unflatten",
    cases={
        "one head of four rows": (
            f64([0], [1], [2], [3]),
            f64([10], [11], [12], [13]),
            1,
        ),
        "two heads of four": (*randns((8, 3), (8, 3), seed=1), 2),
        "four heads of six": (*randns((24, 5), (24, 5), seed=3), 4),
        "twelve heads of four": (*randns((48, 3), (48, 3), seed=5), 12),
        "17 heads of eight, 130 wide": (
            *randns((136, 130), (136, 130), seed=7),
            17,
        ),
    },
)
def stack_key_value(k_proj, v_proj, n_kv_heads):
    """the book's key_value matrix, (2 · H_kv · d_k, d), of the two matrices
    (H_kv · d_k, d) of a checkpoint whose keys are made for the interleaved
    rotation"""
    pairs = k_proj.unflatten(0, (n_kv_heads, -1, 2))  # (H_kv, d_k/2, 2, d)
    return torch.cat([pairs.transpose(1, 2).flatten(0, 2), v_proj])


@stack_key_value.mistake(
    "rasbt/LLMs-from-scratch #747, #750",
    symptom=(symptoms.LATER_TOKENS_WRONG, symptoms.LOADED_WEIGHTS),
)
def stacks_them_as_they_are(k_proj, v_proj, n_kv_heads):
    """The first token comes out right and the later ones wrong, without an
    error.
    cause: The matrices are made for the interleaved rotation and are used with
    the half one.
    fix: Reorder the rows of each head of the keys (and of the queries).
    hint: Which components does the rotation take together, in the checkpoint's
    model and in ours?"""
    return torch.cat([k_proj, v_proj])


@stack_key_value.mistake(symptom=symptoms.WRONG_NUMBERS)
def reorders_the_values_too(k_proj, v_proj, n_kv_heads):
    """Scores and weights are right, and the context has its components in the
    wrong order.
    cause: The values are reordered like the keys. They are not rotated, and
    W_O expects them as they were.
    fix: Reorder the rows of queries and keys alone.
    hint: What is rotated, and what is not?"""
    both = torch.cat([k_proj, v_proj]).unflatten(0, (2 * n_kv_heads, -1, 2))
    return both.transpose(1, 2).flatten(0, 2)


_DEEP = {f"layer {n}": 1000 * randn(2, 3, seed=n) for n in range(4)}
_NOISY = {name: x + 1e-3 for name, x in _DEEP.items()}
_OFF = _NOISY | {
    "layer 2": _DEEP["layer 2"] * 2,
    "layer 3": f64([9] * 3, [9] * 3),
}
_PAIR = f64(1, 2)
_HOLED = f64(1, torch.nan)
_BACK = dict.fromkeys("cba", _PAIR)
_ONES = {"h.1.weight": f64(1, 1), "h.0.weight": f64(1, 1)}
_THOUSAND = {"a": f64(*[0] * 999, 9)}
_MANY = {f"layer {n}": randn(130, 131, seed=5) for n in range(20)}
_ENDS_IN_1 = _MANY["layer 17"].index_put((ints(129), ints(130)), f64(9))


def _tensors(*errors):
    """Tensors a, b and c: one pair of numbers, each with an error added."""
    return {name: _PAIR + error for name, error in zip("abc", errors)}


@task(
    against="a loop over tensors",
    cases={
        "the second": (_tensors(0, 0), _tensors(0, 1), 1e-4),
        "a NaN": ({"a": _PAIR, "b": _HOLED}, _tensors(0, 0), 1e-4),
        "two, the later one worse": (
            _tensors(0, 0, 0),
            _tensors(0, 1, 9),
            0.1,
        ),
        "rounding alone": (_DEEP, _NOISY, 1e-2),
        "rounding, then more": (_DEEP, _OFF, 1e-2),
        "a stricter bound": (_DEEP, _NOISY, 1e-4),
        "a NaN of the reference": ({"a": _PAIR}, {"a": _HOLED}, 1e-4),
        "NaN on both sides": ({"a": _HOLED}, {"a": _HOLED}, 1e-4),
        "names in no order": (
            {"h.1.weight": _PAIR, "h.0.weight": _PAIR},
            _ONES,
            0.5,
        ),
        "the reference in another order": (_BACK, _tensors(1, 1, 0), 0.5),
        "just the bound": (_tensors(0), _tensors(0.5), 0.5),
        "too little for a float32": (_tensors(0), _tensors(1e-9), 1e-10),
        "one place of a thousand": (
            {"a": f64(*[0] * 998, 1, 9)},
            _THOUSAND,
            0.5,
        ),
        "the last number of the eighteenth": (
            _MANY,
            _MANY | {"layer 17": _ENDS_IN_1},
            0.5,
        ),
    },
)
def find_first(ours, theirs, bound):
    """the name of the first tensor that is further from the reference's than
    the bound in any place, or None; a NaN is far from everything"""
    for name, x in ours.items():
        gap = (x - theirs[name]).abs().nan_to_num(nan=torch.inf)
        if gap.max() > bound:
            return name
    return None


@find_first.mistake(
    "ralna/RALFit #138, OpenFAST/openfast #1156",
    symptom=symptoms.TEST_ALWAYS_PASSES,
)
def lets_a_nan_pass(ours, theirs, bound):
    """A layer full of NaN counts as equal, and the name is that of a later
    layer or None.
    cause: Every comparison with NaN is False, so NaN > bound is False too.
    fix: Ask whether the difference is within the bound, and deny it: not (gap
    <= bound).all().
    hint: What is `float('nan') > 1e-4`?"""
    for name, x in ours.items():
        if (x - theirs[name]).abs().max() > bound:
            return name
    return None


@find_first.mistake(symptom=symptoms.TEST_ALWAYS_PASSES)
def names_the_largest(ours, theirs, bound):
    """A late layer is named, and the fault is not in it.
    cause: The largest difference is looked for. An error grows on its way
    through the layers; it begins where it is still small.
    fix: Go through the layers in the order in which they run, and stop at the
    first beyond the bound.
    hint: Is the layer with the largest difference the one where it began?"""
    gaps = {
        name: (x - theirs[name]).abs().nan_to_num(nan=torch.inf).max().item()
        for name, x in ours.items()
    }
    worst = max(gaps, key=gaps.get)
    return worst if gaps[worst] > bound else None


_SIZES: dict[str, Any] = {
    "vocab_size": 7,
    "context": 6,
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 2,
}
_ROTARY: dict[str, Any] = {
    "positions": "rotary",
    "norm": "rms",
    "activation": "swiglu",
    "bias": False,
    "tied": False,
    "n_kv_heads": 1,
}


class _AddsMore(TransformerBlock):
    """A block that is wrong by one percent of what it is given."""

    def forward(self, x, **options):
        return super().forward(x, **options) + x / 100


def _hunt(seed, bug="", sizes=_SIZES, shape=None, **other):
    """Two models with equal parameters, one with a bug, and tokens; with a
    shape these are 0, but for a 4 at the end of the last text."""
    tokens = ints([0, 3, 6, 2, 5], [4, 4, 1, 0, 2])
    if shape:
        tokens = torch.zeros(shape, dtype=torch.long)
        tokens[-1, -1] = 4
    theirs = drawn(GPT(GPTConfig(**sizes)), seed=seed).requires_grad_(False)
    ours = GPT(GPTConfig(**sizes | other)).double().requires_grad_(False)
    ours.load_state_dict(theirs.state_dict())
    first, second = ours.blocks
    if bug == "a matrix":
        second.attention.out.weight.t_()
    elif bug == "a norm":
        second.attention_norm.eps = 1e-2
    elif bug == "positions":
        weight = ours.position_embedding.weight
        weight.copy_(weight.roll(1, 0))
    elif bug == "a word":
        ours.token_embedding.weight[4] += 1  # in the second text alone
    elif bug == "NaN":
        first.attention.key_value.weight[-1] = torch.nan
    elif bug == "a small one":
        ours.norm.bias[:2] += f64(5e-9, -5e-9)  # their mean is 0
    elif bug == "too small a one":
        ours.norm.bias -= 1e-10
    elif bug == "an addition":
        first.__class__ = _AddsMore
    return ours.eval(), theirs.eval(), tokens


def _outputs(model, tokens):
    """What each part of the model gives, in the order of finishing."""
    found = {}

    def keep(name):
        return lambda module, args, out: found.setdefault(name, out)

    hooks = [
        module.register_forward_hook(keep(name))
        for name, module in model.named_modules()
        if name
    ]
    try:
        model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return found


@task(
    against="the outputs of all modules",
    cases=lambda: {
        "a matrix": _hunt(1, "a matrix"),
        "a norm": _hunt(2, "a norm"),
        "between two matrices": _hunt(3, activation="gelu"),
        "the positions": _hunt(4, "positions"),
        "a word of the second text": _hunt(10, "a word"),
        "no bug": _hunt(5),
        "NaN": _hunt(6, "NaN"),
        "a small one": _hunt(8, "a small one"),
        "less than the bound": _hunt(11, "too small a one"),
        "an addition": _hunt(9, "an addition"),
        "a Llama's rotation": _hunt(
            7, sizes=_SIZES | _ROTARY, rotary_base=100.0
        ),
        "the last word of the 17th text": _hunt(
            12, "a word", sizes=_SIZES | {"context": 131}, shape=(17, 131)
        ),
    },
)
def first_wrong(ours, theirs, tokens):
    """the name, as in named_modules(), of the part whose result is the first,
    as the model runs, that is more than 1e-9 from the reference's in any
    place; None if no part's is"""
    return find_first(_outputs(ours, tokens), _outputs(theirs, tokens), 1e-9)


@first_wrong.mistake(
    "alibaba/Pai-Megatron-Patch #605", symptom=symptoms.TEST_ALWAYS_PASSES
)
def compares_the_parameters(ours, theirs, tokens):
    """A fault in a number that is not a parameter is not found: an epsilon, an
    activation, the base of a rotation.
    cause: Parameters are compared, and two models with equal parameters can
    still compute different things.
    fix: Compare what the parts give when the model runs.
    hint: What could differ between two models whose parameters are equal?"""
    theirs = dict(theirs.named_parameters())
    for name, p in ours.named_parameters():
        if not ((p - theirs[name]).abs() <= 1e-9).all():
            return name.rpartition(".")[0]
    return None


@first_wrong.mistake(
    "Lightning-AI/pytorch-lightning #1556", symptom=symptoms.TEST_ALWAYS_PASSES
)
def goes_by_the_order_of_definition(ours, theirs, tokens):
    """A whole block is named where one norm in it is wrong.
    cause: The parts are visited in the order of their definition, in which a
    block comes before what is in it, and attention before the norm that runs
    first.
    fix: Take the order in which the parts finish: that in which their forward
    hooks are called.
    hint: In which order do the parts finish when the model runs?"""
    mine, reference = _outputs(ours, tokens), _outputs(theirs, tokens)
    names = [name for name, _ in ours.named_modules() if name in mine]
    mine = {name: mine[name] for name in names}
    return find_first(mine, reference, 1e-9)
