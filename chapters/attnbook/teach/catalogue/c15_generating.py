"""Chapter 15, generating text: tasks and known mistakes."""

import math

import torch

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, ints
from attnbook.teach.check.seeded import randn

task = tasks_of(15)


@task(
    against="math.exp, row by row",
    cases={
        "two tokens, colder": (f64(1.0, 0.0), 0.5),
        "three tokens, hotter": (f64(3.0, 1.0, -2.0), 2.0),
        "two rows, as they are": (3 * randn(2, 5, seed=1), 1.0),
        "large logits": (700 * randn(2, 3, seed=2), 0.7),
        "large logits, very hot": (
            f64([1000, 200], [-300_000, -300_160]),
            200.0,
        ),
        "17 rows of 300": (3 * randn(17, 300, seed=3), 1.3),
    },
)
def at_temperature(logits, temperature):
    """the probabilities of the next token at a temperature above 0: the
    softmax of the logits divided by it"""
    rows = []
    for row in logits.reshape(-1, logits.shape[-1]).tolist():
        top = max(row)
        parts = [math.exp((z - top) / temperature) for z in row]
        rows.append([part / math.fsum(parts) for part in parts])
    return torch.tensor(rows, dtype=logits.dtype).reshape(logits.shape)


@at_temperature.mistake(symptom=(symptoms.WRONG_SHARPNESS, symptoms.BAD_TEXT))
def divides_the_probabilities(logits, temperature):
    """The text is nonsense at every temperature, also at 1, and a lower one
    hardly helps.
    cause: The division comes after a softmax, and a second softmax follows. It
    is given numbers between 0 and 1 and makes them nearly equal.
    fix: Divide the logits, before the only softmax."""
    return (logits.softmax(-1) / temperature).softmax(-1)


@at_temperature.mistake(
    "RL-Align/RL-Kernel #81",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.WRONG_SHARPNESS),
)
def divides_twice(logits, temperature):
    """At temperature 1 all is well, so the tests pass. Every other value does
    too much: 0.5 acts like 0.25.
    cause: Two layers of a program each divide by the temperature, so that the
    logits are divided by its square.
    fix: Divide in one place, and test it with a temperature other than 1."""
    logits = logits / temperature
    return (logits / temperature).softmax(-1)


_TABLE = f64([0.5, 0.25, 0.25], [0.1, 0.6, 0.3])
_GAPS = f64([0.0, 0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0])
_ALMOST = 1 - 2.0**-53
_TENTHS = f64([0.1] * 10 + [0.0])  # their running sum ends at _ALMOST
_FIVES = randn(131, 5, seed=18)


def _peaked(B, V):
    """Logits (B, V) with five tokens that count, e times as likely each as the
    next, somewhere in each row: in no format of numbers it is close which of
    them are out."""
    logits = torch.full((B, V), -5.0, dtype=torch.float64)
    for n in range(5):
        places = (37 * torch.arange(B) + 53 * n) % V
        logits[torch.arange(B), places] = 10.0 - n
    return logits


@task(
    against="a running sum, token by token",
    home="generate.draw",
    cases={
        "two rows of three": (_TABLE, f64(0.6, 0.05)),
        "a step's very edge": (_TABLE[:1], f64(0.5)),
        "impossible first tokens, u = 0": (_GAPS, f64(0.0, 0.0)),
        "u just below 1": (_GAPS, f64(_ALMOST, _ALMOST)),
        "a sum that rounding keeps below 1": (_TENTHS, f64(_ALMOST)),
        "two such sums with other ends": (
            torch.cat([_TENTHS, _TENTHS.roll(1, -1)]),
            f64(_ALMOST, _ALMOST),
        ),
        "seven rows": (
            randn(7, 9, seed=3).softmax(-1),
            f64(0, 0.2, 0.3, 0.5, 0.6, 0.8, 0.99),
        ),
        "17 rows of 300": (
            randn(17, 300, seed=4).softmax(-1),
            torch.arange(17) / 17.0,
        ),
    },
)
def draw(probabilities, chance):
    """a token a row, (B,): the first at which the running sum of the
    probabilities (B, V) is above the row's chance (B,), in [0, 1); where
    rounding leaves none, the last whose probability is above 0"""
    tokens = []
    for row, wanted in zip(probabilities.tolist(), chance.tolist()):
        so_far = 0.0
        found = 0
        for token, probability in enumerate(row):
            if probability > 0 and so_far <= wanted:
                found = token
            so_far += probability
        tokens.append(found)
    return torch.tensor(tokens)


