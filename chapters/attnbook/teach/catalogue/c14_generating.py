"""Chapter 14, generating text: tasks and known mistakes."""

import math

import torch

from attnbook.teach.mistakes import mistake
from attnbook.teach.proof import Case
from attnbook.teach.seeded import randn
from attnbook.teach.tasks import task


def _f64(*rows):
    return torch.tensor(rows, dtype=torch.float64)


# ---- temperature


@task(
    chapter=14,
    wanted="the probabilities of the next token at a temperature above 0: "
    "the softmax of the logits divided by it",
    cases=lambda: [
        Case("two tokens, colder", (_f64(1.0, 0.0), 0.5)),
        Case("three tokens, hotter", (_f64(3.0, 1.0, -2.0), 2.0)),
        Case("two rows, as they are", (3 * randn(2, 5, seed=1), 1.0)),
        Case("large logits", (700 * randn(2, 3, seed=2), 0.7)),
    ],
)
def at_temperature(logits, temperature):
    rows = []
    for row in logits.reshape(-1, logits.shape[-1]).tolist():
        top = max(row)
        parts = [math.exp((z - top) / temperature) for z in row]
        rows.append([part / math.fsum(parts) for part in parts])
    return torch.tensor(rows, dtype=logits.dtype).reshape(logits.shape)


@mistake(
    task=at_temperature,
    symptom="The text is nonsense at every temperature, also at 1, and a "
    "lower one hardly helps.",
    cause="The division comes after a softmax, and a second softmax follows. "
    "It is given numbers between 0 and 1 and makes them nearly equal.",
    fix="Divide the logits, before the only softmax.",
    hint="What comes out at temperature 1, and what should?",
    seen="keras-team/keras #6477 (there asked about)",
)
def divides_the_probabilities(logits, temperature):
    return (logits.softmax(-1) / temperature).softmax(-1)


@mistake(
    task=at_temperature,
    symptom="At temperature 1 all is well, so the tests pass. Every other "
    "value does too much: 0.5 acts like 0.25.",
    cause="Two layers of a program each divide by the temperature, so that "
    "the logits are divided by its square.",
    fix="Divide in one place, and test it with a temperature other than 1.",
    hint="How much does halving the temperature change in your function?",
    seen="RL-Align/RL-Kernel #81",
)
def divides_twice(logits, temperature):
    logits = logits / temperature
    return (logits / temperature).softmax(-1)


# ---- drawing


def _draw_cases():
    table = _f64([0.5, 0.25, 0.25], [0.1, 0.6, 0.3])
    gaps = _f64([0.0, 0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0])
    almost = 1 - 2.0**-53
    return [
        Case("two rows of three", (table, _f64(0.6, 0.05))),
        Case("a step's very edge", (table[:1], _f64(0.5))),
        Case("impossible first tokens, chance 0", (gaps, _f64(0.0, 0.0))),
        Case("chance just below 1", (gaps, _f64(almost, almost))),
        Case(
            "seven rows",
            (
                randn(7, 9, seed=3).softmax(-1),
                torch.linspace(0, 0.99, 7).double(),
            ),
        ),
    ]


@task(
    chapter=14,
    wanted="a token a row, (B,): the first at which the running sum of the "
    "probabilities (B, V) is above the row's chance (B,), in [0, 1)",
    cases=_draw_cases,
    home="generate.draw",
)
def draw(probabilities, chance):
    tokens = []
    for row, wanted in zip(probabilities.tolist(), chance.tolist()):
        so_far, token = 0.0, -1
        while so_far <= wanted:
            token += 1
            so_far += row[token]
        tokens.append(token)
    return torch.tensor(tokens)


