"""A small server: many requests, one model, one pool of pages.

Each step reads new tokens of all requests that hold pages, in order of
arrival, up to a budget: one token of each that writes, a chunk of each prompt
that is being read. When pages run out, the request that came last gives its
own back, and reads its text again later. Each gets what it would get alone.

Source: Yu et al. (2022), "Orca", OSDI: a new schedule for each step.
"""

import asyncio
import bisect
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.config import whole, wrong
from attnbook.generate import Sampling
from attnbook.gpt import GPT
from attnbook.pages import Pages, Part, page_names, read_parts


@dataclasses.dataclass(eq=False)
class Request:
    """A text that is being written: `tokens`, the prompt in front."""

    tokens: list[int]
    n_prompt: int
    end: int  # how many tokens it has at most
    sampling: Sampling
    stop: frozenset[int]
    chances: np.random.Generator
    number: int  # in order of arrival
    table: list[int] = dataclasses.field(default_factory=list)
    n_kept: int = 0  # tokens whose keys and values its pages hold
    state: str = "new"  # waiting, running, done, cancelled or failed
    error: Exception | None = None
    n_found: int = 0  # tokens that it found in pages when it was let in
    n_preempted: int = 0  # how often it lost its pages

    @property
    def written(self) -> list[int]:
        """What it has written so far."""
        return self.tokens[self.n_prompt :]

    @property
    def is_open(self) -> bool:
        """Whether it may still write."""
        return self.state in ("waiting", "running")


Guess = Callable[[Request], list[int]]
Accept = Callable[[Request, list[int], Tensor], list[int]]


def sample(request: Request, guesses: list[int], logits: Tensor) -> list[int]:
    """One token, drawn from the first of the logits (1 + guesses, V)."""
    logits, seen = logits[:1], None
    if request.sampling.repetition_penalty != 1:
        seen = torch.zeros_like(logits, dtype=torch.bool)
        seen[0, request.tokens] = True
    chance = logits.new_tensor([request.chances.random()], dtype=torch.double)
    return request.sampling.choose(logits, chance, seen).tolist()


