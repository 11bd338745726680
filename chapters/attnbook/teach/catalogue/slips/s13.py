"""Slips of chapter 13."""

import torch

from attnbook.attention import (
    softmax,
)
from attnbook.masks import causal_mask as square_mask
from attnbook.teach.catalogue import c13_encoder_decoder as c13

INF = torch.inf

c13.prefix_mask.slip(
    "what follows does not read the prefix",
    "May what follows read the whole prefix too?",
    lambda n_prefix, n: (
        (square_mask(n) | (torch.arange(n) < n_prefix))
        & (
            (torch.arange(n) >= n_prefix)
            | (torch.arange(n) < n_prefix)[:, None]
        )
    ),
)
c13.prefix_mask.slip(
    "the prefix reads everything, and is read as by a decoder",
    "Which axis of the mask counts the readers?",
    lambda n_prefix, n: square_mask(n) | (torch.arange(n) < n_prefix)[:, None],
)
c13.prefix_mask.slip(
    "nothing but the prefix is read",
    "What else may the last token read?",
    lambda n_prefix, n: (torch.arange(n) < n_prefix).expand(n, n),
)
c13.prefix_mask.slip(
    "what follows does not read itself",
    "May a token behind the prefix read itself?",
    lambda n_prefix, n: square_mask(n).tril(-1) | (torch.arange(n) < n_prefix),
)


def _covers(first=0.8, last=0.9, *, everywhere=False):
    """A slip of `cover_words` with other edges."""

    def wrong(tokens, chosen, kind, words, mask_token):
        where = chosen | everywhere
        inputs = torch.where(where & (kind < last), words, tokens)
        inputs = torch.where(where & (kind < first), mask_token, inputs)
        return inputs, torch.where(chosen, tokens, -100)

    return wrong


def _asks(target):
    """A slip of `cover_words`: right inputs, and `target(tokens, chosen, kind,
    inputs)`."""

    def wrong(tokens, chosen, kind, words, mask_token):
        inputs, _ = _covers()(tokens, chosen, kind, words, mask_token)
        return inputs, target(tokens, chosen, kind, inputs)

    return wrong


def _spoils_the_tokens(tokens, chosen, kind, words, mask_token):
    """What is covered is written into the given tokens, so targets are what
    the model is given."""
    inputs, _ = _covers()(tokens, chosen, kind, words, mask_token)
    tokens.copy_(inputs)
    return tokens, torch.where(chosen, tokens, -100)


_AFTER = 1e-12  # so that the edge itself counts, and nothing more
_CHANGED = "Which words are targets: the chosen, or the changed?"
c13.cover_words.slip(
    "only words that were changed are asked for",
    _CHANGED,
    _asks(lambda x, on, kind, _: torch.where(on & (kind < 0.9), x, -100)),
)
c13.cover_words.slip(
    "only words that look changed are asked for",
    _CHANGED,
    _asks(lambda x, on, kind, new: torch.where(new != x, x, -100)),
)
c13.cover_words.slip(
    "only covered words are asked for",
    _CHANGED,
    _asks(lambda x, on, kind, _: torch.where(on & (kind < 0.8), x, -100)),
)
c13.cover_words.slip(
    "the targets are what stands in the inputs",
    "Shall the model guess the word that was there, or what replaced it?",
    _asks(lambda x, on, kind, new: torch.where(on, new, -100)),
)
c13.cover_words.slip(
    "the tokens are overwritten before the targets are taken from them",
    "When you make the targets, does `tokens` still hold the text?",
    _spoils_the_tokens,
)
c13.cover_words.slip(
    "the words that were not chosen are asked for",
    "For which words does the loss need the answer?",
    _asks(lambda x, on, kind, _: torch.where(on, -100, x)),
)
c13.cover_words.slip(
    "words that were not chosen have the target 0",
    "Which target does F.cross_entropy leave out?",
    _asks(lambda x, on, kind, _: x * on),
)
c13.cover_words.slip(
    "the edge belongs to the other side",
    "What becomes of a word with kind 0.8 exactly?",
    _covers(0.8 + _AFTER),
)
c13.cover_words.slip(
    "both edges belong to the other side",
    "What becomes of a word with kind 0.8 exactly?",
    _covers(0.8 + _AFTER, 0.9 + _AFTER),
)
c13.cover_words.slip(
    "no chosen word is left as it is",
    "What becomes of a chosen word with kind 0.95?",
    _covers(last=1.0),
)
c13.cover_words.slip(
    "words that were not chosen are covered too",
    "Does a word that was not chosen keep its place?",
    _covers(everywhere=True),
)
c13.cover_words.slip(
    "the random words stand in place of the mask token",
    "After your last line, what stands where kind is 0.5?",
    _covers(first=0.0),
)
c13.cover_words.slip(
    "targets and inputs are exchanged",
    "Which of the two is returned first?",
    lambda *given: _covers()(*given)[::-1],
)