@mistake(
    task=draw,
    symptom="Once in a very long time a token comes that has the "
    "probability 0.",
    cause="The search takes the first token at which the running sum reaches "
    "the chance. A chance of exactly 0 is reached before anything counts.",
    fix="Take the first running sum that is above the chance: right=True "
    "in torch.searchsorted.",
    hint="Which token do you give for a chance of exactly 0?",
    seen="pytorch/pytorch #48841 (the symptom)",
)
def draws_what_cannot_be(probabilities, chance):
    reached = probabilities.double().cumsum(-1)
    wanted = chance.double()[:, None] * reached[:, -1:]
    return torch.searchsorted(reached, wanted)[:, 0]


@mistake(
    task=draw,
    symptom="Each text alone looks fine, but those of one batch are nearly "
    "alike.",
    cause="One random number serves all rows of the batch.",
    fix="Draw a number for each row.",
    hint="What do two rows with the same probabilities get from you?",
    seen="turboderp-org/exllamav2 #186",
)
def one_chance_for_all(probabilities, chance):
    reached = probabilities.double().cumsum(-1)
    wanted = chance.double()[:1, None] * reached[:, -1:]
    return torch.searchsorted(reached, wanted, right=True)[:, 0]


# ---- what is kept


def _kept(logits, choose):
    """The logits, −∞ at those whose place `choose` does not name."""
    rows = []
    for row in logits.reshape(-1, logits.shape[-1]).tolist():
        keep = choose(row)
        rows.append([z if n in keep else -math.inf for n, z in enumerate(row)])
    return torch.tensor(rows, dtype=logits.dtype).reshape(logits.shape)


def _shares(row):
    top = max(row)
    parts = [math.exp(z - top) for z in row]
    return [part / math.fsum(parts) for part in parts]


@task(
    chapter=14,
    wanted="the logits (..., V), −∞ everywhere but at the k largest, and at "
    "those that equal the last of them",
    cases=lambda: [
        Case("one of three", (_f64(2.0, 5.0, 1.0), 1)),
        Case("two of four, two of them equal", (_f64(1.0, 3.0, 1.0, 0.0), 2)),
        Case("more than there are", (_f64(1.0, 3.0), 5)),
        Case("two rows", (randn(2, 6, seed=4), 3)),
    ],
    home="generate.keep_top_k",
)
def keep_top_k(logits, k):
    def choose(row):
        least = sorted(row)[-min(k, len(row))]
        return {n for n, z in enumerate(row) if z >= least}

    return _kept(logits, choose)


@mistake(
    task=keep_top_k,
    symptom="With k = 1, which should be greedy, the text still changes from "
    "run to run.",
    cause="Counting from 0, everything up to place k is kept: k + 1 tokens.",
    fix="Counted from 0, place k and all behind it are out.",
    hint="How many tokens are left with k = 1?",
    seen="kingoflolz/mesh-transformer-jax #164",
)
def keeps_one_more(logits, k):
    rank = logits.argsort(dim=-1, descending=True, stable=True)
    rank = rank.argsort(dim=-1)
    return logits.masked_fill(rank > k, -torch.inf)


def _top_p_cases():
    return [
        Case("the second reaches it", (_f64(0.5, 0.41, 0.09).log(), 0.9)),
        Case("not in order", (_f64(0.1, 0.2, 0.6, 0.1).log(), 0.7)),
        Case("one alone is above it", (_f64(0.05, 0.9, 0.05).log(), 0.5)),
        Case("two rows", (2 * randn(2, 7, seed=5), 0.8)),
        Case("everything", (randn(2, 4, seed=6), 0.999999)),
    ]


@task(
    chapter=14,
    wanted="the logits (..., V), −∞ outside the smallest set of likeliest "
    "tokens whose probabilities reach p",
    cases=_top_p_cases,
    home="generate.keep_top_p",
)
def keep_top_p(logits, p):
    def choose(row):
        shares, keep, total = _shares(row), set(), 0.0
        for n in sorted(range(len(row)), key=lambda n: -row[n]):
            if total >= p:
                break
            keep.add(n)
            total += shares[n]
        return keep

    return _kept(logits, choose)


