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

from attnbook.generate import Sampling, check_prompt
from attnbook.gpt import GPT
from attnbook.pages import Pages, Part, read_parts
from attnbook.values import bad_value, whole


@dataclasses.dataclass(eq=False)
class Request:
    """A text that is being written: `tokens`, the prompt in front."""

    tokens: list[int]
    n_prompt: int
    end: int  # how many tokens it has at most
    sampling: Sampling
    stop: tuple[int, ...]
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
    guess: Callable[[Request], list[int]] = lambda request: []
    #: From a request, g guesses and the logits (1 + g, V) after its last
    #: token and after each guess, the tokens to write: the first few of the
    #: guesses, or none, and then one more.
    accept: Callable[[Request, list[int], Tensor], list[int]] = sample

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
        room = len(self.pages.holders) * self.pages.size
        whole("tokens to be kept", end - 1, at_most=room)  # last is unread
        own = np.random.SeedSequence(whole("seed", seed, at_least=0)).spawn(1)
        options = sampling or Sampling(), (*stop,), np.random.default_rng(*own)
        self.open.append(Request([*prompt], len(prompt), end, *options))
        return self.open[-1]

    def fork(self, request: Request, *, seed: int) -> Request:
        """A second request that goes on from where a running one stands, on
        the same pages until one of the two writes on them."""
        if request.state != "running":
            raise bad_value(ValueError, "the state", request.state, "running")
        options: Any = dict(sampling=request.sampling, stop=request.stop)
        more = request.end - len(request.tokens)
        other = self.submit(request.tokens, more, seed=seed, **options)
        other.table = self.pages.share(request.table)
        other.n_kept = request.n_kept
        return other

    def cancel(self, request: Request) -> None:
        """Stop writing, and take the pages back."""
        if request in self.open:
            self._give_back(request, "cancelled")

    def run(self) -> None:
        """Step until nobody is left."""
        while self.open:
            self.step()

    async def stream(
        self, prompt: Sequence[int], max_new_tokens: int, **options: Any
    ) -> AsyncIterator[int]:
        """Submit a request, and give its tokens as they come. Who waits for
        one takes the next step, for all; a reader who leaves cancels."""
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
        plan: dict[Request, Part] = {}  # who reads what, on which pages
        left, full = self.budget, False
        for request in [*self.open]:
            waits = not request.table
            # Once pages are short, nobody is let in.
            while left and (request.table or not full):
                if part := self._part(request, left):
                    plan[request] = part
                    left -= len(part.tokens)
                    break
                full, holders = True, [r for r in self.open if r.table]
                loses = request if waits else holders[-1]
                loses.n_preempted += not waits
                self._give_back(loses)
        if not plan:
            return
        read = read_parts(self.model, self.pages, [*plan.values()], self.exact)
        for (request, part), logits in zip(plan.items(), read):
            try:
                self._take_in(request, part, logits)
            except Exception as error:  # its own: the others go on
                self._give_back(request, "failed", error)

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
        for guessed in (guesses, []):  # rather without the guesses
            tokens, n_logits = new + guessed, 1 + len(guessed)
            if self.pages.reserve(request.table, start, start + len(tokens)):
                return Part(request.table, start, tokens, n_logits)
        return None

    def _take_in(self, request, part, logits):
        """Count in what has been read, and write what comes next."""
        tokens, ended = request.tokens, False
        end = part.start + len(part.tokens)
        if end >= len(tokens):  # all is read
            if logits.isnan().any():
                where = f"NaN after {len(tokens)} tokens"
                raise bad_value(ValueError, "the logits", where, "numbers")
            guesses = part.tokens[len(part.tokens) - part.n_logits + 1 :]
            new = self.accept(request, guesses, logits)
            if not new or new[:-1] != guesses[: len(new) - 1]:
                words = f"the first few of {guesses} and one more"
                raise bad_value(ValueError, "what is accepted", new, words)
            stops = [n for n, t in enumerate(new, 1) if t in request.stop]
            tokens += new[: min(stops, default=len(new))]
            ended = bool(stops) or len(tokens) == request.end
        n_kept = request.n_kept = min(end, len(tokens) - 1)  # last is unread
        if n_kept // self.pages.size > part.start // self.pages.size:
            self.pages.remember(request.table, tokens[:n_kept])  # a full page
        self.pages.cut(request.table, n_kept)  # of guesses that failed
        if ended:
            self._give_back(request, "done")

    def _give_back(self, request, ended="", error=None):
        """Take its pages; it computes again what stood there, or it ended."""
        self.pages.cut(request.table, 0)
        request.n_kept, request.ended, request.error = 0, ended, error
        if ended:
            self.open.remove(request)