class Server:
    """One model that serves many requests.

    Args:
        n_pages, page_size: the pool, and tokens a page has room for.
        budget: new tokens that a step reads at most.
        exact: see `read_parts`.
        guess: tokens that may follow a request's own; a step reads them too.
        accept: from a request, g guesses and the logits (1 + g, V) after its
            last token and after each guess, the tokens to write: the first
            few of the guesses, or none, and then one more.
    """

    def __init__(
        self,
        model: GPT,
        *,
        n_pages: int,
        page_size: int = 16,
        budget: int = 256,
        exact: bool = False,
        guess: Guess = lambda request: [],
        accept: Accept = sample,
    ) -> None:
        if model.training and model.config.dropout:
            raise wrong(ValueError, "dropout", "training", "model.eval()")
        self.budget = whole("budget", budget, at_least=1)
        self.model, self.exact = model, exact
        self.guess, self.accept = guess, accept
        self.pages = Pages(n_pages, page_size, model)
        #: Who holds pages, and who waits for some; in order of arrival.
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self._numbers = itertools.count()

    def submit(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        *,
        sampling: Sampling | None = None,
        stop: Sequence[int] = (),
        seed: int = 0,
    ) -> Request:
        """Queue a request for what `complete(model, [prompt], …)` gives, or
        raise a TypeError or ValueError if it cannot be served."""
        config, pages = self.model.config, self.pages
        for name, tokens in {"the prompt": prompt, "stop": stop}.items():
            for token in tokens:
                whole(name, token, at_least=0, below=config.vocab_size)
        n_prompt = whole("the prompt's length", len(prompt), at_least=1)
        end = n_prompt + whole("max_new_tokens", max_new_tokens, at_least=1)
        # The last token is never read, so it needs no room.
        room = len(pages.holders) * pages.size
        whole("tokens to be kept", end - 1, at_most=room)
        if config.positions == "learned":
            whole("the text's length", end - 1, at_most=config.context)
        sampling = sampling or Sampling()
        options = sampling, frozenset(stop), _chances(seed)
        number = next(self._numbers)
        request = Request(list(prompt), n_prompt, end, *options, number)
        self._move(request, "waiting")
        return request

    def fork(self, request: Request, *, seed: int) -> Request:
        """A second request that goes on from where a running one stands, on
        the same pages until one of the two writes on them."""
        if request.state != "running":
            raise wrong(ValueError, "the state", request.state, "running")
        other = dataclasses.replace(
            request,
            tokens=list(request.tokens),
            n_prompt=len(request.tokens),
            chances=_chances(seed),
            number=next(self._numbers),
            table=self.pages.share(request.table),
            state="new",
        )
        self._move(other, "running")
        return other

    def cancel(self, request: Request) -> None:
        """Stop writing, and take the pages back."""
        if request.is_open:
            self._move(request, "cancelled")

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
        given = request.n_prompt
        try:
            while given < len(request.tokens) or request.is_open:
                if given == len(request.tokens):
                    await asyncio.sleep(0)  # others may submit, or step
                if given < len(request.tokens):
                    yield request.tokens[given]
                    given += 1
                elif request.is_open:
                    self.step()
            if request.error is not None:
                raise request.error
        finally:
            self.cancel(request)

    def step(self) -> None:
        """One pass of the model over what the schedule lets in."""
        plan = self._schedule()
        if not plan:
            return
        read = read_parts(self.model, self.pages, [*plan.values()], self.exact)
        for (request, part), logits in zip(plan.items(), read):
            try:
                self._take_in(request, part, logits)
            except Exception as error:  # its own: the others go on
                self._move(request, "failed", error)

    def _schedule(self):
        """Who reads what in the next step, and on which pages."""
        plan, left, lost = {}, self.budget, False
        for request in list(self.running):
            while left and request.state == "running" and request not in plan:
                if part := self._part(request, left):
                    plan[request] = part
                    left -= len(part.tokens)
                else:
                    lost = True
                    self.running[-1].n_preempted += 1
                    self._move(self.running[-1], "waiting")
        while self.waiting and left and not lost:
            request = self.waiting[0]
            # The last token is read in any case: its logits are wanted.
            names = page_names(request.tokens[:-1], self.pages.size)
            request.table = self.pages.share(self.pages.find(names))
            request.n_kept = len(request.table) * self.pages.size
            part = self._part(request, left)
            if part is None:
                self._move(request, "waiting")
                break
            request.n_found = request.n_kept
            self._move(request, "running")
            plan[request] = part
            left -= len(part.tokens)
        return plan

    def _part(self, request, left):
        """What it reads next, the pages reserved; None if there are none."""
        start, guesses = request.n_kept, []
        unread = request.tokens[start:]
        new = unread[:left]
        if len(unread) == 1:
            most = min(left, request.end - len(request.tokens)) - 1
            guesses = list(self.guess(request))[:most]
        for tokens in (new + guesses, new):  # rather without the guesses
            if self.pages.reserve(request.table, start, start + len(tokens)):
                n_logits = 1 + len(tokens) - len(new) if new == unread else 0
                return Part(request.table, start, tokens, n_logits)
        return None

    def _take_in(self, request, part, logits):
        """Count in what has been read, and write what comes next."""
        n_read = len(part.tokens) - max(0, part.n_logits - 1)
        request.n_kept += n_read
        new = []
        if part.n_logits:
            if logits.isnan().any():
                where = f"NaN after {len(request.tokens)} tokens"
                raise wrong(ValueError, "the logits", where, "numbers")
            guesses = part.tokens[n_read:]
            new = self.accept(request, guesses, logits)
            if not new or new[:-1] != guesses[: len(new) - 1]:
                words = f"the first few of {guesses} and one more"
                raise wrong(ValueError, "what is accepted", new, words)
            ends = [
                n for n, token in enumerate(new, 1) if token in request.stop
            ]
            new = new[: min([request.end - len(request.tokens), *ends])]
            request.tokens += new
            request.n_kept += len(new) - 1  # the last one is not read yet
        size, kept = self.pages.size, request.tokens[: request.n_kept]
        if len(kept) // size > part.start // size:  # a page is full
            self.pages.remember(request.table, page_names(kept, size))
        self.pages.cut(request.table, len(kept))  # of guesses that failed
        full = len(request.tokens) == request.end
        if new and (full or new[-1] in request.stop):
            self._move(request, "done")

    def _move(self, request, state, error=None):
        """Another state; who is not running holds no pages."""
        queues = {"waiting": self.waiting, "running": self.running}
        if request.state in queues:
            queues[request.state].remove(request)
        if state in queues:
            bisect.insort(queues[state], request, key=lambda r: r.number)
        if state != "running":
            self.pages.cut(request.table, 0)
            request.n_kept = 0
        request.state, request.error = state, error


def _chances(seed):
    """The generator from which `generate` draws for a single prompt."""
    (own,) = np.random.SeedSequence(whole("seed", seed, at_least=0)).spawn(1)
    return np.random.default_rng(own)
