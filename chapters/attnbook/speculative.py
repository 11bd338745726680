"""Guess ahead: speculative sampling, and the law of what it writes.

A cheap draft guesses the next tokens; the model reads them all in one call
and keeps a beginning. What is written has the model's own distribution,
whatever the draft says. All chance is asked of a `pick`, which takes
probabilities (N,) and returns an index: `picker` draws it, `every_path` takes
each in turn, so that what a program writes is summed up and not sampled.

Axis names: V size of the vocabulary, k guesses.
Source: Leviathan et al. (2023), arXiv:2211.17192; Chen et al. (2023),
arXiv:2302.01318.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.generate import Sampling, draw
from attnbook.gpt import GPT
from attnbook.server import Request, sample
from attnbook.shapes import expect
from attnbook.values import bad_value, whole

Pick = Callable[[Tensor], int]
#: The probabilities (V,) of the token after a text; None: no guess.
Draft = Callable[[list[int]], Tensor | None]
#: Of a text and a number n: what follows its last n beginnings, (n, V).
Target = Callable[[list[int], int], Tensor]
DRAWN = Sampling(temperature=1.0)


def guess_ahead(
    target: Target, draft: Draft, text: list[int], n: int, k: int, pick: Pick
) -> Iterator[list[int]]:
    """Write n tokens after a text: yields what each call of the target gives,
    1 to k + 1 tokens."""
    text, end = list(text), len(text) + n
    while len(text) < end:
        guesses, q = list[int](), list[Tensor]()
        # The last token needs no guess: the call gives it anyway.
        while len(guesses) < min(k, end - len(text) - 1):
            guessed = draft(text + guesses)  # (V,)
            if guessed is None:
                break
            q.append(guessed)
            guesses.append(pick(guessed))
        p = target(text + guesses, len(guesses) + 1)  # (guesses + 1, V)
        new = verify(p, q, guesses, pick)
        yield new
        text += new


def verify(
    p: Tensor, q: Sequence[Tensor], guesses: Sequence[int], pick: Pick
) -> list[int]:
    """The guesses up to the first that is refused, and one token of the
    target's, in its place or behind the last: p (k + 1, V), q k of (V,)."""
    for n, guess in enumerate(guesses):
        share = (p[n, guess] / q[n][guess]).clamp(max=1)
        if not pick(torch.stack([1 - share, share])):
            return [*guesses[:n], pick(residual(p[n], q[n]))]
    return [*guesses, pick(p[len(guesses)])]


def residual(p: Tensor, q: Tensor) -> Tensor:
    """What a token comes from after a guess from q was refused: the part of p
    above q, as probabilities; p if there is none. All (V,)."""
    expect("float", p=(p, "V"), q=(q, "V"))
    above = (p - q).clamp(min=0)
    total = above.sum()
    return above / total if total > 0 else p


def picker(rng: np.random.Generator) -> Pick:
    """A pick that draws, with one number of `rng` each time."""

    def pick(p: Tensor) -> int:
        return int(draw(p[None], torch.tensor([rng.random()]).to(p.device)))

    return pick


class Reader:
    """A model that reads text after text. What a text shares with the one
    before stays in the cache; what stood behind it is taken back. Called with
    a text it is a `Draft`; its `read` is a `Target`."""

    def __init__(self, model: GPT, sampling: Sampling = DRAWN) -> None:
        self.model, self.sampling = model, sampling
        self.cache = model.new_cache(1)
        self.text: list[int] = []  # what is in the cache
        self.n_read = 0  # tokens

    def __call__(self, text: list[int]) -> Tensor:
        return self.read(text, 1)[0]  # (V,)

    @torch.inference_mode()
    def read(self, text: list[int], n: int) -> Tensor:
        """The sampling's probabilities of what follows the last n beginnings
        of a text, (n, V), float64, on the CPU; temperature 0 gives one all."""
        known = 0
        for old, new in zip(self.text, text[: len(text) - n]):
            if old != new:
                break
            known += 1
        self.cache.trim(known)
        if len(text) > self.cache.capacity:
            self.cache.grow(2 * len(text))
        device = self.model.token_embedding.weight.device
        unread = torch.tensor([text[known:]], device=device)  # (1, T)
        logits = self.model(unread, cache=self.cache)[0, -n:].cpu().double()
        self.text, self.n_read = list(text), self.n_read + len(text) - known
        if logits.isnan().any():
            raise bad_value(ValueError, "a logit", float("nan"), "numbers")
        texts = [text[: len(text) - behind] for behind in reversed(range(n))]
        bent = self.sampling.bend(logits, texts)  # (n, V)
        if self.sampling.temperature == 0:
            best = bent.argmax(-1, keepdim=True)  # (n, 1)
            return torch.zeros_like(bent).scatter(-1, best, 1.0)
        return bent.softmax(-1)


