"""Chapter 22, fewer bits: tasks and known mistakes."""

import math

import numpy as np
import torch

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(22)


def in_groups(x, group, of_one):
    """Each group of neighbours in each row, given to a function of a list."""
    rows = []
    for row in x.tolist():
        new = []
        for at in range(0, len(row), group):
            new += of_one(row[at : at + group])
        rows.append(new)
    return torch.tensor(rows, dtype=x.dtype)


def rounded_by_scale(numbers, bits, *, most=None):
    """A list of numbers, each the multiple of a scale that is nearest."""
    most = 2 ** (bits - 1) - 1 if most is None else most
    scale = max(abs(v) for v in numbers) / most
    if scale == 0:
        return numbers
    return [round(v / scale) * scale for v in numbers]


_HAND = f64([0.9, -0.3, 0.1, 0.5])

_GROUPS = {
    "four numbers in three bits": call(_HAND, 3, 4),
    "groups of two": call(_HAND, 3, 2),
    "the largest is negative": call(f64([0.2, -0.7, 0.1]), 3, 3),
    "zeros": call(f64([0, 0], [0.5, 0.2]), 4, 2),
    "three rows of different size, eight bits": call(
        randn(3, 4, seed=10) * f64([1e-6], [1], [1000]), 8, 4
    ),
    "two bits": call(randn(2, 6, seed=20), 2, 3),
    "two rows, groups of twelve": call(randn(2, 24, seed=1), 4, 12),
    "256 numbers, groups of 64": call(randn(1, 256, seed=30), 4, 64),
    "131 rows, groups of 131": call(randn(131, 262, seed=40), 4, 131),
    "16 rows of 128, groups of 64": call(randn(16, 128, seed=50), 4, 64),
}


@task(
    against="a loop over groups in plain Python",
    cases=_GROUPS,
)
def round_groups(x, bits, group):
    """x (rows, n) with each number rounded to the nearest multiple of its
    group's scale; a group is `group` neighbours in a row, and its scale is
    its largest absolute value over 2^(bits−1) − 1"""
    return in_groups(x, group, lambda g: rounded_by_scale(g, bits))


@round_groups.mistake(symptom=symptoms.WRONG_NUMBERS)
def takes_the_largest_with_its_sign(x, bits, group):
    """Right where the largest number of a group is positive. Else all of the
    group is cut off, or turns round.
    cause: The scale is taken from the largest number, not from the largest
    absolute value.
    fix: Take the largest absolute value, `x.abs().amax(-1)`."""
    most = 2 ** (bits - 1) - 1
    g = x.unflatten(-1, (-1, group))
    scale = g.amax(-1, keepdim=True).clamp(min=1e-9) / most
    return ((g / scale).round().clamp(-most, most) * scale).flatten(-2)


@round_groups.mistake(
    "huggingface/sentence-transformers #3847, uxlfoundation/oneDNN #5879",
    symptom=symptoms.WRONG_NUMBERS,
)
def wraps_the_largest_round(x, bits, group):
    """Most numbers are right. The largest of a group comes back with the
    opposite sign.
    cause: A number gets a code that the bits do not have, here the largest
    the code 2^(bits−1). Casting it wraps it round to the least code.
    fix: Divide by 2^(bits−1) − 1, and clamp before casting."""
    half = 2 ** (bits - 1)
    g = x.unflatten(-1, (-1, group))
    scale = g.abs().amax(-1, keepdim=True) / half
    codes = (g / scale.masked_fill(scale == 0, 1)).round()
    codes = (codes + half) % (2 * half) - half
    return (codes * scale).flatten(-2)


@round_groups.mistake(symptom=symptoms.WRONG_NUMBERS)
def cuts_instead_of_rounding(x, bits, group):
    """Every number moves towards 0, by up to a whole step, and what is made
    of many of them becomes too small.
    cause: A conversion to whole numbers cuts the fraction off.
    fix: Round to the nearest first."""
    most = 2 ** (bits - 1) - 1
    g = x.unflatten(-1, (-1, group))
    scale = g.abs().amax(-1, keepdim=True) / most
    safe = scale.masked_fill(scale == 0, 1)
    codes = (g / safe * (1 + 1e-12)).trunc()
    return (codes * scale).flatten(-2)


@round_groups.mistake(symptom=symptoms.WRONG_NUMBERS)
def shares_a_scale_over_all_rows(x, bits, group):
    """Right for a single row whose group is the whole of it. Rows of small
    numbers become 0.
    cause: The largest value is taken of the whole matrix.
    fix: Take it for each group, along the last axis."""
    most = 2 ** (bits - 1) - 1
    scale = x.abs().max() / most
    return (x / scale).round() * scale


