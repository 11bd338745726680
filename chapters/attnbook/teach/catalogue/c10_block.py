"""Chapter 10, the transformer block: tasks and known mistakes."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import Labelled, drawn, f64, marks, randns
from attnbook.teach.check.rules import NoAutograd
from attnbook.teach.check.seeded import randn

task = tasks_of(10)


@task(
    against="torch's F.linear",
    gradients=True,
    cases={
        "a head of width one": (f64([1, 2, 3]), f64([10]), f64([1, 2, 3])),
        "a head of width two": randns((3, 3), (3, 2), (2, 3), seed=1),
        "as wide as the stream": randns((4, 5), (4, 5), (5, 5), seed=4),
        "two sequences": randns((2, 3, 512), (2, 3, 128), (128, 512), seed=7),
        "131 tokens": randns((131, 4), (131, 3), (3, 4), seed=10),
        "17 texts, 131 to 130": randns(
            (17, 2, 130), (17, 2, 131), (131, 130), seed=13
        ),
    },
)
def add_head(x, context, w_out):
    """the stream x (..., T, d_model) with a head's context (..., T, d_v) added
    to it, taken to the width of the stream by w_out (d_v, d_model)"""
    return x + F.linear(context, w_out.T)


@add_head.mistake(symptom=symptoms.SIZES)
def adds_the_head_itself(x, context, w_out):
    """An error about sizes when the head is narrower than the stream; but a
    head of width 1 is added to all components alike without a word, and one as
    wide as the stream as it is.
    cause: The context lives in the space of the values, (..., T, d_v), and is
    added to a stream that is (..., T, d_model) without being taken there.
    fix: Multiply by W_O, (d_v, d_model), before the addition."""
    return x + context


_LAYER = {"dropout": 0.0, "batch_first": True}


def _attention(layer, name="self_attn"):
    """The attention of one of torch's layers, to itself or to a memory."""
    module = getattr(layer, name)
    return lambda x, memory=None: module(
        x, *[x if memory is None else memory] * 2, need_weights=False
    )[0]


def _feed_forward(layer):
    """The feed-forward part of one of torch's layers, as a function."""
    return lambda x: layer.linear2(F.relu(layer.linear1(x)))


_LAST = {"attention": "self_attn.out_proj", "feed_forward": "linear2"}
_LAST["cross_attention"] = "multihead_attn.out_proj"
_PARTS = ("attention", "feed_forward", "cross_attention")


def _silenced(layer, names):
    """One of torch's layers, some of whose parts were made to add 0.

    The last matrix of each such part is set to zero. So a case shows which
    part an answer has got wrong.
    """
    for name in names:
        for parameter in layer.get_submodule(_LAST[name]).parameters():
            parameter.data.zero_()
    return layer


def _block(size, n_heads, seed, *, norm_first, silent=()):
    """Tokens, and the four parts of one of torch's encoder layers.

    The parts named in `silent` add 0.
    """
    d = size[-1]
    layer = nn.TransformerEncoderLayer(
        d, n_heads, 2 * d, norm_first=norm_first, **_LAYER
    )
    layer = _silenced(drawn(layer, seed=seed), silent)
    return (
        randn(*size, seed=seed) * 3,
        Labelled("attention", _attention(layer), layer),
        Labelled("feed_forward", _feed_forward(layer), layer),
        Labelled("attention_norm", layer.norm1, layer),
        Labelled("feed_forward_norm", layer.norm2, layer),
    )


def _blocks(norm_first):
    """Cases for a block, pre-norm or post-norm, the smallest first."""
    return {
        "one token of width four": _block((1, 4), 1, 1, norm_first=norm_first),
        "three tokens, two heads": _block((3, 6), 2, 2, norm_first=norm_first),
        "two sequences": _block((2, 5, 8), 4, 3, norm_first=norm_first),
        "17 texts": _block((17, 2, 4), 1, 7, norm_first=norm_first),
        "131 tokens, 130 wide": _block(
            (131, 130), 2, 8, norm_first=norm_first
        ),
    }


OURS = "attention.out feed_forward.up feed_forward.down".split()
OURS += ["attention_norm", "feed_forward_norm"]
TORCH_NAMES = "self_attn.out_proj linear1 linear2 norm1 norm2".split()
GPT2_NAMES = "attn.c_proj mlp.c_fc mlp.c_proj ln_1 ln_2".split()


