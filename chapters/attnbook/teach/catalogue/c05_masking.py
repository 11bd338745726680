"""Chapter 5, masking: tasks and known mistakes."""

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import f64, ints, marks, randns, wary
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(5)


@task(
    against="F.scaled_dot_product_attention",
    gradients=True,
    cases={
        "two tokens": randns((2, 4), (2, 4), (2, 1), seed=4),
        "a batch of heads": (
            *randns((2, 2, 5, 3), (2, 2, 5, 3), (2, 2, 5, 4), seed=7),
        ),
        # The scores are −3 · 2³⁰, −2³¹ and 0, the same for each query:
        # what stands for a hidden one has to be lower still.
        "later keys with far higher scores": (
            f64([2**16], [2**16], [2**16]),
            f64([-3 * 2**14], [-(2**15)], [0]),
            f64([1], [2], [4]),
        ),
        "17 texts of 17 heads": randns(
            (17, 17, 2, 3), (17, 17, 2, 3), (17, 17, 2, 4), seed=10
        ),
        "131 tokens, all wider than 128": randns(
            (131, 130), (131, 130), (131, 132), seed=13
        ),
        "128 tokens, 64 wide": randns(
            (128, 64), (128, 64), (128, 64), seed=16
        ),
    },
)
def causal_attention(q, k, v):
    """context and weights: scaled scores, later keys hidden, softmax, means"""
    units = torch.eye(k.shape[-2]).to(q).expand(*k.shape[:-1], -1)
    both = torch.cat([v, units], -1)  # averages of these are the weights
    both = F.scaled_dot_product_attention(q, k, both, is_causal=True)
    return both.tensor_split([v.shape[-1]], -1)


_SCORES = {
    "one key allowed, one not": (f64([1, 2]), marks("10")),
    "an allowed score of 0": (f64([0, 1, 2]), marks("110")),
    "negative scores": (f64([-3, -1, -2]), marks("110")),
    "a hidden score far above": (f64([-2e9, 1000]), marks("10")),
    "large scores": (f64([1000, 999, 0]), marks("110")),
    "two queries, four keys": (randn(2, 4, seed=1), marks("1100", "1110")),
    "one mask for a batch": (randn(2, 2, 3, seed=2), marks("011", "111")),
    "a query without keys": (
        randn(3, 3, seed=3),
        marks("000", "101", "110"),
    ),
    "a mask for each text": (
        randn(2, 2, 3, seed=4),
        torch.stack([marks("110", "011"), marks("101", "111")]),
    ),
    "131 queries, three keys": (
        randn(131, 3, seed=4),
        randn(131, 3, seed=5) > f64(0, 0, -9),
    ),
    "17 texts, 131 keys": (
        randn(17, 2, 131, seed=6),
        randn(17, 2, 131, seed=7) > 0,
    ),
    "16 queries, 128 keys": (
        randn(16, 128, seed=8),
        randn(16, 128, seed=9) > 0,
    ),
}


@task(against="torch.where", cases=_SCORES)
def mask_scores(scores, mask):
    """the scores, with −∞ where the mask is False, in a new tensor"""
    return torch.where(mask, scores, torch.full_like(scores, -torch.inf))


@mask_scores.mistake(symptom=symptoms.DIFFERS_EACH_TIME)
def overwrites_the_scores(scores, mask):
    """The result is right, and the scores are gone: whoever plots or compares
    them afterwards sees −∞ above the diagonal.
    cause: A method whose name ends in an underscore writes into its tensor.
    fix: masked_fill without the underscore; it gives a new tensor."""
    return scores.masked_fill_(~mask, -torch.inf)


@task(
    against="torch.softmax of the allowed scores alone",
    gradients=True,
    cases=_SCORES
    | {
        "float16, a query without keys": (
            f64([3, 1, 2], [1, 2, 3]).half(),
            marks("010", "000"),
        ),
        "nothing, and no NaN on the way": (wary(f64([1, 2])), marks("00")),
    },
)
def masked_weights(scores, mask):
    """weights that sum to one over the allowed keys and are 0 at the others;
    all 0 where no key is allowed; gradients finite"""
    rows = []
    mask = mask.expand(scores.shape)
    for row, keys in zip(scores.flatten(0, -2), mask.flatten(0, -2)):
        chosen = torch.softmax(row[keys], -1)  # (number of allowed keys,)
        rows.append(torch.zeros_like(row).masked_scatter(keys, chosen))
    return torch.stack(rows).reshape(scores.shape)


