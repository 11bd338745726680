"""Slips of chapter 11."""

from functools import partial

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import c11_language_model as c11

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
