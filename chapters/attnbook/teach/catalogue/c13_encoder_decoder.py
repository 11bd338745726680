"""Chapter 13, encoder, decoder, encoder-decoder: tasks and known mistakes."""

import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

from attnbook.attention import softmax
from attnbook.layers import TransformerBlock
from attnbook.masks import causal_mask
from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of
from attnbook.teach.check.inputs import (
    Labelled,
    drawn,
    f64,
    ints,
    marks,
    randns,
)
from attnbook.teach.check.running import call
from attnbook.teach.check.seeded import randn

task = tasks_of(13)

_ROW = f64([1, 0])
_REAL = marks("11100")[0]
_NONE = torch.zeros(3, dtype=torch.bool)


def _alternating(*size):
    """A mask of this size in which every second place is True."""
    n = math.prod(size)
    return (torch.arange(n) % 2 == 0).reshape(size)


@task(
    against="torch's scaled_dot_product_attention",
    gradients=True,
    cases={
        "one word reads two": (_ROW, f64([1, 0], [0, 2]), _REAL[:2]),
        "the second of two is padding": (
            _ROW,
            f64([1, 0], [0, 2]),
            _REAL[2:4],
        ),
        "three words read five, two of them padding": (
            *randns((3, 4), (5, 4), seed=1),
            _REAL,
        ),
        "as many words on either side": (
            *randns((4, 3), (4, 3), seed=3),
            _REAL[:4],
        ),
        "a batch of unequal lengths": (
            *randns((3, 2, 4), (3, 4, 4), seed=5),
            marks("1111", "0011", "1110"),
        ),
        "a source of padding alone": (*randns((2, 4), (3, 4), seed=7), _NONE),
        "such a source beside another": (
            *randns((2, 2, 4), (2, 3, 4), seed=9),
            marks("110", "000"),
        ),
        "a real score far below the padding's": (
            1e5 * _ROW,
            f64([-1e5, 0], [0, 2]),
            _REAL[2:4],
        ),
        "17 texts, a word reads three": (
            *randns((17, 1, 4), (17, 3, 4), seed=11),
            _alternating(17, 3),
        ),
        "131 words read 137, 130 wide": (
            *randns((131, 130), (137, 130), seed=13),
            _alternating(137),
        ),
    },
)
def read_source(target, source, real):
    """for each target token the average of the real source tokens, (..., T,
    d), weighted by softmax(target · source/√d); zero if no token is real"""
    return F.scaled_dot_product_attention(
        target, source, source, attn_mask=real[..., None, :]
    )


def scores_of(target, source):
    """Scaled scores of target tokens against source tokens: (..., T, S)."""
    return target @ source.transpose(-2, -1) / target.shape[-1] ** 0.5


@read_source.mistake(
    "onlybooks/llm #4, NVIDIA/TransformerEngine #565",
    symptom=symptoms.SEES_WRONG_TOKENS,
)
def causal_over_the_source(target, source, real):
    """The first word written reads the first source vector alone, the second
    the first two. Whatever else they need, the encoder must have carried
    there. No error is raised.
    cause: A decoder is causal, so its cross-attention is made causal as well.
    But the source is finished before the first word is written.
    fix: The causal mask belongs to the decoder's self-attention. In
    cross-attention only the source's padding is hidden.
    hint: Which source words exist when the first target word is written?"""
    scores = scores_of(target, source)
    mask = real[..., None, :] & torch.ones_like(scores).bool().tril()
    return softmax(scores.masked_fill(~mask, -torch.inf)) @ source


@read_source.mistake(
    "huggingface/transformers #47946",
    symptom=(symptoms.SEES_WRONG_TOKENS, symptoms.WRONG_IN_A_BATCH),
)
def reads_the_padding(target, source, real):
    """The same text is read differently in a batch with longer ones: a share
    of the weight goes to padding.
    cause: The padding was hidden in the encoder and forgotten in the decoder.
    Hiding it there keeps others from reading it; the encoder gives a vector
    for each padding token all the same.
    fix: Hand the source's padding mask to cross-attention too, (B, 1, S).
    hint: Does your result change when padding is added to the source?"""
    return softmax(scores_of(target, source)) @ source


@read_source.mistake(
    "rexrex9/nlp_torchtext #2, humza909/LLM_Survey #2",
    symptom=symptoms.WRONG_NUMBERS,
)
def swaps_queries_and_keys(target, source, real):
    """One vector comes out for each token of the source, none for the
    target's; with texts of one length the shape gives nothing away.
    cause: Queries and keys are swapped: the source asks, and is answered with
    an average of the target, later words included.
    fix: Who writes, asks: queries from the decoder, keys and values from the
    encoder.
    hint: How many vectors does the decoder need, one for each of what?"""
    scores = scores_of(source, target)  # (..., S, T)
    scores = scores.masked_fill(~real[..., :, None], -torch.inf)
    return softmax(scores) @ target