@mistake(
    task=keep_top_p,
    symptom="The text is duller than top-p should make it: of 0.5, 0.41 and "
    "0.09 with p = 0.9 only the first is left.",
    cause="A token is kept if the running sum, its own probability included, "
    "is at most p. So the token that reaches p is dropped.",
    fix="Look at the sum before the token: it is out if the likelier ones "
    "reach p without it.",
    hint="Do the probabilities that you keep add up to p?",
    seen="rasbt/reasoning-from-scratch #164, aws-neuron/transformers-neuronx "
    "#46",
)
def drops_the_one_that_reaches_p(logits, p):
    ordered, order = logits.sort(descending=True, stable=True)
    keep = ordered.softmax(-1).cumsum(-1) <= p
    keep[..., 0] = True
    keep = torch.zeros_like(keep).scatter(-1, order, keep)
    return logits.masked_fill(~keep, -torch.inf)


@mistake(
    task=keep_top_p,
    symptom="Where the model is sure, nothing is left to draw from, and the "
    "softmax of nothing is NaN.",
    cause="The likeliest token has more than p by itself, and goes with the "
    "rest.",
    fix="The likeliest token always stays.",
    hint="What is left when one token has the probability 0.9, and p is 0.5?",
    seen="skyzh/tiny-llm #32",
)
def leaves_nothing_where_sure(logits, p):
    ordered, order = logits.sort(descending=True, stable=True)
    keep = ordered.softmax(-1).cumsum(-1) < p
    keep = torch.zeros_like(keep).scatter(-1, order, keep)
    return logits.masked_fill(~keep, -torch.inf)


