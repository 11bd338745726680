"""A small server: many requests, one model, one pool of pages.

Each step reads new tokens of all requests that have a place, in order of
arrival and up to a budget: a token of each that writes, a chunk of each
prompt that is still being read. When pages run out, the request that came
last gives its pages back and reads its text again later.

What a request gets is what it would get alone. Source: Yu et al. (2022),
"Orca", OSDI, for the schedule; vLLM's version 1 for names and order.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.config import whole, wrong
from attnbook.generate import Sampling
from attnbook.gpt import GPT
from attnbook.pages import Pages, Part, page_names, read_parts


@dataclass(eq=False)
class Request:
    """A text that is being written.

    Attributes:
        tokens: the prompt, and behind it what has been written.
        end: how many tokens it may have at most.
        number: the order of arrival.
        table, n_kept: its pages, and how many tokens they hold.
        state: "waiting", "running", "done", "cancelled" or "failed".
        n_found, n_preempted: tokens that were in pages when it was let in;
            how often it lost its pages.
    """

    tokens: list[int]
    n_prompt: int
    end: int
    sampling: Sampling
    stop: frozenset[int]
    chances: np.random.Generator
    number: int
    table: list[int] = field(default_factory=list)
    n_kept: int = 0
    state: str = "waiting"
    error: Exception | None = None
    n_found: int = 0
    n_preempted: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it may still write."""
        return self.state in ("waiting", "running")

    @property
    def written(self) -> list[int]:
        """What it has written so far."""
        return self.tokens[self.n_prompt :]


def no_guess(request: Request) -> Sequence[int]:
    """What a plain server guesses: nothing."""
    return ()


def sample(
    request: Request, guesses: Sequence[int], logits: Tensor
) -> list[int]:
    """One token, drawn from the first logits of (1 + guesses, V)."""
    logits = logits[:1]  # (1, V)
    seen = None
    if request.sampling.repetition_penalty != 1:
        seen = torch.zeros_like(logits, dtype=torch.bool)
        seen[0, request.tokens] = True
    chance = torch.tensor([request.chances.random()], dtype=torch.float64)
    chance = chance.to(logits.device)
    return request.sampling.choose(logits, chance, seen).tolist()