def _source_read(scale=lambda S, d: 1, mask=None, after=None, dim=-1):
    """A slip of `read_source`, each part of which may be another."""

    def wrong(target, source, real):
        scores = c13.scores_of(target, source) * scale(*source.shape[-2:])
        hidden = mask(real) if mask else ~real[..., None, :]
        weights = softmax(scores.masked_fill(hidden, -INF), dim)
        return (after(weights, real) if after else weights) @ source

    return wrong


_SCALE = "Which number do you divide by, and what does it count?"
c13.read_source.slip(
    "the scores are not divided by √d",
    _SCALE,
    _source_read(lambda S, d: d**0.5),
)
c13.read_source.slip(
    "the scores are divided by d", _SCALE, _source_read(lambda S, d: d**-0.5)
)
c13.read_source.slip(
    "the scores are divided by √S",
    _SCALE,
    _source_read(lambda S, d: (d / S) ** 0.5),
)
c13.read_source.slip(
    "the words are hidden and the padding is read",
    "Where `real` is True, may the token be read?",
    _source_read(mask=lambda real: real[..., None, :]),
)
c13.read_source.slip(
    "the mask lies along the target",
    "Which axis of the scores, (..., T, S), counts the source's tokens?",
    _source_read(mask=lambda real: ~real[..., :, None]),
)
c13.read_source.slip(
    "padding gets the weight 0 after the softmax",
    "What do the weights of one target token sum to?",
    _source_read(
        mask=lambda real: torch.zeros_like(real)[..., None, :],
        after=lambda weights, real: weights * real[..., None, :],
    ),
)
c13.read_source.slip(
    "the weights of one source token sum to one",
    "Along which axis do the weights of one target token stand?",
    _source_read(dim=-2),
)


def _greedy(change=0, *, from_start=False, late=0, seen=0, alone=False):
    """A slip of `greedy_until`: `change(n)` of `longest` more, ..."""

    def wrong(next_logits, start, stop, longest):
        tokens = start
        n = start.shape[1]
        done = (start == stop).any(-1, keepdim=True) & from_start
        steps_after = 0
        for _ in range(longest + (change(n) if callable(change) else change)):
            best = next_logits(tokens[:, -seen:]).argmax(-1, keepdim=True)
            best = best.masked_fill(done, stop)
            tokens = torch.cat([tokens, best], -1)
            done = done | (best == stop)
            steps_after += int(done.all())
            if steps_after > late:
                break
        return tokens[:, n:] if alone else tokens

    return wrong


def _without_stop(next_logits, start, stop, longest):
    """The tokens without their last column where all texts have stopped."""
    tokens = c13.greedy_until(next_logits, start, stop, longest)
    over = (tokens[:, start.shape[1] :] == stop).any(-1).all()
    return tokens[:, :-1] if over else tokens


_WHEN = "How often is the model asked after the last text has ended?"
c13.greedy_until.slip(
    "a stop token of the start counts",
    "Who has written the stop token in the start?",
    _greedy(from_start=True),
)
c13.greedy_until.slip(
    "the tokens of the start are counted",
    "How many tokens may be appended?",
    _greedy(lambda n: -n),
)
c13.greedy_until.slip(
    "a token too few is appended",
    "What does your function append when longest is 1?",
    _greedy(-1),
)
c13.greedy_until.slip(
    "the start is missing",
    "What stands before the new tokens?",
    _greedy(alone=True),
)
c13.greedy_until.slip(
    "the model is shown the last token alone",
    "How much of the text does next_logits need to see?",
    _greedy(seen=1),
)
c13.greedy_until.slip(
    "the stop token is missing",
    "Does a text that has ended show its stop token?",
    _without_stop,
)
c13.greedy_until.slip(
    "one step too many after the end", _WHEN, _greedy(late=1)
)
c13.greedy_until.slip(
    "the end of all texts does not end the loop", _WHEN, _greedy(late=INF)
)
