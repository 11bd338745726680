"""Slips of chapter 11."""

from functools import partial

import torch
import torch.nn.functional as F

from attnbook.teach.catalogue import c11_language_model as c11

INF = torch.inf


c11.cross_entropy.slip(
    "the targets are shifted once more",
    "Which word is the target at place 0 already, and who has moved it there?",
    lambda logits, targets: F.cross_entropy(logits[:, :-1].mT, targets[:, 1:]),
)
c11.cross_entropy.slip(
    "the token 0 is taken for padding",
    "Which targets are not asked for here, and is 0 one of the words?",
    lambda logits, targets: F.cross_entropy(
        logits.mT, targets.masked_fill(targets == 0, -100)
    ),
)
c11.bigram.slip(
    "rows and columns are exchanged",
    "Which of the two tokens does a row belong to?",
    lambda texts, size, extra: c11.bigram(
        [text[::-1] for text in texts], size, extra
    ),
)


def _rows(texts, size, extra, *, share):
    """Log probabilities (size, size) of the next token, by counting pairs;
    `share(counts, extra)` makes probabilities of the counts."""
    counts = torch.zeros(size, size, dtype=torch.float64)
    for text in texts:
        for pair in zip(text, text[1:]):
            counts[pair] += 1
    return share(counts, extra).log()


c11.bigram.slip(
    "extra is not added",
    "Which probability has a pair that was never seen?",
    partial(_rows, share=lambda n, extra: n / n.sum(-1, True)),
)
c11.bigram.slip(
    "the sums leave extra out",
    "Does each of your rows sum to one?",
    partial(_rows, share=lambda n, extra: (n + extra) / n.sum(-1, True)),
)
c11.bigram.slip(
    "the sums have extra once",
    "To how many entries of a row is extra added?",
    partial(
        _rows, share=lambda n, extra: (n + extra) / (n.sum(-1, True) + extra)
    ),
)
c11.bigram.slip(
    "the sums repeat along the wrong axis",
    "By the sum of which row is the entry (0, 1) divided?",
    partial(_rows, share=lambda n, extra: (n + extra) / (n + extra).sum(-1)),
)
c11.bigram.slip(
    "all pairs have one sum",
    "Does each of your rows sum to one?",
    partial(_rows, share=lambda n, extra: (n + extra) / (n + extra).sum()),
)
c11.bigram.slip(
    "it is a softmax of the counts",
    "What makes shares of counts: a power of e, or a division?",
    partial(_rows, share=lambda n, extra: (n + extra).softmax(-1)),
)
c11.bigram.slip(
    "a pair that comes again is not counted again",
    "How often does 0 1 stand in the text 0 1 0 1?",
    partial(
        _rows, share=lambda n, extra: (m := n.sign() + extra) / m.sum(-1, True)
    ),
)


def _logits(tokens, table, positions, blocks, norm, *, at=None, size=1):
    """The logits (B, T, V) of a small language model.

    Args:
        at: the rows of the table of positions that are added.
        size: by what the tokens' vectors are multiplied; 1 is right.
    """
    at = torch.arange(tokens.shape[1]) if at is None else at
    x = table[tokens] * size + positions[at]
    for block in blocks:
        x = block(x)
    return norm(x) @ table.T


def _same(x):
    """A norm or a block that changes nothing."""
    return x


def _language_model_by_at(at):
    """A slip of `language_model`: `at(tokens, n_positions)` says which rows
    of the table of positions are added."""
    return lambda tokens, table, positions, *parts: _logits(
        tokens, table, positions, *parts, at=at(tokens, len(positions))
    )


