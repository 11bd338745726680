"""Slips of chapter 15."""

import torch

from attnbook.teach.catalogue import c15_generating as c15

INF = torch.inf


def _zeros(filtered):
    """Logits that a filter left, with 0 in place of −∞."""
    return filtered.masked_fill(filtered == -INF, 0.0)


def _reached(logits, p):
    """Logits that top-p leaves, with no exception where p is 1: a token is out
    if the likelier ones reach p by a sum in float64."""
    ordered, order = logits.sort(descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    out = probabilities.cumsum(-1) - probabilities >= p
    out[..., 0] = False
    return logits.masked_fill(out.scatter(-1, order, out), -INF)


c15.keep_top_k.slip(
    "what is out gets the logit 0",
    "What is the exponential of 0, and which logit gives the probability 0?",
    lambda logits, k: _zeros(c15.keep_top_k(logits, k)),
)
c15.keep_top_p.slip(
    "what is out gets the logit 0",
    "What is the exponential of 0, and which logit gives the probability 0?",
    lambda logits, p: _zeros(c15.keep_top_p(logits, p)),
)
c15.keep_top_p.slip(
    "at p = 1 a rounded sum drops the unlikely tokens",
    "How far is the sum of the likelier tokens from 1, before it is rounded?",
    _reached,
)
c15.keep_min_p.slip(
    "what is out gets the logit 0",
    "What is the exponential of 0, and which logit gives the probability 0?",
    lambda logits, p: _zeros(c15.keep_min_p(logits, p)),
)


def _nucleus(probabilities, p, *, order=True, meets=False):
    """How many tokens top-p keeps.

    Args:
        order: whether the probabilities are sorted first.
        meets: whether one more is kept where the sum is just p.
    """
    if order:
        probabilities = probabilities.sort(descending=True).values
    before = probabilities.cumsum(-1) - probabilities
    return int(((before <= p) if meets else (before < p)).sum())


c15.nucleus_size.slip(
    "one more is kept where p is met exactly",
    "Is a set that has just p large enough?",
    lambda q, p: _nucleus(q, p, meets=True),
)
c15.nucleus_size.slip(
    "the likeliest are not taken first",
    "In which order do you add the probabilities?",
    lambda q, p: _nucleus(q, p, order=False),
)
c15.nucleus_size.slip(
    "the unlikeliest are taken first",
    "Which tokens does top-p keep?",
    lambda q, p: _nucleus(q.sort().values, p, order=False),
)
c15.nucleus_size.slip(
    "the token that reaches p is not counted",
    "Do the tokens that you counted have p together?",
    lambda q, p: _nucleus(q, p) - 1,
)
c15.nucleus_size.slip(
    "each token alone is compared with p",
    "What together has to reach p?",
    lambda q, p: int((q >= p).sum()),
)
c15.nucleus_size.slip(
    "it is the rule of min-p",
    "Of the three rules, which adds probabilities up?",
    lambda q, p: int((q >= p * q.max()).sum()),
)
c15.nucleus_size.slip(
    "the softmax is taken a second time",
    "What do the numbers sum to, before your softmax?",
    lambda q, p: _nucleus(q.softmax(-1), p),
)


def _each(logits, columns):
    """From each row of logits (N, V) the one in the row's column, (N,)."""
    return logits[torch.arange(len(logits)), columns]


c15.last_logits.slip(
    "it is one place too far",
    "At which index does a row of three tokens end?",
    _each,
)
c15.last_logits.slip(
    "it counts from the right end",
    "On which side is the padding?",
    lambda logits, lengths: _each(logits, -lengths),
)
c15.last_logits.slip(
    "the axis of the tokens is still there",
    "Which shape is wanted?",
    lambda logits, lengths: _each(logits, lengths - 1)[:, None],
)
c15.last_logits.slip(
    "the first token is taken of a row without padding",
    "Where is the first padding of a row that has none?",
    lambda logits, lengths: _each(
        logits, (lengths - 1).masked_fill(lengths == logits.shape[1], 0)
    ),
)


def _chance(logits, tokens, temperature, k, *, late=False):
    """The log probability of tokens drawn with a temperature and top-k. If
    `late`, it is taken from the softmax before both, and a token that top-k
    leaves out has none."""
    logits = logits if late else logits / temperature
    kept = logits.masked_fill(logits < logits.topk(k)[0][:, -1:], -INF)
    logs = logits.log_softmax(-1).where(kept > -INF, -INF) if late else kept
    logs = logs if late else logs.log_softmax(-1)
    return logs.gather(-1, tokens[:, None]).sum()


def _kept(z, x, t, keep, other=-INF):
    """The log probability of tokens where only the logits with `keep` are
    left as they are, and the rest are set to `other`."""
    return _chance(z.where(keep, other), x, t, z.shape[-1])


# z the logits, x the tokens, t the temperature
c15.chance_of_text.slip(
    "the temperature is forgotten",
    "What is divided by the temperature?",
    lambda z, x, t, k: _chance(z, x, 1.0, k),
)
c15.chance_of_text.slip(
    "what top-k cuts is still in the sum",
    "Over which tokens does the softmax of the sampler go?",
    lambda z, x, t, k: _chance(z / t, x, 1.0, k, late=True),
)
c15.chance_of_text.slip(
    "the k-th largest is cut, too",
    "With k = 1, which token is left?",
    lambda z, x, t, k: _kept(z, x, t, z > z.topk(k)[0][:, -1:]),
)
c15.chance_of_text.slip(
    "the k largest of all rows together are kept",
    "How many tokens has each row to draw from?",
    lambda z, x, t, k: _kept(z, x, t, z >= z.flatten().topk(k)[0][-1]),
)
c15.chance_of_text.slip(
    "k is forgotten",
    "What is the chance of a token that was cut?",
    lambda z, x, t, k: _chance(z, x, t, z.shape[-1]),
)
c15.chance_of_text.slip(
    "it multiplies by the temperature",
    "Does a high temperature make the likeliest token likelier?",
    lambda z, x, t, k: _chance(z, x, 1 / t, k),
)
c15.chance_of_text.slip(
    "the temperature divides the logs of probabilities",
    "What do your probabilities sum to after the division?",
    lambda z, x, t, k: _chance(z, x, 1.0, k) / t,
)
c15.chance_of_text.slip(
    "what top-k cuts gets the logit 0",
    "What is the exponential of 0?",
    lambda z, x, t, k: _kept(z, x, t, z >= z.topk(k)[0][:, -1:], 0.0),
)
c15.chance_of_text.slip(
    "it is a mean over the steps",
    "How likely is a text of two tokens, each of probability 1/2?",
    lambda z, x, t, k: _chance(z, x, t, k) / len(x),
)
c15.chance_of_text.slip(
    "it is the probability, not its log",
    "What is the log of a probability of 1?",
    lambda z, x, t, k: _chance(z, x, t, k).exp(),
)
c15.chance_of_text.slip(
    "a row of logits is asked about the next step's token",
    "From which row of the logits was the first token drawn?",
    lambda z, x, t, k: _chance(z[:-1], x[1:], t, k),
)
c15.race.slip(
    "one logarithm is missing",
    "What is added to a logit, a time or the log of one?",
    lambda logits, noise: (logits - noise.log()).argmax(-1),
)
c15.race.slip(
    "a waiting time is subtracted, not its log",
    "What is added to a logit, a time or the log of one?",
    lambda logits, noise: (logits + noise.log()).argmax(-1),
)
c15.race.slip(
    "the noise is added to the probabilities",
    "What is z in the formula?",
    lambda logits, noise: c15.race(logits.softmax(-1), noise),
)
c15.race.slip(
    "1 − u is taken for u",
    "With another noise it is fair, too; which one is given?",
    lambda logits, noise: c15.race(logits, 1 - noise),
)
c15.race.slip(
    "the noise is not used",
    "Would another noise give another token?",
    lambda logits, noise: logits.argmax(-1),
)
c15.race.slip(
    "the longest waiting time wins",
    "Who wins a race?",
    lambda logits, noise: (logits - (-noise.log()).log()).argmin(-1),
)


def _may_come(moves, accepting, state, end, *, deep=1):
    """Tokens with a move, if an accepting state is at most so near."""
    near = set(accepting)
    for _ in range(deep):
        near |= {s for s, m in enumerate(moves) if near & {*m.values()}}
    found = [token for token, after in moves[state].items() if after in near]
    return sorted([*found, end] if state in accepting else found)


c15.may_come.slip(
    "only the next state is looked at",
    "Is the text to be finished at once, or some time later?",
    lambda *rest: _may_come(*rest, deep=0),
)
c15.may_come.slip(
    "one step more is looked at, and no further",
    "How many steps may the end be away?",
    lambda *rest: _may_come(*rest, deep=1),
)
c15.may_come.slip(
    "the tokens of state 0 are taken",
    "In which state is the text?",
    lambda moves, accepting, state, end: c15.may_come(
        moves, accepting, 0, end
    ),
)
c15.may_come.slip(
    "states are returned, not tokens",
    "What is the key in a state's moves, and what the value?",
    lambda moves, accepting, state, end: sorted(moves[state].values()),
)
