"""Chapter 8, feed-forward: tasks and known mistakes."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, randns, watched
from attnbook.teach.check.rules import AtMost, NoAutograd
from attnbook.teach.check.seeded import randn

task = tasks_of(8)


@task(
    against="torch's F.gelu",
    gradients=True,
    cases={
        "one number": (f64(2),),
        "zero": (f64(0),),
        "from −6 to 6": (torch.linspace(-6, 6, 25, dtype=torch.float64),),
        "from −40 to 40": (randn(9, seed=800).sort().values * 20,),
        "a batch": (randn(2, 3, 5, seed=801),),
        "300 numbers": (3 * randn(300, seed=802),),
        "17 texts of 131 tokens": (randn(17, 131, 3, seed=803),),
    },
)
def gelu(x):
    """x Φ(x), exactly, for each number; Φ is the distribution function of the
    standard normal"""
    return F.gelu(x)


@gelu.mistake("tinygrad/tinygrad #16162", symptom=symptoms.LOADED_WEIGHTS)
def takes_the_tanh_formula(x):
    """Every number is within 0.0005 of the right one. A model that was trained
    with the other formula answers slightly differently, and now and then with
    another word.
    cause: GELU has two formulas, one with the distribution function and one
    with a tanh in its place; they differ by up to 4.7e-4.
    fix: Use the formula that the weights were trained with (GPT-2: the one
    with tanh). torch's F.gelu is exact unless it is told
    approximate="tanh"."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))


def _layer(leading, d_model, d_ff, *, seed):
    """Tokens, and the matrices and biases of a feed-forward layer."""
    sizes = (d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,)
    return randns((*leading, d_model), *sizes, seed=seed)


def _as_layer(kind, x, *weights):
    """What a class of the page gives with these in place of its own."""
    layer = kind(*weights[0].shape)  # d_model, d_ff
    named = zip(layer.state_dict(), (w.t() for w in weights))
    return functional_call(layer, dict(named), (x,))


def layer_with(activation, x, w_up, b_up, w_down, b_down):
    """The feed-forward layer by torch's `linear`, with any activation."""
    inner = activation(F.linear(x, w_up.mT, b_up))  # (..., d_ff)
    return F.linear(inner, w_down.mT, b_down)  # (..., d_model)


def _by_torch(x, w_up, b_up, w_down, b_down):
    """The feed-forward layer by torch's `linear` and `gelu`."""
    return layer_with(F.gelu, x, w_up, b_up, w_down, b_down)


@task(
    against="torch's Linear layers",
    layer=_as_layer,
    gradients=True,
    cases={
        "one unit": (f64([1]), f64([-2]), f64(1), f64([3]), f64(-1)),
        "one token, 2 → 3 units": _layer((1,), 2, 3, seed=815),
        "six tokens, 3 → 12 units": _layer((6,), 3, 12, seed=820),
        "a batch, 5 → 7 units": _layer((2, 4), 5, 7, seed=825),
        "two tokens, 130 → 300 units": _layer((2,), 130, 300, seed=830),
        "17 texts of 131 tokens": _layer((17, 131), 3, 5, seed=910),
    },
)
def feed_forward(x, w_up, b_up, w_down, b_down):
    """gelu(x w_up + b_up) w_down + b_down, with the exact GELU"""
    return _by_torch(x, w_up, b_up, w_down, b_down)


@feed_forward.mistake(
    "spring-media/TransformerTTS #102, somepago/saint #23",
    symptom=symptoms.TRAINS_BADLY,
)
def forgets_the_activation(x, w_up, b_up, w_down, b_down):
    """It trains, and the loss falls, but the layer can do no more than a
    single matrix of size d_model × d_model.
    cause: Nothing bends between the two matrices, and a product of two
    matrices is a matrix.
    fix: Apply the activation to x w_up + b_up, before the second matrix."""
    inner = x @ w_up + b_up  # (..., d_ff)
    return inner @ w_down + b_down  # (..., d_model)