@masked_weights.mistake(
    "georg-wolflein/good-features #1", symptom=symptoms.SEES_WRONG_TOKENS
)
def mask_by_multiplication(scores, mask):
    """Masked keys keep a weight: in the first case .27 of the average comes
    from a key that should be out.
    cause: A masked score becomes 0, a score like any other, with exp(0) = 1.
    It even beats every negative score.
    fix: Fill with −∞ before the softmax: exp(−∞) = 0.
    hint: What weight does a score of 0 get from softmax?"""
    return torch.softmax(scores * mask, -1)


@masked_weights.mistake(
    symptom=(symptoms.WRONG_IN_THE_NEXT_CASE, symptoms.SEES_WRONG_TOKENS)
)
def zero_scores_taken_for_masked(scores, mask):
    """An allowed key whose score happens to be exactly 0 vanishes from the
    average; a query orthogonal to it is enough.
    cause: After the product, a masked score and a true score of 0 look alike.
    fix: Ask the mask, not the scores: masked_fill(~mask, −inf).
    hint: Try a score that really is 0."""
    scores = scores * mask
    return torch.softmax(scores.masked_fill(scores == 0, -torch.inf), -1)


@masked_weights.mistake(
    "lucidrains/memory-compressed-attention #2",
    symptom=(symptoms.WRONG_SUMS, symptoms.SEES_WRONG_TOKENS),
)
def zeroed_after_softmax(scores, mask):
    """The rows of the weights no longer sum to one, and the allowed weights
    still depend on the forbidden scores.
    cause: The softmax has divided by a sum in which the masked keys took part.
    fix: Mask the scores, before the softmax.
    hint: What does each of your rows sum to?"""
    return torch.softmax(scores, -1) * mask


@masked_weights.mistake(symptom=symptoms.SEES_WRONG_TOKENS)
def finite_fill(scores, mask):
    """Nothing fails, but a query that may attend to nothing spreads its weight
    evenly over all keys, the future and the padding included.
    cause: −1e9 is a score like others, and equal scores get equal weights.
    fix: Fill with −∞, and give a row without keys the weights 0.
    hint: What do equal scores give, however low they are?"""
    return torch.softmax(scores.masked_fill(~mask, -1e9), -1)


@masked_weights.mistake("pytorch/pytorch #103963", symptom=symptoms.NAN)
def nan_in_masked_rows(scores, mask):
    """A query that may attend to nothing gets NaN, and in the backward pass
    the NaN reaches tensors that all queries share.
    cause: Every exp is 0, so the softmax divides 0 by 0.
    fix: Give a row without keys the weights 0, as attnbook's softmax does.
    hint: What do you divide by where no key is allowed?"""
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)


@task(
    against="a loop over pairs",
    home="masks.causal_mask",
    cases={
        "one query, one key": (1, 1),
        "as many queries as keys": (3, 3),
        "one query, the last of four": (1, 4),
        "two queries, the last of five": (2, 5),
        "twelve queries, the last of 300": (12, 300),
        "131 queries, the last of 300": (131, 300),
        "64 queries, the last of 128": (64, 128),
    },
)
def causal_mask(n_queries, n_keys):
    """a boolean mask (n_queries, n_keys), True where the key is not later than
    the query; the queries are the last of the keys"""
    rows = range(n_keys - n_queries, n_keys)
    return torch.tensor([[j <= i for j in range(n_keys)] for i in rows])


@causal_mask.mistake(
    "octo-models/octo #75, huggingface/transformers #48745",
    symptom=(symptoms.LOSS_TOO_LOW, symptoms.SEES_WRONG_TOKENS),
)
def shows_the_next_word(n_queries, n_keys):
    """The loss falls far below what the text allows, and what the model writes
    is nonsense: in training it copied the next word, and now there is none.
    cause: With a diagonal one too high each query sees one later key, the very
    word that it should guess.
    fix: The main diagonal, tril(n_keys − n_queries), and a test for leaks.
    hint: How many keys may the first of three queries see?"""
    mask = torch.ones(n_queries, n_keys, dtype=torch.bool)
    return mask.tril(n_keys - n_queries + 1)


