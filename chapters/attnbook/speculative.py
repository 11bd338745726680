"""Guess ahead: speculative sampling, and the law of what it writes.

A cheap draft guesses the next tokens. The model, here called the target,
reads all guesses in one call and keeps those up to the first that it refuses.
What is written has the target's own distribution, whatever the draft says; a
good draft only makes it faster.

Whatever is left to chance goes through a `pick`: a function that takes
probabilities (N,) and returns an index. `picker` makes one that draws. With
`every_path` the same program is run once for each way in which its picks can
turn out, so that its law is computed exactly instead of sampled.

Axis names: V size of the vocabulary, k guesses.
Source: Leviathan et al. (2023), arXiv:2211.17192; Chen et al. (2023),
arXiv:2302.01318.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.generate import Sampling, draw
from attnbook.gpt import GPT
from attnbook.prompts import check_prompt, window_start
from attnbook.server import Request, sample
from attnbook.shapes import expect
from attnbook.values import whole

#: From probabilities (N,) to the index that is chosen.
Pick = Callable[[Tensor], int]
#: From a text to the probabilities (V,) of the next token, or None where the
#: draft has no guess.
Draft = Callable[[list[int]], Tensor | None]
#: From a text and a number n to (n, V): the probabilities of what follows
#: each of the last n beginnings of the text, the whole text being the last.
Target = Callable[[list[int], int], Tensor]
#: Drawn from the model's own probabilities.
DRAWN = Sampling(temperature=1.0)
#: Tokens that a `Reader` has room for at first.
ROOM = 1024


def guess_ahead(
    target: Target, draft: Draft, text: list[int], n: int, k: int, pick: Pick
) -> Iterator[list[int]]:
    """Write n tokens after a text, and yield what each call of the target
    gave: between 1 and k + 1 tokens.

    Args:
        target: whose distribution the text has.
        draft: guesses up to k tokens for each call.
        text: token numbers; the list is not changed.
        pick: makes all choices.
    """
    text = list(text)
    end = len(text) + n
    while len(text) < end:
        guesses: list[int] = []
        q: list[Tensor] = []
        # Each call writes one token of its own, so one guess fewer is needed
        # than tokens are left to write.
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
    """Keep guesses up to the first that is refused, and add one token.

    A guess is kept with probability min(1, p / q). The token that is added
    stands in the place of the refused guess and is drawn from `residual`; if
    no guess is refused it follows them all and is drawn from the last p.

    Args:
        p: the target's probabilities before each guess and after the last,
            (k + 1, V).
        q: the draft's, from which each guess was drawn: k tensors (V,).
        guesses: k tokens.
    """
    for n, guess in enumerate(guesses):
        share = (p[n, guess] / q[n][guess]).clamp(max=1)
        if not pick(torch.stack([1 - share, share])):
            return [*guesses[:n], pick(residual(p[n], q[n]))]
    return [*guesses, pick(p[len(guesses)])]


def residual(p: Tensor, q: Tensor) -> Tensor:
    """What the token in the place of a refused guess is drawn from.

    It is the part of p that lies above q, divided by its sum: what the
    guesses give too rarely. Where p lies nowhere above q, so that nothing
    can be refused but by a rounding error, it is p itself.

    Shapes: p, q (V,), of one floating-point type → (V,).

    Raises:
        TypeError, ValueError: types or shapes that differ.
    """
    expect("float", p=(p, "V"), q=(q, "V"))
    above = (p - q).clamp(min=0)
    total = above.sum()
    return above / total if total > 0 else p


def picker(rng: np.random.Generator) -> Pick:
    """Make a pick that draws, with one number of `rng` for each choice."""

    def pick(p: Tensor) -> int:
        return int(draw(p[None], torch.tensor([rng.random()]).to(p.device)))

    return pick


class Reader:
    """A model that reads one text after another, most of them alike.

    The beginning that a text shares with the one before stays in the cache;
    only what follows is read. Called with a text a reader is a `Draft`, and
    its method `read` is a `Target`. A text longer than the model's context is
    read through a window, as in `attnbook.generate`.

    Args:
        model: in evaluation mode.
        sampling: applied to the model's logits.
    """

    def __init__(self, model: GPT, sampling: Sampling = DRAWN) -> None:
        self.model = model
        self.sampling = sampling
        self.cache = model.new_cache(1, min(ROOM, model.config.context))
        #: The tokens whose keys and values are in the cache.
        self.text: list[int] = []
        #: How many tokens the model has read so far.
        self.n_read = 0

    def __call__(self, text: list[int]) -> Tensor:
        """The probabilities of the token that follows a text.

        They are those after `sampling` has changed them, for instance by a
        temperature.

        Returns:
            a tensor (V,), float64.
        """
        return self.read(text, 1)[0]

    @torch.inference_mode()
    def read(self, text: list[int], n: int) -> Tensor:
        """The probabilities of what follows the last n beginnings of a text.

        Returns:
            (n, V), float64, on the CPU. At temperature 0 each row has a 1 at
            the likeliest token.

        Raises:
            ValueError: a token outside the vocabulary, or logits that are
                NaN.
        """
        context = self.model.config.context
        lengths = range(len(text) - n + 1, len(text) + 1)
        parts = []
        # Beginnings whose windows start at one place are read in one pass.
        for start, group in groupby(
            lengths, key=lambda length: window_start(length, context)
        ):
            ends = list(group)
            parts.append(self._logits(text[start : ends[-1]], len(ends)))
        logits = torch.cat(parts)  # (n, V)
        if logits.isnan().any():
            raise ValueError(
                f"the model's logits are NaN after a text of {len(text)} "
                "tokens; expected numbers; got nan"
            )
        texts = [text[:length] for length in lengths]
        bent = self.sampling.bend(logits, texts)  # (n, V)
        if self.sampling.temperature == 0:
            best = bent.argmax(-1, keepdim=True)  # (n, 1)
            return torch.zeros_like(bent).scatter(-1, best, 1.0)
        return bent.softmax(-1)

    def _logits(self, text: list[int], n: int) -> Tensor:
        """The model's logits after each of the last n beginnings of a text.

        The longest beginning is the text itself.

        Returns:
            a tensor (n, V), float64.
        """
        known = 0
        # The last n tokens are read in any case: their logits are wanted.
        for old, new in zip(self.text, text[: len(text) - n]):
            if old != new:
                break
            known += 1
        self.cache.trim(known)
        if len(text) > self.cache.capacity:
            self.cache.grow(min(2 * len(text), self.model.config.context))
        device = self.model.token_embedding.weight.device
        unread = torch.tensor([text[known:]], device=device)  # (1, T)
        logits = self.model(unread, cache=self.cache)  # (1, T, V)
        self.text = list(text)
        self.n_read += len(text) - known
        return logits[0, -n:].cpu().double()


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
    """Continue a prompt with guesses, and return what each call gave.

    Args:
        n: tokens to write; fewer if one of `stop` is written, which ends the
            text.
        draft: guesses what follows.
        k: guesses for each call of the model, at most.
        sampling: of the model, whose distribution the text has.
        seed: of all that is drawn, 0 or more.

    Raises:
        TypeError, ValueError: what `attnbook.prompts.check_prompt` refuses,
            or a size out of its range.
    """
    check_prompt("the prompt", prompt, model, 1, stop)
    whole("n", n, at_least=1)
    whole("k", k, at_least=0)
    pick = picker(np.random.default_rng(whole("seed", seed, at_least=0)))
    target = Reader(model, sampling).read
    calls: list[list[int]] = []
    for new in guess_ahead(target, draft, [*prompt], n, k, pick):
        ends = [place for place, token in enumerate(new, 1) if token in stop]
        calls.append(new[: min(ends, default=len(new))])
        if ends:
            break
    return calls


def look_up(text: Sequence[int], n: int) -> int | None:
    """The token that followed the last n tokens when they last occurred
    earlier in the text; None if they have not.

    >>> look_up([1, 2, 3, 9, 1, 2], 2)
    3
    """
    last = list(text[-n:])
    for start in range(len(text) - n - 1, -1, -1):
        if list(text[start : start + n]) == last:
            return text[start + n]
    return None


def look_up_draft(vocab_size: int, sizes: Sequence[int] = (3, 2, 1)) -> Draft:
    """A draft without a model: it looks for the text's last tokens earlier in
    the text, and is sure that what followed then follows now.

    This is prompt look-up decoding, `prompt_lookup_num_tokens` in
    transformers.

    Args:
        vocab_size: V, the length of the probabilities.
        sizes: how many last tokens are looked for, in this order; the first
            number with an earlier occurrence counts.
    """

    def draft(text: list[int]) -> Tensor | None:
        for n in sizes:
            found = look_up(text, n)
            if found is not None:
                certain = torch.zeros(vocab_size, dtype=torch.float64)
                certain[found] = 1
                return certain
        return None

    return draft


def likeliest(draft: Draft, k: int) -> Callable[[Request], list[int]]:
    """A `guess` for `attnbook.server.Server`: the draft's likeliest tokens.

    It gives at most k tokens, and never more than can be of use: a request
    that may get r more tokens needs r − 1 guesses, because each step writes
    one token of its own. So no draft is asked about a text that cannot be.
    """

    def guess(request: Request) -> list[int]:
        most = min(k, request.end - len(request.tokens) - 1)
        guesses: list[int] = []
        while len(guesses) < most:
            q = draft(request.tokens + guesses)  # (V,)
            if q is None:
                break
            guesses.append(int(q.argmax()))
        return guesses

    return guess


def as_alone(
    request: Request, guesses: list[int], logits: Tensor
) -> list[int]:
    """An `accept` for `attnbook.server.Server` that changes no text at all.

    Each token is drawn as the request would draw it alone, with its own next
    random number; if it is the token that was guessed, the next one is drawn
    too. So the text is the same with guesses and without, and not only its
    distribution.

    Args:
        logits: after the request's last token and after each guess,
            (1 + guesses, V).
    """
    new: list[int] = []
    for n in range(len(logits)):
        so_far = replace(request, tokens=request.tokens + new)
        new += sample(so_far, [], logits[n:])
        if new[n:] != guesses[n : n + 1]:
            break
    return new


def every_path(program: Callable[[Pick], Any]) -> Iterator[tuple[Any, float]]:
    """Run a program once for each way in which its picks can turn out.

    Yields what the program returns on each way, and the probability of that
    way; the probabilities sum to 1. Choices of probability 0 are left out.

    Args:
        program: a function of a `Pick`. It is run from its beginning each
            time, and must do the same when its picks turn out the same.
    """
    waiting: list[list[int]] = [[]]  # ways of which only a beginning is fixed
    while waiting:
        way = waiting.pop()
        chances: list[float] = []

        def pick(
            p: Tensor, way: list[int] = way, chances: list[float] = chances
        ) -> int:
            """Follow `way`. After its end take the first choice that is
            possible, and leave the others for later runs."""
            if len(chances) == len(way):
                first, *others = p.nonzero()[:, 0].tolist()
                waiting.extend([*way, other] for other in others)
                way.append(first)
            choice = way[len(chances)]
            chances.append(p[choice].item())
            return choice

        yield program(pick), prod(chances)


def expected_calls(kept: Sequence[float], k: int) -> float:
    """How many calls the writing of a given text takes on average.

    Args:
        kept: for each token of the text the probability min(1, q / p) with
            which it was guessed, given that it is written. Nothing is
            assumed about how the places depend on one another.
        k: guesses for each call.
    """
    whole("k", k, at_least=0)
    calls = 0.0
    # after[j]: the probability that j guesses have been kept since the last
    # call; at 0 a new call is due.
    after = [1.0] + [0.0] * k
    for share in kept:
        calls += after[0]
        tested = after[:-1]
        refused = sum((1 - share) * chance for chance in tested)
        after = [refused + after[-1], *(share * c for c in tested)]
    return calls