@mistake(
    task=keep_top_p,
    symptom="Fluent nonsense: the values that come back are right, the words "
    "they belong to are not.",
    cause="What was found in the order of the logits is brought back by "
    "gathering with that order a second time, and not by scattering.",
    fix="Scatter: place order[n] gets the value at n.",
    hint="Is what you call token 0 still token 0 in the end?",
    seen="lucidrains/routing-transformer #1",
)
def gathers_where_it_should_scatter(logits, p):
    ordered, order = logits.sort(descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    ordered = ordered.masked_fill(before >= p, -torch.inf)
    return ordered.gather(-1, order)


@task(
    chapter=14,
    wanted="the logits (..., V), −∞ at tokens with less than p times the "
    "probability of the likeliest",
    cases=lambda: [
        Case("one of three is out", (_f64(0.6, 0.39, 0.01).log(), 0.1)),
        Case("p = 0: nothing is out", (_f64(4.0, -30.0), 0.0)),
        Case("flat: nothing is out", (_f64(1.0, 1.1, 0.9, 1.0), 0.5)),
        Case("two rows, negative logits", (2 * randn(2, 7, seed=7) - 9, 0.2)),
    ],
    home="generate.keep_min_p",
)
def keep_min_p(logits, p):
    def choose(row):
        shares = _shares(row)
        return {n for n, s in enumerate(shares) if s >= p * max(shares)}

    return _kept(logits, choose)


@mistake(
    task=keep_min_p,
    symptom="How many tokens stay depends on where the logits happen to lie: "
    "add 10 to all of them, which changes no probability, and others stay.",
    cause="The logits themselves are compared with p times the largest one.",
    fix="Take the softmax first, and compare probabilities.",
    hint="What changes when 10 is added to every logit?",
    seen="state-spaces/mamba #1010",
)
def compares_logits(logits, p):
    return logits.masked_fill(
        logits < p * logits.amax(-1, keepdim=True), -torch.inf
    )


# ---- repetition


@task(
    chapter=14,
    wanted="the logits (..., V), lowered where seen (..., V) is True: "
    "positive ones divided by the penalty, negative ones multiplied",
    cases=lambda: [
        Case(
            "a positive one",
            (_f64(2.0, 1.0), torch.tensor([True, False]), 2.0),
        ),
        Case(
            "a negative one",
            (_f64(-2.0, 1.0), torch.tensor([True, False]), 2.0),
        ),
        Case("two rows", (randn(2, 6, seed=8), randn(2, 6, seed=9) > 0, 1.3)),
        Case("a reward", (randn(5, seed=10), randn(5, seed=11) > 0, 0.8)),
    ],
    home="generate.penalise",
)
def penalise(logits, seen, penalty):
    flat = [
        z if not s else z / penalty if z > 0 else z * penalty
        for z, s in zip(logits.flatten().tolist(), seen.flatten().tolist())
    ]
    return torch.tensor(flat, dtype=logits.dtype).reshape(logits.shape)


@mistake(
    task=penalise,
    symptom='The higher the penalty, the more the model repeats itself: "The '
    'dog dog dog dog".',
    cause="A negative logit divided by a number above 1 comes nearer to 0. "
    "It grows.",
    fix="Multiply the negative ones.",
    hint="Is −2 divided by 2 larger or smaller than −2?",
    seen="huggingface/transformers #2302, NVIDIA-NeMo/Speech #8194",
)
def divides_negative_logits(logits, seen, penalty):
    return torch.where(seen, logits / penalty, logits)


# ---- batches


@task(
    chapter=14,
    wanted="of each row, whether it goes on after the token that it has "
    "chosen: a list of True and False",
    cases=lambda: [
        Case("one of two has ended", ([7, 2], {2})),
        Case("all go on", ([5, 6, 5], {2, 3})),
        Case("two stop tokens", ([3, 9, 2, 8], {2, 3})),
        Case("all have ended", ([2, 2], {2})),
        Case("no stop token", ([2, 0], set())),
    ],
)
def goes_on(chosen, stop):
    found = []
    for token in chosen:
        found.append(not any(token == one for one in stop))
    return found


@mistake(
    task=goes_on,
    symptom="In a batch most texts break off in the middle; alone each of "
    "them is whole.",
    cause="One row's stop token ends the loop, for all rows.",
    fix="Keep account of each row by itself: it goes on or it does not.",
    hint="What becomes of the others when one row has ended?",
    seen="Lightning-AI/lit-llama #153 (noticed in review)",
)
def ends_all_with_the_first(chosen, stop):
    return [not any(token in stop for token in chosen)] * len(chosen)


@mistake(
    task=goes_on,
    symptom="The stop token works for one text. In a batch the texts run on "
    "behind their end.",
    cause="The loop ends when all rows choose a stop token in the same step, "
    "which hardly ever happens.",
    fix="A row that has ended is ended, whatever the others do.",
    hint="Must all rows end at once?",
    seen="lucidrains/h-transformer-1d #9 (the symptom)",
)
def waits_for_all_to_end_at_once(chosen, stop):
    return [not all(token in stop for token in chosen)] * len(chosen)


@task(
    chapter=14,
    wanted="tokens (B, T), short rows filled up from the left with 0, and "
    "True at real tokens, (B, T), or None where all rows are as long",
    cases=lambda: [
        Case("one shorter", ([[5, 6], [7]],)),
        Case("0 is a token too", ([[0, 3, 0], [0], [4, 0]],)),
        Case("as long", ([[1, 2], [3, 4]],)),
    ],
    home="generate.pad_left",
)
def pad_left(sequences, *, device=None):
    T = max(len(s) for s in sequences)
    tokens = torch.zeros(len(sequences), T, dtype=torch.long)
    real = torch.zeros(len(sequences), T, dtype=torch.bool)
    for b, sequence in enumerate(sequences):
        for n, token in enumerate(reversed(sequence), start=1):
            tokens[b, T - n], real[b, T - n] = token, True
    tokens, real = tokens.to(device), real.to(device)
    return tokens, None if real.all() else real


@mistake(
    task=pad_left,
    symptom="The longest prompt of a batch goes on as it should, the others "
    "with anything.",
    cause="The padding stands on the right, and the next token is taken from "
    "the last column: there the short rows have padding.",
    fix="Pad on the left, or take each row's last real column.",
    hint="What stands in the last column of your shorter rows?",
    seen="huggingface/transformers #3167, #14521",
)
def pads_on_the_right(sequences, *, device=None):
    T = max(len(s) for s in sequences)
    rows = [list(s) + [0] * (T - len(s)) for s in sequences]
    tokens = torch.tensor(rows, device=device)
    lengths = torch.tensor([len(s) for s in sequences], device=device)
    if (lengths == T).all():
        return tokens, None
    return tokens, torch.arange(T, device=device) < lengths[:, None]


@mistake(
    task=pad_left,
    symptom="A prompt goes on differently as soon as the token that serves "
    "for padding stands in it.",
    cause="Padding is told by its number. A real token with that number is "
    "hidden too, and the positions behind it are one too low.",
    fix="Tell padding by the lengths of the prompts.",
    hint="Can a prompt hold the token that you pad with?",
    seen="huggingface/trl #6357",
)
def takes_zeros_for_padding(sequences, *, device=None):
    T = max(len(s) for s in sequences)
    rows = [[0] * (T - len(s)) + list(s) for s in sequences]
    tokens = torch.tensor(rows, device=device)
    real = tokens != 0
    return tokens, None if real.all() else real


# ---- the exercises


@task(
    chapter=14,
    wanted="how many tokens top-p keeps: the size of the smallest set of "
    "likeliest tokens whose probabilities (V,) reach p",
    cases=lambda: [
        Case("the second reaches it", (_f64(0.5, 0.25, 0.25), 0.7)),
        Case("one is enough", (_f64(0.125, 0.875), 0.5)),
        Case("exactly reached", (_f64(0.25, 0.5, 0.25), 0.75)),
        Case(
            "nine tokens, not in order", (randn(9, seed=12).softmax(-1), 0.8)
        ),
        Case("flat", (torch.full((8,), 0.125).double(), 0.9)),
    ],
)
def nucleus_size(probabilities, p):
    total, size = 0.0, 0
    for share in sorted(probabilities.tolist(), reverse=True):
        if total >= p:
            break
        total, size = total + share, size + 1
    return size


@mistake(
    task=nucleus_size,
    symptom="One token too few, nearly always; none at all where the "
    "likeliest has more than p.",
    cause="A token is counted if the running sum with it is at most p. The "
    "token that takes the sum to p or beyond belongs to the set, too.",
    fix="Count where the sum before the token is below p.",
    hint="Do the tokens that you counted reach p together?",
    seen="aws-neuron/transformers-neuronx #46",
)
def counts_up_to_p(probabilities, p):
    ordered = probabilities.sort(descending=True).values
    return int((ordered.cumsum(-1) <= p).sum())


@task(
    chapter=14,
    wanted="the logits of each row's last real token, (B, V), from logits "
    "(B, T, V) of a batch padded on the right, and the rows' lengths (B,)",
    cases=lambda: [
        Case("one row of one", (randn(1, 1, 3, seed=13), torch.tensor([1]))),
        Case(
            "two rows of three and one",
            (randn(2, 3, 2, seed=14), torch.tensor([3, 1])),
        ),
        Case(
            "nobody fills the last column",
            (randn(3, 5, 2, seed=15), torch.tensor([2, 4, 1])),
        ),
    ],
)
def last_logits(logits, lengths):
    return torch.stack(
        [row[n - 1] for row, n in zip(logits, lengths.tolist())]
    )


@mistake(
    task=last_logits,
    symptom="The longest text is continued well, the shorter ones badly.",
    cause="The last column is taken for all rows; in short rows it is "
    "padding.",
    fix="Take column length − 1 of each row.",
    hint="Which token stands in the last column of the shortest row?",
    seen="huggingface/transformers #3167, #14521",
)
def takes_the_last_column(logits, lengths):
    return logits[:, -1]


@task(
    chapter=14,
    wanted="log of the probability with which a sampler draws these tokens "
    "(T,): the logits (T, V) divided by the temperature, the k largest kept, "
    "softmax, and the sum of the logs; −∞ if a token was cut",
    cases=lambda: [
        Case(
            "one token of two", (_f64([1.0, 0.0]), torch.tensor([0]), 1.0, 2)
        ),
        Case("hotter", (_f64([2.0, 0.0, 1.0]), torch.tensor([0]), 2.0, 3)),
        Case("k cuts", (_f64([2.0, 0.0, 1.0]), torch.tensor([2]), 1.0, 2)),
        Case(
            "four tokens",
            (randn(4, 6, seed=16), randn(4, 6, seed=16).argmax(-1), 0.7, 3),
        ),
        Case(
            "a token that was cut",
            (_f64([2.0, 0.0, 1.0]), torch.tensor([1]), 0.5, 2),
        ),
    ],
)
def chance_of_text(logits, tokens, temperature, k):
    total = 0.0
    for row, token in zip(logits.tolist(), tokens.tolist()):
        least = sorted(row)[-k]
        shares = _shares(
            [z / temperature if z >= least else -math.inf for z in row]
        )
        total += math.log(shares[token]) if shares[token] else -math.inf
    return torch.tensor(total, dtype=logits.dtype)


@mistake(
    task=chance_of_text,
    symptom="The numbers do not change with the temperature or with k, "
    "although the texts do.",
    cause="They are those of the model, not of the sampler that bent its "
    "logits before it drew.",
    fix="Take the softmax of the logits that were drawn from.",
    hint="Would a token that top-k cut have the probability 0 in your sum?",
    seen="thinking-machines-lab/tinker-feedback #148",
)
def tells_the_models_chance(logits, tokens, temperature, k):
    logs = logits.log_softmax(-1)
    return logs.gather(-1, tokens[:, None]).sum()


def _race_cases():
    def noise(*size, seed):
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(size, generator=generator, dtype=torch.float64)

    return [
        Case("two tokens", (_f64([0.0, 1.0]), _f64([0.9, 0.2]))),
        Case("one row of five", (randn(1, 5, seed=17), noise(1, 5, seed=18))),
        Case("fifty rows", (randn(50, 4, seed=19), noise(50, 4, seed=20))),
        Case(
            "a token that is out",
            (_f64([-math.inf, 0.0]), _f64([0.999, 0.01])),
        ),
    ]


@task(
    chapter=14,
    wanted="a token a row, (B,): the one with the largest "
    "logit − log(−log noise), from logits (B, V) and noise (B, V) in (0, 1)",
    cases=_race_cases,
)
def race(logits, noise):
    tokens = []
    for row, numbers in zip(logits.tolist(), noise.tolist()):
        score = [z - math.log(-math.log(u)) for z, u in zip(row, numbers)]
        tokens.append(score.index(max(score)))
    return torch.tensor(tokens)


@mistake(
    task=race,
    symptom="The texts look plausible. Counted, likely tokens come too often "
    "and unlikely ones too seldom.",
    cause="Uniform noise is subtracted from the probabilities. That favours "
    "the large ones, and is a draw from no softmax.",
    fix="The noise has to be −log(−log u), added to the logits.",
    hint="Have you counted how often each token comes?",
    seen="tensorflow/tensorflow #456",
)
def subtracts_the_noise(logits, noise):
    return (logits.softmax(-1) - noise).argmax(-1)


@mistake(
    task=race,
    symptom="The frequencies are near the probabilities, and not equal to "
    "them.",
    cause="The noise −log(−log u) is subtracted instead of added. Its large "
    "values are positive, so a change of sign makes another noise of it.",
    fix="Subtract log(−log u) from the logits.",
    hint="On which side of 0 are the largest values of your noise?",
    seen="chainer/chainerrl #104 (by its title), ermongroup/subsets #6",
)
def adds_the_wrong_sign(logits, noise):
    return (logits + (-noise.log()).log()).argmax(-1)
