"""Chapter 5, masking: tasks and known mistakes."""

import torch

from attnbook.teach.mistakes import mistake
from attnbook.teach.proof import Case
from attnbook.teach.seeded import randn
from attnbook.teach.tasks import task


def _row(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def _mask(*rows):
    """A boolean mask from strings: "110" is True, True, False."""
    return torch.tensor([[place == "1" for place in row] for row in rows])


def _score_cases():
    late = torch.ones(3, 5, dtype=torch.bool).tril(2)
    keys = _mask("0111", "1111")[:, None, :]  # (B, 1, S)
    return [
        Case("one key allowed, one not", (_row(1, 2), _mask("10"))),
        Case("an allowed score of 0", (_row(0, 1, 2), _mask("110"))),
        Case("negative scores", (_row(-3, -1, -2), _mask("110"))),
        Case("a hidden score far above", (_row(0, 1000), _mask("10"))),
        Case("large scores", (_row(1000, 999, 0), _mask("110"))),
        Case("three queries, five keys", (randn(3, 5, seed=1), late)),
        Case("a batch with a mask over keys", (randn(2, 3, 4, seed=2), keys)),
        Case(
            "a query that may attend to nothing",
            (randn(2, 3, seed=3), _mask("000", "101")),
        ),
    ]


@task(
    chapter=5,
    wanted="the scores, with −∞ where the mask is False, in a new tensor",
    cases=_score_cases,
)
def mask_scores(scores, mask):
    return torch.where(mask, scores, torch.full_like(scores, -torch.inf))


@mistake(
    task=mask_scores,
    symptom="The result is right, and the scores are gone: whoever plots or "
    "compares them afterwards sees the masked ones, above the diagonal −∞.",
    cause="A method whose name ends in an underscore writes into the tensor "
    "it is called on, here into the caller's own scores.",
    fix="masked_fill without the underscore; it gives a new tensor.",
    hint="Look at your argument before and after the call.",
    seen="S4.1",
)
def overwrites_the_scores(scores, mask):
    return scores.masked_fill_(~mask, -torch.inf)


@task(
    chapter=5,
    wanted="weights that sum to one over the allowed keys and are 0 at the "
    "others; all 0 where no key is allowed; gradients finite",
    cases=_score_cases,
    gradients=True,
)
def masked_weights(scores, mask):
    rows = []
    mask = mask.expand(scores.shape)
    for row, keys in zip(scores.flatten(0, -2), mask.flatten(0, -2)):
        chosen = torch.softmax(row[keys], -1)  # (number of allowed keys,)
        rows.append(torch.zeros_like(row).masked_scatter(keys, chosen))
    return torch.stack(rows).reshape(scores.shape)


@mistake(
    task=masked_weights,
    symptom="Masked keys keep a weight: in the first case .27 of the average "
    "comes from a key that should be out.",
    cause="Multiplying makes a masked score 0, and 0 is a score like any "
    "other: exp(0) = 1. It even beats every negative score.",
    fix="Fill with −∞ before the softmax: exp(−∞) = 0.",
    hint="What weight does a score of 0 get from softmax?",
    seen="S2.7; georg-wolflein/good-features #1",
)
def mask_by_multiplication(scores, mask):
    return torch.softmax(scores * mask, -1)


@mistake(
    task=masked_weights,
    symptom="An allowed key whose score happens to be exactly 0 vanishes "
    "from the average; a query orthogonal to it is enough.",
    cause="After the multiplication by the mask, a masked score and a true "
    "score of 0 look the same.",
    fix="Ask the mask, not the scores: masked_fill(~mask, −inf).",
    hint="Try a score that really is 0.",
    seen="S2.7",
)
def zero_scores_taken_for_masked(scores, mask):
    scores = scores * mask
    return torch.softmax(scores.masked_fill(scores == 0, -torch.inf), -1)


@mistake(
    task=masked_weights,
    symptom="The rows of the weights no longer sum to one, and the allowed "
    "weights still depend on the forbidden scores.",
    cause="The softmax has divided by a sum in which the masked keys took "
    "part; setting their weights to 0 afterwards does not undo it.",
    fix="Mask the scores, before the softmax.",
    hint="What does each of your rows sum to?",
    seen="lucidrains/memory-compressed-attention #2",
)
def zeroed_after_softmax(scores, mask):
    return torch.softmax(scores, -1) * mask


@mistake(
    task=masked_weights,
    symptom="Nothing fails, but a query that may attend to nothing spreads "
    "its weight evenly over all keys, the future and the padding included.",
    cause="−1e9 is a score like any other. Where all scores are −1e9 they "
    "are equal, and softmax makes equal weights of them.",
    fix="Fill with −∞, and give a row without keys the weights 0.",
    hint="What do equal scores give, however low they are?",
    seen="S0.6",
)
def finite_fill(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -1e9), -1)