def write(
    model: GPT,
    prompt: Sequence[int],
    n: int,
    draft: Draft,
    k: int,
    *,
    sampling: Sampling = DRAWN,
    stop: Sequence[int] = (),
    seed: int = 0,
) -> list[list[int]]:
    """Continue a prompt by n tokens, or up to one of `stop`: what each call
    gave. An empty prompt, or a size out of range, is a ValueError."""
    whole("the prompt's length", len(prompt), at_least=1)
    whole("n", n, at_least=1)
    whole("k", k, at_least=0)
    pick = picker(np.random.default_rng(whole("seed", seed, at_least=0)))
    target, calls = Reader(model, sampling).read, []
    for new in guess_ahead(target, draft, [*prompt], n, k, pick):
        ends = [place for place, token in enumerate(new, 1) if token in stop]
        calls.append(new[: min(ends, default=len(new))])
        if ends:
            break
    return calls


def look_up(text: Sequence[int], n: int) -> int | None:
    """The token behind the latest earlier place of the last n tokens."""
    last = list(text[-n:])
    for start in range(len(text) - n - 1, -1, -1):
        if list(text[start : start + n]) == last:
            return text[start + n]
    return None


def look_up_draft(vocab_size: int, sizes: Sequence[int] = (3, 2, 1)) -> Draft:
    """Sure of what came last time behind the same tokens, longest first."""
    certain = torch.eye(vocab_size, dtype=torch.float64)

    def draft(text: list[int]) -> Tensor | None:
        found = (look_up(text, n) for n in sizes)
        return next((certain[f] for f in found if f is not None), None)

    return draft


def likeliest(draft: Draft, k: int) -> Callable[[Request], list[int]]:
    """For a `Server`: up to k guesses, each time the draft's likeliest."""

    def guess(request: Request) -> list[int]:
        guesses = list[int]()
        while len(guesses) < k:
            if (q := draft(request.tokens + guesses)) is None:  # (V,)
                break
            guesses.append(int(q.argmax()))
        return guesses

    return guess


def as_alone(request: Request, guesses: list[int], logits: Tensor) -> list:
    """For a `Server`: draw each token as the request would alone, while the
    guesses are what is drawn; logits (1 + guesses, V)."""
    new = list[int]()
    for n in range(len(logits)):
        so_far = replace(request, tokens=request.tokens + new)
        new += sample(so_far, [], logits[n:])
        if new[n:] != guesses[n : n + 1]:
            break
    return new


def every_path(program: Callable[[Pick], Any]) -> Iterator[tuple[Any, float]]:
    """What a program returns on each way that its picks can go, with the
    probability of that way. It is run again for each, from its beginning."""
    ways: list[list[int]] = [[]]
    while ways:
        way, chances = ways.pop(), list[float]()
        yield program(partial(_follow, ways, way, chances)), prod(chances)


def _follow(ways, way, chances, p):
    """A pick that goes a way; at its end the first turn, the others later."""
    if len(chances) == len(way):
        first, *others = p.nonzero()[:, 0].tolist()
        ways.extend([*way, other] for other in others)
        way.append(first)
    choice = way[len(chances)]
    chances.append(p[choice].item())
    return choice


def expected_calls(kept: Sequence[float], k: int) -> float:
    """The calls that writing a text takes on average, its tokens being given:
    where one is tested, it was guessed with probability `kept`, min(1, q / p).
    Nothing is assumed of how the places hang together."""
    whole("k", k, at_least=0)
    calls, after = 0.0, [1.0] + [0.0] * k  # by guesses kept since the call
    for share in kept:
        calls += after[0]
        tested = after[:-1]
        refused = sum((1 - share) * chance for chance in tested)
        after = [refused + after[-1], *(share * c for c in tested)]
    return calls