@draw.mistake("pytorch/pytorch #48841", symptom=symptoms.BAD_TEXT)
def draws_what_cannot_be(probabilities, chance):
    """Once in a very long time a token comes that has the probability 0.
    cause: The search takes the first token at which the running sum reaches
    the chance. A chance of exactly 0 is reached before anything counts.
    fix: Take the first running sum that is above the chance: right=True in
    torch.searchsorted."""
    reached = probabilities.double().cumsum(-1)
    wanted = chance.double()[:, None] * reached[:, -1:]
    return torch.searchsorted(reached, wanted)[:, 0]


@draw.mistake(
    "turboderp-org/exllamav2 #186", symptom=symptoms.WRONG_IN_A_BATCH
)
def one_chance_for_all(probabilities, chance):
    """Each text alone looks fine, but those of one batch are nearly alike.
    cause: One random number serves all rows of the batch.
    fix: Draw a number for each row."""
    reached = probabilities.double().cumsum(-1)
    wanted = chance.double()[:1, None] * reached[:, -1:]
    return torch.searchsorted(reached, wanted, right=True)[:, 0]


def _warped(logits, name, option):
    """What transformers' class of this name makes of logits (..., V)."""
    from transformers.generation import logits_process

    rows = logits.reshape(-1, logits.shape[-1])
    warper = getattr(logits_process, name)(option)
    return warper(None, rows).reshape(logits.shape)


@task(
    against="transformers' TopKLogitsWarper",
    home="generate.keep_top_k",
    cases={
        "one of three": (f64(2.0, 5.0, 1.0), 1),
        "two of four, two of them equal": (f64(1.0, 3.0, 1.0, 0.0), 2),
        "more than there are": (f64(1.0, 3.0), 5),
        "more than are left": (f64(2.0, -math.inf, 1.0), 3),
        "two rows, near each other": (randn(2, 30, seed=4) / 1000 - 8, 12),
        "17 rows of 300, half of them stay": (randn(17, 300, seed=5), 150),
    },
)
def keep_top_k(logits, k):
    """the logits (..., V), −∞ everywhere but at the k largest, and at those
    that equal the last of them"""
    return _warped(logits, "TopKLogitsWarper", k)


@keep_top_k.mistake(
    "kingoflolz/mesh-transformer-jax #164",
    symptom=(symptoms.DIFFERS_EACH_TIME, symptoms.BAD_TEXT),
)
def keeps_one_more(logits, k):
    """With k = 1, which should be greedy, the text still changes from run to
    run.
    cause: Counting from 0, everything up to place k is kept: k + 1 tokens.
    fix: Counted from 0, place k and all behind it are out."""
    rank = logits.argsort(dim=-1, descending=True, stable=True)
    rank = rank.argsort(dim=-1)
    return logits.masked_fill(rank > k, -torch.inf)


@task(
    against="transformers' TopPLogitsWarper",
    home="generate.keep_top_p",
    cases={
        "the second reaches it": (f64(0.5, 0.41, 0.09).log(), 0.9),
        "not in order": (f64(0.1, 0.2, 0.6, 0.1).log(), 0.7),
        "one alone is above it": (f64(0.05, 0.9, 0.05).log(), 1e-17),
        "two rows": (2 * randn(2, 7, seed=5), 0.8),
        "everything": (randn(2, 4, seed=6), 0.999999),
        "p near 1: two are out": (f64(0.0, -8.0, -9.0), 0.999),
        "p = 1: nothing is out": (f64(0.0, -40.0, -45.0), 1.0),
        "17 rows of 300": (_peaked(17, 300), 0.8),
        "p = 1: none of 300 is out": (randn(300, seed=7), 1.0),
    },
)
def keep_top_p(logits, p):
    """the logits (..., V), −∞ outside the smallest set of likeliest tokens
    whose probabilities reach p; at p = 1 all tokens stay, however unlikely"""
    return _warped(logits, "TopPLogitsWarper", p)