@mistake(
    task=masked_weights,
    symptom="A query that may attend to nothing gets NaN, and in the "
    "backward pass the NaN reaches tensors that all queries share.",
    cause="Every exp is 0, so the softmax divides 0 by 0.",
    fix="Give a row without keys the weights 0, as attnbook's softmax does.",
    hint="What does your last case divide by?",
    seen="S4.3; pytorch/pytorch #103963",
)
def nan_in_masked_rows(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)


def _causal_cases():
    return [
        Case("one query, one key", (1, 1)),
        Case("as many queries as keys", (3, 3)),
        Case("one query, the last of four", (1, 4)),
        Case("two queries, the last of five", (2, 5)),
    ]


@task(
    chapter=5,
    wanted="a boolean mask (n_queries, n_keys), True where the key is not "
    "later than the query; the queries are the last of the keys",
    cases=_causal_cases,
    home="masks.causal_mask",
)
def causal_mask(n_queries, n_keys):
    first = n_keys - n_queries
    return torch.tensor(
        [[j <= first + i for j in range(n_keys)] for i in range(n_queries)]
    )


@mistake(
    task=causal_mask,
    symptom="A single new query, with the keys of the past kept, attends to "
    "the very first key only. Square masks are right, so nobody notices.",
    cause="tril starts its diagonal at the top left: it takes the queries "
    "for the first positions; they are the last.",
    fix="Shift the diagonal by n_keys − n_queries.",
    hint="How many keys may the last query see?",
    seen="pytorch/pytorch #108108; the same idea in "
    "rasbt/LLMs-from-scratch #697",
)
def causal_mask_top_left(n_queries, n_keys):
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril()


@mistake(
    task=causal_mask,
    symptom="Every query sees nothing but the future, and the last one "
    "nothing. All shapes fit, and the model reads the word that it should "
    "guess.",
    cause="The upper triangle marks what to hide. "
    "F.scaled_dot_product_attention takes True as: may attend.",
    fix="Negate it, and say in a comment what True means.",
    hint="In this book, what does True mean in a mask?",
    seen="rasbt/LLMs-from-scratch #1061; the two conventions in "
    "pytorch/pytorch #170404",
)
def inverted_causal_mask(n_queries, n_keys):
    future = torch.ones(n_queries, n_keys).triu(n_keys - n_queries + 1)
    return future.bool()


def _window_cases():
    return [
        Case("a window of one", (2, 2), {"window": 1}),
        Case("four tokens, a window of two", (4, 4), {"window": 2}),
        Case("two queries, the last of six", (2, 6), {"window": 3}),
        Case("a window wider than the text", (3, 3), {"window": 9}),
    ]


@task(
    chapter=5,
    wanted="a boolean mask (n_queries, n_keys), True where the key is fewer "
    "than `window` positions before the query, or later; the queries are "
    "the last of the keys",
    cases=_window_cases,
    home="masks.window_mask",
)
def window_mask(n_queries, n_keys, *, window):
    last = range(n_keys - n_queries, n_keys)
    return torch.tensor(
        [[i - j < window for j in range(n_keys)] for i in last]
    )


@mistake(
    task=window_mask,
    symptom="Each query sees one key more than the window says.",
    cause="Some libraries count the positions before the query, others the "
    "keys it sees, its own included; the number was passed from one kind to "
    "the other.",
    fix="Say what is counted. Here the query's own position counts, so the "
    "distance is less than the window.",
    hint="With a window of 1, how many keys does a query see?",
    seen="huggingface/transformers #39408; the two ways of counting in "
    "vllm-project/vllm #3385",
)
def window_one_too_wide(n_queries, n_keys, *, window):
    query = torch.arange(n_keys - n_queries, n_keys)[:, None]  # (T, 1)
    return query - torch.arange(n_keys) <= window  # (T, S)


def _length_cases():
    return [
        Case("one sequence", ([2],), {"side": "right"}),
        Case("padded on the left", ([1, 3, 2],), {"side": "left"}),
        Case("padded on the right", ([1, 3, 2],), {"side": "right"}),
        Case("an empty one among them", ([0, 2],), {"side": "left"}),
    ]