c11.language_model.slip(
    "the positions begin at 1",
    "Which row of the table of positions belongs to the first token of a "
    "text, and which to the next?",
    _language_model_by_at(lambda x, n: 1 + torch.arange(x.shape[1])),
)
c11.language_model.slip(
    "the positions are the last of the table",
    "Which row of the table of positions belongs to the first token of a "
    "text, and which to the next?",
    _language_model_by_at(lambda x, n: torch.arange(n - x.shape[1], n)),
)
c11.language_model.slip(
    "a word has its own number as its position",
    "Which row of the table of positions belongs to the first token of a "
    "text, and which to the next?",
    _language_model_by_at(lambda x, n: x % n),
)
c11.language_model.slip(
    "the positions count the texts",
    "Which row of the table of positions belongs to the first token of a "
    "text, and which to the next?",
    _language_model_by_at(lambda x, n: torch.arange(len(x))[:, None]),
)
c11.language_model.slip(
    "the embeddings are multiplied by √d",
    "What is done to an embedding before its position is added?",
    lambda *parts: _logits(*parts, size=parts[1].shape[1] ** 0.5),
)
c11.language_model.slip(
    "the norm stands before the blocks",
    "What was done last to the stream that your head reads?",
    lambda tokens, table, positions, blocks, norm: _logits(
        tokens, table, positions, [norm, *blocks], _same
    ),
)
c11.language_model.slip(
    "the norm stands after each block",
    "How often is the norm that was given used?",
    lambda tokens, table, positions, blocks, norm: _logits(
        tokens,
        table,
        positions,
        [layer for block in blocks for layer in (block, norm)],
        _same,
    ),
)
c11.language_model.slip(
    "the stream is added to what a block returns",
    "What is in a block's result already?",
    lambda tokens, table, positions, blocks, norm: _logits(
        tokens,
        table,
        positions,
        [lambda x, block=block: x + block(x) for block in blocks],
        norm,
    ),
)
c11.language_model.slip(
    "each block reads the embeddings",
    "What does the second block read?",
    lambda tokens, table, positions, blocks, norm: _logits(
        tokens, table, positions, blocks[-1:], norm
    ),
)


def _accumulate(
    model,
    batches,
    n,
    rate,
    *,
    kind=torch.optim.SGD,
    clear=lambda i, n: i % n == 0,
    every=False,
    longest=INF,
    by=lambda y, all_: all_,
    head=lambda z: z,
):
    """A model's parameters after training on batches, n to a step.

    Args:
        rate: the learning rate.
        kind: the optimizer's class.
        clear: of a batch's number and n, whether gradients are set to 0.
        every: whether there is a step after each batch.
        longest: the length to which the gradients are clipped.
        by: of a batch's targets and the number of all targets of the step,
            the number by which the batch's loss is divided.
        head: of the model's output, the logits.
    """
    optimizer = kind(model.parameters(), lr=rate)
    for i, (tokens, targets) in enumerate(batches):
        some = [y for _, y in batches[i // n * n :][:n]]
        if clear(i, n):
            optimizer.zero_grad()
        logits = head(model(tokens)).flatten(0, 1)
        loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
        total = sum((y != -100).sum() for y in some)
        (loss / by(targets, total)).backward()
        if every or i % n == n - 1:
            torch.nn.utils.clip_grad_norm_(model.parameters(), longest)
            optimizer.step()
    return list(model.parameters())


c11.accumulate.slip(
    "the old gradients are never cleared",
    "What is in the gradients when the second step begins?",
    partial(_accumulate, clear=lambda i, n: False),
)
c11.accumulate.slip(
    "the gradients that the model came with count",
    "What is in the gradients when the first step begins?",
    partial(_accumulate, clear=lambda i, n: i and i % n == 0),
)
c11.accumulate.slip(
    "the gradients are cleared before each small batch",
    "What is left of the first small batch when the step comes?",
    partial(_accumulate, clear=lambda i, n: True),
)
c11.accumulate.slip(
    "a step comes after each backward",
    "How many backward passes come before a step?",
    partial(_accumulate, every=True),
)
c11.accumulate.slip(
    "it is Adam's step",
    "What does plain gradient descent take off a parameter?",
    partial(_accumulate, kind=torch.optim.Adam),
)
c11.accumulate.slip(
    "the loss is given probabilities",
    "What does cross_entropy do first with what it is given?",
    partial(_accumulate, head=lambda z: z.softmax(-1)),
)
c11.accumulate.slip(
    "the gradient is clipped",
    "What does plain gradient descent do with a long gradient?",
    partial(_accumulate, longest=1.0),
)
# m the model, b the batches, r the rate
c11.accumulate.slip(
    "targets of −100 count in the mean",
    "How many places has the second batch, and how many targets?",
    lambda m, b, n, r: _accumulate(m, b, n, r, by=lambda y, _: n * y.numel()),
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
    "all batches make one step",
    "After how many small batches comes a step?",
    lambda m, b, n, r: c11.accumulate(m, b, len(b), r),
)
c11.accumulate.slip(
    "it ends after the first step",
    "Which batches have you not gone through?",
    lambda m, b, n, r: c11.accumulate(m, b[:n], n, r),
)
c11.accumulate.slip(
    "n is taken for the number of steps",
    "After how many small batches comes a step?",
    lambda m, b, n, r: c11.accumulate(m, b, len(b) // n, r),
)
c11.accumulate.slip(
    "the targets are shifted once more",
    "At which place of the targets stands the word after token 0?",
    lambda m, b, n, r: c11.accumulate(
        m, [(x[:, :-1], y[:, 1:]) for x, y in b], n, r
    ),
)