def _encoder(n_blocks, *size):
    """Tokens as vectors, some of the book's blocks, and a norm after them."""
    blocks = nn.ModuleList(TransformerBlock(4, 2) for _ in range(n_blocks))
    parts = nn.ModuleList([blocks, nn.LayerNorm(4)])
    parts = drawn(parts, seed=n_blocks).requires_grad_(False)
    return randn(*size, seed=n_blocks), *parts


@task(
    against="torch's F.layer_norm after the blocks",
    gradients=True,
    cases=lambda: {
        "1 block": _encoder(1, 2, 4),
        "2 blocks": _encoder(2, 3, 4),
        "3 blocks": _encoder(3, 2, 5, 4),
        "a mask": call(*_encoder(3, 2, 5, 4), mask=causal_mask(5)),
        "17 blocks": _encoder(17, 2, 4),
        "17 texts": _encoder(1, 17, 3, 4),
        "131 tokens": call(*_encoder(1, 131, 4), mask=causal_mask(131)),
    },
)
def encode(x, blocks, norm, mask=None):
    """x after every block, then normalised"""
    x = functools.reduce(lambda x, block: block(x, mask=mask), blocks, x)
    return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


@encode.mistake(
    "NVIDIA-NeMo/Speech #2197, huggingface/transformers #26142",
    symptom=symptoms.LOADED_WEIGHTS,
    not_looked_up="huggingface/transformers #26142",
)
def memory_without_its_norm(x, blocks, norm, mask=None):
    """The memory's vectors grow with the number of blocks, and the decoder's
    keys and values with them; a model that was trained with the norm gives
    other answers.
    cause: In a pre-norm stack each block normalises what it reads, never what
    it passes on. The stream leaves the last block as it is.
    fix: Normalise once more after the last block: norm(x)."""
    for block in blocks:
        x = block(x, mask=mask)
    return x


@encode.mistake(
    "meta-pytorch/torchtune #2461",
    symptom=(symptoms.TRAINS_BADLY, symptoms.WRONG_GRADIENTS),
)
def memory_one_block_early(x, blocks, norm, mask=None):
    """Shape and size are right, and the last block might as well not be there:
    it gets no gradient.
    cause: The list of states is written before each block. Its last entry is
    what the last block reads, not what it gives.
    fix: Append after the block; n blocks then leave n + 1 states, the
    embeddings and one a block."""
    states = []
    for block in blocks:
        states.append(x)
        x = block(x, mask=mask)
    return norm(states[-1])


@task(
    against="slices of lists",
    cases={
        "two tokens": (ints([5, 7]), 0),
        "one token": (ints([5]), 0),
        "a batch": (ints([5, 30, 300, 6], [0, 8, 8, 9]), 30),
        "the start token in the text, too": (ints([0, 7, 0, 7]), 0),
        "17 texts of 131 tokens": (
            torch.arange(17 * 131).reshape(17, 131) % 307,
            300,
        ),
    },
)
def decoder_input(targets, start):
    """the targets moved one place to the right, the start token in front, the
    last token gone: (B, T)"""
    rows = [[start, *row][:-1] for row in targets.tolist()]
    return torch.tensor(rows)


@decoder_input.mistake(
    "Project-MONAI/GenerativeModels #314", symptom=symptoms.LOSS_TOO_LOW
)
def shows_the_answer(targets, start):
    """The loss falls to nearly 0 within a few dozen steps, and the model
    cannot write a single text.
    cause: The decoder is shown the token that it shall guess. Its causal mask
    hides later tokens, not a position's own.
    fix: Move the targets one place to the right: the decoder reads token t − 1
    where it guesses token t."""
    return targets.clone()


_LOGITS = randn(2, 5, 4, seed=30)
_TOKENS = ints([0, 3, 1, 2, 2], [3, 3, 0, 1, 0])


@task(
    against="torch's F.cross_entropy",
    gradients=True,
    cases={
        "two words, one covered": (
            _LOGITS[:1, :2],
            _TOKENS[:1, :2],
            marks("01"),
        ),
        "one word covered in two sentences": (
            _LOGITS,
            _TOKENS,
            marks("01000", "00000"),
        ),
        "all covered": (_LOGITS, _TOKENS, marks("11111", "11111")),
        "several covered, of 300 words": (
            300 * randn(2, 5, 300, seed=31),
            ints([299, 3, 7, 2, 2], [256, 3, 0, 257, 0]),
            marks("01000", "10110"),
        ),
        "17 texts of 131 words": (
            randn(17, 131, 5, seed=32),
            torch.arange(17 * 131).reshape(17, 131) % 5,
            _alternating(17, 131),
        ),
    },
)
def covered_loss(logits, tokens, covered):
    """the mean cross-entropy over the covered words alone, in nats"""
    return F.cross_entropy(logits[covered], tokens[covered])


