"""Chapter 10, the transformer block: tasks and known mistakes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from attnbook.teach.proof import Case
from attnbook.teach.seeded import randn
from attnbook.teach.tasks import task


def _head_cases():
    ones = torch.ones(1, 1, dtype=torch.float64)
    row = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    return {
        "a head of width one": (row, ones * 10, ones * row),
        "a head of width two": _head((3,), 3, 2, seed=1),
        "as wide as the stream": _head((4,), 5, 5, seed=4),
        "two sequences, 512 and 128": _head((2, 3), 512, 128, seed=7),
    }


def _head(leading, d_model, d_v, *, seed):
    return (
        randn(*leading, d_model, seed=seed),
        randn(*leading, d_v, seed=seed + 1),
        randn(d_v, d_model, seed=seed + 2),
    )


@task(
    against="torch's F.linear",
    gradients=True,
    cases=_head_cases,
)
def add_head(x, context, w_out):
    """the stream x (..., T, d_model) with a head's context (..., T, d_v) added
    to it, taken to the width of the stream by w_out (d_v, d_model)"""
    return x + F.linear(context, w_out.T)


@add_head.mistake("datawhalechina/happy-llm #199")
def adds_the_head_itself(x, context, w_out):
    """An error about sizes when the head is narrower than the stream; but a
    head of width 1 is added to all components alike without a word, and one as
    wide as the stream as it is.

    cause: The context lives in the space of the values, (..., T, d_v), and is
    added to a stream that is (..., T, d_model) without being taken there.
    fix: Multiply by W_O, (d_v, d_model), before the addition.
    """
    return x + context


@dataclass(frozen=True, repr=False)
class Part:
    """A function that is part of one of torch's layers, by name."""

    name: str
    layer: nn.Module
    fn: Callable

    def __call__(self, *args):
        return self.fn(*args)

    def __repr__(self):
        return self.name


def _drawn(module, seed):
    """A module with every parameter drawn, those of its norms too."""
    module = module.double()
    for n, (name, parameter) in enumerate(module.named_parameters()):
        values = randn(*parameter.shape, seed=100 * seed + n) / 2
        is_scale = parameter.ndim == 1 and name.endswith("weight")
        parameter.data = values + 1 if is_scale else values
    return module


def _encoder_layer(d_model, n_heads, seed, *, norm_first):
    layer = nn.TransformerEncoderLayer(
        d_model,
        n_heads,
        2 * d_model,
        dropout=0.0,
        batch_first=True,
        norm_first=norm_first,
    )
    return _drawn(layer, seed)


def _parts(layer):
    """Attention, feed-forward and the two norms of an encoder layer."""

    def attention(x):
        return layer.self_attn(x, x, x, need_weights=False)[0]

    def feed_forward(x):
        return layer.linear2(F.relu(layer.linear1(x)))

    return (
        Part("attention", layer, attention),
        Part("feed_forward", layer, feed_forward),
        Part("attention_norm", layer, layer.norm1),
        Part("feed_forward_norm", layer, layer.norm2),
    )


def _block_cases(norm_first):
    def case(label, size, n_heads, seed):
        layer = _encoder_layer(size[-1], n_heads, seed, norm_first=norm_first)
        return Case(label, (randn(*size, seed=seed) * 3, *_parts(layer)))

    return [
        case("one token of width four", (1, 4), 1, 1),
        case("three tokens of width six, two heads", (3, 6), 2, 2),
        case("two sequences", (2, 5, 8), 4, 3),
    ]


