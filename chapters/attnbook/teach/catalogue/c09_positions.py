"""Chapter 9, positions: tasks and known mistakes."""

import math

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, ints, marks, randns
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(9)


@task(
    against="a loop over positions",
    home="positions.rotary_angles",
    cases={
        "position 1, one pair": (ints(1), 2),
        "three positions, two pairs": (ints(0, 1, 2), 4),
        "positions around 256": (ints(255, 256, 257, 100_003), 12),
        "a batch, another base": call(
            ints([[0, 0, 1]], [[3, 4, 5]]), 4, base=500.0
        ),
        "131 positions, 65 pairs": (torch.arange(131), 130),
        "17 texts of 17 heads": (
            torch.arange(17 * 17 * 2).reshape(17, 17, 2),
            4,
        ),
        "128 positions from 128 on, 64 pairs": (torch.arange(128, 256), 128),
    },
)
def rotary_angles(positions, width, *, base=10_000.0):
    """the angle p · base^(−2i / width) of each pair i at each position p:
    (..., T, width / 2)"""
    angles = [
        [p / base ** (2 * i / width) for i in range(width // 2)]
        for p in positions.flatten().tolist()
    ]
    angles = torch.tensor(angles, dtype=torch.float64)
    angles = angles.to(positions.device)
    return angles.reshape(*positions.shape, width // 2)


@rotary_angles.mistake(
    "EleutherAI/gpt-neox #1016, huggingface/transformers #29285",
    symptom=symptoms.LATER_TOKENS_WRONG,
)
def angles_in_half_precision(positions, width, *, base=10_000.0):
    """Short texts come out nearly right. From position 256 on, neighbours
    begin to share one position, and the model cannot tell them apart.
    cause: The whole model is converted to bfloat16, and the positions with it.
    It has 8 significant bits: 257 is rounded to 256.
    fix: Compute angles, sine and cosine in float32 or better; convert the
    result."""
    pair = torch.arange(0, width, 2).to(positions.device)
    frequencies = (base ** (-pair / width)).bfloat16()
    return (positions[..., None].bfloat16() * frequencies).double()


@task(
    against="a loop over positions",
    home="positions.sinusoidal",
    cases={
        "position 0, two pairs": (ints(0), 4),
        "two positions, two pairs": (ints(1, 2), 4),
        "positions that are not in a row": (ints(7, 3, 6007), 14),
        "a batch, another base": call(
            ints([0, 0, 1], [3, 4, 5]), 4, base=100.0
        ),
        "131 positions, 65 pairs": (torch.arange(131), 130),
        "17 texts": (torch.arange(17 * 3).reshape(17, 3), 4),
        "128 positions from 128 on, 64 pairs": (torch.arange(128, 256), 128),
    },
)
def sinusoidal(positions, width, *, base=10_000.0):
    """sin(p / base^(2i / width)) in component 2i and the cosine of the same
    angle in component 2i + 1: (..., T, width)"""
    rows = []
    for p in positions.flatten().tolist():
        row = []
        for i in range(width // 2):
            angle = p / base ** (2 * i / width)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    waves = torch.tensor(rows, dtype=torch.float64).to(positions.device)
    return waves.reshape(*positions.shape, width)


@sinusoidal.mistake(
    "jadore801120/attention-is-all-you-need-pytorch #32, "
    "SamLynnEvans/Transformer #25",
    symptom=symptoms.WRONG_NUMBERS,
)
def gives_every_column_its_own_wave(positions, width, *, base=10_000.0):
    """Position 0 is right, and a plot looks right: stripes that grow wider.
    But a step is no rotation any more.
    cause: In 2i / d the letter i numbers the pairs. Taken for the number of
    the column, it gives sine and cosine of a pair different frequencies.
    fix: One frequency a pair: base^(−2i / d) for i = 0, 1, … d/2 − 1, used by
    the sine and by the cosine."""
    column = torch.arange(width).to(positions.device)
    waves = positions[..., None] / base ** (2 * column.double() / width)
    waves[..., 0::2] = waves[..., 0::2].sin()
    waves[..., 1::2] = waves[..., 1::2].cos()
    return waves


@sinusoidal.mistake("Kyubyong/transformer #81", symptom=symptoms.WRONG_NUMBERS)
def divides_in_whole_numbers(positions, width, *, base=10_000.0):
    """All pairs of components hold the same wave, and after about 44 tokens
    the positions nearly repeat.
    cause: The exponent 2i / d is divided in whole numbers, so it is 0 for
    every pair.
    fix: Divide with /, not with //, and mind languages in which / between
    integers rounds down."""
    pair = torch.arange(0, width, 2).to(positions.device)
    angles = positions[..., None].double() / base ** (pair // width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


_FOUR = f64([1, 2, 3, 4])
_PLACES = (randn(2, 3, 5, 8, seed=5), ints([[0, 0, 1, 2, 3]], [[*range(5)]]))
_FAR = (randn(2, 8, seed=6), ints(9, 4097))  # float16 would have 4096


@task(
    against="a product of complex numbers",
    within=1e-6,  # float32 will do for near places
    gradients=True,
    cases={
        "one pair at position 1": (f64([1, 2]), ints(1)),
        "two pairs at position 2": (_FOUR, ints(2)),
        "several heads": (randn(3, 5, 8, seed=1), ints(*range(5))),
        "other positions a sequence": _PLACES,
        "far out, another base": call(*_FAR, base=500.0),
        "131 positions, 65 pairs": (
            randn(131, 130, seed=7),
            torch.arange(131),
        ),
        "17 texts of 17 heads": (
            randn(17, 17, 2, 4, seed=8),
            torch.arange(34).reshape(17, 1, 2),
        ),
    },
)
def rotate(x, positions, base=10_000.0):
    """each pair (i, i + d/2) of components turned by the angle
    position · base^(−2i / d)"""
    angles = rotary_angles(positions, x.shape[-1], base=base)
    turn = torch.polar(torch.ones_like(angles), angles)
    turned = torch.complex(*x.chunk(2, -1)) * turn
    return torch.cat([turned.real, turned.imag], -1)


@rotate.mistake(
    "NeuraLegion/shainet #111",
    symptom=(symptoms.LATER_TOKENS_WRONG, symptoms.LOADED_WEIGHTS),
)
def takes_neighbours_for_pairs(x, positions, base=10_000.0):
    """A model trained with this code works. Weights from elsewhere give a
    sensible word or two, then garbage.
    cause: Neighbours are turned as pairs, but the weights were made for pairs
    (i, i + d/2). At position 0 nothing is turned, and near it little, so the
    start of a text hides it.
    fix: Find out which layout the weights were trained with, and turn those
    pairs; or reorder the rows of W_q and W_k."""
    angles = rotary_angles(positions, x.shape[-1], base=base)
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    turned = [first * cos - second * sin, first * sin + second * cos]
    return torch.stack(turned, -1).flatten(-2)


@rotate.mistake(
    "huggingface/transformers #47328, facebookresearch/vjepa2 #15",
    symptom=symptoms.WRONG_NUMBERS,
)
def lays_the_angles_out_for_the_other(x, positions, base=10_000.0):
    """Vectors change their norm, and scores depend on where the text stands,
    not on distances alone.
    cause: The pairs are those of one layout, the angles are laid out for the
    other: the two components of a pair are turned by different angles.
    fix: Half layout: angles (θ₀, θ₁, …, θ₀, θ₁, …). Interleaved: (θ₀, θ₀, θ₁,
    θ₁, …)."""
    angles = rotary_angles(positions, x.shape[-1], base=base)
    angles = angles.repeat_interleave(2, -1)
    first, second = x.chunk(2, -1)
    across = torch.cat([-second, first], -1)
    return x * angles.cos() + across * angles.sin()


@task(
    against="complex numbers and torch's attention",
    within=1e-6,
    gradients=True,
    cases={
        "nothing to turn": (*randns(*[(1, 1, 2, 2)] * 3, seed=10), ints(0, 0)),
        "two tokens": (*randns(*[(1, 1, 2, 2)] * 3, seed=13), ints(0, 1)),
        "three heads": (*randns(*[(1, 3, 2, 4)] * 3, seed=16), ints(0, 1)),
        "tokens that do not start at 0": (
            *randns(*[(1, 2, 3, 6)] * 3, seed=19),
            ints(3, 4, 5),
        ),
        "other positions a sequence": (
            *randns(*[(2, 3, 4, 6)] * 3, seed=22),
            ints([0, 0, 1, 2], [0, 1, 2, 3]),
        ),
        "neighbours far out": (
            *randns(*[(1, 1, 3, 2)] * 3, seed=25),
            ints(3, 4096, 4097),
        ),
        "17 texts of 17 heads": (
            *randns(*[(17, 17, 2, 4)] * 3, seed=28),
            torch.arange(34).reshape(17, 2),
        ),
        "131 tokens, 65 pairs": (
            *randns(*[(1, 1, 131, 130)] * 3, seed=31),
            torch.arange(131),
        ),
    },
)
def rotary_attention(q, k, v, positions):
    """the context of attention, queries and keys rotated in the half layout,
    angles as rotary_angles gives them, no mask"""
    q, k = (rotate(x, positions[..., None, :]) for x in (q, k))
    return F.scaled_dot_product_attention(q, k, v)


@rotary_attention.mistake(
    "lucidrains/x-transformers #182", symptom=symptoms.TRAINS_BADLY
)
def rotates_the_values_too(q, k, v, positions):
    """The model trains. But the context now depends on where the text starts,
    which rotary positions were to avoid.
    cause: Queries, keys and values come out of one projection and are turned
    together. A value is not compared with anything that could undo the turn.
    fix: Turn queries and keys only.
    hint: Add 7 to all positions. Does your result change?"""
    q, k, v = (rotate(x, positions[..., None, :]) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v)


@rotary_attention.mistake(
    "facebookresearch/xformers #841, mlfoundations/open_lm #4",
    symptom=symptoms.TRAINS_BADLY,
)
def rotates_along_the_heads(q, k, v, positions):
    """No error, and training goes on, but the layer does not know the order of
    the tokens.
    cause: The positions are counted along the axis of the heads: the tensor is
    (B, H, T, d) where the code expects (B, T, H, d), or the other way round.
    All tokens of a head are turned alike.
    fix: Name the axes beside the code, and try it with H ≠ T; two tokens that
    trade places must change the result.
    hint: Do your angles vary, and along which axis of your tensor?"""
    heads = torch.arange(q.shape[-3]).to(q.device)[:, None]  # (H, 1)
    q, k = rotate(q, heads), rotate(k, heads)
    return F.scaled_dot_product_attention(q, k, v)


_WEIGHTS = {
    "one head of width six": (f64(*range(6))[:, None], 1),
    "two heads of width four": (randn(8, 3, seed=30), 2),
    "three heads of width six": (randn(18, 5, seed=31), 3),
    "twelve heads of width four": (randn(48, 3, seed=32), 12),
    "17 heads of width eight, 130 wide": (randn(136, 130, seed=33), 17),
}


@task(against="a loop over heads", cases=_WEIGHTS)
def to_half_layout(weight, n_heads):
    """the rows of W_q or W_k, (H·d, d_in), reordered within each head from the
    interleaved layout to the half one"""
    rows = []
    for head in weight.chunk(n_heads):
        rows += [*head[0::2], *head[1::2]]
    return torch.stack(rows)


@to_half_layout.mistake(
    "ggml-org/llama.cpp #3364, huggingface/transformers #31788",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.LOADED_WEIGHTS),
)
def reorders_across_heads(weight, n_heads):
    """Right for a model with one head; with several, the output is garbage.
    cause: All rows are reordered at once, and move from one head to another.
    fix: Cut the rows into heads, reorder within each, put them together
    again.
    hint: In which rows does the second head stand, before and after?"""
    return torch.cat([weight[0::2], weight[1::2]])


@task(
    against="a product of complex numbers",
    within=1e-6,
    gradients=True,
    cases={
        "a pair of four": (_FOUR, ints(1), 2),
        "all of it": (randn(3, 4, seed=42), ints(0, 1, 2), 4),
        "four of ten, several heads": (
            randn(2, 3, 5, 10, seed=44),
            ints(*range(5)),
            4,
        ),
        "two texts, one far out": (
            randn(2, 3, 2, 4, seed=45),
            ints([[0, 1]], [[4096, 4097]]),
            2,
        ),
        "twelve of sixteen": (randn(2, 16, seed=46), ints(3, 4), 12),
        "130 of 136, 131 positions": (
            randn(131, 136, seed=47),
            torch.arange(131),
            130,
        ),
        "17 texts of 17 heads": (
            randn(17, 17, 2, 6, seed=48),
            torch.arange(34).reshape(17, 1, 2),
            4,
        ),
    },
)
def rotate_some(x, positions, width):
    """the first `width` components rotated as a head of that width, in the
    half layout, and the others left as they are"""
    turned = rotate(x[..., :width], positions)
    return torch.cat([turned, x[..., width:]], -1)


@task(
    against="powers of two, one by one",
    home="positions.alibi_slopes",
    cases={f"{n} heads": (n,) for n in (1, 2, 8, 3, 6, 7, 12, 16, 40)},
)
def alibi_slopes(n_heads):
    """2^(−8h / H) for h = 1 … H where H is a power of two; else those of the
    power below, then every other one of the power above: (H,)"""
    whole = 2 ** math.ceil(math.log2(n_heads))
    slopes = [2 ** (-8 * h / whole) for h in range(1, whole + 1)]
    if whole > n_heads:
        slopes = (slopes[1::2] + slopes[0::2])[:n_heads]
    return torch.tensor(slopes, dtype=torch.float64)


@alibi_slopes.mistake(
    "paiml/aprender #2143",
    symptom=(symptoms.WRONG_SHARPNESS, symptoms.LOADED_WEIGHTS),
)
def counts_the_heads_from_zero(n_heads):
    """Every head is more short-sighted than it was trained to be; loaded
    weights give worse predictions, not absurd ones.
    cause: The heads are counted from 0, so that the first slope is 1. The
    paper's first slope is the ratio of the sequence itself.
    fix: 2^(−8h / H) with h from 1 to H: for 8 heads, 1/2 to 1/256."""
    whole = 2 ** (n_heads.bit_length() - 1)
    first = [2 ** (-8 * h / whole) for h in range(whole)]
    more = [2 ** (-4 * h / whole) for h in range(2 * whole)][0::2]
    slopes = [*first, *more[: n_heads - whole]]
    return torch.tensor(slopes, dtype=torch.float64)


@task(
    against="a loop over pairs",
    home="positions.alibi_bias",
    cases={
        "one head, two tokens": (1, ints(0, 1), ints(0, 1)),
        "a new query": (2, ints(4), ints(0, 1, 2, 3, 4)),
        # The slopes of eight heads are exact in a float32 too.
        "eight heads, other positions a sequence": (
            8,
            ints([1, 2], [300, 5003]),
            ints([0, 1, 2], [2, 3, 301]),
        ),
        "131 queries, 137 keys": (2, torch.arange(6, 137), torch.arange(137)),
        "17 texts": (
            8,
            torch.arange(34).reshape(17, 2),
            torch.arange(51).reshape(17, 3),
        ),
        "64 queries, 128 keys, eight heads": (
            8,
            torch.arange(64, 128),
            torch.arange(128),
        ),
    },
)
def alibi_bias(n_heads, queries, keys):
    """−slope × (query's position − key's position): (..., H, T, S)"""

    def one(q, k):
        return [
            [[m * (b - a) for b in k] for a in q]
            for m in alibi_slopes(n_heads).tolist()
        ]

    if queries.ndim == 1:
        found = one(queries.tolist(), keys.tolist())
    else:
        pairs = zip(queries.tolist(), keys.tolist())
        found = [one(q, k) for q, k in pairs]
    return torch.tensor(found, dtype=torch.float64).to(queries.device)


@alibi_bias.mistake(
    "meta-pytorch/attention-gym #86", symptom=symptoms.WRONG_SHARPNESS
)
def rewards_the_distance(n_heads, queries, keys):
    """The model prefers what is far away, and the more the longer the text.
    cause: The distance is added, not subtracted: a penalty has become a
    reward.
    fix: slope × (key − query), which is 0 for the token itself and negative
    for all before it."""
    slopes = alibi_slopes(n_heads).to(queries.device)
    distance = queries[..., :, None] - keys[..., None, :]
    return slopes[:, None, None] * distance[..., None, :, :]


@task(
    against="counting token by token",
    cases={
        "nothing yet, one new token": (marks(""), 1),
        "three tokens, one new": (marks("111"), 1),
        "padding on the left, one new": (marks("00111"), 1),
        "three texts, twelve new tokens each": (
            marks("00111", "11111", "00001"),
            12,
        ),
        "300 tokens, some of them padding": (
            marks("1" * 300, "0" * 43 + "1" * 257),
            2,
        ),
        "17 texts, 131 new tokens": (
            marks(*["011", "111", "001"] * 5, "111", "000"),
            131,
        ),
        "rows of 16, 32, 64 and 128, of 15 and 17": (
            marks(
                *("0" * (128 - n) + "1" * n for n in (16, 32, 64, 128, 15, 17))
            ),
            16,
        ),
    },
)
def new_positions(real, n_new):
    """the positions of n_new tokens that follow each text of a batch padded on
    the left, (B, n_new), counted over real tokens"""
    rows = []
    for row in real.tolist():
        first = sum(bool(r) for r in row)
        rows.append(list(range(first, first + n_new)))
    return torch.tensor(rows, device=real.device)


@new_positions.mistake(
    "ml-explore/mlx-lm #93, Blaizzy/mlx-vlm #1983",
    symptom=(symptoms.LATER_TOKENS_WRONG, symptoms.BAD_TEXT),
    not_looked_up="Blaizzy/mlx-vlm #1983",
)
def numbers_the_new_tokens_from_zero(real, n_new):
    """The first word comes out right, then the text circles or falls apart:
    each new token believes that it opens the text.
    cause: With a cache only the new tokens are handed to the model, and it
    numbers what it is handed from 0.
    fix: Start counting at the number of tokens that are in the cache."""
    return torch.arange(n_new).to(real.device).expand(len(real), n_new)


@new_positions.mistake(
    "huggingface/transformers #18478, keras-team/keras-hub #571",
    symptom=symptoms.WRONG_IN_A_BATCH,
)
def goes_on_from_the_padding(real, n_new):
    """Alone, a text is continued as it should be; in a batch of longer texts
    it is continued otherwise.
    cause: The positions go on from the number of columns, padding included.
    fix: Count the real tokens of each row: real.sum(-1)."""
    new = real.shape[1] + torch.arange(n_new).to(real.device)
    return new.expand(len(real), n_new)


@task(
    against="a loop over positions",
    within=1e-6,
    cases={
        "as long as trained": (ints(3, 7), 4, 8, 8),
        "twice as long as trained": (ints(0, 1, 2), 4, 8, 16),
        "shorter than trained": (ints(3, 5), 4, 8, 6),
        "two and a half times": (ints([5, 7], [2, 6]), 10, 6, 15),
        "one pair, far out": (ints(4097), 2, 4096, 8192),
        "six pairs": (ints(9), 12, 8, 16),
        "17 texts of 131 positions": (
            torch.arange(17 * 131).reshape(17, 131),
            2,
            1000,
            2000,
        ),
        "65 pairs": (ints(5, 131), 130, 8, 16),
        "128 positions, 64 pairs": (torch.arange(128, 256), 128, 128, 256),
    },
)
def interpolated_angles(positions, width, trained, wanted):
    """the angles of rotary_angles, all positions shrunk by trained / wanted if
    more tokens are wanted than trained, else as they are"""
    shrink = min(1.0, trained / wanted)
    return rotary_angles(positions, width) * shrink