@feed_forward.mistake("goruck/nilm #1", symptom=symptoms.TRAINS_BADLY)
def bends_after_the_second_matrix(x, w_up, b_up, w_down, b_down):
    """No component of the result is ever below −0.17: the layer can add to its
    input, but hardly take away.
    cause: The activation stands after the second matrix. Between the two
    nothing bends, so they act as one, and what comes out is cut off below.
    fix: Apply the activation in the middle, where the vector is wide; the
    second matrix has the last word."""
    inner = x @ w_up + b_up  # (..., d_ff)
    return F.gelu(inner @ w_down + b_down)  # (..., d_model)


@task(
    against="torch's Linear layers",
    cases={f"width {d}": (d,) for d in (1, 3, 768)},
)
def feed_forward_shapes(d_model):
    """the shapes of w_up and w_down as a pair, each (in, out); inside the
    layer the width is four times d_model"""
    up = torch.nn.Linear(d_model, 4 * d_model, device="meta")
    down = torch.nn.Linear(4 * d_model, d_model, device="meta")
    # torch stores the transpose.
    return tuple(up.weight.T.shape), tuple(down.weight.T.shape)


@feed_forward_shapes.mistake(
    "brightmart/text_classification #86",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_COUNT),
)
def does_not_expand(d_model):
    """All shapes fit and it trains, with a quarter of the weights and a
    quarter of the units that can bend.
    cause: Both matrices are d_model × d_model. The layer is drawn as a box
    with the same width on both sides, and its inside is overlooked.
    fix: Go up to 4 · d_model, bend there, and come down again."""
    return (d_model, d_model), (d_model, d_model)


def _gated(leading, d_model, d_ff, *, seed):
    """Tokens, and the three matrices of a feed-forward layer with a gate."""
    sizes = (d_model, d_ff), (d_model, d_ff), (d_ff, d_model)
    return randns((*leading, d_model), *sizes, seed=seed)


@task(
    against="torch's F.glu",
    layer=_as_layer,
    gradients=True,
    cases={
        "gate 2, up −1": (f64([1]), f64([2]), f64([-1]), f64([1])),
        "one token, 2 → 3 units": _gated((1,), 2, 3, seed=834),
        "six tokens, 3 → 8 units": _gated((6,), 3, 8, seed=838),
        "a batch, 5 → 7 units": _gated((2, 4), 5, 7, seed=842),
        "gates of ±1000, up −20 and 1": (
            f64([1]),
            f64([1000, -1000]),
            f64([-20, 1]),
            f64([1], [1]),
        ),
        "two tokens, 130 → 300 units": _gated((2,), 130, 300, seed=846),
        "17 texts of 131 tokens": _gated((17, 131), 3, 5, seed=920),
    },
)
def swiglu(x, w_gate, w_up, w_down):
    """(silu(x w_gate) · x w_up) w_down, the product in the bracket taken
    number by number"""
    gate, up = F.linear(x, w_gate.mT), F.linear(x, w_up.mT)  # (..., d_ff)
    # torch's glu multiplies its first half by the sigmoid of the second.
    inner = F.glu(torch.cat([gate * up, gate], dim=-1), dim=-1)
    return F.linear(inner, w_down.mT)  # (..., d_model)


@swiglu.mistake(
    "ml-explore/mlx-lm #767",
    symptom=(symptoms.WRONG_NUMBERS, symptoms.LOADED_WEIGHTS),
)
def swaps_gate_and_up(x, w_gate, w_up, w_down):
    """Shapes and sizes are right, and a model that is trained like this is as
    good as any. With loaded weights every result is wrong.
    cause: The activation bends up instead of gate. The two matrices have the
    same shape, and libraries name and order them differently.
    fix: silu(x w_gate) · (x w_up): the one that is bent is the gate."""
    inner = (x @ w_gate) * F.silu(x @ w_up)  # (..., d_ff)
    return inner @ w_down  # (..., d_model)


