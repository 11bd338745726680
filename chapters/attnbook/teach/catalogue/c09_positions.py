"""Chapter 9, positions: tasks and known mistakes."""

import math

import torch
import torch.nn.functional as F

from attnbook.teach.mistakes import mistake
from attnbook.teach.proof import Case
from attnbook.teach.seeded import randn
from attnbook.teach.tasks import task


def _places(*numbers):
    return torch.tensor(numbers)


# ---- angles and waves


def _angle_cases():
    return [
        Case("position 1, one pair", (_places(1), 2)),
        Case("three positions, two pairs", (_places(0, 1, 2), 4)),
        Case("positions around 256", (_places(255, 256, 257, 1001), 8)),
        Case(
            "a batch of positions, another base",
            (_places([0, 0, 1], [3, 4, 5]), 6),
            {"base": 500.0},
        ),
    ]


@task(
    chapter=9,
    wanted="the angle p · base^(−2i / width) of each pair i at each "
    "position p: (..., T, width / 2)",
    cases=_angle_cases,
    home="positions.rotary_angles",
)
def rotary_angles(positions, width, *, base=10_000.0):
    angles = [
        [p / base ** (2 * i / width) for i in range(width // 2)]
        for p in positions.flatten().tolist()
    ]
    angles = torch.tensor(angles, dtype=torch.float64)
    angles = angles.to(positions.device)
    return angles.reshape(*positions.shape, width // 2)


@mistake(
    task=rotary_angles,
    symptom="Short texts come out nearly right. From position 256 on, "
    "neighbours begin to share one position, and the model cannot tell them "
    "apart.",
    cause="The whole model is converted to bfloat16, and the positions with "
    "it. It has 8 significant bits: 257 is rounded to 256.",
    fix="Compute angles, sine and cosine in float32 or better; convert the "
    "result.",
    hint="Which whole numbers are there in the type that you compute in?",
    seen="EleutherAI/gpt-neox #1016, huggingface/transformers #29285",
)
def angles_in_half_precision(positions, width, *, base=10_000.0):
    pair = torch.arange(0, width, 2).to(positions.device)
    frequencies = (base ** (-pair / width)).bfloat16()
    return (positions[..., None].bfloat16() * frequencies).double()


def _wave_cases():
    return [
        Case("position 0, two pairs", (_places(0), 4)),
        Case("two positions, two pairs", (_places(1, 2), 4)),
        Case("positions that are not in a row", (_places(7, 3, 40), 6)),
        Case(
            "a batch of positions, another base",
            (_places([0, 0, 1], [3, 4, 5]), 8),
            {"base": 100.0},
        ),
    ]


@task(
    chapter=9,
    wanted="sin(p / base^(2i / width)) in component 2i and the cosine of "
    "the same angle in component 2i + 1: (..., T, width)",
    cases=_wave_cases,
    home="positions.sinusoidal",
)
def sinusoidal(positions, width, *, base=10_000.0):
    rows = []
    for p in positions.flatten().tolist():
        row = []
        for i in range(width // 2):
            angle = p / base ** (2 * i / width)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    waves = torch.tensor(rows, dtype=torch.float64).to(positions.device)
    return waves.reshape(*positions.shape, width)


@mistake(
    task=sinusoidal,
    symptom="Position 0 is right, and a plot looks right: stripes that grow "
    "wider. But a step is no rotation any more.",
    cause="In 2i / d the letter i numbers the pairs. Taken for the number "
    "of the column, it gives sine and cosine of a pair different "
    "frequencies.",
    fix="One frequency a pair: base^(−2i / d) for i = 0, 1, … d/2 − 1, used "
    "by the sine and by the cosine.",
    hint="Are the squares of component 2i and of component 2i + 1 one when "
    "you add them?",
    seen="jadore801120/attention-is-all-you-need-pytorch #32, "
    "SamLynnEvans/Transformer #25",
)
def gives_every_column_its_own_wave(positions, width, *, base=10_000.0):
    column = torch.arange(width).to(positions.device)
    waves = positions[..., None] / base ** (2 * column.double() / width)
    waves[..., 0::2] = waves[..., 0::2].sin()
    waves[..., 1::2] = waves[..., 1::2].cos()
    return waves


@mistake(
    task=sinusoidal,
    symptom="All pairs of components hold the same wave, and after about 44 "
    "tokens the positions nearly repeat.",
    cause="The exponent 2i / d is divided in whole numbers, so it is 0 for "
    "every pair.",
    fix="Divide with /, not with //, and mind languages in which / between "
    "integers rounds down.",
    hint="How many different waves does your result hold?",
    seen="Kyubyong/transformer #81",
)
def divides_in_whole_numbers(positions, width, *, base=10_000.0):
    pair = torch.arange(0, width, 2).to(positions.device)
    angles = positions[..., None].double() / base ** (pair // width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


# ---- rotation


def _rotate_cases():
    two = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    four = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    quarter = torch.tensor([[math.pi / 2, 0.0]], dtype=torch.float64)
    a_place_each = (randn(2, 3, 5, 8, seed=5), randn(2, 1, 5, 4, seed=6))
    return [
        Case("one pair, a quarter turn", (two, quarter[:, :1])),
        Case("a quarter turn of the first of two pairs", (four, quarter)),
        Case(
            "the same, interleaved", (four, quarter), {"layout": "interleaved"}
        ),
        Case("several heads", (randn(3, 5, 6, seed=1), randn(5, 3, seed=2))),
        Case("other angles a sequence", a_place_each),
        Case(
            "other angles a sequence, interleaved",
            a_place_each,
            {"layout": "interleaved"},
        ),
    ]


@task(
    chapter=9,
    wanted="each pair of components turned by its angle; a pair is (i, "
    "i + d/2) in the half layout, (2i, 2i + 1) in the interleaved one",
    cases=_rotate_cases,
    gradients=True,
    home="positions.rotate",
)
def rotate(x, angles, *, layout="half"):
    if layout == "half":
        a, b = x.chunk(2, -1)
    else:
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.complex(a, b) * torch.polar(torch.ones_like(angles), angles)
    if layout == "half":
        return torch.cat([turned.real, turned.imag], -1)
    return torch.stack([turned.real, turned.imag], -1).flatten(-2)


@mistake(
    task=rotate,
    symptom="A model that was trained so works. Weights from elsewhere give "
    "a sensible word or two, then garbage.",
    cause="Neighbours are turned as pairs, but the weights were made for "
    "pairs (i, i + d/2). At position 0 nothing is turned, and near it "
    "little, so the start of a text hides it.",
    fix="Find out which layout the weights were trained with, and turn "
    "those pairs; or reorder the rows of W_q and W_k.",
    hint="Which two components does your code mix, and which does the "
    "layout say?",
    seen="NeuraLegion/shainet #111, rasbt/LLMs-from-scratch #838",
)
def takes_neighbours_for_pairs(x, angles, *, layout="half"):
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
    return turned.flatten(-2)


@mistake(
    task=rotate,
    symptom="Vectors change their length, and scores depend on where the "
    "text stands, not on distances alone.",
    cause="The pairs are those of one layout, the angles are laid out for "
    "the other: the two components of a pair are turned by different angles.",
    fix="Half layout: angles (θ₀, θ₁, …, θ₀, θ₁, …). Interleaved: "
    "(θ₀, θ₀, θ₁, θ₁, …).",
    hint="Is your vector as long after the turn as before?",
    seen="asked for in huggingface/transformers #40462",
)
def lays_the_angles_out_for_the_other(x, angles, *, layout="half"):
    if layout == "half":
        angles = angles.repeat_interleave(2, -1)
        a, b = x.chunk(2, -1)
        partner = torch.cat([-b, a], -1)
    else:
        angles = torch.cat([angles, angles], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        partner = torch.stack([-b, a], -1).flatten(-2)
    return x * angles.cos() + partner * angles.sin()


def _angles(positions, width):
    """The right angles, from numbers alone."""
    return rotary_angles(positions, width)


def _rotary_cases():
    def qkv(*size, seed):
        return tuple(randn(*size, seed=seed + n) for n in range(3))

    return [
        Case("one token", (*qkv(1, 1, 1, 2, seed=10), _places(0))),
        Case("two tokens", (*qkv(1, 1, 2, 2, seed=13), _places(0, 1))),
        Case(
            "three heads, two tokens",
            (*qkv(1, 3, 2, 4, seed=16), _places(0, 1)),
        ),
        Case(
            "two heads, five tokens that do not start at 0",
            (*qkv(1, 2, 5, 6, seed=19), _places(3, 4, 5, 6, 7)),
        ),
        Case(
            "other positions a sequence",
            (*qkv(2, 3, 4, 6, seed=22), _places([0, 0, 1, 2], [0, 1, 2, 3])),
        ),
    ]


@task(
    chapter=9,
    wanted="the context of attention, queries and keys rotated in the half "
    "layout, angles as rotary_angles gives them, no mask",
    cases=_rotary_cases,
    gradients=True,
)
def rotary_attention(q, k, v, positions):
    angles = _angles(positions, q.shape[-1])[..., None, :, :]
    q, k = rotate(q, angles), rotate(k, angles)
    return F.scaled_dot_product_attention(q, k, v)


@mistake(
    task=rotary_attention,
    symptom="The model trains. But the context now depends on where the "
    "text starts, which rotary positions were to avoid.",
    cause="Queries, keys and values come out of one projection and are "
    "turned together. A value is not compared with anything that could undo "
    "the turn.",
    fix="Turn queries and keys only.",
    hint="Add 7 to all positions. Does your result change?",
    seen="lucidrains/x-transformers #182",
)
def rotates_the_values_too(q, k, v, positions):
    angles = _angles(positions, q.shape[-1])[..., None, :, :]
    q, k, v = (rotate(x, angles) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v)


@mistake(
    task=rotary_attention,
    symptom="No error, and training goes on, but the layer does not know "
    "the order of the tokens.",
    cause="The positions are counted along the axis of the heads: the "
    "tensor is (B, H, T, d) where the code expects (B, T, H, d), or the "
    "other way round. All tokens of a head are turned alike.",
    fix="Name the axes beside the code, and try it with H ≠ T; two tokens "
    "that trade places must change the result.",
    hint="Which axis of your tensor do the angles vary along?",
    seen="facebookresearch/xformers #841, mlfoundations/open_lm #4",
)
def rotates_along_the_heads(q, k, v, positions):
    heads = torch.arange(q.shape[-3]).to(q.device)
    angles = _angles(heads, q.shape[-1])[:, None, :]  # (H, 1, d/2)
    q, k = rotate(q, angles), rotate(k, angles)
    return F.scaled_dot_product_attention(q, k, v)


# ---- layouts


def _weight_cases():
    rows = torch.arange(6, dtype=torch.float64)[:, None]
    return [
        Case("one head of width six", (rows, 1)),
        Case("two heads of width four", (randn(8, 3, seed=30), 2)),
        Case("three heads of width six", (randn(18, 5, seed=31), 3)),
    ]


@task(
    chapter=9,
    wanted="the rows of W_q or W_k, (H·d, d_in), reordered within each head "
    "from the interleaved layout to the half one",
    cases=_weight_cases,
)
def to_half_layout(weight, n_heads):
    rows = []
    for head in weight.chunk(n_heads):
        rows += [*head[0::2], *head[1::2]]
    return torch.stack(rows)


@mistake(
    task=to_half_layout,
    symptom="Right for a model with one head; with several, the output is "
    "garbage.",
    cause="All rows are reordered at once, and move from one head to another.",
    fix="Cut the rows into heads, reorder within each, put them together "
    "again.",
    hint="Number the rows. Which of them does the first head get?",
    seen="a wrong number of heads: huggingface/transformers #31788",
)
def reorders_across_heads(weight, n_heads):
    return torch.cat([weight[0::2], weight[1::2]])


@task(
    chapter=9,
    wanted="the rows of W_q or W_k, (H·d, d_in), reordered within each head "
    "from the half layout to the interleaved one",
    cases=_weight_cases,
)
def to_interleaved_layout(weight, n_heads):
    rows = []
    for head in weight.chunk(n_heads):
        front, back = head.chunk(2)
        for pair in zip(front, back):
            rows += pair
    return torch.stack(rows)


def _part_cases():
    return [
        Case("a pair of four", (randn(1, 4, seed=40), randn(1, 1, seed=41))),
        Case("all of it", (randn(3, 4, seed=42), randn(3, 2, seed=43))),
        Case(
            "four of ten, several heads",
            (randn(2, 3, 5, 10, seed=44), randn(5, 2, seed=45)),
        ),
    ]


@task(
    chapter=9,
    wanted="the first components, two for each angle, rotated in the half "
    "layout, and the others left as they are",
    cases=_part_cases,
    gradients=True,
)
def rotate_some(x, angles):
    width = 2 * angles.shape[-1]
    turned = rotate(x[..., :width], angles)
    return torch.cat([turned, x[..., width:]], -1)


# ---- ALiBi


@task(
    chapter=9,
    wanted="2^(−8h / H) for h = 1 … H where H is a power of two; else those "
    "of the power below, then every other one of the power above: (H,)",
    cases=lambda: [Case(f"{n} heads", (n,)) for n in (1, 2, 8, 3, 6, 12, 16)],
    home="positions.alibi_slopes",
)
def alibi_slopes(n_heads):
    whole = 2 ** math.ceil(math.log2(n_heads))
    slopes = [2 ** (-8 * h / whole) for h in range(1, whole + 1)]
    if whole > n_heads:
        slopes = (slopes[1::2] + slopes[0::2])[:n_heads]
    return torch.tensor(slopes, dtype=torch.float64)


@mistake(
    task=alibi_slopes,
    symptom="Every head is more short-sighted than it was trained to be; "
    "loaded weights give worse predictions, not absurd ones.",
    cause="The heads are counted from 0, so that the first slope is 1. The "
    "paper's first slope is the ratio of the sequence itself.",
    fix="2^(−8h / H) with h from 1 to H: for 8 heads, 1/2 to 1/256.",
    hint="For 8 heads, what is your largest slope, and your smallest?",
    seen="paiml/aprender #2143",
)
def counts_the_heads_from_zero(n_heads):
    whole = 2 ** (n_heads.bit_length() - 1)
    first = [2 ** (-8 * h / whole) for h in range(whole)]
    more = [2 ** (-4 * h / whole) for h in range(2 * whole)][0::2]
    slopes = [*first, *more[: n_heads - whole]]
    return torch.tensor(slopes, dtype=torch.float64)


def _bias_cases():
    return [
        Case("one head, two tokens", (1, _places(0, 1), _places(0, 1))),
        Case("a new query", (2, _places(4), _places(0, 1, 2, 3, 4))),
        Case(
            "six heads, other positions a sequence",
            (6, _places([1, 2], [3, 4]), _places([0, 1, 2], [2, 3, 4])),
        ),
    ]


@task(
    chapter=9,
    wanted="−slope × (query's position − key's position): (..., H, T, S)",
    cases=_bias_cases,
    home="positions.alibi_bias",
)
def alibi_bias(n_heads, queries, keys):
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


@mistake(
    task=alibi_bias,
    symptom="The model prefers what is far away, and the more the longer "
    "the text.",
    cause="The distance is added, not subtracted: a penalty has become a "
    "reward.",
    fix="slope × (key − query), which is 0 for the token itself and "
    "negative for all before it.",
    hint="Is the bias of the token just before the query larger or smaller "
    "than that of the first token?",
    seen="meta-pytorch/attention-gym #86",
)
def rewards_the_distance(n_heads, queries, keys):
    slopes = alibi_slopes(n_heads).to(queries.device)
    distance = queries[..., :, None] - keys[..., None, :]
    return slopes[:, None, None] * distance[..., None, :, :]


# ---- positions of new tokens


def _new_cases():
    left = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
    return [
        Case("nothing yet, one new token", (left[:1, :0].bool(), 1)),
        Case("three tokens, one new", (torch.ones(1, 3).bool(), 1)),
        Case("padding on the left, one new", (left[:1].bool(), 1)),
        Case("three texts, four new tokens each", (left.bool(), 4)),
    ]


@task(
    chapter=9,
    wanted="the positions of n_new tokens that follow each text of a batch "
    "padded on the left, (B, n_new), counted over real tokens",
    cases=_new_cases,
)
def new_positions(real, n_new):
    rows = []
    for row in real.tolist():
        first = sum(bool(r) for r in row)
        rows.append(list(range(first, first + n_new)))
    return torch.tensor(rows, device=real.device)


@mistake(
    task=new_positions,
    symptom="The first word comes out right, then the text circles or falls "
    "apart: each new token believes that it opens the text.",
    cause="With a cache only the new tokens are handed to the model, and it "
    "numbers what it is handed from 0.",
    fix="Start counting at the number of tokens that are in the cache.",
    hint="How many tokens stand before the first new one?",
    seen="Blaizzy/mlx-vlm #1983; d2l-ai/d2l-en, in its source",
)
def numbers_the_new_tokens_from_zero(real, n_new):
    return torch.arange(n_new).to(real.device).expand(len(real), n_new)


@mistake(
    task=new_positions,
    symptom="Alone, a text is continued as it should be; in a batch of "
    "longer texts it is continued otherwise.",
    cause="The positions go on from the number of columns, padding included.",
    fix="Count the real tokens of each row: real.sum(-1).",
    hint="Do two rows with different amounts of padding get the same "
    "positions?",
    seen="huggingface/transformers #18478, keras-team/keras-hub #571",
)
def goes_on_from_the_padding(real, n_new):
    new = real.shape[1] + torch.arange(n_new).to(real.device)
    return new.expand(len(real), n_new)


@task(
    chapter=9,
    wanted="the angles of rotary_angles, all positions shrunk by trained / "
    "wanted if more tokens are wanted than trained, else as they are",
    cases=lambda: [
        Case("twice as long as trained", (_places(0, 1, 2), 4, 8, 16)),
        Case("as long as trained", (_places(3, 7), 2, 8, 8)),
        Case("shorter than trained", (_places(3, 5), 4, 8, 6)),
        # 3/4 is exact in float32: positions may be multiplied, or angles.
        Case("a third as long again", (_places([5, 7], [2, 6]), 6, 6, 8)),
    ],
)
def interpolated_angles(positions, width, trained, wanted):
    shrink = min(1.0, trained / wanted)
    return rotary_angles(positions, width) * shrink