def rounded_by_range(numbers, bits):
    """A list of numbers, each one of 2^bits between the ends of the list."""
    low, high = min(numbers), max(numbers)
    step = (high - low) / (2**bits - 1)
    if step == 0:
        return numbers
    return [low + round((v - low) / step) * step for v in numbers]


@task(
    against="a loop over groups in plain Python",
    cases={
        "two bits": call(f64([9.7, 10.1, 10.9, 10.6]), 2, 4),
        "negative numbers": call(f64([-3, -1, -2.2]), 3, 3),
        "on both sides of 0": call(f64([-1, 0.4, 2]), 3, 3),
        "all equal": call(f64([2.5, 2.5], [1, 2]), 4, 2),
        "groups of two": call(randn(2, 6, seed=1) + 2, 2, 2),
        "groups of twelve, eight bits": call(
            (randn(2, 24, seed=10) - 1) * f64([1], [1e-6]), 8, 12
        ),
        "256 numbers, groups of 64": call(randn(1, 256, seed=40), 4, 64),
        "131 rows, groups of 131": call(randn(131, 262, seed=50) + 1, 4, 131),
        "16 rows of 128, groups of 64": call(
            randn(16, 128, seed=60) + 1, 4, 64
        ),
    },
)
def round_range(x, bits, group):
    """x (rows, n) with each number rounded to the nearest of 2^bits numbers
    at equal distances from the smallest to the largest of its group, which
    is `group` neighbours in a row"""
    return in_groups(x, group, lambda g: rounded_by_range(g, bits))


def ranged(x, bits, group, *, stretch=False, steps=None, centre=False):
    """Rounding by a range in tensors, with something wrong in it."""
    g = x.unflatten(-1, (-1, group))
    low, high = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    if stretch:
        low, high = low.clamp(max=0), high.clamp(min=0)
    most = 2**bits - 1 if steps is None else steps
    step = (high - low) / most
    step = step.masked_fill(step == 0, 1)
    if centre:
        zero = (-low / step).round()  # the code of 0, a whole number
        codes = ((g / step).round() + zero).clamp(0, most)
        return ((codes - zero) * step).flatten(-2)
    codes = ((g - low) / step).round().clamp(0, most)
    return (codes * step + low).flatten(-2)