def _as_layer(kind, x, n_heads, state, mask=None):
    """What a class of the page gives with these parameters in its layers.

    Where there is a mask, it reads once before with one that hides nothing:
    a block must not keep the mask of its first call.
    """
    block = kind(x.shape[-1], n_heads).to(x)
    weights = renamed(state, TORCH_NAMES, "self_attn.in_proj_")
    if mask is not None:
        hides_nothing = {"mask": torch.ones_like(mask)}
        functional_call(block, weights, (x,), hides_nothing)
    return functional_call(block, weights, (x,), {"mask": mask})


def _state(size, n_heads, seed, mask=None):
    """Tokens, the number of heads, and the weights of a torch layer."""
    layer = nn.TransformerEncoderLayer(size[-1], 1, 4 * size[-1])
    state = dict(drawn(layer, seed=seed).state_dict())
    return randn(*size, seed=seed) * 3, n_heads, state, mask


def _far_down(x, n_heads, state, mask):
    """The same, where each token's score with itself is below −10⁹: a key is
    minus the query."""
    name = "self_attn.in_proj_weight"
    query, _, value = state[name].chunk(3)
    state[name] = torch.cat([3e5 * query, -3e5 * query, value])
    name = "self_attn.in_proj_bias"
    query, _, value = state[name].chunk(3)
    state[name] = torch.cat([3e5 * query, -3e5 * query, value])
    return x, n_heads, state, mask


# The second text has one token and is padded to three: (B, 1, T, S).
_PADDED = marks("111", "100")[:, None, None].repeat(1, 1, 3, 1)


@task(
    against="torch's TransformerEncoderLayer",
    layer=_as_layer,
    gradients=True,
    cases=lambda: {
        "one token of width four": _state((1, 1, 4), 1, 41),
        "twelve heads": _state((2, 5, 24), 12, 42),
        "a causal mask": _state((2, 3, 6), 2, 43, marks("100", "110", "111")),
        "a causal mask, scores far below 0": _far_down(
            *_state((1, 2, 4), 4, 47, marks("10", "11"))
        ),
        "two texts, a mask each": _state((2, 3, 6), 3, 44, _PADDED),
        "another mask, all sizes as before": _state(
            (2, 3, 6), 2, 43, marks("110", "011", "101")
        ),
        "17 texts, 17 heads, a mask each": _state(
            (17, 2, 34),
            17,
            45,
            randn(17, 1, 2, 2, seed=49) > -9 * torch.eye(2),
        ),
        "131 tokens, 134 wide": _state(
            (1, 131, 134), 2, 46, torch.ones(131, 131).tril() > 0
        ),
    },
)
def Block(x, n_heads, state, mask=None):
    """x (B, T, d_model) after attention, where the mask is True, and then the
    feed-forward layer, each reading x through its norm and adding to it"""
    gelu = nn.GELU(approximate="tanh")
    d = x.shape[-1]
    layer = nn.TransformerEncoderLayer(
        d, n_heads, 4 * d, activation=gelu, norm_first=True, **_LAYER
    ).to(x)
    return functional_call(layer, state, (x, _forbidden(n_heads, mask)))


def _forbidden(n_heads, mask):
    """A mask as torch's layer wants it: True where nothing is to be seen, and
    (B·H, T, S) if there is one for each text."""
    if mask is None:
        return None
    if mask.ndim == 4:
        return ~mask.repeat(1, n_heads, 1, 1).flatten(0, 1)
    return ~mask


def block_with(activation, x, n_heads, state, mask=None):
    """What `Block` asks for, with another activation, by torch's layer."""
    d = x.shape[-1]
    layer = nn.TransformerEncoderLayer(
        d, n_heads, 4 * d, activation=activation, norm_first=True, **_LAYER
    ).to(x)
    return functional_call(layer, state, (x, _forbidden(n_heads, mask)))


def renamed(state, names, joint):
    """Parameters under the book's names, those of q, k and v cut apart."""
    found = {
        f"{ours}.{part}": state[f"{theirs}.{part}"]
        for ours, theirs in zip(OURS, names)
        for part in ("weight", "bias")
    }
    for part in ("weight", "bias"):
        query, *others = state[joint + part].chunk(3)  # q, k, v, by rows
        found[f"attention.query.{part}"] = query
        found[f"attention.key_value.{part}"] = torch.cat(others)
    return found