@swiglu.mistake(
    "Nijikadesu/breakdown-minimind #3", symptom=symptoms.WRONG_NUMBERS
)
def bends_the_product(x, w_gate, w_up, w_down):
    """A positive gate and a negative up, whose product should count in full,
    come out near zero; two negative ones, where the gate should shut, come out
    in full.
    cause: A bracket closes too late: the activation is taken of the product of
    the two, not of the gate.
    fix: Bend the gate first, then multiply."""
    inner = F.silu((x @ w_gate) * (x @ w_up))  # (..., d_ff)
    return inner @ w_down  # (..., d_model)


def _for_the_last(leading, d_model, d_ff, *, seed):
    """Tokens that are zeros, all but the last, and units without a bias."""
    x, w_up, b_up, *_ = _layer(leading, d_model, d_ff, seed=seed)
    last = torch.zeros(*leading, 1, dtype=torch.bool)
    last.view(-1)[-1] = True
    return x * last, w_up, b_up * 0


@task(
    against="a loop over units and tokens",
    cases={
        "one unit, silent": (f64([1]), f64([-2]), f64(1)),
        "one, at zero": (f64([1]), f64([-2]), f64(2)),
        "one, barely": (f64([1]), f64([-2]), f64(2.0000005)),
        "one, now and then": (f64([[1], [-1]]), f64([-2]), f64(1)),
        "a batch of batches": _layer((2, 1, 2), 3, 12, seed=880)[:3],
        "twenty tokens, some units alive for few": (
            *_layer((2, 10), 3, 12, seed=894)[:3],
        ),
        "131 units, alive for the last of 131 tokens at most": _for_the_last(
            (131,), 130, 131, seed=930
        ),
        "alive for the last of 17 times 17 texts at most": _for_the_last(
            (17, 17, 1), 3, 12, seed=940
        ),
    },
)
def dead_units(x, w_up, b_up):
    """how many units of relu(x w_up + b_up) are zero for every token"""
    tokens = x.flatten(0, -2)
    units = zip(w_up.T, b_up)
    return sum(all(t @ w + b <= 0 for t in tokens) for w, b in units)


@task(
    against="torch's FlopCounterMode",
    cases={
        "one token of width 1": (1, 1),
        "two tokens of width 1": (2, 1),
        "three tokens of width 8": (3, 8),
        "GPT-2 small at its full context": (1024, 768),
    },
)
def block_flops(T, d_model):
    """the FLOPs of a block's matrix products for T tokens: attention, and a
    feed-forward of width 4 · d_model; two for a multiply-add"""
    x = torch.empty(T, d_model, device="meta")
    square = torch.empty(d_model, d_model, device="meta")
    up = torch.empty(d_model, 4 * d_model, device="meta")
    with FlopCounterMode(display=False) as counter:
        for _ in ("query", "key", "value"):
            x @ square  # (T, d_model)
        weights = x @ x.T  # (T, T)
        context = weights @ x  # (T, d_model)
        (context @ square) @ up @ up.T  # (T, d_model)
    return counter.get_total_flops()


@block_flops.mistake(
    "autoliuweijie/FastBERT #14, allenai/olmoearth_pretrain #605",
    symptom=symptoms.WRONG_COUNT,
    not_looked_up="allenai/olmoearth_pretrain #605",
)
def counts_linear_layers_only(T, d_model):
    """Of a block of GPT-2 small at T = 1024, 18 % of the work is missing, of
    the whole forward pass 13 %; the longer the text, the more.
    cause: Work is attributed to layers that hold weights. The scores q kᵀ and
    the average of the values are products of two activations; they belong to
    no such layer.
    fix: Add 2 T² d_model for the scores and as much for the average, or count
    what is executed instead of what is defined."""
    return 24 * T * d_model**2


@block_flops.mistake(
    "facebookresearch/fvcore #69, Lyken17/pytorch-OpCounter #184",
    symptom=symptoms.WRONG_COUNT,
)
def counts_multiply_and_add_as_one(T, d_model):
    """The number is exactly half of what others give, and the hardware seems
    to reach half of its peak at best.
    cause: A multiplication and an addition are counted as one operation, a
    multiply-accumulate (MAC), and the result is called FLOPs.
    fix: Count two for each term of a dot product, and say which of the two you
    count."""
    return 12 * T * d_model**2 + 2 * T**2 * d_model