@covered_loss.mistake(
    "huggingface/transformers #20797, lucidrains/mlm-pytorch #3",
    symptom=(symptoms.LOSS_TOO_LOW, symptoms.OTHER_SCORE),
)
def counts_words_in_plain_sight(logits, tokens, covered):
    """The loss looks good from the start: a model that only copies what it
    sees has most words right.
    cause: The words in plain sight are counted too. There are many more of
    them, and for each the answer stands in the input.
    fix: Count the covered words only: cross_entropy with the target −100 at
    all others."""
    return F.cross_entropy(logits.flatten(0, -2), tokens.flatten())


_WORDS = ints([5, 6, 7, 8], [8, 7, 6, 5])
_OTHERS = ints([1, 2, 3, 4], [4, 3, 2, 1])
_KIND = f64([0.8, 0.85, 0.9, 0.5], [0.79, 0.9, 0.89, 0.8])
_CHOSEN = marks("1111", "1101")


def _chosen(kind):
    """Two chosen words of one kind: a label can say which."""
    return _WORDS[:1, :2], marks("11"), f64([kind, kind]), _OTHERS[:1, :2], 0


@task(
    against="a loop over words",
    cases={
        "words to be covered": _chosen(0.5),
        "chosen words to be replaced": _chosen(0.85),
        "chosen words to be left as they are": _chosen(0.95),
        "nothing chosen": (_WORDS, marks("0000", "0000"), _KIND, _OTHERS, 0),
        "every kind, and both edges": (_WORDS, _CHOSEN, _KIND, _OTHERS, 0),
        "another mask token": (
            ints([5, 103, 300, 0], [0, 300, 103, 5]),
            _CHOSEN,
            _KIND.flip(0),
            ints([4, 103, 300, 0], [103, 300, 4, 4]),
            103,
        ),
        "the word itself is drawn": (_WORDS, _CHOSEN, _KIND, _WORDS, 0),
        "17 texts of 131 words, another token again": (
            torch.arange(17 * 131).reshape(17, 131) % 307,
            _alternating(17, 131),
            torch.arange(17 * 131).reshape(17, 131) % 11 / 11.0,
            torch.arange(17 * 131).reshape(17, 131) % 293,
            300,
        ),
    },
)
def cover_words(tokens, chosen, kind, random_words, mask_token):
    """the pair (inputs, targets): chosen words covered (kind < 0.8), replaced
    by the random word (0.8 ≤ kind < 0.9) or left; targets are the chosen
    words, −100 elsewhere"""
    inputs, targets = tokens.tolist(), tokens.tolist()
    for b, t in torch.cartesian_prod(*map(torch.arange, tokens.shape)):
        if not chosen[b, t]:
            targets[b][t] = -100
        elif kind[b, t] < 0.8:
            inputs[b][t] = int(mask_token)
        elif kind[b, t] < 0.9:
            inputs[b][t] = int(random_words[b, t])
    return torch.tensor(inputs), torch.tensor(targets)


@cover_words.mistake(
    "lucidrains/mlm-pytorch #6", symptom=symptoms.LOSS_TOO_LOW
)
def covers_the_random_words_too(
    tokens, chosen, kind, random_words, mask_token
):
    """No random word is ever seen: all that were put in are covered again by
    the next line.
    cause: Two replacements follow each other, and the second does not leave
    out the places of the first.
    fix: Let the two conditions exclude each other, kind < 0.8 and 0.8 ≤ kind <
    0.9.
    hint: After your last line, what stands where kind is 0.85?"""
    inputs = torch.where(chosen & (0.8 <= kind), random_words, tokens)
    inputs = torch.where(chosen & (kind < 0.9), mask_token, inputs)
    inputs = torch.where(chosen & (0.9 <= kind), tokens, inputs)
    return inputs, torch.where(chosen, tokens, -100)


@cover_words.mistake(
    "huggingface/transformers #20797",
    symptom=(symptoms.LOSS_TOO_LOW, symptoms.OTHER_SCORE),
)
def asks_for_every_word(tokens, chosen, kind, random_words, mask_token):
    """A loss of 0.1 to 0.2 where others report more than 1, and a model that
    has learned to copy.
    cause: Every word is a target, the ones in plain sight too.
    fix: Give the target −100, which cross_entropy leaves out, to every word
    that was not chosen.
    hint: Which words does your loss ask for?"""
    inputs = torch.where(chosen & (kind < 0.8), mask_token, tokens)
    replaced = chosen & (0.8 <= kind) & (kind < 0.9)
    return torch.where(replaced, random_words, inputs), tokens.clone()