@task(
    chapter=5,
    wanted="a boolean tensor (B, S), S the longest length, True at real "
    "tokens; `side` is where the padding stands",
    cases=_length_cases,
    home="masks.padding_mask",
)
def padding_mask(lengths, *, side):
    longest = max(lengths)
    rows = [[True] * n + [False] * (longest - n) for n in lengths]
    return torch.tensor([r if side == "right" else r[::-1] for r in rows])


def _real_cases():
    return [
        Case("one token", (_mask("1"),)),
        Case("two tokens, padded on the left", (_mask("011"),)),
        Case("padded on the right", (_mask("1100", "1111"),)),
        Case("padded on the left", (_mask("0011", "1111", "0001"),)),
    ]


@task(
    chapter=5,
    wanted="for each real token how many real tokens stand before it, and 0 "
    "at padding; integers (B, S)",
    cases=_real_cases,
    home="positions.token_positions",
)
def token_positions(real):
    found = torch.zeros(real.shape, dtype=torch.long)
    for b, row in enumerate(real.tolist()):
        for t, is_real in enumerate(row):
            found[b, t] = sum(row[:t]) if is_real else 0
    return found


@mistake(
    task=token_positions,
    symptom="Padded on the left, a text gives other outputs than alone. "
    "Padded on the right all is well, so the side seems to matter.",
    cause="The columns are counted, padding included, so that the first "
    "real token is not at position 0.",
    fix="Count real tokens: a cumulative sum over the mask, less one.",
    hint="At which position is the first real token of a padded row?",
    seen="huggingface/transformers #18478; S4.7",
)
def positions_count_the_padding(real):
    return torch.arange(real.shape[-1]) * real


@task(
    chapter=5,
    wanted="a boolean mask (B, T, T): query i may attend to key j if j is "
    "not later than i and is no padding",
    cases=_real_cases,
)
def decoder_mask(real):
    b, t = real.shape
    allowed = torch.zeros(b, t, t, dtype=torch.bool)
    for n in range(b):
        for i in range(t):
            for j in range(i + 1):
                allowed[n, i, j] = real[n, j]
    return allowed


@mistake(
    task=decoder_mask,
    symptom="Real tokens attend to the padding before them, and the rows of "
    "the padding are fully masked on either side; padded on the right, they "
    "need not be.",
    cause="The mask got its new axis at the end, (B, T, 1), and so says "
    "which queries are real. The padding must be hidden as keys.",
    fix="real[:, None, :], shape (B, 1, S).",
    hint="Which axis of the scores counts the keys?",
    seen="hyunwoongko/transformer #40; bentrevett/pytorch-seq2seq #96",
)
def padding_on_the_queries(real):
    t = real.shape[-1]
    causal = torch.ones(t, t).to(real).tril()  # boolean, like real
    return causal & real[:, :, None]  # (B, T, T)


def _check_cases():
    right = _row(1, 2, 3, 4)
    twice = right.repeat(2, 1)
    last = _row(0, 0, 0, 1)
    one_nan = _row(1, torch.nan, 3, 4)
    return [
        Case("equal numbers", (right, right)),
        Case("a row of NaN", (right * torch.nan, right)),
        Case("NaN in both, at one place", (one_nan, one_nan)),
        Case("all smaller by 1", (right - 1, right)),
        Case("all larger by 5e-10, within the bound", (right + 5e-10, right)),
        Case("one of four larger by 2e-9", (right + 2e-9 * last, right)),
        Case("larger by 1e-8, at 1000", (_row(1000) + 1e-8, _row(1000))),
        Case("one row against the same row twice", (right, twice)),
    ]


@task(
    chapter=5,
    wanted="True if the shapes are equal and every number is within 1e-9 of "
    "the reference; a NaN is never right",
    cases=_check_cases,
)
def looks_right(ours, reference):
    if ours.shape != reference.shape:
        return False
    pairs = zip(ours.flatten().tolist(), reference.flatten().tolist())
    return all(abs(a - b) <= 1e-9 for a, b in pairs)


@mistake(
    task=looks_right,
    symptom="A result full of NaN passes, and so does any other of the same "
    "shape.",
    cause="A shape says nothing about the values in it; most masking errors "
    "change no shape.",
    fix="Compare every number with an independent reference.",
    hint="Give it a tensor of NaN.",
    seen="S4.3",
)
def shape_check_passes_nan(ours, reference):
    return ours.shape == reference.shape