@keep_top_p.mistake(
    "rasbt/reasoning-from-scratch #164, aws-neuron/transformers-neuronx #46",
    symptom=symptoms.BAD_TEXT,
)
def drops_the_one_that_reaches_p(logits, p):
    """The text is duller than top-p should make it: of 0.5, 0.41 and 0.09 with
    p = 0.9 only the first is left.
    cause: A token is kept if the running sum, its own probability included, is
    at most p. So the token that reaches p is dropped.
    fix: Look at the sum before the token: it is out if the likelier ones reach
    p without it."""
    ordered, order = logits.sort(descending=True, stable=True)
    keep = ordered.softmax(-1).cumsum(-1) <= p
    keep[..., 0] = True
    keep = torch.zeros_like(keep).scatter(-1, order, keep)
    return logits.masked_fill(~keep, -torch.inf)


@keep_top_p.mistake("skyzh/tiny-llm #32", symptom=symptoms.NAN)
def leaves_nothing_where_sure(logits, p):
    """Where the model is sure, nothing is left to draw from, and the softmax
    of nothing is NaN.
    cause: The likeliest token has more than p by itself, and goes with the
    rest.
    fix: The likeliest token always stays."""
    ordered, order = logits.sort(descending=True, stable=True)
    keep = ordered.softmax(-1).cumsum(-1) < p
    keep = torch.zeros_like(keep).scatter(-1, order, keep)
    return logits.masked_fill(~keep, -torch.inf)