@causal_mask.mistake("pbloem/former #10", symptom=symptoms.SEES_WRONG_TOKENS)
def hides_the_word_itself(n_queries, n_keys):
    """No query sees its own key, and the first sees none: zeros or NaN.
    cause: The diagonal was taken for the future; tril(−1), or triu(0) to hide.
    fix: tril(n_keys − n_queries) keeps the diagonal: a word may see itself.
    hint: What is left for the first query?"""
    mask = torch.ones(n_queries, n_keys, dtype=torch.bool)
    return mask.tril(n_keys - n_queries - 1)


@causal_mask.mistake(
    "pytorch/pytorch #108108",
    symptom=(symptoms.SEES_WRONG_TOKENS, symptoms.LATER_TOKENS_WRONG),
)
def causal_mask_top_left(n_queries, n_keys):
    """A single new query, with the keys of the past kept, attends to the very
    first key only. Square masks are right, so nobody notices.
    cause: tril starts its diagonal at the top left, as if the queries were the
    first positions; they are the last.
    fix: Shift the diagonal by n_keys − n_queries.
    hint: How many keys may the last query see?"""
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril()


@causal_mask.mistake(
    "rasbt/LLMs-from-scratch #1061, pytorch/pytorch #170404",
    symptom=(symptoms.LOSS_TOO_LOW, symptoms.SEES_WRONG_TOKENS),
)
def inverted_causal_mask(n_queries, n_keys):
    """Every query sees nothing but the future, and the last one nothing. All
    shapes fit, and the model reads the word that it should guess.
    cause: The upper triangle marks what to hide; torch's SDPA takes True as:
    may attend.
    fix: Negate it, and say in a comment what True means.
    hint: In this book, what does True mean in a mask?"""
    future = torch.ones(n_queries, n_keys).triu(n_keys - n_queries + 1)
    return future.bool()


@task(
    against="a loop over pairs",
    home="masks.window_mask",
    cases={
        "a window of one": call(2, 2, window=1),
        "four tokens, a window of two": call(4, 4, window=2),
        "the same four, a window of three": call(4, 4, window=3),
        "two queries, the last of six": call(2, 6, window=3),
        "a window wider than the text": call(12, 12, window=20),
        "the last of 300, a window of 260": call(1, 300, window=260),
        "131 queries, the last of 300, a window of 140": call(
            131, 300, window=140
        ),
        "64 queries, the last of 128, a window of 32": call(
            64, 128, window=32
        ),
    },
)
def window_mask(n_queries, n_keys, *, window):
    """a boolean mask (n_queries, n_keys), True where the key is fewer than
    `window` positions before the query, or later; the queries are the last of
    the keys"""
    rows = range(n_keys - n_queries, n_keys)
    keys = range(n_keys)
    return torch.tensor([[i - j < window for j in keys] for i in rows])


@window_mask.mistake(
    "huggingface/transformers #39408", symptom=symptoms.SEES_WRONG_TOKENS
)
def window_one_too_wide(n_queries, n_keys, *, window):
    """Each query sees one key more than the window says.
    cause: Some count the positions before the query, others the keys it sees.
    fix: Say what is counted. Here the query's own position counts, so the
    distance is less than the window.
    hint: With a window of 1, how many keys does a query see?"""
    query = torch.arange(n_keys - n_queries, n_keys)[:, None]  # (T, 1)
    return query - torch.arange(n_keys) <= window  # (T, S)


_REAL = {
    "one token": (marks("1"),),
    "two tokens, padded on the left": (marks("011"),),
    "padded on the right, and inside": (marks("1100", "1111", "1011"),),
    "padded on the left": (marks("0011", "1111", "0001"),),
    "padded inside, and a row of padding": (marks("0101", "1011", "0000"),),
    # In bfloat16 the numbers from 257 on are not all different.
    "300 tokens, padded on the left": (marks("000" + "1" * 297),),
    "17 texts": (marks(*["110", "011", "101"] * 5, "111", "000"),),
    "rows of 16, 32, 64 and 128, of 15 and 17, padded on the left": (
        marks(*("0" * (128 - n) + "1" * n for n in (16, 32, 64, 128, 15, 17))),
    ),
}


