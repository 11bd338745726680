"""Chapter 6, multi-head attention: tasks and known mistakes."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from attnbook.attention import softmax
from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, marks, randns
from attnbook.teach.check.seeded import randn

task = tasks_of(6)


@task(
    against="torch.cat",
    home="attention.merge_heads",
    gradients=True,
    cases={
        "two heads, numbered": (f64([[0, 1], [2, 3]], [[4, 5], [6, 7]]),),
        "eight heads of width 8": (randn(2, 8, 10, 8, seed=2),),
        "two leading axes": (randn(2, 3, 2, 5, 4, seed=3),),
        "as many heads as tokens": (randn(2, 3, 3, 4, seed=4),),
        "one head": (randn(1, 3, 2, seed=5),),
        "131 tokens, 130 wide": (randn(3, 131, 130, seed=4),),
        "17 heads behind 17 times 17": (randn(17, 17, 17, 2, 1, seed=5),),
    },
)
def merge_heads(x):
    """(..., H, T, d) → (..., T, H·d): in each token's row head 0 comes first,
    then head 1, and so on"""
    return torch.cat(x.unbind(-3), -1)


@merge_heads.mistake(
    "jsbaan/transformer-from-scratch #6, "
    "ajhalthor/Transformer-Neural-Network #4",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_NUMBERS),
)
def merges_without_transposing(x):
    """The shape (..., T, H·d) is right, but a token's row holds one head's
    results for several tokens instead of all heads' results for this one. On
    an easy task training can succeed all the same.
    cause: The tensor is reshaped while the heads still stand before the
    tokens. Reshaping moves no number.
    fix: Transpose back to (..., T, H, d) first, then flatten the last two
    axes."""
    *leading, n_heads, length, width = x.shape
    return x.reshape(*leading, length, n_heads * width)


def _sizes(leading, T, S, d_in, d_memory, d_model, *, seed):
    """Tokens (..., T, d_in), a memory (..., S, d_memory), four matrices."""
    inputs = (*leading, T, d_in), (*leading, S, d_memory)
    matrices = [(d, d_model) for d in (d_in, d_memory, d_memory, d_model)]
    return randns(*inputs, *matrices, seed=seed)


def _itself(leading, T, d_in, d_model, *, seed):
    """The same arguments for self-attention, where the memory is x itself."""
    x, _, *weights = _sizes(leading, T, T, d_in, d_in, d_model, seed=seed)
    return x, x, *weights


def _heads(*matrices, n_heads):
    """For each head its columns of some matrices."""
    return list(zip(*(w.chunk(n_heads, -1) for w in matrices)))


def _by_head(x, memory, w_query, w_key, w_value, w_out, n_heads, mask=None):
    """Multi-head attention head by head, each by torch's own function.

    A mask of its own for each text, (B, 1, T, S), has an axis for the heads,
    which a head alone does not have.
    """
    if mask is not None and mask.ndim == 4:
        mask = mask.squeeze(1)
    contexts = [
        F.scaled_dot_product_attention(x @ q, memory @ k, memory @ v, mask)
        for q, k, v in _heads(w_query, w_key, w_value, n_heads=n_heads)
    ]
    return torch.cat(contexts, -1) @ w_out


_CAUSAL = marks("100", "110", "111")
#: Another one of the same shape: a module must not keep the first.
_OTHER = marks("110", "011", "101")
# The second text has two tokens and is padded to four, and later tokens are
# hidden: (B, 1, T, S).
_PADDED = marks("1111", "1100")[:, None, None].repeat(1, 1, 4, 1).tril()
# Tokens (1, 3, 4) and matrices with which all scores of a head of width one
# lie below −3 · 10⁹: a key is minus a query. With values of width one nothing
# is rounded on the way back.
_UNIT = torch.eye(4, dtype=torch.float64)
_FAR_BELOW = f64([[1e5] * 4, [1.2e5] * 4, [6e4] * 4]), _UNIT, -_UNIT
_ROW = f64([1, 2, 3, 4])
_OUT = f64(*torch.eye(4).tolist()[:3], [1, 0, 0, 1])
_NUMBERED = f64([1], [1]), f64([1], [3]), 0 * _ROW, 0 * _ROW, _ROW, _OUT, 2


def _as_layer(kind, x, w_query, w_key, w_value, w_out, n_heads, mask=None):
    """What a class of the page gives with these matrices in its layers.

    Where there is a mask, it reads once before with one that hides nothing:
    a layer must not keep the mask of its first call.
    """
    layer = kind(len(w_out), n_heads)
    matrices = (w_query, w_key, w_value)
    named = {"qkv": torch.cat(matrices, -1), "out": w_out}
    for n, head in enumerate(_heads(*matrices, n_heads=n_heads)):
        names = (f"heads.{n}.{name}" for name in ("query", "key", "value"))
        named |= dict(zip(names, head))
    weights = {f"{name}.weight": w.mT for name, w in named.items()}
    own = {n: w for n, w in weights.items() if n in layer.state_dict()}
    if mask is not None:
        functional_call(layer, own, (x, torch.ones_like(mask)))
    return functional_call(layer, own, (x, mask))


@task(
    against="a loop over the heads",
    layer=_as_layer,
    gradients=True,
    cases={
        "one token": (*_itself((1,), 1, 4, 4, seed=200)[1:], 2),
        "one head": (*_itself((2,), 3, 4, 4, seed=210)[1:], 1),
        "as many heads as tokens": (*_itself((2,), 3, 6, 6, seed=230)[1:], 3),
        "twelve heads": (*_itself((2,), 5, 36, 36, seed=220)[1:], 12),
        "a causal mask": (*_itself((2,), 3, 6, 6, seed=240)[1:], 2, _CAUSAL),
        "a causal mask, scores far below 0": (
            *_FAR_BELOW,
            _UNIT,
            _UNIT,
            4,
            _CAUSAL,
        ),
        "two texts, a mask each": (
            *_itself((2,), 4, 6, 6, seed=260)[1:],
            3,
            _PADDED,
        ),
        "another mask, all sizes as before": (
            *_itself((2,), 3, 6, 6, seed=240)[1:],
            2,
            _OTHER,
        ),
        "17 texts, 17 heads, a mask each": (
            *_itself((17,), 2, 34, 34, seed=280)[1:],
            17,
            randn(17, 1, 2, 2, seed=289) > -9 * torch.eye(2),
        ),
        "131 tokens, 136 wide": (
            *(a / 4 for a in _itself((1,), 131, 136, 136, seed=290)[1:]),
            17,
            torch.ones(131, 131).tril() > 0,
        ),
    },
)
def MultiHeadAttention(x, w_query, w_key, w_value, w_out, n_heads, mask=None):
    """each head attends from x to x by itself, where the mask is True; their
    contexts side by side, (B, T, d_model), times w_out"""
    return _by_head(x, x, w_query, w_key, w_value, w_out, n_heads, mask)


@task(
    against="a loop over the heads",
    gradients=True,
    cases={
        "even weights, numbered": _NUMBERED,
        "a memory of two": (*_sizes((), 2, 2, 2, 2, 2, seed=10), 2),
        "scores of 800": (*(3 * a for a in _itself((), 3, 4, 4, seed=60)), 2),
        "a batch, d_in ≠ d_model": (*_itself((2,), 5, 3, 6, seed=30), 3),
        "as many heads as tokens": (*_itself((2,), 3, 4, 12, seed=40), 3),
        "cross-attention, T ≠ S": (*_sizes((2,), 4, 7, 5, 3, 8, seed=50), 4),
        "twelve heads": (*_itself((), 3, 4, 24, seed=70), 12),
        "17 texts, 17 heads": (*_sizes((17,), 2, 3, 5, 3, 34, seed=80), 17),
        "131 tokens, 137 of memory, all wider than 128": (
            *(a / 4 for a in _sizes((), 131, 137, 130, 132, 136, seed=90)),
            17,
        ),
    },
)
def multi_head_attention(x, memory, w_query, w_key, w_value, w_out, n_heads):
    """each head attends from x to the memory by itself; their contexts side by
    side, (..., T, d_model), times w_out"""
    return _by_head(x, memory, w_query, w_key, w_value, w_out, n_heads)


@multi_head_attention.mistake(
    symptom=(symptoms.TRAINS_BADLY, symptoms.SEES_WRONG_TOKENS)
)
def attends_across_heads(x, memory, w_query, w_key, w_value, w_out, n_heads):
    """In self-attention every shape is right and training runs, yet no token
    ever hears of another.
    cause: The heads are split, (..., T, H, d_k), but not moved before the
    tokens, so that the product compares the heads of one token with each
    other.
    fix: Transpose to (..., H, T, d_k) before the product, and back after.
    hint: Print the shape of your weights. What do its last two axes count?"""
    q = (x @ w_query).unflatten(-1, (n_heads, -1))  # (..., T, H, d_k)
    k = (memory @ w_key).unflatten(-1, (n_heads, -1))
    v = (memory @ w_value).unflatten(-1, (n_heads, -1))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return (softmax(scores) @ v).flatten(-2) @ w_out


@multi_head_attention.mistake(
    "reczoo/FuxiCTR #30, 649453932/Chinese-Text-Classification-Pytorch #10",
    symptom=symptoms.WRONG_NUMBERS,
)
def views_instead_of_transposing(
    x, memory, w_query, w_key, w_value, w_out, n_heads
):
    """There is no error, and with one head all is right. With more, each head
    gets a stretch of the sentence instead of a part of every token, and the
    stretches never hear of each other.
    cause: view or reshape is used to get to (..., H, T, d_k), and to get back.
    It cuts the row of numbers at other places and moves none.
    fix: Cut the last axis in two, (..., T, H, d_k), then transpose.
    hint: What is in the first row of the second head, before attention?"""

    def split(a):
        *leading, length, _ = a.shape
        return a.reshape(*leading, n_heads, length, -1)

    q, k, v = (
        split(a) for a in (x @ w_query, memory @ w_key, memory @ w_value)
    )
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    context = softmax(scores) @ v  # (..., H, T, d_k)
    return context.reshape(*x.shape[:-1], -1) @ w_out


@multi_head_attention.mistake(
    "FareedKhan-dev/train-llm-from-scratch #3, karpathy/ng-video-lecture #6",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.WRONG_SHARPNESS),
)
def scales_by_d_model(x, memory, w_query, w_key, w_value, w_out, n_heads):
    """With one head all is well; with H heads the scores are √H times too
    small, and the weights too even.
    cause: The scores are divided by the root of d_model, the width that the
    projection has before the heads are split.
    fix: Divide by the root of d_k = d_model / H.
    hint: Over how many products does the score of one head sum?"""
    q, k, v = (
        a.unflatten(-1, (n_heads, -1)).transpose(-3, -2)
        for a in (x @ w_query, memory @ w_key, memory @ w_value)
    )
    scores = q @ k.transpose(-2, -1) / math.sqrt(w_query.shape[-1])
    context = softmax(scores) @ v  # (..., H, T, d_k)
    return context.transpose(-3, -2).flatten(-2) @ w_out


@task(
    against="torch's MultiheadAttention",
    cases={
        "width 4, two heads": (4, 4, 2),
        "one head": (6, 6, 1),
        "512 and eight heads": (512, 512, 8),
        "768 and twelve heads": (768, 768, 12),
        "d_in ≠ d_model": (3, 4, 2),
        "510 and seventeen heads": (510, 510, 17),
    },
)
def weight_shapes(d_in, d_model, n_heads):
    """a dictionary: under "query", "key", "value" the shape of one head's
    matrix, under "out" that of W_O; all as in x @ W"""
    with torch.device("meta"):
        layer = nn.MultiheadAttention(d_model, n_heads, kdim=d_in, vdim=d_in)
        key = nn.Linear(d_in, d_model).weight.chunk(n_heads)[0].T
    head = dict.fromkeys(("query", "key", "value"), tuple(key.shape))
    return head | {"out": tuple(layer.out_proj.weight.T.shape)}


@weight_shapes.mistake("pbloem/former #8", symptom=symptoms.WRONG_COUNT)
def keeps_the_full_width(d_in, d_model, n_heads):
    """Everything fits and trains. The layer has H times the parameters, and
    takes H times the multiplications, of a usual one.
    cause: Every head keeps the full width of the model, and W_O brings H ·
    d_model numbers back to d_model.
    fix: Give each head a width of d_model / H."""
    head = dict.fromkeys(("query", "key", "value"), (d_in, d_model))
    return head | {"out": (n_heads * d_model, d_model)}


@weight_shapes.mistake(symptom=symptoms.SIZES)
def projects_to_one_head(d_in, d_model, n_heads):
    """The layer's result has the width of one head. It cannot be added to its
    input, or worse: broadcasting adds it all the same where that width is 1.
    cause: The last projection goes to d_model / H, the width of a head,
    instead of d_model.
    fix: W_O maps the contexts of all heads side by side, d_model numbers, to
    d_model numbers."""
    d_k = d_model // n_heads
    head = dict.fromkeys(("query", "key", "value"), (d_in, d_k))
    return head | {"out": (d_model, d_k)}


@task(
    against="what the heads make of the identity",
    cases={
        "two heads from 3 to 2, numbered": (f64(*range(12)).reshape(2, 3, 2),),
        "four numbers in, four out": (randn(2, 4, 2, seed=60),),
        "eight heads from 64 to 8": (randn(8, 64, 8, seed=62),),
        "heads as wide as what they read": (randn(2, 3, 3, seed=63),),
        "17 heads from 130 to 131": (randn(17, 130, 131, seed=64),),
    },
)
def linear_weight(heads):
    """the weight of one nn.Linear that gives the results of all heads side by
    side: (H, d_in, d_k) → (H·d_k, d_in)"""
    # What each of the heads makes of the rows of the identity.
    rows = torch.eye(heads.shape[1], dtype=heads.dtype, device=heads.device)
    return torch.cat([rows @ head for head in heads], -1).mT


@linear_weight.mistake(
    "rasbt/LLMs-from-scratch #857, #893",
    symptom=symptoms.SIZES,
    not_looked_up="rasbt/LLMs-from-scratch #857, rasbt/LLMs-from-scratch #893",
)
def copies_without_transposing(heads):
    """Where d_in = d_model it fits, and every number that comes out is wrong;
    where they differ, an error says so.
    cause: nn.Linear stores its weight as (out, in) and computes x Wᵀ; it is
    given the matrix of x W.
    fix: Transpose when copying a matrix of x W into an nn.Linear.
    hint: Print the shape of nn.Linear(3, 2).weight."""
    return torch.cat(tuple(heads), -1)


_X = f64(1, 2, 3, 4)
_MANY = randn(2, 3, 5, 5, seed=70)
_KEPT = randn(2, 3, 5, 5, seed=71) > -0.6
_KEEP = marks("1011")[0]


@task(
    against="torch.where",
    gradients=True,
    cases=lambda: {
        "training, a quarter is dropped": (_X, _KEEP, nn.Dropout(0.25)),
        "evaluation": (_X, _KEEP, nn.Dropout(0.25).eval()),
        "the weights of a batch of heads": (_MANY, _KEPT, nn.Dropout(0.4)),
        "nothing is dropped": (_X, _KEEP | True, nn.Dropout(0.0)),
        "131 numbers": (
            randn(131, seed=72),
            randn(131, seed=73) > -1,
            nn.Dropout(0.2),
        ),
        "17 texts of 17 heads, 131 queries": (
            randn(17, 17, 131, 2, seed=74),
            randn(17, 17, 131, 2, seed=75) > -1,
            nn.Dropout(0.2),
        ),
    },
)
def drop(x, keep, layer):
    """in training, x where `keep` is True, grown so that the mean stays as it
    was, and 0 elsewhere; in evaluation, x"""
    kept = torch.where(keep, x, 0.0)
    return torch.lerp(x, kept / (1 - layer.p), float(layer.training))


@drop.mistake(symptom=symptoms.DIFFERS_EACH_TIME)
def asks_the_method_train(x, keep, layer):
    """A model in evaluation mode gives another answer each time it is asked,
    and worse ones than it could.
    cause: layer.train is a method, and a method counts as true; the flag that
    eval() clears is layer.training.
    fix: Ask layer.training; F.dropout has to be told, as its own default is
    training=True."""
    if not layer.train:
        return x
    return x * keep / (1 - layer.p)


@drop.mistake(
    "lmjohns3/theanets #123, rasbt/LLMs-from-scratch #431",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def divides_by_the_dropped_share(x, keep, layer):
    """Right for p = 0.5. For p = 0.1, what is kept grows tenfold.
    cause: What is kept is divided by p, the share that is dropped, instead of
    1 − p, the share that stays.
    fix: Divide by 1 − p, the share that stays."""
    if not layer.training or layer.p == 0:
        return x
    return x * keep / layer.p


_TWO = f64([[1], [2], [6]], [[10], [20], [60]])  # (H_kv, S, d)


@task(
    against="a loop over the heads of queries",
    gradients=True,
    cases={
        "four share two": (f64(*4 * [[[0], [0]]]), 0 * _TWO, _TWO),
        "a batch, T ≠ S": randns((2, 6, 3, 4), *[(2, 3, 5, 4)] * 2, seed=303),
        "all share one": randns((3, 2, 3), (1, 2, 3), (1, 2, 4), seed=306),
        "scores in the thousands": (
            f64([[1000]], [[-1000]]),
            f64([[2], [1], [4]]),
            f64([[1], [2], [6]]),
        ),
        "each has its own": randns(*[(2, 2, 3)] * 2, (2, 2, 2), seed=315),
        # Some programs take heads in blocks of 16.
        "48 share two": randns((48, 2, 2), *[(2, 3, 2)] * 2, seed=309),
        "17 texts, 34 share seventeen": randns(
            (17, 34, 1, 3), *[(17, 17, 2, 3)] * 2, seed=312
        ),
        "131 queries, 137 keys, 130 wide": randns(
            (2, 131, 130), (1, 137, 130), (1, 137, 131), seed=315
        ),
    },
)
def grouped_attention(q, k, v):
    """the contexts (..., H, T, d_v) of queries (..., H, T, d_k) that share
    keys and values (..., H_kv, S, d), H // H_kv heads in a row each"""
    group = q.shape[-3] // k.shape[-3]
    contexts = []
    for h in range(q.shape[-3]):
        parts = q[..., h, :, :], *(a[..., h // group, :, :] for a in (k, v))
        contexts.append(F.scaled_dot_product_attention(*parts))
    return torch.stack(contexts, -3)


@grouped_attention.mistake(
    "ekzhang/jax-js #180, onnx/onnx #7274, apple/axlearn #842",
    symptom=symptoms.LOADED_WEIGHTS,
)
def deals_the_shared_heads_out(q, k, v):
    """With one head of keys, or with one for each head of queries, all is
    right. Between the two, queries ask the keys of another group: a model that
    is trained like this works, and loaded weights give nonsense.
    cause: repeat lays the whole row of heads down again, 0 1 0 1; the heads
    that share one stand side by side, 0 0 1 1.
    fix: repeat_interleave, which repeats each head before the next one.
    hint: Which head of keys does the second head of queries ask?"""
    group = q.shape[-3] // k.shape[-3]
    k, v = (torch.cat([a] * group, -3) for a in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return softmax(scores) @ v


def _shared(B, T, d, n_heads, n_kv_heads, d_k, mask=None, *, seed):
    """Tokens, four matrices of heads that share keys, and their numbers."""
    wide, narrow = n_heads * d_k, n_kv_heads * d_k
    sizes = (d, wide), (d, narrow), (d, narrow), (wide, d)
    x, *matrices = randns((B, T, d), *sizes, seed=seed)
    return x, *(w / d**0.5 for w in matrices), n_heads, n_kv_heads, mask


@task(
    against="a loop over the heads",
    gradients=True,
    cases={
        "one token, four heads share two": _shared(1, 1, 8, 4, 2, 2, seed=600),
        "six heads share two": _shared(2, 3, 12, 6, 2, 2, seed=610),
        "all share one": _shared(1, 4, 6, 3, 1, 2, seed=620),
        "each has its own": _shared(1, 3, 6, 3, 3, 2, seed=630),
        "heads wider than the stream": _shared(2, 3, 6, 4, 2, 3, seed=640),
        "a causal mask": _shared(2, 3, 8, 4, 2, 2, _CAUSAL, seed=650),
        "a causal mask, scores far below 0": (
            *_FAR_BELOW[:2],
            -_UNIT[:, :2],
            _UNIT[:, :2],
            _UNIT,
            4,
            2,
            _CAUSAL,
        ),
        "two texts, a mask each": _shared(2, 4, 8, 4, 2, 2, _PADDED, seed=660),
        "another mask, all sizes as before": _shared(
            2, 3, 8, 4, 2, 2, _OTHER, seed=650
        ),
        "24 heads share twelve": _shared(1, 5, 48, 24, 12, 2, seed=670),
        "17 texts, 34 heads share 17, a mask each": _shared(
            17,
            2,
            34,
            34,
            17,
            1,
            randn(17, 1, 2, 2, seed=689) > -9 * torch.eye(2),
            seed=680,
        ),
        "131 tokens, all wider than 128": _shared(
            1, 131, 306, 34, 17, 9, torch.ones(131, 131).tril() > 0, seed=690
        ),
    },
)
def GroupedQueryAttention(
    x, w_query, w_key, w_value, w_out, n_heads, n_kv_heads, mask=None
):
    """n_heads heads of queries attend from x to x, where the mask is True, and
    n_heads // n_kv_heads of them in a row read the same keys and values; their
    contexts side by side, times w_out: (B, T, d_model)"""
    group = n_heads // n_kv_heads
    keys, values = (x @ w for w in (w_key, w_value))
    keys, values = (a.chunk(n_kv_heads, -1) for a in (keys, values))
    contexts = []
    for h, q in enumerate((x @ w_query).chunk(n_heads, -1)):
        k, v = keys[h // group], values[h // group]
        # One head, so the axis of heads is left out of the mask.
        alone = mask if mask is None or mask.ndim == 2 else mask[:, 0]
        contexts.append(F.scaled_dot_product_attention(q, k, v, alone))
    return torch.cat(contexts, -1) @ w_out


def _grouped(x, w_query, w_key, w_value, n_heads, n_kv_heads):
    """Queries (B, H, T, d_k), keys and values (B, H_kv, T, d_k) of tokens."""
    numbers = n_heads, n_kv_heads, n_kv_heads
    return [
        (x @ w).unflatten(-1, (n, -1)).transpose(1, 2)
        for w, n in zip((w_query, w_key, w_value), numbers)
    ]


def _joined(q, k, v, w_out, mask, scale=None):
    """The rest of the layer, where each head of queries has its own keys."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    context = softmax(scores) @ v
    return context.transpose(1, 2).flatten(2) @ w_out


@GroupedQueryAttention.mistake(
    "ekzhang/jax-js #180, onnx/onnx #7274",
    symptom=(symptoms.LOADED_WEIGHTS, symptoms.WRONG_IN_THE_NEXT_CASE),
)
def lays_the_row_of_key_heads_down_again(
    x, w_query, w_key, w_value, w_out, n_heads, n_kv_heads, mask=None
):
    """A model that is trained like this works; loaded weights give nonsense.
    With one head of keys, or as many as of queries, all is right.
    cause: `repeat` gives the heads of keys in the order 0 1 0 1; those that
    belong to one head stand side by side, 0 0 1 1.
    fix: `repeat_interleave` along the axis of the heads."""
    q, k, v = _grouped(x, w_query, w_key, w_value, n_heads, n_kv_heads)
    times = n_heads // n_kv_heads
    k, v = (a.repeat(1, times, 1, 1) for a in (k, v))
    return _joined(q, k, v, w_out, mask)


@GroupedQueryAttention.mistake(
    "PSAL-POSTECH/ONNXim #33, HazyResearch/HipKittens #22",
    symptom=(symptoms.LOADED_WEIGHTS, symptoms.WRONG_IN_THE_NEXT_CASE),
)
def divides_by_the_number_of_key_heads(
    x, w_query, w_key, w_value, w_out, n_heads, n_kv_heads, mask=None
):
    """Right where a group has as many heads as there are groups, such as 4
    and 2, or 64 and 8. Else some heads of keys are never read, or a number is
    asked for that none has.
    cause: The number of a query's head is divided by the number of key heads
    and not by the size of a group.
    fix: h // (n_heads // n_kv_heads)."""
    q, k, v = _grouped(x, w_query, w_key, w_value, n_heads, n_kv_heads)
    heads = [h // n_kv_heads for h in range(n_heads)]
    return _joined(q, k[:, heads], v[:, heads], w_out, mask)


@GroupedQueryAttention.mistake(
    "ROCm/hip-ep #621", symptom=symptoms.WRONG_SHARPNESS
)
def finds_the_width_in_the_joint_row(
    x, w_query, w_key, w_value, w_out, n_heads, n_kv_heads, mask=None
):
    """The weights are too even, in each layer, and the more so the more heads
    of keys there are.
    cause: Queries, keys and values come side by side, and the width of that
    row is divided by the number of queries' heads. So the keys and values are
    counted as if they were queries.
    fix: The row has n_heads + 2 · n_kv_heads heads; divide by that number."""
    q, k, v = _grouped(x, w_query, w_key, w_value, n_heads, n_kv_heads)
    row = (n_heads + 2 * n_kv_heads) * q.shape[-1]
    k, v = (a.repeat_interleave(n_heads // n_kv_heads, 1) for a in (k, v))
    return _joined(q, k, v, w_out, mask, scale=math.sqrt(n_heads / row))


@GroupedQueryAttention.mistake(
    "fkodom/grouped-query-attention-pytorch #5", symptom=symptoms.TRAINS_BADLY
)
def adds_up_the_queries_of_a_group(
    x, w_query, w_key, w_value, w_out, n_heads, n_kv_heads, mask=None
):
    """The shapes are right and it trains, worse than it should: the heads of a
    group all have the same weights.
    cause: The scores of a group are added up, so that the group asks one
    question. The heads share keys and values, not queries.
    fix: Each head of queries has its own scores; repeat the keys, or give them
    an axis of size 1 for the heads of a group."""
    q, k, v = _grouped(x, w_query, w_key, w_value, n_heads, n_kv_heads)
    group = n_heads // n_kv_heads
    q = q.unflatten(1, (n_kv_heads, group)).sum(2)
    q, k, v = (a.repeat_interleave(group, 1) for a in (q, k, v))
    return _joined(q, k, v, w_out, mask)
