"""Slips of chapters 11 and 12."""

import math
from functools import partial

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import c11_language_model as c11
from attnbook.teach.catalogue import c12_real_text as c12

INF = torch.inf


def _bigram(texts, vocab_size, extra):
    return c11.bigram(texts, vocab_size, extra).exp()


c11.bigram.slip(
    "the logarithm is missing",
    "Is a probability asked for, or its logarithm?",
    _bigram,
)
c11.bigram.slip(
    "rows and columns are exchanged",
    "Which of the two tokens does a row belong to?",
    lambda texts, size, extra: c11.bigram(
        [text[::-1] for text in texts], size, extra
    ),
)


def _rows(texts, size, extra, *, share):
    counts = torch.zeros(size, size, dtype=torch.float64)
    for text in texts:
        for pair in zip(text, text[1:]):
            counts[pair] += 1
    return share(counts, extra).log()


for _words, _hint, _share in (
    (
        "extra is not added",
        "Which probability has a pair that was never seen?",
        lambda n, extra: n / n.sum(-1, True),
    ),
    (
        "the sums leave extra out",
        "Does each of your rows sum to one?",
        lambda n, extra: (n + extra) / n.sum(-1, True),
    ),
    (
        "the sums have extra once",
        "To how many entries of a row is extra added?",
        lambda n, extra: (n + extra) / (n.sum(-1, True) + extra),
    ),
    (
        "the sums repeat along the wrong axis",
        "By the sum of which row is the entry (0, 1) divided?",
        lambda n, extra: (n + extra) / (n + extra).sum(-1),
    ),
    (
        "all pairs have one sum",
        "Does each of your rows sum to one?",
        lambda n, extra: (n + extra) / (n + extra).sum(),
    ),
    (
        "it is a softmax of the counts",
        "What makes shares of counts: a power of e, or a division?",
        lambda n, extra: (n + extra).softmax(-1),
    ),
    (
        "a pair that comes again is not counted again",
        "How often does 0 1 stand in the text 0 1 0 1?",
        lambda n, extra: (m := n.sign() + extra) / m.sum(-1, True),
    ),
):
    c11.bigram.slip(_words, _hint, partial(_rows, share=_share))


def _logits(tokens, table, positions, blocks, norm):
    x = table[tokens] + positions[: tokens.shape[1]]
    for block in blocks:
        x = block(x)
    return norm(x) @ table.T


def _same(x):
    return x


c11.language_model.slip(
    "it ends in a softmax",
    "Are logits asked for, or probabilities?",
    lambda *parts: _logits(*parts).softmax(-1),
)
c11.language_model.slip(
    "the positions begin at 1",
    "Which row of the table belongs to the first token?",
    lambda tokens, table, positions, *parts: _logits(
        tokens, table, positions[1:], *parts
    ),
)
c11.language_model.slip(
    "the norm stands before the blocks",
    "What was done last to the stream that your head reads?",
    lambda *parts: _logits(*parts[:3], [parts[4], *parts[3]], _same),
)
c11.language_model.slip(
    "the norm stands after each block",
    "How often is the norm that was given used?",
    lambda *parts: _logits(
        *parts[:3], [f for b in parts[3] for f in (b, parts[4])], _same
    ),
)
c11.language_model.slip(
    "the stream is added to what a block returns",
    "What is in a block's result already?",
    lambda *parts: _logits(
        *parts[:3], [lambda x, b=b: x + b(x) for b in parts[3]], parts[4]
    ),
)
c11.language_model.slip(
    "each block reads the embeddings",
    "What does the second block read?",
    lambda *parts: _logits(*parts[:3], parts[3][-1:], parts[4]),
)


def _accumulate(
    model,
    batches,
    n,
    rate,
    *,
    clear=True,
    longest=INF,
    by=lambda y, all_: all_,
):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for start in range(0, len(batches), n):
        some = batches[start : start + n]
        total = sum((targets != -100).sum() for _, targets in some)
        if clear:
            optimizer.zero_grad()
        for tokens, targets in some:
            logits = model(tokens).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
            (loss / by(targets, total)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), longest)
        optimizer.step()
    return list(model.parameters())