@task(
    against="counting token by token",
    home="positions.token_positions",
    cases=_REAL,
)
def token_positions(real):
    """for each real token how many real tokens stand before it, and 0 at
    padding; integers (B, S)"""
    rows = real.tolist()
    n = range(real.shape[-1])
    return torch.tensor([[sum(r[:t]) * r[t] for t in n] for r in rows])


@token_positions.mistake(
    "huggingface/transformers #18478", symptom=symptoms.WRONG_IN_A_BATCH
)
def positions_count_the_padding(real):
    """Padded on the left, a text gives other outputs than alone. Padded on the
    right all is well, so the side seems to matter.
    cause: The columns are counted, so the first real token is not at 0.
    fix: Count real tokens: a cumulative sum over the mask, less one."""
    return torch.arange(real.shape[-1]) * real


@task(against="a loop over pairs", cases=_REAL)
def decoder_mask(real):
    """a boolean mask (B, T, T): query i may attend to key j if j is not later
    than i and is no padding"""
    rows = real.tolist()
    n = range(real.shape[-1])
    allowed = [[[j <= i and r[j] for j in n] for i in n] for r in rows]
    return torch.tensor(allowed)


@decoder_mask.mistake(
    "hyunwoongko/transformer #40, bentrevett/pytorch-seq2seq #96",
    symptom=(symptoms.SEES_WRONG_TOKENS, symptoms.WRONG_IN_A_BATCH),
)
def padding_on_the_queries(real):
    """Real tokens attend to the padding before them, and the rows of the
    padding are fully masked.
    cause: The mask got its new axis at the end, (B, T, 1), and so says which
    queries are real. The padding must be hidden as keys.
    fix: real[:, None, :], shape (B, 1, S)."""
    T = real.shape[-1]
    causal = torch.ones(T, T).to(real).tril()  # boolean, like real
    return causal & real[:, :, None]  # (T, S) & (B, T, 1)


def _last_off(x):
    """The same numbers, but for the very last, which is larger by 1."""
    last = torch.arange(x.numel()) == x.numel() - 1
    return x + last.reshape(x.shape)


_FOUR = f64([1, 2], [3, 4])
_GAP = f64([1, 2], [torch.nan, 4])


@task(
    against="a loop over numbers",
    cases={
        "all larger by 5e-10, within the bound": (_FOUR + 5e-10, _FOUR),
        "nothing but NaN": (_FOUR * torch.nan, _FOUR),
        "NaN in both, at one place": (_GAP, _GAP),
        "NaN in the reference alone": (_FOUR, _GAP),
        "all smaller by 1": (_FOUR - 1, _FOUR),
        "one of four larger by 1.5e-9": (f64([1, 2], [3 + 1.5e-9, 4]), _FOUR),
        "larger by 1e-8, at 1000": (f64([1000 + 1e-8]), f64([1000])),
        "two of four exchanged": (f64([2, 1], [3, 4]), _FOUR),
        "one row against the same row twice": (_FOUR[:1], _FOUR[[0, 0]]),
        "ones, in another shape": (f64([[1, 1]]), f64([[1], [1]])),
        "larger by 1e-9, the bound itself": (f64([1e-9]), f64([0])),
        "no numbers at all": (f64([1])[:0], f64([1])[:0]),
        "the last of 131 rows of 130 is off": (
            _last_off(randn(131, 130, seed=8)),
            randn(131, 130, seed=8),
        ),
        "the last of 17 tables is off": (
            _last_off(randn(17, 2, 3, seed=9)),
            randn(17, 2, 3, seed=9),
        ),
    },
)
def looks_right(ours, reference):
    """True if the shapes are equal and every number is within 1e-9 of the
    reference; a NaN is never right"""
    if ours.shape != reference.shape:
        return False
    pairs = zip(ours.flatten().tolist(), reference.flatten().tolist())
    return all(abs(a - b) <= 1e-9 for a, b in pairs)