class Server:
    """One model that serves many requests.

    Args:
        n_pages, page_size: the pool, and tokens a page has room for.
        budget: new tokens that a step may read, at least 1.
        exact: see `read_parts`.
        guess: tokens that may follow a request's own; a step reads them too.
        accept: given the request, its g guesses and the logits (1 + g, V)
            after its last token and after each guess, the tokens to write:
            some first of the guesses, and then one more.
    """

    def __init__(
        self,
        model: GPT,
        *,
        n_pages: int,
        page_size: int = 16,
        budget: int = 256,
        exact: bool = False,
        guess: Callable[[Request], Sequence[int]] = no_guess,
        accept: Callable[[Request, Sequence[int], Tensor], list[int]] = sample,
    ) -> None:
        if model.training and model.config.dropout:
            raise wrong(ValueError, "dropout", "training", "model.eval()")
        self.budget = whole("budget", budget, at_least=1)
        self.model, self.exact = model, exact
        self.guess, self.accept = guess, accept
        self.pages = Pages(n_pages, page_size, model)
        #: In order of arrival: who holds pages, and who waits for some.
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self._arrived = 0

    def submit(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        *,
        sampling: Sampling = Sampling(),
        stop: Sequence[int] = (),
        seed: int = 0,
    ) -> Request:
        """Queue a request; what cannot be served is refused here.

        It writes what `complete(model, [prompt], ...)` gives with the same
        arguments.
        """
        config = self.model.config
        for name, tokens in {"the prompt": prompt, "stop": stop}.items():
            for token in tokens:
                whole(name, token, at_least=0, below=config.vocab_size)
        n_prompt = whole("the prompt's length", len(prompt), at_least=1)
        end = n_prompt + whole("max_new_tokens", max_new_tokens, at_least=1)
        if config.positions == "learned":
            whole("the text's length", end - 1, at_most=config.context)
        room = len(self.pages.holders) * self.pages.size
        whole("tokens to be kept", end - 1, at_most=room)
        request = Request(
            tokens=list(prompt),
            n_prompt=n_prompt,
            end=end,
            sampling=sampling,
            stop=frozenset(stop),
            chances=_chances(seed),
            number=self._arrived,
        )
        self._arrived += 1
        self.waiting.append(request)
        return request

    def fork(self, request: Request, *, seed: int) -> Request:
        """A second request that goes on from where a running one stands, on
        the same pages until one of the two writes on them."""
        if request.state != "running":
            raise wrong(ValueError, "the request", request.state, "a running")
        other = dataclasses.replace(
            request,
            tokens=list(request.tokens),
            n_prompt=len(request.tokens),
            table=self.pages.share(request.table),
            chances=_chances(seed),
            number=self._arrived,
        )
        self._arrived += 1
        self.running.append(other)
        return other

    def cancel(self, request: Request) -> None:
        """Stop writing it, and take its pages back."""
        if request.is_open:
            self._end(request, "cancelled")

    def step(self) -> list[Request]:
        """One pass of the model; gives the requests that wrote something."""
        plan = self._schedule()
        if not plan:
            return []
        parts = [part for _, part in plan]
        found = read_parts(self.model, self.pages, parts, exact=self.exact)
        for (request, part), logits in zip(plan, found):
            try:
                self._take_in(request, part, logits)
            except Exception as error:  # its own: the others go on
                self._end(request, "failed", error)
        return [request for request, part in plan if part.n_logits]

    def run(self) -> None:
        """Step until nobody is left."""
        while self.waiting or self.running:
            self.step()

    async def stream(
        self, prompt: Sequence[int], max_new_tokens: int, **options: Any
    ) -> AsyncIterator[int]:
        """Submit a request, and give its tokens as they come.

        Whoever waits for a token takes the next step, for all. A reader who
        leaves cancels the request.
        """
        request = self.submit(prompt, max_new_tokens, **options)
        n_given = request.n_prompt
        try:
            while n_given < len(request.tokens) or request.is_open:
                if n_given < len(request.tokens):
                    yield request.tokens[n_given]
                    n_given += 1
                    continue
                await asyncio.sleep(0)  # others may submit, or step
                if n_given == len(request.tokens) and request.is_open:
                    self.step()
            if request.error is not None:
                raise request.error
        finally:
            self.cancel(request)

    def _schedule(self):
        """Who reads what in the next step: pairs of a request and a part."""
        plan, left, lost = [], self.budget, False
        for request in list(self.running):
            part = None
            while left and part is None and request.state == "running":
                part = self._part(request, left)
                if part is None:
                    lost = True
                    self._preempt(self.running[-1])
            if part is None:
                break
            plan.append((request, part))
            left -= len(part.tokens)
        while self.waiting and left and not lost:
            request, pages = self.waiting[0], self.pages
            # The last token is read in any case: its logits are wanted.
            names = page_names(request.tokens[:-1], pages.size)
            request.table = pages.share(pages.find(names))
            request.n_kept = len(request.table) * pages.size
            part = self._part(request, left)
            if part is None:
                self._give_back(request)
                break
            request.n_found = request.n_kept
            request.state = "running"
            self._move(request, self.waiting, self.running)
            plan.append((request, part))
            left -= len(part.tokens)
        return plan

    def _part(self, request, left):
        """What a request reads, its pages reserved; None if some lack."""
        start = request.n_kept
        unread = request.tokens[start:]
        new, guesses = unread[:left], []
        if len(unread) == 1:
            most = min(left, request.end - len(request.tokens)) - 1
            guesses = list(self.guess(request))[:most]
        for tokens in ([*new, *guesses], new):  # rather without guesses
            if self.pages.reserve(request.table, start, start + len(tokens)):
                more = 1 + len(tokens) - len(new)
                n_logits = more if len(new) == len(unread) else 0
                return Part(request.table, start, tokens, n_logits)
        return None

    def _take_in(self, request, part, logits):
        """Count the tokens in that were read, and write the new ones."""
        if logits.isnan().any():
            n = len(request.tokens)
            after = f"NaN after token {n} of request {request.number}"
            raise wrong(ValueError, "the model's logits", after, "numbers")
        n_guesses = max(0, part.n_logits - 1)
        guesses = part.tokens[len(part.tokens) - n_guesses :]
        request.n_kept += len(part.tokens) - n_guesses
        ended = False
        if part.n_logits:
            new = self.accept(request, guesses, logits)
            if not new or new[:-1] != guesses[: len(new) - 1]:
                words = f"some first of {guesses} and one more"
                raise wrong(ValueError, "what is accepted", new, words)
            new = new[: request.end - len(request.tokens)]
            stops = [n for n, token in enumerate(new) if token in request.stop]
            new = new[: stops[0] + 1] if stops else new
            request.tokens += new
            request.n_kept += len(new) - 1  # the last one is not read yet
            ended = bool(stops) or len(request.tokens) == request.end
        kept = request.tokens[: request.n_kept]
        if len(kept) // self.pages.size > part.start // self.pages.size:
            names = page_names(kept, self.pages.size)
            self.pages.remember(request.table, names)
        self.pages.cut(request.table, request.n_kept)
        if ended:
            self._end(request, "done")

    def _preempt(self, request):
        """Take a request's pages; it will read its text again."""
        self._give_back(request)
        request.state, request.n_preempted = "waiting", request.n_preempted + 1
        self._move(request, self.running, self.waiting)

    def _end(self, request, state, error=None):
        self._give_back(request)
        (self.waiting if request.state == "waiting" else self.running).remove(
            request
        )
        request.state, request.error = state, error

    def _give_back(self, request):
        self.pages.cut(request.table, 0)
        request.n_kept = 0

    def _move(self, request, old, new):
        old.remove(request)
        new.append(request)
        new.sort(key=lambda other: other.number)


def _chances(seed):
    """The generator that `generate` draws a single prompt's chances from."""
    (own,) = np.random.SeedSequence(whole("seed", seed, at_least=0)).spawn(1)
    return np.random.default_rng(own)