@task(
    against="torch's TransformerEncoderLayer",
    gradients=True,
    cases=lambda: _blocks(norm_first=True),
)
def pre_norm_block(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """the stream after attention and then the feed-forward layer, each reading
    the stream through its norm and adding to it"""
    return attention.layer(x)


@pre_norm_block.mistake(
    "pytorch/pytorch #61165, "
    "tracel-ai/burn #1056, "
    "Howuhh/faster-trajectory-transformer #3",
    symptom=symptoms.WRONG_NUMBERS,
)
def keeps_the_normed_input(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """It runs, trains and keeps every shape. But the stream is normalised in
    each layer: its own size is lost, and with it the untouched path from
    the bottom to the top.
    cause: The norm's result is stored under the stream's name, so that the
    branch is added to norm(x) instead of x.
    fix: Keep x: x = x + attention(norm(x))."""
    x = attention_norm(x)
    x = x + attention(x)
    x = feed_forward_norm(x)
    return x + feed_forward(x)


@pre_norm_block.mistake(
    "kyegomez/BitNet #32, facebookresearch/multimodal #305",
    symptom=symptoms.WRONG_NUMBERS,
)
def adds_the_branch_to_itself(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """The stream is gone after the first layer; what goes on is twice the
    branch.
    cause: The branch is stored under the stream's name before the two are
    added: x = attention(norm(x)); x = x + x.
    fix: Give the branch a name of its own, or add in the same line."""
    x = attention(attention_norm(x))
    x = x + x
    return x + feed_forward(feed_forward_norm(x))


@pre_norm_block.mistake(
    symptom=(symptoms.TRAINS_BADLY, symptoms.SEES_WRONG_TOKENS)
)
def reads_the_blocks_input(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """The feed-forward layer never sees what attention found in this block; it
    lags one block behind.
    cause: Both layers are given the block's input. GPT-J does so on
    purpose, with one norm for both; its weights were trained that way.
    fix: Let the second layer read the stream after the first."""
    found = attention(attention_norm(x))
    return x + found + feed_forward(feed_forward_norm(x))


@pre_norm_block.mistake(
    "strutive07/transformer-tensorflow2.0 #14",
    symptom=symptoms.SEES_WRONG_TOKENS,
)
def adds_to_the_blocks_input(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """What attention wrote reaches the output through the feed-forward layer
    only; the stream itself has lost it.
    cause: The second branch is added to the block's input, which was kept in a
    variable, instead of to the stream as it is now.
    fix: Add to the stream that the second layer read."""
    residual = x
    x = x + attention(attention_norm(x))
    return residual + feed_forward(feed_forward_norm(x))


@pre_norm_block.mistake(
    "allenai/OLMo #222, lucidrains/mmdit #4, bentrevett/pytorch-seq2seq #100",
    symptom=symptoms.LOADED_WEIGHTS,
)
def shares_one_norm(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """Nothing at the start, when every norm's weights are ones and its biases
    zeros; after training, or with weights loaded from elsewhere, the outputs
    are wrong.
    cause: One norm serves both layers.
    fix: Give each layer a norm of its own."""
    x = x + attention(attention_norm(x))
    return x + feed_forward(attention_norm(x))


@task(
    against="torch's TransformerEncoderLayer",
    gradients=True,
    cases=lambda: {
        # Their labels say what is left of the block.
        "layers that add 0: one norm, then the other": _block(
            (1, 4), 1, 4, norm_first=False, silent=_PARTS[:2]
        ),
        "attention that adds 0: the rest reads the first norm": _block(
            (1, 4), 1, 5, norm_first=False, silent=_PARTS[:1]
        ),
        **_blocks(norm_first=False),
    },
)
def post_norm_block(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """the stream after attention and then the feed-forward layer, each reading
    the stream, adding to it, and the sum normalised"""
    return attention.layer(x)


@post_norm_block.mistake(
    "harvardnlp/annotated-transformer #1, #13, #92",
    symptom=symptoms.LOADED_WEIGHTS,
)
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
    hint: What are mean and variance of a token that leaves your block?"""
    x = x + attention(attention_norm(x))
    return x + feed_forward(feed_forward_norm(x))


@post_norm_block.mistake(
    "harvardnlp/annotated-transformer #110, intro-llm/intro-llm.github.io #51",
    symptom=symptoms.WRONG_NUMBERS,
    not_looked_up="intro-llm/intro-llm.github.io #51",
)
def norms_the_branch_alone(
    x, attention, feed_forward, attention_norm, feed_forward_norm
):
    """Neither of the two designs: each branch comes out at full size whatever
    it found, and the sum is not normalised.
    cause: "The norm comes after the layer" is read as after the branch; it
    is after the addition. OLMo 2 (arXiv:2501.00656) normalises the branch on
    purpose; its weights were trained that way.
    fix: Normalise the sum: norm(x + attention(x)).
    hint: Is the stream itself normalised, or what is added to it?"""
    x = x + attention_norm(attention(x))
    return x + feed_forward_norm(feed_forward(x))


def _stack(size, n_blocks, seed):
    """Tokens, some of torch's layers as blocks, and the norm after them."""
    d = size[-1]
    layer = nn.TransformerEncoderLayer(d, 2, 2 * d, norm_first=True, **_LAYER)
    stack = nn.TransformerEncoder(layer, n_blocks, nn.LayerNorm(d), False)
    drawn(stack, seed=seed)
    blocks = [
        Labelled(f"block_{n}", block, stack)
        for n, block in enumerate(stack.layers)
    ]
    norm = Labelled("final_norm", stack.norm, stack)
    return randn(*size, seed=seed), blocks, norm


@task(
    against="torch's TransformerEncoder",
    gradients=True,
    cases=lambda: {
        "one block": _stack((1, 4), 1, 11),
        "three blocks": _stack((3, 6), 3, 12),
        "two sequences": _stack((2, 5, 8), 2, 13),
        "17 blocks": _stack((2, 4), 17, 14),
        "17 texts": _stack((17, 2, 4), 1, 15),
        "131 tokens, 130 wide": _stack((131, 130), 1, 16),
    },
)
def pre_norm_stack(x, blocks, final_norm):
    """the stream through every block in turn, and normalised once at the
    end"""
    return final_norm.layer(x)


@pre_norm_stack.mistake(
    "NVIDIA-NeMo/Speech #2197, brightmart/albert_zh #41",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_GRADIENTS),
)
def forgets_the_final_norm(x, blocks, final_norm):
    """What comes out grows with the depth of the stack. So the scores made
    from it are too large, and the gradient that they send back is too.
    cause: In a pre-norm block the norm stands on the branch. Nobody has
    normalised the stream itself when it leaves the last block.
    fix: One more norm, after the last block."""
    for block in blocks:
        x = block(x)
    return x


@task(
    against="torch.where",
    gradients=True,
    cases={
        "half the branch kept": (
            f64([10, 20, 30, 40]),
            f64([1, 2, 3, 4]),
            marks("1010"),
            0.5,
        ),
        "all of it kept": (f64([1, 2, 3]), f64([1, 2, 3]), marks("111"), 0.25),
        "a batch": (
            *randns((2, 3, 5), (2, 3, 5), seed=21),
            randn(2, 3, 5, seed=23) > -1,
            0.1,
        ),
        "131 numbers": (
            *randns((131,), (131,), seed=24),
            randn(131, seed=26) > -1,
            0.2,
        ),
        "17 texts of 131 tokens": (
            *randns((17, 131, 3), (17, 131, 3), seed=27),
            randn(17, 131, 3, seed=29) > -1,
            0.2,
        ),
    },
)
def add_dropped(x, branch, keep, p):
    """the stream x with the branch added, of which only the components where
    keep is True are left, divided by 1 − p"""
    return torch.where(keep, torch.add(x, branch, alpha=1 / (1 - p)), x)


@add_dropped.mistake(
    "hyunwoongko/transformer #8, "
    "codertimo/BERT-pytorch #85, "
    "soobinseo/Transformer-TTS #11",
    symptom=symptoms.TRAINS_BADLY,
)
def drops_the_stream(x, branch, keep, p):
    """In training, components of the stream itself are set to zero, again in
    each layer, and those that survive are divided by 1 − p each time.
    cause: Dropout stands after the addition, so it hits the stream as well as
    the branch.
    fix: Drop the branch, then add: x + dropout(f(x))."""
    return (x + branch) * keep / (1 - p)


def gpt2_block(d, *, seed, at=""):
    """Drawn tensors for one block, under the names that GPT-2's files have.

    Args:
        d: the width of the residual stream.
        seed: by which they are drawn.
        at: what all names begin with.
    """
    widths = {
        "ln_1": (d,),
        "attn.c_attn": (d, 3 * d),
        "attn.c_proj": (d, d),
        "ln_2": (d,),
        "mlp.c_fc": (d, 4 * d),
        "mlp.c_proj": (4 * d, d),
    }
    found = {}
    for n, (name, width) in enumerate(widths.items()):
        weight, bias = randns(width, width[-1:], seed=100 * seed + 2 * n)
        found |= {f"{at}{name}.weight": weight, f"{at}{name}.bias": bias}
    return found


@task(
    against="what the columns make of the identity",
    cases={
        "width eighteen": (gpt2_block(18, seed=31),),
        "width twenty": (gpt2_block(20, seed=32),),
        "width 130": (gpt2_block(130, seed=33),),
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
        ours: {part: state[f"{theirs}.{part}"] for part in ("weight", "bias")}
        if ours.endswith("norm")
        else rows(theirs, 0, None)
        for ours, theirs in zip(OURS, GPT2_NAMES)
    }
    layers["attention.query"] = rows("attn.c_attn", 0, d)
    layers["attention.key_value"] = rows("attn.c_attn", d, None)
    return {
        f"{layer}.{part}": values
        for layer, parts in layers.items()
        for part, values in parts.items()
    }


@from_gpt2.mistake("AutoGPTQ/AutoGPTQ #139", symptom=symptoms.LOADED_WEIGHTS)
def transposes_only_what_does_not_fit(state):
    """The weights load without an error and the outputs are wrong.
    cause: GPT-2 stores a matrix as (in, out), nn.Linear as (out, in). Loading
    complains about the oblong ones alone; the square one of attention's output
    fits either way.
    fix: Transpose every weight matrix of the old layout, square or not."""
    oblong = {n for n, p in state.items() if len(p) != p.shape[-1]}
    state = {n: p.T if n in oblong else p for n, p in state.items()}
    return renamed(state, GPT2_NAMES, "attn.c_attn.")


@task(
    against="torch's TransformerEncoderLayer, counted",
    cases=lambda: {
        "width one": (1, 1),
        "width two": (2, 8),
        "another width inside": (6, 10),
        "GPT-2 medium": (1024, 4096),
    },
)
def block_parameters(d_model, d_ff):
    """how many numbers a block learns: four matrices of attention, two of the
    feed-forward layer, two norms, all with biases"""
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(d_model, 1, d_ff)
    return sum(p.numel() for p in layer.parameters())


def _decoder(length, memory, d, n_heads, seed, leading=(), silent=()):
    """Tokens, a memory, and the parts of one of torch's decoder layers."""
    layer = nn.TransformerDecoderLayer(
        d, n_heads, 2 * d, norm_first=True, **_LAYER
    )
    layer = _silenced(drawn(layer, seed=seed), silent)
    cross = _attention(layer, "multihead_attn")
    norms = (layer.norm1, layer.norm2, layer.norm3)
    x, memory = randns((*leading, length, d), (*leading, memory, d), seed=seed)
    return (
        x * 3,
        memory * 3,
        Labelled("attention", _attention(layer), layer),
        Labelled("cross_attention", cross, layer),
        Labelled("feed_forward", _feed_forward(layer), layer),
        tuple(
            Labelled(f"norm_{n}", norm, layer)
            for n, norm in enumerate(norms, 1)
        ),
    )


@task(
    against="torch's TransformerDecoderLayer",
    gradients=True,
    cases=lambda: {
        "three layers that add 0: the stream as it was": _decoder(
            1, 1, 4, 1, 57, silent=_PARTS
        ),
        "cross-attention alone: its own norm, the memory as it is": _decoder(
            2, 3, 4, 1, 59, silent=_PARTS[:2]
        ),
        "no feed-forward: cross-attention reads the new stream": _decoder(
            2, 3, 4, 1, 65, silent=_PARTS[1:2]
        ),
        "one token, one of memory": _decoder(1, 1, 4, 1, 51),
        "three tokens, five of memory": _decoder(3, 5, 6, 2, 53),
        "two sequences": _decoder(4, 3, 8, 4, 55, leading=(2,)),
        "17 texts": _decoder(2, 3, 4, 1, 67, leading=(17,)),
        "131 tokens, 137 of memory, 130 wide": _decoder(131, 137, 130, 2, 69),
    },
)
def decoder_block(x, memory, attention, cross_attention, feed_forward, norms):
    """the stream after self-attention, cross-attention to the memory and the
    feed-forward layer, each reading the stream through its norm and adding to
    it"""
    return attention.layer(x, memory)


@task(
    against="torch's autograd",
    cases={
        "one layer of width one": (f64(1), f64([[0.5]])),
        "two layers of width one": (f64(1), f64([[0.5]], [[-0.5]])),
        "width two": randns((2,), (1, 2, 2), seed=61),
        "five layers": randns((3,), (5, 3, 3), seed=63),
        "17 layers, 131 wide": (
            randn(131, seed=67),
            randn(17, 131, 131, seed=68) / 30,
        ),
    },
    rules=(NoAutograd,),
)
def stream_gradient(gradient, jacobians):
    """the gradient at the bottom of the stream, (d,), from the one at the top,
    (d,), and the Jacobians of the branches, (N, d, d), the lowest first"""
    x = torch.zeros_like(gradient, requires_grad=True)
    stream = x
    for jacobian in jacobians:
        stream = stream + jacobian @ stream
    return torch.autograd.grad(stream, x, gradient)[0]