@task(
    against="torch's TransformerEncoderLayer",
    gradients=True,
    cases=lambda: _block_cases(norm_first=True),
)
def pre_norm_block(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """the stream after attention and then the feed-forward layer, each reading
    the stream through its norm and adding to it"""
    return attention.layer(x)


@pre_norm_block.mistake(
    "pytorch/pytorch #61165, tracel-ai/burn #1056, Howuhh/faster- "
    "trajectory-transformer #3"
)
def keeps_the_normed_input(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """It runs, trains and keeps every shape. But the stream is normalised in
    each sub-layer: its own size is lost, and with it the untouched path from
    the bottom to the top.

    cause: The norm's result is stored under the stream's name, so that the
    branch is added to norm(x) instead of x.
    fix: Keep x: x = x + attention(norm(x)).
    """
    x = attention_norm(x)
    x = x + attention(x)
    x = feed_forward_norm(x)
    return x + feed_forward(x)


@pre_norm_block.mistake(
    "kyegomez/BitNet #32, facebookresearch/multimodal #305"
)
def adds_the_branch_to_itself(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """The stream is gone after the first sub-layer; what goes on is twice the
    branch.

    cause: The branch is stored under the stream's name before the two are
    added: x = attention(norm(x)); x = x + x.
    fix: Give the branch a name of its own, or add in the same line.
    """
    x = attention(attention_norm(x))
    x = x + x
    return x + feed_forward(feed_forward_norm(x))


@pre_norm_block.mistake(
    "NVIDIA/FasterTransformer #555 (there asked about; it is GPT-J's design)"
)
def reads_the_blocks_input(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """The feed-forward layer never sees what attention found in this block; it
    lags one block behind.

    cause: Both sub-layers are given the block's input. GPT-J does so on
    purpose, with one norm for both; its weights were trained that way.
    fix: Let the second sub-layer read the stream after the first.
    """
    found = attention(attention_norm(x))
    return x + found + feed_forward(feed_forward_norm(x))


@pre_norm_block.mistake("strutive07/transformer-tensorflow2.0 #14")
def adds_to_the_blocks_input(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """What attention wrote reaches the output through the feed-forward layer
    only; the stream itself has lost it.

    cause: The second branch is added to the block's input, which was kept in a
    variable, instead of to the stream as it is now.
    fix: Add to the stream that the second sub-layer read.
    """
    residual = x
    x = x + attention(attention_norm(x))
    return residual + feed_forward(feed_forward_norm(x))


@pre_norm_block.mistake(
    "allenai/OLMo #222, lucidrains/mmdit #4, bentrevett/pytorch-seq2seq #100"
)
def shares_one_norm(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """Nothing at the start, when every norm's weights are ones and its biases
    zeros; after training, or with weights loaded from elsewhere, the outputs
    are wrong.

    cause: One norm serves both sub-layers.
    fix: Give each sub-layer a norm of its own.
    """
    x = x + attention(attention_norm(x))
    return x + feed_forward(attention_norm(x))


@task(
    against="torch's TransformerEncoderLayer",
    gradients=True,
    cases=lambda: _block_cases(norm_first=False),
)
def post_norm_block(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """the stream after attention and then the feed-forward layer, each reading
    the stream, adding to it, and the sum normalised"""
    return attention.layer(x)


@post_norm_block.mistake("harvardnlp/annotated-transformer #1, #13, #92")
def norms_first_where_the_text_says_last(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """Text and figure say norm(x + f(x)), and the code computes another
    function. It runs and trains; weights trained with the one give nonsense in
    the other.

    cause: The two designs have the same parts and the same parameters, and a
    class named after the one is easily given the body of the other.
    fix: Decide on one, say which, and compare with a library's layer whose
    norm_first is set accordingly.
    """
    x = x + attention(attention_norm(x))
    return x + feed_forward(feed_forward_norm(x))


@post_norm_block.mistake(
    "harvardnlp/annotated-transformer #110, intro-llm/intro-llm.github.io "
    "#51 (both propose it)"
)
def norms_the_branch_alone(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """Neither of the two designs: each branch comes out at full size whatever
    it found, and the sum is not normalised.

    cause: "The norm comes after the sub-layer" is read as after the branch; it
    is after the addition. OLMo 2 (arXiv:2501.00656) normalises the branch on
    purpose; its weights were trained that way.
    fix: Normalise the sum: norm(x + attention(x)).
    """
    x = x + attention_norm(attention(x))
    return x + feed_forward_norm(feed_forward(x))


def _stack_cases():
    def case(label, size, n_blocks, seed):
        d_model = size[-1]
        layer = _encoder_layer(d_model, 2, seed, norm_first=True)
        stack = nn.TransformerEncoder(
            layer,
            n_blocks,
            norm=nn.LayerNorm(d_model),
            enable_nested_tensor=False,
        )
        stack = _drawn(stack, seed)
        blocks = [
            Part(f"block_{n}", stack, block)
            for n, block in enumerate(stack.layers)
        ]
        norm = Part("final_norm", stack, stack.norm)
        return Case(label, (randn(*size, seed=seed), blocks, norm))

    return [
        case("one block", (1, 4), 1, 11),
        case("three blocks", (3, 6), 3, 12),
        case("two sequences", (2, 5, 8), 2, 13),
    ]


@task(
    against="torch's TransformerEncoder",
    gradients=True,
    cases=_stack_cases,
)
def pre_norm_stack(x, blocks, final_norm):
    """the stream through every block in turn, and normalised once at the
    end"""
    return final_norm.layer(x)


@pre_norm_stack.mistake("NVIDIA-NeMo/Speech #2197, brightmart/albert_zh #41")
def forgets_the_final_norm(x, blocks, final_norm):
    """What comes out grows with the depth of the stack; the scores made from
    it are too large, and the gradient is larger the deeper one looks.

    cause: In a pre-norm block the norm stands on the branch. Nobody has
    normalised the stream itself when it leaves the last block.
    fix: One more norm, after the last block.
    """
    for block in blocks:
        x = block(x)
    return x


def _dropout_cases():
    numbers = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    keep = torch.tensor([[True, False, True, False]])
    return {
        "half the branch kept": (numbers * 10, numbers, keep, 0.5),
        "all of it kept": (numbers, numbers, keep | True, 0.25),
        "a batch": (
            randn(2, 3, 5, seed=21),
            randn(2, 3, 5, seed=22),
            randn(2, 3, 5, seed=23) > -1,
            0.1,
        ),
    }


@task(
    against="torch.where",
    gradients=True,
    cases=_dropout_cases,
)
def add_dropped(x, branch, keep, p):
    """the stream x with the branch added, of which only the components where
    keep is True are left, divided by 1 − p"""
    return torch.where(keep, torch.add(x, branch, alpha=1 / (1 - p)), x)


@add_dropped.mistake(
    "hyunwoongko/transformer #8, codertimo/BERT-pytorch #85, "
    "soobinseo/Transformer-TTS #11"
)
def drops_the_stream(x, branch, keep, p):
    """In training, components of the stream itself are set to zero, again in
    each sub-layer, and those that survive are blown up: after n of them by (1
    − p) to the power −n.

    cause: Dropout stands after the addition, so it hits the stream as well as
    the branch.
    fix: Drop the branch, then add: x + dropout(f(x)).
    """
    return (x + branch) * keep / (1 - p)


def _gpt2_state(d, *, seed):
    shapes = {
        "ln_1.weight": (d,),
        "ln_1.bias": (d,),
        "attn.c_attn.weight": (d, 3 * d),
        "attn.c_attn.bias": (3 * d,),
        "attn.c_proj.weight": (d, d),
        "attn.c_proj.bias": (d,),
        "ln_2.weight": (d,),
        "ln_2.bias": (d,),
        "mlp.c_fc.weight": (d, 4 * d),
        "mlp.c_fc.bias": (4 * d,),
        "mlp.c_proj.weight": (4 * d, d),
        "mlp.c_proj.bias": (d,),
    }
    return {
        name: randn(*shape, seed=100 * seed + n)
        for n, (name, shape) in enumerate(shapes.items())
    }


@task(
    against="what the columns make of the identity",
    cases={
        "width eighteen": (_gpt2_state(18, seed=31),),
        "width twenty": (_gpt2_state(20, seed=32),),
    },
)
def from_gpt2(state):
    """the parameters of transformers' GPT2Block under the names, and in the
    layout, of the book's TransformerBlock"""
    d = len(state["ln_1.weight"])

    def rows(name, start, stop):
        """What nn.Linear must hold to do what these columns do."""
        inputs = torch.eye(len(state[name + ".weight"])).double()
        outputs = inputs @ state[name + ".weight"]
        return {
            "weight": outputs[:, start:stop].T,
            "bias": state[name + ".bias"][start:stop],
        }

    layers = {
        "attention.query": rows("attn.c_attn", 0, d),
        "attention.key_value": rows("attn.c_attn", d, 3 * d),
        "attention.out": rows("attn.c_proj", 0, d),
        "feed_forward.up": rows("mlp.c_fc", 0, 4 * d),
        "feed_forward.down": rows("mlp.c_proj", 0, d),
    }
    for ours, theirs in (
        ("attention_norm", "ln_1"),
        ("feed_forward_norm", "ln_2"),
    ):
        layers[ours] = {
            part: state[f"{theirs}.{part}"] for part in ("weight", "bias")
        }
    return {
        f"{layer}.{part}": values
        for layer, parts in layers.items()
        for part, values in parts.items()
    }


@from_gpt2.mistake("AutoGPTQ/AutoGPTQ #139 (a transpose forgotten there)")
def transposes_only_what_does_not_fit(state):
    """The weights load without an error and the outputs are wrong.

    cause: GPT-2 stores a matrix as (in, out), nn.Linear as (out, in). Loading
    complains about the oblong ones alone; the square one of attention's output
    fits either way.
    fix: Transpose every weight matrix of the old layout, square or not.
    """
    d = len(state["ln_1.weight"])
    query, key_value = state["attn.c_attn.weight"].T.split([d, 2 * d])
    query_bias, key_value_bias = state["attn.c_attn.bias"].split([d, 2 * d])
    return {
        "attention_norm.weight": state["ln_1.weight"],
        "attention_norm.bias": state["ln_1.bias"],
        "attention.query.weight": query,
        "attention.query.bias": query_bias,
        "attention.key_value.weight": key_value,
        "attention.key_value.bias": key_value_bias,
        "attention.out.weight": state["attn.c_proj.weight"],
        "attention.out.bias": state["attn.c_proj.bias"],
        "feed_forward_norm.weight": state["ln_2.weight"],
        "feed_forward_norm.bias": state["ln_2.bias"],
        "feed_forward.up.weight": state["mlp.c_fc.weight"].T,
        "feed_forward.up.bias": state["mlp.c_fc.bias"],
        "feed_forward.down.weight": state["mlp.c_proj.weight"].T,
        "feed_forward.down.bias": state["mlp.c_proj.bias"],
    }


def _torch_cases():
    def case(label, d_model, d_ff, seed):
        layer = nn.TransformerEncoderLayer(d_model, 1, d_ff)
        state = _drawn(layer, seed).state_dict()
        return Case(label, (dict(state),))

    return [
        case("width eighteen, thirty inside", 18, 30, 41),
        case("width twenty, four times that inside", 20, 80, 42),
    ]


@task(
    against="slices of the joint matrix",
    cases=_torch_cases,
)
def from_torch(state):
    """the parameters of nn.TransformerEncoderLayer under the names of the
    book's TransformerBlock"""
    d = len(state["norm1.weight"])
    renamed = {
        "self_attn.out_proj": "attention.out",
        "linear1": "feed_forward.up",
        "linear2": "feed_forward.down",
        "norm1": "attention_norm",
        "norm2": "feed_forward_norm",
    }
    found = {
        f"{ours}.{part}": state[f"{theirs}.{part}"]
        for theirs, ours in renamed.items()
        for part in ("weight", "bias")
    }
    for part in ("weight", "bias"):
        joint = state[f"self_attn.in_proj_{part}"]  # q, k, v, from the top
        found[f"attention.query.{part}"] = joint[:d]
        found[f"attention.key_value.{part}"] = joint[d:]
    return found


@task(
    against="torch's TransformerEncoderLayer, counted",
    cases=lambda: {
        "width one": (1, 1),
        "width two": (2, 8),
        "another width inside": (6, 10),
        "GPT-2 small": (768, 3072),
    },
)
def block_parameters(d_model, d_ff):
    """how many numbers a block learns: four matrices of attention, two of the
    feed-forward layer, two norms, all with biases"""
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(d_model, 1, d_ff)
    return sum(p.numel() for p in layer.parameters())


def _decoder_cases():
    def case(label, leading, length, memory, d_model, n_heads, seed):
        layer = nn.TransformerDecoderLayer(
            d_model,
            n_heads,
            2 * d_model,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        layer = _drawn(layer, seed)

        def attention(x):
            return layer.self_attn(x, x, x, need_weights=False)[0]

        def cross_attention(x, memory):
            return layer.multihead_attn(x, memory, memory, need_weights=False)[
                0
            ]

        def feed_forward(x):
            return layer.linear2(F.relu(layer.linear1(x)))

        parts = {
            "attention": attention,
            "cross_attention": cross_attention,
            "feed_forward": feed_forward,
            "norm_1": layer.norm1,
            "norm_2": layer.norm2,
            "norm_3": layer.norm3,
        }
        parts = [Part(name, layer, fn) for name, fn in parts.items()]
        return Case(
            label,
            (
                randn(*leading, length, d_model, seed=seed) * 3,
                randn(*leading, memory, d_model, seed=seed + 1) * 3,
                *parts[:3],
                tuple(parts[3:]),
            ),
        )

    return [
        case("one token, one of memory", (), 1, 1, 4, 1, 51),
        case("three tokens, five of memory", (), 3, 5, 6, 2, 53),
        case("two sequences", (2,), 4, 3, 8, 4, 55),
    ]


@task(
    against="torch's TransformerDecoderLayer",
    gradients=True,
    cases=_decoder_cases,
)
def decoder_block(x, memory, attention, cross_attention, feed_forward, norms):
    """the stream after self-attention, cross-attention to the memory and the
    feed-forward layer, each reading the stream through its norm and adding to
    it"""
    return attention.layer(x, memory)


def _chain_cases():
    half = torch.tensor([[[0.5]]], dtype=torch.float64)
    one = torch.tensor([1.0], dtype=torch.float64)
    return {
        "one layer of width one": (one, half),
        "two layers of width one": (one, torch.cat([half, -half])),
        "width two": (randn(2, seed=61), randn(1, 2, 2, seed=62)),
        "four layers": (randn(3, seed=63), randn(4, 3, 3, seed=64)),
    }


@task(
    against="torch's autograd",
    cases=_chain_cases,
)
def stream_gradient(gradient, jacobians):
    """the gradient at the bottom of the stream, (d,), from the one at the top,
    (d,), and the Jacobians of the branches, (N, d, d), the lowest first"""
    x = torch.zeros_like(gradient, requires_grad=True)
    stream = x
    for jacobian in jacobians:
        stream = stream + jacobian @ stream
    return torch.autograd.grad(stream, x, gradient)[0]