@looks_right.mistake(symptom=symptoms.TEST_ALWAYS_PASSES)
def shape_check_passes_nan(ours, reference):
    """A result full of NaN passes, and so does any other of the same shape.
    cause: A shape says nothing of the values; few masking errors change one.
    fix: Compare every number with an independent reference.
    hint: Give it a tensor of NaN."""
    return ours.shape == reference.shape


@task(
    against="a loop over pairs",
    cases={
        "one text": (ints([1, 1]),),
        "two texts, a token each": (ints([1, 2]),),
        "two texts in a row": (ints([1, 1, 2, 2, 2]),),
        "two rows, cut elsewhere": (ints([1, 1, 2, 2], [1, 2, 2, 2]),),
        "numbers in no order": (ints([3, 300, 300, 44, 44, 44, 4097, 4096]),),
        "texts of 300 and eight tokens": (ints([*[1] * 300, *[2] * 8]),),
        "a text with the number 0": (ints([0, 0, 1]),),
        "17 rows": (torch.arange(17 * 5).reshape(17, 5) // 3,),
        "texts of 128, 64, 32, 16, 15 and 17 tokens": (
            torch.arange(6).repeat_interleave(ints(128, 64, 32, 16, 15, 17))[
                None
            ],
        ),
    },
)
def document_mask(documents):
    """True where a token may read, (B, T, T): itself and what comes before it
    in its own text; documents (B, T) has for each token the number of its
    text, and texts are packed one after the other"""
    places = range(documents.shape[-1])
    rows = [
        [[s <= t and row[s] == row[t] for s in places] for t in places]
        for row in documents.tolist()
    ]
    return torch.tensor(rows)


@document_mask.mistake(
    "huggingface/trl #784, unslothai/unsloth #1207, mit-han-lab/fastrl #14, "
    "DeepOpt-com/WrinkleFree-Monorepo #53",
    symptom=symptoms.SEES_WRONG_TOKENS,
)
def hides_later_tokens_alone(documents):
    """Training runs, and the loss is a little worse than without packing: the
    text depends on which other texts happened to stand before it in the row.
    cause: The mask is the causal one. Positions that begin anew, or an end
    token between texts, hide nothing.
    fix: A key has to be of the same text as well: compare the numbers of the
    texts, and join both masks by `&`."""
    B, T = documents.shape
    return torch.ones(B, T, T, dtype=torch.bool).tril()


@document_mask.mistake(
    "meta-pytorch/attention-gym #98", symptom=symptoms.WRONG_IN_A_BATCH
)
def cuts_all_rows_like_the_first(documents):
    """Right for the first row of a batch, or where all rows are cut alike.
    cause: The mask is made of one row and serves all of them.
    fix: Each row of the batch has its own texts, so it has its own mask."""
    same = documents[:1, :, None] == documents[:1, None]
    return same.tril().repeat(len(documents), 1, 1)


@document_mask.mistake(
    "OpenEvaByte/evabyte #10", symptom=symptoms.SEES_WRONG_TOKENS
)
def ends_each_text_one_token_late(documents):
    """Each text but the first is blind for its own first token, and that one
    reads the text before it.
    cause: The number of the text goes up after the first token of a text and
    not before it; or the end token is counted to the text that follows.
    fix: Make the numbers of a short row by hand, and look where they change.
    """
    late = torch.cat([documents[:, :1], documents[:, :-1]], 1)
    return (late[:, :, None] == late[:, None]).tril()


@document_mask.mistake(
    "swiss-ai/Megatron-LM #40", symptom=symptoms.SEES_WRONG_TOKENS
)
def hides_each_texts_first_token(documents):
    """The first token of each text is read by nobody, itself included: a row
    of the mask is empty, and the softmax gives NaN or a mean of everything.
    cause: At the border everything up to the border is hidden, and the border
    is counted as part of what came before, `mask[i:, : i + 1] = False`.
    fix: Only what comes before the first token belongs to another text,
    `mask[i:, :i]`."""
    before = torch.cat([documents[:, :1] - 1, documents[:, :-1]], 1)
    first = documents != before
    same = documents[:, :, None] == documents[:, None]
    return same.tril() & ~first[:, None]
