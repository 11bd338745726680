"""A small server: many requests, one model, one pool of pages.

Each step reads new tokens of all requests that hold pages, in order of
arrival, up to a budget: one token of each that writes, a chunk of each prompt
that is being read. When pages run out, the request that came last gives its
own back, and reads its text again later. Each gets what it would get alone.

Source: Yu et al. (2022), "Orca", OSDI: a new schedule for each step.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from attnbook.config import whole, wrong
from attnbook.generate import Sampling, check_prompt
from attnbook.gpt import GPT
from attnbook.pages import Pages, Part, read_parts


@dataclasses.dataclass(eq=False)
class Request:
    """A text that is being written: `tokens`, the prompt in front."""

    tokens: list[int]
    n_prompt: int
    end: int  # how many tokens it has at most
    sampling: Sampling
    stop: frozenset[int]
    chances: np.random.Generator
    table: list[int] = dataclasses.field(default_factory=list)
    n_kept: int = 0  # tokens whose keys and values its pages hold
    ended: str = ""  # done, cancelled or failed
    error: Exception | None = None
    n_found: int = 0  # tokens in pages that it found when it last began
    n_preempted: int = 0  # how often it lost its pages

    @property
    def written(self) -> list[int]:
        """What it has written so far."""
        return self.tokens[self.n_prompt :]

    @property
    def state(self) -> str:
        """How it ended; or running, if it has pages; or waiting for some."""
        return self.ended or ("running" if self.table else "waiting")


Guess = Callable[[Request], list[int]]
Accept = Callable[[Request, list[int], Tensor], list[int]]


def sample(request: Request, guesses: list[int], logits: Tensor) -> list[int]:
    """One token, drawn from the first of the logits (1 + guesses, V)."""
    texts, chances = [request.tokens], [request.chances]
    return request.sampling.choose(logits[:1], texts, chances).tolist()


@dataclasses.dataclass(eq=False, repr=False)
class Server:
    """One model that serves many requests."""

    model: GPT
    _: dataclasses.KW_ONLY
    n_pages: int
    page_size: int = 16  # tokens that a page has room for
    budget: int = 256  # new tokens that a step reads at most
    exact: bool = False  # see `read_parts`
    #: Tokens that may follow a request's own; a step reads them too.
    guess: Guess = lambda request: []
    #: From a request, g guesses and the logits (1 + g, V) after its last
    #: token and after each guess, the tokens to write: the first few of the
    #: guesses, or none, and then one more.
    accept: Accept = sample

    def __post_init__(self) -> None:
        whole("budget", self.budget, at_least=1)
        self.pages = Pages(self.n_pages, self.page_size, self.model)
        #: Who has not ended, in order of arrival.
        self.open: list[Request] = []

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
        check_prompt("the prompt", prompt, self.model, max_new_tokens, stop)
        end = len(prompt) + max_new_tokens
        # The last token is never read, so it needs no room.
        room = len(self.pages.holders) * self.pages.size
        whole("tokens to be kept", end - 1, at_most=room)
        options = sampling or Sampling(), frozenset(stop), _chances(seed)
        self.open.append(Request([*prompt], len(prompt), end, *options))
        return self.open[-1]

    def fork(self, request: Request, *, seed: int) -> Request:
        """A second request that goes on from where a running one stands, on
        the same pages until one of the two writes on them."""
        if request.state != "running":
            raise wrong(ValueError, "the state", request.state, "running")
        other = dataclasses.replace(
            request,
            tokens=[*request.tokens],
            n_prompt=len(request.tokens),
            chances=_chances(seed),
            table=self.pages.share(request.table),
        )
        self.open.append(other)
        return other

    def cancel(self, request: Request) -> None:
        """Stop writing, and take the pages back."""
        if request in self.open:
            self._end(request, "cancelled")

    def run(self) -> None:
        """Step until nobody is left."""
        while self.open:
            self.step()

    async def stream(
        self, prompt: Sequence[int], max_new_tokens: int, **options: Any
    ) -> AsyncIterator[int]:
        """Submit a request, and give its tokens as they come.

        Whoever waits for a token takes the next step, for all. A reader who
        leaves cancels the request.
        """
        request = self.submit(prompt, max_new_tokens, **options)
        given = 0
        try:
            while request in self.open or given < len(request.written):
                await asyncio.sleep(0)  # others may submit, or step
                if given == len(request.written):
                    self.step()
                for token in request.written[given:]:
                    yield token
                    given += 1
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
                self._end(request, "failed", error)

    def _schedule(self):
        """Who reads what in the next step, and on which pages."""
        plan, left, full = {}, self.budget, False
        for request in [*self.open]:
            waits = not request.table
            # Once pages are short, nobody is let in.
            while left and request not in plan and (request.table or not full):
                if part := self._part(request, left):
                    plan[request] = part
                    left -= len(part.tokens)
                else:
                    full, holders = True, [r for r in self.open if r.table]
                    loses = request if waits else holders[-1]
                    loses.n_preempted += not waits
                    self._give_back(loses)
        return plan

    def _part(self, request, left):
        """What it reads next, the pages reserved; None if there are none."""
        if not request.table:
            # The last token is read in any case: its logits are wanted.
            found = self.pages.find(request.tokens[:-1])
            request.table = self.pages.share(found)
            request.n_found = request.n_kept = len(found) * self.pages.size
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
        request.n_kept, ended = part.start + len(part.tokens), False
        if part.n_logits:
            if logits.isnan().any():
                where = f"NaN after {len(request.tokens)} tokens"
                raise wrong(ValueError, "the logits", where, "numbers")
            guesses = part.tokens[len(part.tokens) - part.n_logits + 1 :]
            new = self.accept(request, guesses, logits)
            if not new or new[:-1] != guesses[: len(new) - 1]:
                words = f"the first few of {guesses} and one more"
                raise wrong(ValueError, "what is accepted", new, words)
            for token in new:
                request.tokens.append(token)
                full = len(request.tokens) == request.end
                if ended := full or token in request.stop:
                    break
            request.n_kept = len(request.tokens) - 1  # the last is unread
        size, n_kept = self.pages.size, request.n_kept
        if n_kept // size > part.start // size:  # a page is full
            self.pages.remember(request.table, request.tokens[:n_kept])
        self.pages.cut(request.table, n_kept)  # of guesses that failed
        if ended:
            self._end(request, "done")

    def _end(self, request, how, error=None):
        """It is over, for one of the reasons that `ended` names."""
        self._give_back(request)
        request.ended, request.error = how, error
        self.open.remove(request)

    def _give_back(self, request):
        """Take its pages; what stood on them is computed again."""
        self.pages.cut(request.table, 0)
        request.n_kept = 0


def _chances(seed):
    """The generator from which `generate` draws for a single prompt."""
    (own,) = np.random.SeedSequence(whole("seed", seed, at_least=0)).spawn(1)
    return np.random.default_rng(own)