@task(
    against="math.ceil",
    cases={
        "a width that 3 divides": (3, 1),
        "one that 3 does not divide": (4, 1),
        "another": (5, 1),
        "GPT-2 small's width": (768, 1),
        "LLaMA 7B": (4096, 256),
        "a multiple that fits at once": (96, 256),
    },
)
def gated_width(d_model, multiple):
    """the smallest multiple of `multiple` that is not below 8/3 of d_model, an
    integer"""
    return multiple * math.ceil(8 * d_model / 3 / multiple)


@gated_width.mistake(
    "stas00/ml-engineering #45",
    symptom=(symptoms.OTHER_SCORE, symptoms.WRONG_COUNT),
)
def keeps_four_times_the_width(d_model, multiple):
    """The gated layer wins the comparison, and has half as many weights again
    as the layer that it was compared with.
    cause: The inner width stayed at four times d_model when a third matrix was
    added.
    fix: Take two thirds of it: three matrices of 8/3 hold what two of 4 do.
    hint: Multiply out how many weights your three matrices hold."""
    return multiple * math.ceil(4 * d_model / multiple)


@task(
    against="torch's autograd",
    cases={
        "gate 1, up 2": (f64(1), f64(2), f64(1)),
        "gate −3, up 1, gradient 2": (f64(-3), f64(1), f64(2)),
        "gates of ±1000": (f64(1000, -1000), f64(1, 1), f64(1, 1)),
        "a batch": randns((2, 3, 5), (2, 3, 5), (2, 3, 5), seed=850),
        "300 numbers": randns(*[(300,)] * 3, seed=853),
        "17 texts of 131 tokens": randns(*[(17, 131, 3)] * 3, seed=856),
    },
    rules=(NoAutograd,),
)
def gate_backward(gate, up, gradient):
    """the gradients with respect to gate and to up, given the one with respect
    to silu(gate) · up"""
    gate, up = (a.detach().clone().requires_grad_() for a in (gate, up))
    return torch.autograd.grad(F.silu(gate) * up, (gate, up), gradient)


@task(
    against="torch's Linear layers",
    cases={
        "two units, one a slice": (*_layer((1,), 1, 2, seed=860), 1),
        "a token without a batch": (*_layer((), 3, 4, seed=885), 2),
        "twelve units, by fives": (*_layer((6,), 3, 12, seed=865), 5),
        "one slice for all": (*_layer((2, 4), 5, 7, seed=870), 9),
        "2000 units, by eights": (
            *watched(*_layer((1250,), 4, 2000, seed=875)),
            8,
        ),
        "300 units, by 131": (*_layer((17, 2), 130, 300, seed=950), 131),
        "128 units, by 64": (*_layer((16,), 3, 128, seed=960), 64),
    },
    rules=(partial(AtMost, 100_000),),  # of 2,500,000 units
)
def feed_forward_in_slices(x, w_up, b_up, w_down, b_down, size):
    """feed_forward, with the inner units taken in slices"""
    with torch._C.DisableTorchFunctionSubclass():
        return _by_torch(x, w_up, b_up, w_down, b_down)


@feed_forward_in_slices.mistake(
    "Wenyueh/MinivLLM #80, awslabs/slapo #10",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def adds_the_bias_in_every_slice(x, w_up, b_up, w_down, b_down, size):
    """With one slice the result is right; with n slices it holds the last bias
    n times.
    cause: The bias of the second matrix is added to each partial result,
    before these are summed.
    fix: Sum the partial products, and add that bias once.
    hint: Set all weights to zero. What should come out, and what does?"""
    total = 0
    for n in range(0, w_up.shape[-1], size):
        part = slice(n, n + size)
        inner = F.gelu(x @ w_up[:, part] + b_up[part])  # (..., size)
        total = total + inner @ w_down[part] + b_down  # (..., d_model)
    return total