@task(
    against="a loop over pairs",
    cases={
        "no prefix, as in a decoder": (0, 2),
        "a prefix and nothing else, as in an encoder": (2, 2),
        "a prefix of one, two tokens": (1, 2),
        "a prefix of three, five tokens": (3, 5),
        "a prefix of twelve, fourteen tokens": (12, 14),
        "a prefix of 260, 300 tokens": (260, 300),
        "a prefix of 64, 128 tokens": (64, 128),
    },
)
def prefix_mask(n_prefix, n):
    """True where a token may be read, (n, n): the prefix by all, what follows
    by itself and later tokens"""
    rows = [[j < n_prefix or j <= i for j in range(n)] for i in range(n)]
    return torch.tensor(rows)


@prefix_mask.mistake(
    "bigscience-workshop/Megatron-DeepSpeed #167",
    symptom=(symptoms.LOSS_TOO_LOW, symptoms.SEES_WRONG_TOKENS),
)
def prefix_one_too_long(n_prefix, n):
    """The prefix reads the first token that is to be guessed; that one guess
    is too good in training and bad in use.
    cause: The prefix's length is taken for the place of its last token.
    fix: A prefix of n tokens has the places 0 to n − 1: place < n_prefix.
    hint: Try a prefix of one token. May it read the second?"""
    return causal_mask(n) | (torch.arange(n) <= n_prefix)


def _model(words, rule, n=5):
    """A model of n tokens, whose next token the rule makes of those so far."""
    label = f"a model where {words} follows"
    return Labelled(label, lambda seen: F.one_hot(rule(seen) % n, n).double())


_RING = _model("t + 1 (0 after 4)", lambda seen: seen[:, -1] + 1)
_LONG_RING = _model("t + 1 (0 after 299)", lambda seen: seen[:, -1] + 1, n=300)


def _ring_to_the_end(seen):
    """Foretell, for each text, the number after its last one; 4 is the end.

    It raises if it is asked for more when every text has ended.
    """
    if (seen[:, 1:] == 4).any(-1).all():
        raise ValueError("asked for a word after the end of every text")
    return seen[:, -1] + 1


_STRICT = _model("t + 1, until all have ended,", _ring_to_the_end)
_SUM = _model("the sum of all so far, modulo 5,", lambda seen: seen.sum(-1))


@task(
    against="each text continued alone",
    cases={
        "two tokens behind a start of one": (_RING, ints([0]), 4, 2),
        "a text that ends": (_RING, ints([3]), 4, 3),
        "two texts, one ends earlier": (_RING, ints([0], [3]), 4, 6),
        "no end in sight": (_SUM, ints([1, 2], [3, 1]), 0, 12),
        "two tokens to start from": (_RING, ints([0, 0], [3, 3]), 4, 3),
        "a start that is the stop token": (_RING, ints([4]), 4, 3),
        "nobody asks after the end": (_STRICT, ints([1], [3]), 4, 9),
        "nothing to append": (_RING, ints([2], [3]), 4, 0),
        "a stop token above 256": (_LONG_RING, ints([296], [298]), 299, 5),
        "17 texts, two of them end": (
            _LONG_RING,
            torch.arange(282, 299)[:, None],
            299,
            2,
        ),
        "130 tokens behind 131": (
            _LONG_RING,
            torch.arange(131)[None],
            299,
            130,
        ),
        "64 tokens behind 64": (_LONG_RING, torch.arange(64)[None], 299, 64),
    },
)
def greedy_until(next_logits, start, stop, longest):
    """start and up to `longest` further tokens, each the best next one; a text
    that has ended goes on with `stop`, and when all have ended nothing is
    added"""
    texts = []
    for row in start:
        text = row.tolist()
        for _ in range(longest):
            best = next_logits(torch.tensor([text]))[0].argmax().item()
            text.append(best)
            if best == stop:
                break
        texts.append(text)
    length = max(map(len, texts))
    return torch.tensor(
        [text + [stop] * (length - len(text)) for text in texts]
    )


@greedy_until.mistake(
    "Dao-AILab/flash-attention #2784, lucidrains/h-transformer-1d #9",
    symptom=(symptoms.WRONG_IN_A_BATCH, symptoms.BAD_TEXT),
)
def writes_on_after_the_end(next_logits, start, stop, longest):
    """Alone, a text ends where it should; in a batch words follow its end, as
    long as another one is still being written.
    cause: The loop ends when every text writes the stop token in the same
    step; a text that is done is not kept still until then.
    fix: Remember who has ended, and give those the stop token from there on.
    hint: What does your first text get after its end, while the second is
    still going on?"""
    tokens = start
    for _ in range(longest):
        best = next_logits(tokens).argmax(-1, keepdim=True)  # (B, 1)
        tokens = torch.cat([tokens, best], dim=-1)
        if (best == stop).all():
            break
    return tokens