@round_range.mistake(
    "InternLM/lmdeploy #4849", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def stretches_the_range_to_0(x, bits, group):
    """Right for numbers on both sides of 0, as tests draw them. Where all of
    a group are far from 0, the step is several times too large.
    cause: Places past the end of the group, filled with 0, take part in the
    smallest and the largest.
    fix: Leave them out: fill with +∞ for the smallest and −∞ for the
    largest."""
    return ranged(x, bits, group, stretch=True)


@round_range.mistake(symptom=symptoms.WRONG_NUMBERS)
def takes_one_step_too_many(x, bits, group):
    """Nearly right with eight bits, and wrong with two: the largest number
    of each group becomes smaller.
    cause: The range is divided by 2^bits. Between 2^bits numbers there are
    2^bits − 1 steps; the last code then does not exist and is cut off.
    fix: Divide by 2^bits − 1."""
    g = x.unflatten(-1, (-1, group))
    low, high = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    step = (high - low) / 2**bits
    step = step.masked_fill(step == 0, 1)
    codes = ((g - low) / step).round().clamp(0, 2**bits - 1)
    return (codes * step + low).flatten(-2)


@round_range.mistake(
    "dropbox/hqq #159, ModelCloud/GPTQModel #1531, ggml-org/llama.cpp #7313",
    symptom=symptoms.NAN,
)
def divides_by_an_empty_range(x, bits, group):
    """All is well until the numbers of some group are all equal; then it is
    NaN.
    cause: The step of such a group is 0, and it is divided by.
    fix: Divide by 1 there. Each code is 0, and the smallest number says all.
    """
    g = x.unflatten(-1, (-1, group))
    low, high = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    return (((g - low) / step).round() * step + low).flatten(-2)


@round_range.mistake(
    "unslothai/unsloth #10841", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def cuts_off_what_has_no_0(x, bits, group):
    """Right, up to a shift, for numbers on both sides of 0. Where all are
    above 0, the upper ones are all alike.
    cause: The smallest number is kept as the code of 0, rounded to a whole
    number and cut to the codes that there are, so 0 must be in the range.
    fix: Keep the smallest number itself."""
    g = x.unflatten(-1, (-1, group))
    low, high = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    most = 2**bits - 1
    step = (high - low) / most
    step = step.masked_fill(step == 0, 1)
    zero = (-low / step).round().clamp(0, most)
    codes = ((g / step).round() + zero).clamp(0, most)
    return ((codes - zero) * step).flatten(-2)


def _inputs(n, *, seed):
    """The moments of inputs that share a source, of twice as many as n."""
    many = max(40, 2 * n)
    x = randn(many, 1, seed=seed) @ randn(1, n, seed=seed + 1)
    x = 2 * x + randn(many, n, seed=seed + 2)
    return x.mT @ x / many


def _row(n, bits, *, seed):
    """A case with a row of n weights, drawn by a seed, and its scale."""
    row = randn(n, seed=seed)
    scale = row.abs().max() / (2 ** (bits - 1) - 1)
    return call(row, _inputs(n, seed=seed + 1), scale, bits)


_PAIR = f64([1, 0.8], [0.8, 1])


@task(
    against="a least-squares problem for each weight",
    cases={
        "two weights, inputs much alike": call(
            f64(0.4, 0.4), _PAIR, f64(1)[0], 2
        ),
        "two weights, opposite inputs": call(
            f64(0.4, 0.4), f64([1, -0.8], [-0.8, 2]), f64(1)[0], 2
        ),
        "inputs that have nothing to do with each other": call(
            f64(0.4, -0.6, 0.7),
            f64([1, 0, 0], [0, 2, 0], [0, 0, 3]),
            f64(0.5)[0],
            2,
        ),
        "a code that does not exist": call(
            f64(-1.6, -1.4, 1.8),
            f64([1, 0.9, 0.1], [0.9, 1, 0.1], [0.1, 0.1, 1]),
            f64(1)[0],
            2,
        ),
        "seven weights": _row(7, 4, seed=20),
        "twenty weights": _row(20, 4, seed=83),
        # Some programs change them in blocks of 64.
        "seventy weights": _row(70, 4, seed=90),
        "137 weights": _row(137, 4, seed=97),
        "128 weights": _row(128, 4, seed=98),
    },
)
def make_up(row, moments, scale, bits):
    """a row (n,) of weights, rounded one after the other to multiples of
    `scale` with codes up to 2^(bits−1) − 1 in size; after each, the weights
    that are still to come are changed so that the output's mean square
    error, d H dᵀ with H = `moments` (n, n), is the least that is possible"""
    n = len(row)
    most = 2 ** (bits - 1) - 1
    factor = torch.linalg.cholesky(moments)  # d H dᵀ = |d L|²
    done = row.new_zeros(0)
    for i in range(n):
        # The best weights from i on, if those before are what they are.
        d = row[:i] - done
        fixed = factor[:i].mT @ d
        rest = torch.linalg.lstsq(factor[i:].mT, -fixed[:, None]).solution
        wanted = row[i] - rest[0, 0]
        code = (wanted / scale).round().clamp(-most, most)
        done = torch.cat([done, (code * scale)[None]])
    return done


def walk(row, moments, scale, bits, change):
    """A loop in which `change` (i, H) says how later weights follow."""
    most = 2 ** (bits - 1) - 1
    w = row.clone()
    for i in range(len(row)):
        q = (w[i] / scale).round().clamp(-most, most) * scale
        error = w[i] - q
        w[i] = q
        w[i + 1 :] += error * change(i, moments)
    return w


@make_up.mistake(
    "cactus-compute/cactus #807, cactus-compute/cactus #812",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def keeps_the_inverse_of_all(row, moments, scale, bits):
    """The first weight is made up for rightly, the later ones wrongly. The
    error is still less than without.
    cause: The inverse of H is taken once, of all inputs, and its rows are
    used at every step. Where some weights are fixed already, the inverse of
    what is left is needed, and that is not a part of the whole inverse.
    fix: Invert H of the remaining inputs, or use the factor of the inverse,
    whose rows are just that."""
    inverse = torch.linalg.inv(moments)
    return walk(
        row,
        moments,
        scale,
        bits,
        lambda i, H: -inverse[i, i + 1 :] / inverse[i, i],
    )


@make_up.mistake(symptom=symptoms.WRONG_NUMBERS)
def makes_it_worse(row, moments, scale, bits):
    """The error is larger than that of plain rounding.
    cause: The change has the opposite sign: what was lost is taken away once
    more.
    fix: If a weight came out too small, the weights of inputs like its own
    become larger."""
    return walk(
        row,
        moments,
        scale,
        bits,
        lambda i, H: -torch.linalg.solve(H[i + 1 :, i + 1 :], H[i + 1 :, i]),
    )


@make_up.mistake(
    "ml-explore/mlx-lm #1880, ml-explore/mlx-lm #1878",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def tells_the_next_one_only(row, moments, scale, bits):
    """Right for two weights. With more, the far ones never hear of an error,
    and the near one gets a wrong share.
    cause: What an error changes is written into a part of the later weights
    only, here the next one; an index counts from the wrong place.
    fix: Change all weights that are still to come."""

    def change(i, H):
        full = torch.linalg.solve(H[i + 1 :, i + 1 :], H[i + 1 :, i])
        full[1:] = 0
        return full

    return walk(row, moments, scale, bits, change)


@make_up.mistake(symptom=symptoms.WRONG_NUMBERS)
def rounds_each_for_itself(row, moments, scale, bits):
    """The weights are as near as they can be, the output is not: the errors
    of weights whose inputs are alike add up.
    cause: Each weight is rounded to its own nearest code.
    fix: Let the later weights make up for what the earlier ones are off by.
    """
    return walk(row, moments, scale, bits, lambda i, H: 0)


def grid(exponent, mantissa):
    """All numbers of a format without ∞, from 0 up, and their mantissas."""
    least = 2 - 2 ** (exponent - 1)
    m = 2**mantissa
    numbers = [k * 2.0 ** (least - mantissa) for k in range(m)]
    for power in range(least, 2 ** (exponent - 1)):
        numbers += [2.0**power * (1 + k / m) for k in range(m)]
    return numbers


_PLACES = f64(
    0.0, 0.3, -0.3, 1.0, 1.06, 1.0625, 1.1875, -1.3, 1.97, 7.9, 100.3, -150.7
)

# The last is so near to a half that rounding twice goes the wrong way.
_TINY = f64(
    2.0**-7,
    1.2 * 2.0**-8,
    0.4 * 2.0**-9,
    0.6 * 2.0**-9,
    -(2.0**-9),
    2.5002 * 2.0**-9,
)


@task(
    against="a search among all numbers of the format",
    cases={
        "three bits of mantissa": call(_PLACES, 4, 3),
        "two bits of mantissa": call(_PLACES, 5, 2),
        "numbers below the smallest power of two": call(_TINY, 4, 3),
        "halves": call(f64(1.0625, 1.1875, -1.3125, 2.125, 2.375), 4, 3),
        "larger than all": call(f64(300, -1e6, 247, 249), 4, 3),
        "large numbers, two bits of mantissa": call(
            f64(300, -1000, 57_000, 1e6), 5, 2
        ),
        "just above a half": call(f64(1.0625, -1.3125) * (1 + 2**-40), 4, 3),
        "four bits in all": call(randn(2, 5, seed=3), 2, 1),
        "two rows of 131": call(20 * randn(2, 131, seed=5), 4, 3),
    },
)
def to_format(x, exponent, mantissa):
    """each number of x rounded to the nearest that a format can hold, halves
    to the even mantissa, and what is larger than all to the largest; the
    format has these bits of exponent and mantissa, its powers of two go from
    2^(2 − 2^(exponent−1)) to 2^(2^(exponent−1) − 1), and below the smallest
    the steps stay as they are, down to 0"""
    numbers = grid(exponent, mantissa)
    found = []
    for v in x.flatten().tolist():
        size = abs(v)
        near = sorted(
            range(len(numbers)),
            key=lambda k: (abs(numbers[k] - size), k % 2),
        )
        found.append(math.copysign(numbers[near[0]], v))
    return torch.tensor(found, dtype=x.dtype).view_as(x)


def on_grid(x, exponent, mantissa, *, rounded, top=None, least=None):
    """Rounding by steps, with a rule for the steps and other ends."""
    low = 2 - 2 ** (exponent - 1) if least is None else least
    high = 2 ** (exponent - 1) - 1
    largest = 2.0**high * (2 - 2.0**-mantissa)
    _, power = x.double().frexp()
    power = (power - 1).clamp(min=low) - mantissa
    step = torch.ldexp(torch.ones_like(x), power)
    found = rounded(x / step) * step
    if top is not None:
        found = torch.where(x.abs() >= 2.0**top, largest * x.sign(), found)
    return found.clamp(-largest, largest)


@to_format.mistake(
    "ROCm/aiter #5151, mmastrac/diffgemma #18, "
    "1bit-MONSTER/1bit-MONSTER #640, NVlabs/cutile-rs #250",
    symptom=symptoms.WRONG_NUMBERS,
)
def cuts_the_mantissa(x, exponent, mantissa):
    """No number is off by more than a step, so every loose test passes. But
    all errors point to 0, and what goes through many layers shrinks.
    cause: The lower bits are shifted out, which cuts.
    fix: Round to the nearest, halves to even."""
    return on_grid(x, exponent, mantissa, rounded=torch.trunc)


@to_format.mistake("sgl-project/sglang #40581", symptom=symptoms.WRONG_NUMBERS)
def takes_halves_up(x, exponent, mantissa):
    """Right but for numbers exactly in the middle between two.
    cause: Half a step is added and the rest is cut, so halves go up each
    time. Among numbers of few bits halves are common, and it adds up.
    fix: Send halves to the even mantissa."""
    return on_grid(
        x,
        exponent,
        mantissa,
        rounded=lambda s: (s.abs() + 0.5).floor() * s.sign(),
    )


@to_format.mistake(
    "sgl-project/sglang #40581", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def gives_up_the_highest_powers(x, exponent, mantissa):
    """Right for small numbers. The largest of each group, which are what the
    scale was made for, all become the largest of the format.
    cause: The highest exponent is taken for infinity's, as in larger
    formats.
    fix: Let this format use all powers of two that it has."""
    top = 2 ** (exponent - 1) - 1
    return on_grid(x, exponent, mantissa, rounded=torch.round, top=top)


@to_format.mistake(symptom=symptoms.WRONG_NUMBERS)
def keeps_the_step_relative_down_to_0(x, exponent, mantissa):
    """Right but for the smallest numbers, which come out finer than the
    format has them.
    cause: The step is a share of the number however small it is. But the
    exponent has an end, and below it the step stays.
    fix: Let the exponent be at least the smallest one."""
    return on_grid(x, exponent, mantissa, rounded=torch.round, least=-1000)


# Exercises.

_SIZES = {
    "one matrix of four bits": [(64, 4, 32, 16)],
    "with smallest numbers": [(64, 4, 32, 32)],
    "eight bits": [(96, 8, 32, 16)],
    "a matrix and a vector in full": [(1024, 4, 32, 32), (32, 32, 1, 0)],
    "two matrices of different sizes": [(4096, 4, 64, 16), (256, 8, 32, 16)],
    "a model's three kinds": [
        (106_168_320, 4, 32, 32),
        (28_311_552, 8, 32, 16),
        (35_136, 32, 1, 0),
    ],
    "twenty matrices": [(1024 * n, 3 + n % 6, 32, 16) for n in range(1, 21)],
    "128 matrices": [(1024 * n, 3 + n % 6, 32, 16) for n in range(1, 129)],
}


@task(
    against="bytes that are laid out and counted",
    cases={name: call(sizes) for name, sizes in _SIZES.items()},
)
def file_bits(tensors):
    """the bits a weight of a file, all tensors together; each of `tensors`
    is (weights, bits, group, shared): so many weights, the bits of a code,
    how many weights form a group, and the bits that a group has besides"""
    total = 0
    count = 0
    for weights, bits, group, shared in tensors:
        blocks = weights // group
        total += blocks * (group * bits + shared)
        count += weights
    return total / count


@file_bits.mistake("Aaronhuang-778/BiLLM #23", symptom=symptoms.WRONG_COUNT)
def counts_the_codes_alone(tensors):
    """Four bits where the file has five: what the name promises.
    cause: What is stored beside the codes is left out: scales and smallest
    numbers, or marks that say how each weight is to be read.
    fix: Add what a group shares, over the weights of the group.
    hint: What does a group keep besides its codes?"""
    total = sum(weights * bits for weights, bits, _, _ in tensors)
    return total / sum(weights for weights, *_ in tensors)


@file_bits.mistake(symptom=symptoms.WRONG_COUNT)
def means_over_tensors(tensors):
    """Far too much where small tensors have many bits.
    cause: The bits of the tensors are averaged, each tensor counted once.
    fix: Add up all bits, then divide by all weights.
    hint: Does a small tensor count as much as a large one?"""
    each = [bits + shared / group for _, bits, group, shared in tensors]
    return sum(each) / len(each)


@file_bits.mistake(symptom=symptoms.WRONG_COUNT)
def adds_what_is_shared_to_each_weight(tensors):
    """Twenty bits a weight where the file has four and a half.
    cause: The scale is counted for each weight, not once for a group.
    fix: Divide what a group shares by the weights of the group.
    hint: How many weights share one scale?"""
    total = sum(w * (bits + shared) for w, bits, _, shared in tensors)
    return total / sum(weights for weights, *_ in tensors)


@file_bits.mistake("ikawrakow/ik_llama.cpp #84", symptom=symptoms.WRONG_COUNT)
def leaves_out_all_but_the_first(tensors):
    """The number that papers print: less than the file has.
    cause: Only the matrices of the blocks are counted. The table of
    embeddings and the head, which often keep more bits, are left out.
    fix: Count every tensor, or say which ones were counted.
    hint: Are all tensors in your sum?"""
    weights, bits, group, shared = tensors[0]
    blocks = weights // group
    return blocks * (group * bits + shared) / weights


def _block(scale, codes):
    """A block of bytes: a scale in 16 bits, and 32 codes from 0 to 15."""
    low, high = codes[:16], codes[16:]
    packed = [a + 16 * b for a, b in zip(low, high, strict=True)]
    head = np.array([scale], np.float16).view(np.uint8).tolist()
    return head + packed


def _blocks(n, *, seed):
    """Some blocks of drawn codes, (n, 18), with scales of several kinds."""
    rng = np.random.default_rng(seed)
    rows = [
        _block(scale, rng.integers(0, 16, 32).tolist())
        for scale in rng.choice([0.1, -0.25, 0.0625, 3.3], n)
    ]
    return torch.tensor(rows, dtype=torch.uint8)


@task(
    against="a loop over the bits of each byte",
    cases={
        "codes from 0 to 15, twice": call(
            torch.tensor([_block(1.0, [*range(16)] * 2)], dtype=torch.uint8)
        ),
        "all codes 8": call(
            torch.tensor([_block(0.5, [8] * 32)], dtype=torch.uint8)
        ),
        "low halves 0, high halves 15": call(
            torch.tensor(
                [_block(1.0, [0] * 16 + [15] * 16)], dtype=torch.uint8
            )
        ),
        "a negative scale": call(
            torch.tensor([_block(-2.0, [3, 12] * 16)], dtype=torch.uint8)
        ),
        "two blocks": call(_blocks(2, seed=1)),
        "five blocks": call(_blocks(5, seed=2)),
        "131 blocks": call(_blocks(131, seed=3)),
        "128 blocks": call(_blocks(128, seed=4)),
    },
)
def open_blocks(blocks):
    """the weights (n, 32) in float32 of blocks (n, 18) of bytes, uint8: two
    bytes are a scale in float16; the low halves of the other sixteen are the
    codes of weights 0 to 15, the high halves those of weights 16 to 31; and
    a weight is its code less 8, times the scale"""
    rows = []
    for block in blocks.tolist():
        scale = np.array(block[:2], np.uint8).view(np.float16).item()
        codes = [0] * 32
        for place, byte in enumerate(block[2:]):
            for bit in range(8):
                one = byte >> bit & 1
                codes[place + 16 * (bit > 3)] += one << bit % 4
        rows.append([scale * (code - 8) for code in codes])
    return torch.tensor(rows, dtype=torch.float32)


def opened(blocks, *, pairs=False, signed=False, less=8, swapped=False):
    """The blocks opened, with something wrong in it."""
    scale = blocks[:, :2].clone().view(torch.float16).float()
    low = blocks[:, 2:] % 16
    high = blocks[:, 2:] // 16
    if swapped:
        low, high = high, low
    codes = torch.cat([low, high], -1)
    if pairs:
        codes = torch.stack([low, high], -1).flatten(-2)
    codes = codes.float()
    if signed:
        return scale * (codes - 16 * (codes > 7))
    return scale * (codes - less)


@open_blocks.mistake(
    "1bit-MONSTER/1bit-MONSTER #572, kekzl/imp #567",
    symptom=symptoms.LOADED_WEIGHTS,
)
def pairs_the_halves_of_a_byte(blocks):
    """The numbers are those of the file, in another order, so means and
    spreads are right. The model writes nonsense.
    cause: Weights 0 and 1 are read from the first byte, or were written
    there. In this format the second half of a byte belongs sixteen places
    further on.
    fix: First all low halves, then all high ones.
    hint: Where does the high half of the first byte belong?"""
    return opened(blocks, pairs=True)


@open_blocks.mistake(
    "1bit-MONSTER/1bit-MONSTER #572, 1bit-MONSTER/1bit-MONSTER #1268",
    symptom=symptoms.LOADED_WEIGHTS,
)
def reads_signed_codes(blocks):
    """Codes below 8 come out too large by 8, the others too small by 8.
    cause: The codes are read as signed numbers of four bits, or were written
    as such. In this format they count from 0, and 8 means nought.
    fix: Take 8 off each code, which counts from 0.
    hint: Which code means nought here?"""
    return opened(blocks, signed=True)


@open_blocks.mistake("tile-ai/tilelang #2477", symptom=symptoms.LOADED_WEIGHTS)
def takes_off_seven(blocks):
    """Every weight is off by one step, so nought is not nought.
    cause: 7 is taken off, the largest code of a signed format.
    fix: Take off 8: of the codes 0 to 15, 8 means nought.
    hint: Which code means nought here?"""
    return opened(blocks, less=7)


@open_blocks.mistake(
    "openvinotoolkit/openvino #25827", symptom=symptoms.LOADED_WEIGHTS
)
def swaps_the_halves(blocks):
    """The first sixteen weights of each block are the last, and the other
    way round.
    cause: The high half of a byte is taken first.
    fix: The low halves come first: `byte % 16`.
    hint: Which half of a byte is `byte % 16`?"""
    return opened(blocks, swapped=True)


def _arriving(n, cuts, *, seed, d=3):
    """Keys that come in pieces, each of their numbers about a mean."""
    keys = randn(n, d, seed=seed) + 3 * randn(1, d, seed=seed + 1)
    return keys, cuts


@task(
    against="whole groups, cut from all keys at once",
    cases={
        "all at once": call(*_arriving(4, [4], seed=1), 2, 4),
        "one by one": call(*_arriving(4, [1] * 4, seed=10), 2, 4),
        "not yet a group": call(*_arriving(3, [1, 2], seed=20), 2, 4),
        "a prompt, then one by one": call(
            *_arriving(9, [5, 1, 1, 1, 1], seed=30), 3, 4
        ),
        "pieces across the ends of groups": call(
            *_arriving(11, [2, 7, 2], seed=40, d=2), 2, 3
        ),
        "groups of three": call(*_arriving(8, [7, 1], seed=50), 2, 3),
        "groups of twelve": call(*_arriving(26, [20, 1, 5], seed=60), 2, 12),
        "131 one by one": call(*_arriving(131, [1] * 131, seed=70), 2, 3),
        "groups of 131, 130 wide": call(
            *_arriving(300, [100, 140, 60], seed=80, d=130), 2, 131
        ),
        "64, 48 and 16 keys, groups of 32": call(
            *_arriving(128, [64, 48, 16], seed=90), 2, 32
        ),
    },
)
def keys_in_groups(keys, cuts, bits, group):
    """the keys (T, d) as a cache holds them after they came in pieces of
    `cuts` tokens: as soon as `group` tokens are there, they are rounded for
    good, each of the d numbers by a range of its own over these tokens (one
    of 2^bits numbers from the smallest to the largest); the last tokens,
    fewer than a group, stay as they are. How the keys came must not matter.
    """
    whole = len(keys) // group * group
    done = [
        in_groups(part.mT, group, lambda g: rounded_by_range(g, bits)).mT
        for part in keys[:whole].split(group)
        if len(part)
    ]
    return torch.cat([*done, keys[whole:]])


def columns(part, bits):
    """Tokens (n, d), each of their numbers rounded by its range."""
    low, high = part.amin(0), part.amax(0)
    step = (high - low) / (2**bits - 1)
    step = step.masked_fill(step == 0, 1)
    return ((part - low) / step).round() * step + low


@keys_in_groups.mistake(
    "rajveer43/VeloxQuant-MLX #163", symptom=symptoms.WRONG_IN_THE_NEXT_CASE
)
def rounds_each_piece_as_it_comes(keys, cuts, bits, group):
    """A prompt is rounded. What is then written word by word never is, so it
    looks perfect and saves nothing.
    cause: A piece of one token is a group of its own: its smallest and its
    largest number are equal, and each comes back as it was.
    fix: Keep new tokens as they are until a whole group is there.
    hint: What is the range of a group that has one token?"""
    return torch.cat([columns(part, bits) for part in keys.split(cuts)])


@keys_in_groups.mistake(
    "rajveer43/VeloxQuant-MLX #86, rajveer43/VeloxQuant-MLX #89",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def looks_at_the_new_piece_alone(keys, cuts, bits, group):
    """A long prompt is rounded; tokens that come one by one stay in full for
    ever.
    cause: Whether a group is full is asked of the new piece, not of all
    tokens that are waiting.
    fix: Count what has come so far.
    hint: Four tokens came one by one. Is a group of four full?"""
    done = []
    for part in keys.split(cuts):
        full = len(part) // group * group
        done += [columns(p, bits) for p in part[:full].split(group) if full]
        done.append(part[full:])
    return torch.cat(done)


@keys_in_groups.mistake(symptom=symptoms.WRONG_NUMBERS)
def rounds_each_token_by_itself(keys, cuts, bits, group):
    """How the keys came does not matter, but the range is that of a token,
    so a number that is always large sets the step for all others.
    cause: Smallest and largest are taken along the token's own numbers.
    fix: Take them over the tokens of the group, for each of the d numbers.
    hint: Along which axis do you take the smallest?"""
    whole = len(keys) // group * group
    return torch.cat([columns(keys[:whole].mT, bits).mT, keys[whole:]])


@keys_in_groups.mistake(symptom=symptoms.WRONG_NUMBERS)
def rounds_the_rest_as_well(keys, cuts, bits, group):
    """Right where the tokens fill their groups. Else the last ones are
    rounded too early, and once more when their group is full.
    cause: The last, unfinished group is rounded as it is.
    fix: Leave it until it is full.
    hint: Is the last group full?"""
    return torch.cat([columns(p, bits) for p in keys.split(group)])


def half(x):
    """The nearest number of bfloat16, by hand: eight digits of two."""
    found = []
    for v in x.flatten().tolist():
        if v == 0:
            found.append(0.0)
            continue
        power = math.floor(math.log2(abs(v))) - 7
        found.append(round(v / 2.0**power) * 2.0**power)
    return torch.tensor(found, dtype=x.dtype).view_as(x)


_PULLS = {
    "many small steps down": call(f64(1), f64(*[[0.001]] * 8)),
    "steps up": call(f64(1), f64(*[[-0.001]] * 8)),
    "large steps": call(f64(1), f64(*[[0.2007]] * 8)),
    "two weights of different size": call(
        f64(1, 0.01), f64(*[[0.0007, 0.0007]] * 5)
    ),
    "there and back": call(f64(2), f64([0.003], [0.003], [-0.003], [0.02])),
    "a weight that is not on the grid": call(
        f64(1.003), f64([0.0009], [0.0009], [0.0009])
    ),
    "131 steps of 131 weights": call(
        randn(131, seed=1), randn(131, 131, seed=2) / 300
    ),
}


@task(against="sums in float64, rounded at the end of each step", cases=_PULLS)
def half_steps(weight, steps):
    """the weights (T, n), in bfloat16's numbers, that a model computes with
    after each of T steps; `weight` (n,) is what it begins with, a step takes
    `steps[t]` (n,) off, and the weights before rounding, the master weights,
    are kept from step to step. (The result has the type of `weight`.)"""
    return half(weight - steps.cumsum(0))


def stepping(weight, steps, *, after):
    """Steps from a weight that `after` has had its hands on."""
    out = []
    for step in steps:
        weight = after(weight - step)
        out.append(half(weight))
    return torch.stack(out)


@half_steps.mistake(
    "workofart/ml-by-hand #85, vllm-project/speculators #765, "
    "NVIDIA-NeMo/Automodel #3444",
    symptom=symptoms.TRAINS_BADLY,
)
def keeps_the_rounded_alone(weight, steps):
    """Large steps are rounded but not lost. Small ones are lost: the weights
    of norms, which begin at 1, are still 1 after the whole training.
    cause: Each step begins at the rounded weight, and a step that is less
    than half of the distance to the next number leads nowhere.
    fix: Keep the weight before rounding, and take the next step from it.
    hint: From which weight does your second step begin?"""
    return stepping(half(weight), steps, after=half)


@half_steps.mistake("TensorAuto/OpenTau #185", symptom=symptoms.TRAINS_BADLY)
def makes_the_masters_of_the_rounded(weight, steps):
    """Right for weights that bfloat16 can hold, and a little off for others.
    cause: The master weights are made from the rounded ones, at the start or
    when a training is resumed.
    fix: Make them from the weights in full, and save them with the rest.
    hint: Is the weight that you begin with on the grid?"""
    return stepping(half(weight), steps, after=lambda w: w)


@half_steps.mistake(symptom=symptoms.WRONG_NUMBERS)
def cuts_the_copy(weight, steps):
    """All weights that are used are a little too small, by up to a step of
    the format.
    cause: The upper 16 bits of each number are taken as they are. That cuts
    the rest off.
    fix: Round to the nearest: `.to(torch.bfloat16)` does.
    hint: To which side of the master weight is yours?"""
    master = weight - steps.cumsum(0)
    near = half(master)
    _, power = near.frexp()
    step = torch.ldexp(torch.ones_like(near), power - 8)
    return near - step * near.sign() * (near.abs() > master.abs())


@half_steps.mistake(symptom=symptoms.WRONG_NUMBERS)
def gives_the_masters(weight, steps):
    """Numbers that 16 bits do not have.
    cause: The master weights are given to the model as they are.
    fix: The model gets the rounded weights; the masters stay behind.
    hint: Has bfloat16 the numbers that you return?"""
    return weight - steps.cumsum(0)