@keep_top_p.mistake(
    "lucidrains/routing-transformer #1", symptom=symptoms.BAD_TEXT
)
def gathers_where_it_should_scatter(logits, p):
    """Fluent nonsense: the values that come back are right, the words they
    belong to are not.
    cause: What was found in the order of the logits is brought back by
    gathering with that order a second time, and not by scattering.
    fix: Scatter: place order[n] gets the value at n."""
    ordered, order = logits.sort(descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    ordered = ordered.masked_fill(before >= p, -torch.inf)
    return ordered.gather(-1, order)


@task(
    against="transformers' MinPLogitsWarper",
    home="generate.keep_min_p",
    cases={
        "one of three is out": (f64(0.6, 0.35, 0.05).log(), 0.1),
        "p = 0: nothing is out": (f64(4.0, -30.0), 0.0),
        "flat: nothing is out": (f64(1.0, 1.1, 0.9, 1.0), 0.5),
        "two rows, a sharp and a flat one far below": (
            f64([4], [1]) * randn(2, 7, seed=7) - f64([9], [1000]),
            0.2,
        ),
        "p = 1: the likeliest two stay": (f64(2.0, 1.0, 2.0), 1.0),
        "17 rows of 300": (_peaked(17, 300), 0.2),
    },
)
def keep_min_p(logits, p):
    """the logits (..., V), −∞ at tokens with less than p times the probability
    of the likeliest"""
    return _warped(logits, "MinPLogitsWarper", p)


@keep_min_p.mistake("state-spaces/mamba #1010", symptom=symptoms.BAD_TEXT)
def compares_logits(logits, p):
    """How many tokens stay depends on where the logits happen to lie: add 10
    to all of them, which changes no probability, and others stay.
    cause: The logits themselves are compared with p times the largest one.
    fix: Take the softmax first, and compare probabilities."""
    return logits.masked_fill(
        logits < p * logits.amax(-1, keepdim=True), -torch.inf
    )


@task(
    against="a loop over numbers",
    home="generate.penalise",
    cases={
        "a positive one": (f64(2.0, 1.0), torch.tensor([True, False]), 2.0),
        "a negative one": (f64(-2.0, 1.0), torch.tensor([True, False]), 2.0),
        "two rows": (randn(2, 6, seed=8), randn(2, 6, seed=9) > 0, 1.3),
        "a reward": (randn(5, seed=10), randn(5, seed=11) > 0, 0.8),
        "17 rows of 300": (
            randn(17, 300, seed=12),
            randn(17, 300, seed=13) > 0,
            1.1,
        ),
    },
)
def penalise(logits, seen, penalty):
    """the logits (..., V), lowered where seen (..., V) is True: positive ones
    divided by the penalty, negative ones multiplied"""
    flat = [
        z if not s else z / penalty if z > 0 else z * penalty
        for z, s in zip(logits.flatten().tolist(), seen.flatten().tolist())
    ]
    return torch.tensor(flat, dtype=logits.dtype).reshape(logits.shape)


@penalise.mistake("huggingface/transformers #2302", symptom=symptoms.BAD_TEXT)
def divides_negative_logits(logits, seen, penalty):
    """The higher the penalty, the more the model repeats itself: "The dog dog
    dog dog".
    cause: A negative logit divided by a number above 1 comes nearer to 0. It
    grows.
    fix: Multiply the negative ones."""
    return torch.where(seen, logits / penalty, logits)


@task(
    against="a loop over stop tokens",
    cases={
        "one of two has ended": ([7, 2], {2}),
        "all go on": ([5, 0, 5], {1, 2, 3}),
        "two stop tokens": ([13, 3, 2, 258], {2, 13}),
        "all have ended": ([2, 2], {2}),
        "no stop token": ([2, 0], set()),
        "33 rows, twenty stop tokens": ([*range(33)], {*range(1, 41, 2)}),
    },
)
def goes_on(chosen, stop):
    """of each row, whether it goes on after the token that it has chosen: a
    list of True and False"""
    found = []
    for token in chosen:
        found.append(not any(token == one for one in stop))
    return found


@goes_on.mistake(
    "Lightning-AI/lit-llama #153", symptom=symptoms.WRONG_IN_A_BATCH
)
def ends_all_with_the_first(chosen, stop):
    """In a batch most texts break off in the middle; alone each of them is
    whole.
    cause: One row's stop token ends the loop, for all rows.
    fix: Keep account of each row by itself: it goes on or it does not."""
    return [not any(token in stop for token in chosen)] * len(chosen)


@goes_on.mistake(
    "lucidrains/h-transformer-1d #9",
    symptom=(symptoms.WRONG_IN_A_BATCH, symptoms.BAD_TEXT),
)
def waits_for_all_to_end_at_once(chosen, stop):
    """The stop token works for one text. In a batch the texts run on behind
    their end.
    cause: The loop ends when all rows choose a stop token in the same step,
    which hardly ever happens.
    fix: A row that has ended is ended, whatever the others do."""
    return [not all(token in stop for token in chosen)] * len(chosen)


@task(
    against="a loop over tokens",
    home="prompts.pad_left",
    cases={
        "one shorter": ([[5, 6], [7]],),
        "0 is a token too": ([[0, 3, 0, 2], [0], [300, 0, 1, 0]],),
        "as long": ([[1, 0], [3, 4]],),
        "one text": ([[5, 6]],),
        "17 sequences, of up to 137 tokens": (
            [[*range(n, 9 * n + 1)] for n in range(1, 18)],
        ),
        "rows of 16, 32, 64 and 128, of 15 and 17": (
            [[*range(1, n + 1)] for n in (16, 32, 64, 128, 15, 17)],
        ),
    },
)
def pad_left(sequences, *, device=None):
    """tokens (B, T), short rows filled up from the left with 0, and True at
    real tokens, (B, T), or None where all rows are as long"""
    T = max(len(s) for s in sequences)
    tokens = torch.zeros(len(sequences), T, dtype=torch.long)
    real = torch.zeros(len(sequences), T, dtype=torch.bool)
    for b, sequence in enumerate(sequences):
        for n, token in enumerate(reversed(sequence), start=1):
            tokens[b, T - n] = token
            real[b, T - n] = True
    tokens, real = tokens.to(device), real.to(device)
    return tokens, None if real.all() else real


@pad_left.mistake(
    "huggingface/transformers #3167, #14521",
    symptom=(symptoms.WRONG_IN_A_BATCH, symptoms.BAD_TEXT),
    not_looked_up="huggingface/transformers #14521",
)
def pads_on_the_right(sequences, *, device=None):
    """The longest prompt of a batch goes on as it should, the others with
    anything.
    cause: The padding stands on the right, and the next token is taken from
    the last column: there the short rows have padding.
    fix: Pad on the left, or take each row's last real column."""
    T = max(len(s) for s in sequences)
    rows = [list(s) + [0] * (T - len(s)) for s in sequences]
    tokens = torch.tensor(rows, device=device)
    lengths = torch.tensor([len(s) for s in sequences], device=device)
    if (lengths == T).all():
        return tokens, None
    return tokens, torch.arange(T, device=device) < lengths[:, None]


@pad_left.mistake("huggingface/trl #6357", symptom=symptoms.WRONG_IN_A_BATCH)
def takes_zeros_for_padding(sequences, *, device=None):
    """A prompt goes on differently as soon as the token that serves for
    padding stands in it.
    cause: Padding is told by its number. A real token with that number is
    hidden too, and the positions behind it are one too low.
    fix: Tell padding by the lengths of the prompts."""
    T = max(len(s) for s in sequences)
    rows = [[0] * (T - len(s)) + list(s) for s in sequences]
    tokens = torch.tensor(rows, device=device)
    real = tokens != 0
    return tokens, None if real.all() else real


@task(
    against="sorted lists",
    cases={
        "the second reaches it": (f64(0.5, 0.25, 0.25), 0.7),
        "one is enough": (f64(0.125, 0.875), 0.5),
        "exactly reached": (f64(0.25, 0.5, 0.25), 0.75),
        "nine tokens, not in order": (randn(9, seed=12).softmax(-1), 0.8),
        "flat": (torch.full((8,), 0.125).double(), 0.9),
        "a sum that rounding keeps below 1": (_TENTHS[0, :-1], 1.0),
        "300 tokens": (_peaked(9, 300)[8].softmax(-1), 0.9),
    },
)
def nucleus_size(probabilities, p):
    """how many tokens top-p keeps, as an int or a tensor without axes: the
    size of the smallest set of likeliest tokens whose probabilities (V,) reach
    p"""
    total = 0.0
    size = 0
    for share in sorted(probabilities.tolist(), reverse=True):
        if total >= p:
            break
        total = total + share
        size = size + 1
    return size


@nucleus_size.mistake(
    "aws-neuron/transformers-neuronx #46", symptom=symptoms.BAD_TEXT
)
def counts_up_to_p(probabilities, p):
    """One token too few, nearly always; none at all where the likeliest has
    more than p.
    cause: A token is counted if the running sum with it is at most p. The
    token that takes the sum to p or beyond belongs to the set, too.
    fix: Count where the sum before the token is below p.
    hint: Do the tokens that you counted reach p together?"""
    ordered = probabilities.sort(descending=True).values
    return int((ordered.cumsum(-1) <= p).sum())


@task(
    against="a loop over rows",
    cases={
        "one row of one": (randn(1, 1, 3, seed=13), ints(1)),
        "two rows of three and one": (randn(2, 3, 2, seed=14), ints(3, 1)),
        "nobody fills the last column": (
            randn(3, 5, 2, seed=15),
            ints(2, 4, 1),
        ),
        "rows of 300 and two": (randn(2, 301, 2, seed=16), ints(300, 2)),
        "17 rows, 131 words": (
            randn(17, 3, 131, seed=17),
            torch.arange(17) % 3 + 1,
        ),
        "rows of 16, 32, 64 and 128, of 15 and 17": (
            randn(6, 144, 2, seed=18),
            ints(16, 32, 64, 128, 15, 17),
        ),
    },
)
def last_logits(logits, lengths):
    """the logits of each row's last real token, (B, V), from logits (B, T, V)
    of a batch padded on the right, and the rows' lengths (B,)"""
    return torch.stack(
        [row[n - 1] for row, n in zip(logits, lengths.tolist())]
    )


@last_logits.mistake(
    "huggingface/transformers #3167, #14521",
    symptom=(symptoms.WRONG_IN_A_BATCH, symptoms.BAD_TEXT),
    not_looked_up="huggingface/transformers #14521",
)
def takes_the_last_column(logits, lengths):
    """The longest text is continued well, the shorter ones badly.
    cause: The last column is taken for all rows; in short rows it is padding.
    fix: Take column length − 1 of each row.
    hint: Which token stands in the last column of the shortest row?"""
    return logits[:, -1]


@task(
    against="a sum over tokens",
    cases={
        "one token of two": (f64([1.0, 0.0]), ints(0), 1.0, 2),
        "hotter": (f64([2.0, 0.0, 1.0]), ints(0), 2.0, 3),
        "k cuts": (f64([2.0, 0.0, 1.0]), ints(2), 1.0, 2),
        "k cuts, all logits below −10⁹": (
            f64([-2e9, -4e9, -3e9]),
            ints(0),
            1.0,
            2,
        ),
        "four tokens": (randn(4, 6, seed=16), ints(2, 0, 5, 3), 0.7, 6),
        "a token that was cut": (f64([2.0, 0.0, 1.0]), ints(1), 0.5, 2),
        "two rows": (f64([2, 0, 1], [9, 5, 7]), ints(2, 0), 1.5, 2),
        "a vocabulary of 300": (
            randn(2, 300, seed=17),
            ints(257, 4),
            1.0,
            290,
        ),
        "very unlikely": (f64([0.0, 800.0], [800.0, 0.0]), ints(0, 1), 1.0, 2),
        "131 tokens": (_FIVES, _FIVES.topk(3).indices[:, 2], 0.7, 4),
    },
    within=1e-6,
)
def chance_of_text(logits, tokens, temperature, k):
    """log of the probability with which a sampler draws these tokens (T,): the
    logits (T, V) divided by the temperature, the k largest kept, softmax, and
    the sum of the logs; −∞ if a token was cut"""
    total = 0.0
    for row, token in zip(logits.tolist(), tokens.tolist()):
        if row[token] < (least := sorted(row)[-k]):
            return torch.tensor(-math.inf, dtype=logits.dtype)
        gaps = [(z - row[token]) / temperature for z in row if z >= least]
        most = max(gaps)
        parts = math.fsum(math.exp(gap - most) for gap in gaps)
        total -= most + math.log(parts)
    return torch.tensor(total, dtype=logits.dtype)


@chance_of_text.mistake(
    "thinking-machines-lab/tinker-feedback #148", symptom=symptoms.OTHER_SCORE
)
def tells_the_models_chance(logits, tokens, temperature, k):
    """The numbers do not change with the temperature or with k, although the
    texts do.
    cause: They are those of the model, not of the sampler that bent its logits
    before it drew.
    fix: Take the softmax of the logits that were drawn from.
    hint: Would a token that top-k cut have the probability 0 in your sum?"""
    logs = logits.log_softmax(-1)
    return logs.gather(-1, tokens[:, None]).sum()


def _noise(*size, seed):
    """Numbers between 0 and 1, drawn uniformly from a seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(size, generator=generator, dtype=torch.float64)


@task(
    against="math.log, number by number",
    cases={
        "two tokens": (f64([0.0, 1.0]), f64([0.9, 0.2])),
        "one row of five": (randn(1, 5, seed=17), _noise(1, 5, seed=18)),
        "fifty rows": (randn(50, 4, seed=19), _noise(50, 4, seed=20)),
        "a token that is out": (f64([-math.inf, 0.0]), f64([1 - 1e-10, 0.01])),
        "large logits": (f64([1000.0, 1003.0]), f64([0.9, 0.2])),
        "noise near 0, and near 1": (
            f64([0.0, -4.3], [0.0, 25.0], [0.0, 20.3]),
            f64([1e-25, 0.5], [1 - 1e-9, 0.5], [1 - 1e-9, 0.5]),
        ),
        "three rows of 300": (randn(3, 300, seed=21), _noise(3, 300, seed=22)),
    },
)
def race(logits, noise):
    """a token a row, (B,): the one with the largest logit − log(−log noise),
    from logits (B, V) and noise (B, V) in (0, 1)"""
    tokens = []
    for row, numbers in zip(logits.tolist(), noise.tolist()):
        score = [z - math.log(-math.log(u)) for z, u in zip(row, numbers)]
        tokens.append(score.index(max(score)))
    return torch.tensor(tokens)


@race.mistake(
    "tensorflow/tensorflow #456",
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.BAD_TEXT),
)
def subtracts_the_noise(logits, noise):
    """The texts look plausible. Counted, likely tokens come too often and
    unlikely ones too seldom.
    cause: Uniform noise is subtracted from the probabilities. That favours the
    large ones, and is a draw from no softmax.
    fix: The noise has to be −log(−log u), added to the logits.
    hint: Have you counted how often each token comes?"""
    return (logits.softmax(-1) - noise).argmax(-1)


@race.mistake(
    "chainer/chainerrl #104, ermongroup/subsets #6",
    symptom=symptoms.WRONG_IN_THE_NEXT_CASE,
)
def adds_the_wrong_sign(logits, noise):
    """The frequencies are near the probabilities, and not equal to them.
    cause: The noise −log(−log u) is subtracted instead of added. Its large
    values are positive, so a change of sign makes another noise of it.
    fix: Subtract log(−log u) from the logits.
    hint: On which side of 0 are the largest values of your noise?"""
    return (logits + (-noise.log()).log()).argmax(-1)


@task(
    against="a search from each token on",
    cases={
        "one way on": ([{5: 1}, {}], {1}, 0, 9),
        "may end, or go on": ([{5: 0}], {0}, 0, 9),
        "a dead end": ([{5: 1, 6: 2}, {}, {}], {2}, 0, 9),
        "a circle without a way out": (
            [{5: 1, 6: 2}, {7: 1}, {8: 3}, {}],
            {3},
            0,
            9,
        ),
        "a circle with a way out": (
            [{5: 1, 6: 2}, {7: 2, 8: 3}, {7: 1}, {}],
            {3},
            0,
            9,
        ),
        "three steps from the end": (
            [{6: 4, 5: 3, 7: 3}, {}, {5: 1}, {5: 2}, {6: 4}],
            {1},
            0,
            9,
        ),
        "at the end": ([{0: 1}, {}], {1}, 1, 300),
        "may end, or go into a dead end": ([{0: 1, 4: 0}, {}], {0}, 0, 2),
        "thirty states in a line": (
            [*({n: n + 1} for n in range(29)), {}],
            {29},
            11,
            40,
        ),
        "three tokens, and the end among them": (
            [{12: 1, 2: 0, 7: 1}, {}],
            {0, 1},
            0,
            5,
        ),
        "300 states, twenty tokens in each": (
            [
                *(
                    {t: min(s + 1, 299) for t in range(s, s + 20)}
                    for s in range(300)
                )
            ],
            {*range(282, 300)},
            140,
            400,
        ),
    },
)
def may_come(moves, accepting, state, end):
    """a list of the tokens that may come in a state, in order: those after
    which an allowed text can still be finished, and the end token where the
    text may end. moves[state] has for each token the state after it, and a
    text may end in the states in accepting"""
    found = [end] if state in accepting else []
    for token, after in moves[state].items():
        seen = {after}
        open_states = [after]
        while open_states:
            here = open_states.pop()
            if here in accepting:
                found.append(token)
                break
            for following in moves[here].values():
                if following not in seen:
                    seen.add(following)
                    open_states.append(following)
    return sorted(found)


def _moves_on(moves, accepting, state):
    """The tokens of a state after which a text can still be finished."""
    return [t for t in may_come(moves, accepting, state, -1) if t >= 0]


@may_come.mistake(
    "dottxt-ai/outlines #192",
    symptom=symptoms.NOT_ALLOWED,
)
def walks_into_dead_ends(moves, accepting, state, end):
    """Now and then a text is stuck: no token may come, and it is not allowed
    to end either.
    cause: Each token that has a move may come, also one after which nothing
    that is allowed can be finished.
    fix: Go back from the accepting states once, and drop the moves to states
    from which none of them can be reached.
    hint: Can a text end, some time later, after each of your tokens?"""
    ends = [end] if state in accepting else []
    return sorted([*moves[state], *ends])


@may_come.mistake(
    "vllm-project/vllm #42403, EricLBuehler/mistral.rs #2204",
    symptom=symptoms.NOT_ALLOWED,
)
def may_end_anywhere(moves, accepting, state, end):
    """Half an answer: the text ends in the middle of what was begun, and what
    reads it stops with an error.
    cause: The end token is a token of the model but not of the grammar, so the
    mask lets it through everywhere.
    fix: It may come where the text may end, and nowhere else.
    hint: Is the text complete in each state in which yours may end?"""
    return sorted([*_moves_on(moves, accepting, state), end])


@may_come.mistake("sgl-project/sglang #31533", symptom=symptoms.NOT_ALLOWED)
def never_ends(moves, accepting, state, end):
    """The answer is complete and goes on, until the limit is reached; without
    the grammar the same model ends.
    cause: The mask has the tokens of the grammar only. The end token (or one
    of several) is not among them.
    fix: Where the text may end, allow every token that ends it.
    hint: Which token may come where nothing else may?"""
    return _moves_on(moves, accepting, state)


@may_come.mistake(
    "dottxt-ai/outlines #544, jundot/omlx #3078", symptom=symptoms.NOT_ALLOWED
)
def ends_at_the_first_chance(moves, accepting, state, end):
    """Numbers have one digit and lists one element: a text ends as soon as it
    may.
    cause: In an accepting state the text is taken to be finished. It may end
    there, and it may also go on.
    fix: Ask the model: allow the end token beside the others.
    hint: May 1 be the beginning of 12?"""
    if state in accepting:
        return [end]
    return _moves_on(moves, accepting, state)


@task(
    against="Bayes' rule, number by number",
    home="allowed.given_allowed",
    cases={
        "the mill or another": (f64(0.125, 0.875), f64(1.0, 1 / 7)),
        "one may not come": (f64(0.5, 0.25, 0.25), f64(0.5, 0.0, 1.0)),
        "only one is left": (f64(0.75, 0.25), f64(0.0, 1e-6)),
        "eleven tokens": (
            randn(11, seed=21).softmax(-1),
            randn(11, seed=22).sigmoid(),
        ),
        "300 tokens": (
            randn(300, seed=23).softmax(-1),
            randn(300, seed=24).sigmoid(),
        ),
    },
)
def given_allowed(p, finished):
    """the probabilities (V,) of the next token given that the text will be an
    allowed one, from the model's own, p (V,), and the probability that the
    text is allowed in the end if a token comes, finished (V,)"""
    both = [a * b for a, b in zip(p.tolist(), finished.tolist())]
    total = math.fsum(both)
    return torch.tensor([x / total for x in both], dtype=p.dtype)


@given_allowed.mistake(
    "mlc-ai/xgrammar #581",
    symptom=(symptoms.WRONG_NUMBERS, symptoms.NOT_ALLOWED),
)
def masks_what_cannot_be(p, finished):
    """Each text is allowed, but long or rare ones come far too often.
    cause: What cannot be finished is set to 0 and the rest is divided by its
    sum. How likely it is that the rest can be finished is forgotten.
    fix: Multiply each token's probability by that of finishing after it."""
    kept = p * (finished > 0)
    return kept / kept.sum()


@given_allowed.mistake(
    "huggingface/AnyLanguageModel #197", symptom=symptoms.NOT_ALLOWED
)
def draws_from_what_was_not_masked(p, finished):
    """With the grammar switched on, texts come that it does not allow.
    cause: What was changed is one array, and what is drawn from is another,
    made afresh.
    fix: Draw from what was changed, and test it with a grammar that the model
    would never follow by itself."""
    return p.clone()