c11.accumulate.slip(
    "the old gradients are never cleared",
    "What is in the gradients when the second step begins?",
    partial(_accumulate, clear=False),
)
c11.accumulate.slip(
    "the gradient is clipped",
    "What does plain gradient descent do with a long gradient?",
    partial(_accumulate, longest=1.0),
)
c11.accumulate.slip(
    "the losses are summed",
    "Over how many targets does one step average?",
    partial(_accumulate, by=lambda targets, total: 1),
)
c11.accumulate.slip(
    "the means are summed",
    "Which average is this, and what are its weights?",
    partial(_accumulate, by=lambda targets, total: (targets != -100).sum()),
)
c11.accumulate.slip(
    "the step goes uphill",
    "Does the loss fall along the gradient, or against it?",
    partial(_accumulate, by=lambda targets, total: -total),
)
c11.accumulate.slip(
    "all batches make one step",
    "After how many small batches comes a step?",
    lambda model, batches, n, rate: c11.accumulate(
        model, batches, len(batches), rate
    ),
)
c11.accumulate.slip(
    "it ends after the first step",
    "Which batches have you not gone through?",
    lambda model, batches, n, rate: c11.accumulate(
        model, batches[:n], n, rate
    ),
)
c11.accumulate.slip(
    "n is taken for the number of steps",
    "After how many small batches comes a step?",
    lambda model, batches, n, rate: c11.accumulate(
        model, batches, len(batches) // n, rate
    ),
)
c11.accumulate.slip(
    "the targets are shifted once more",
    "At which place of the targets stands the word after token 0?",
    lambda model, batches, n, rate: c11.accumulate(
        model, [(x[:, :-1], y[:, 1:]) for x, y in batches], n, rate
    ),
)
c12.bits_per_byte.slip(
    "it counts characters",
    "How many bytes has an é?",
    lambda loss, n, text: loss * n / math.log(2) / len(text),
)
c12.bits_per_byte.slip(
    "it multiplies by ln 2",
    "Are there more bits than nats, or fewer?",
    lambda loss, n, text: loss * n * math.log(2) / len(text.encode()),
)
for _words, _hint, _formula in (
    (
        "it is bits a token",
        "How many tokens does the text have, and how many bytes?",
        lambda loss, n, text: loss / math.log(2),
    ),
    (
        "tokens and bytes have changed places",
        "Do more tokens for the same text cost more, or less?",
        lambda loss, n, text: loss * len(text.encode()) / n / math.log(2),
    ),
    (
        "it is a perplexity",
        "Is the loss asked for, or its exponential?",
        lambda loss, n, text: (
            math.exp(loss) * n / len(text.encode()) / math.log(2)
        ),
    ),
):
    c12.bits_per_byte.slip(_words, _hint, _formula)


def _merge(data, merges, *, right, first=256):
    number = {pair: n for n, pair in enumerate(merges, first)}
    ids = list(data)
    while here := [p for p in zip(ids, ids[1:]) if p in number]:
        pair = min(here, key=number.get)
        at = [n for n in range(len(ids)) if (*ids[n : n + 2],) == pair][-right]
        ids[at : at + 2] = [number[pair]]
    return ids


c12.encode_bytes.slip(
    "it goes from right to left",
    "Which two of three equal bytes are joined?",
    lambda data, merges: _merge(data, merges, right=1),
)


def _first_found(data, merges):
    one = [pair for pair in merges if pair in zip(data, data[1:])][:1]
    return _merge(data, [p if p in one else None for p in merges], right=0)


c12.encode_bytes.slip(
    "it stops after one merge",
    "When is there no pair left to be joined?",
    _first_found,
)
c12.encode_bytes.slip(
    "the first merge is not 256",
    "Which id is the first that no byte has?",
    partial(_merge, right=0, first=257),
)
c12.encode_bytes.slip(
    "the merges are counted from 0",
    "Which id is the first that no byte has?",
    partial(_merge, right=0, first=0),
)
c12.encode_bytes.slip(
    "a pair that a merge has made is passed by",
    "Which new pairs does a merge make?",
    lambda data, merges: _merge(
        data,
        [pair if pair in zip(data, data[1:]) else None for pair in merges],
        right=0,
    ),
)


def _until_one_is_missing(data, merges):
    ids = list(data)
    for n in range(len(merges)):
        before, ids = ids, c12.encode_bytes(data, merges[: n + 1])
        if ids == before:
            break
    return ids


c12.encode_bytes.slip(
    "it ends at a merge that the text does not have",
    "Which merges come after one that is not in the text?",
    _until_one_is_missing,
)
c12.text_as_it_comes.slip(
    "everything is shown again with each part",
    "What was shown already?",
    lambda parts: [
        b"".join(parts[: n + 1]).decode(errors="ignore")
        for n in range(len(parts))
    ],
)
c12.text_as_it_comes.slip(
    "a character that is cut is lost",
    "What becomes of the first byte of an é?",
    lambda parts: [part.decode(errors="ignore") for part in parts],
)


def _or_nothing(parts, *, keep=1, clear=1):
    held, out = b"", []
    for part in parts:
        held = keep * held + part
        try:
            out.append(held.decode())
            held = (1 - clear) * held
        except UnicodeDecodeError:
            out.append("")
    return out


c12.text_as_it_comes.slip(
    "whole characters wait for one that is cut",
    "What can be shown of caf and the first byte of an é?",
    _or_nothing,
)
c12.text_as_it_comes.slip(
    "a part that ends within a character is lost",
    "What becomes of the first byte of an é?",
    partial(_or_nothing, keep=0),
)
c12.text_as_it_comes.slip(
    "what was shown is not taken away",
    "What was shown already?",
    partial(_or_nothing, clear=0),
)
c12.text_as_it_comes.slip(
    "each byte is taken for a character",
    "How many characters are the two bytes of an é?",
    lambda parts: [part.decode("latin-1") for part in parts],
)


def _without_sign(parts):
    texts = [
        b"".join(parts[:n]).decode(errors="replace").rstrip("\ufffd")
        for n in range(len(parts) + 1)
    ]
    return [b[len(a) :] for a, b in zip(texts, texts[1:])]


c12.text_as_it_comes.slip(
    "a � of the text itself is held back",
    "May a text hold a � of its own?",
    _without_sign,
)
