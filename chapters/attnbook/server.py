"""A small server: many requests, one model, one pool of pages.

Each step reads new tokens of all requests that hold pages, in order of
arrival and up to a budget: the newest token of each request that writes, and
a chunk of each prompt that is still being read. When the pages run out, the
request that came last gives its own back, and reads its text again later.
Every request gets the text that it would get alone.

Source: Yu et al. (2022), "Orca", OSDI: a new schedule for each step.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from attnbook.generate import Sampling
from attnbook.gpt import GPT
from attnbook.pages import Pages, Part, read_parts
from attnbook.prompts import check_prompt
from attnbook.values import whole


@dataclasses.dataclass(eq=False)
class Request:
    """A text that is being written: the prompt, and what came after it."""

    #: The prompt and what has been written.
    tokens: list[int]
    #: Length of the prompt.
    n_prompt: int
    #: Tokens that the text has at most, the prompt among them.
    end: int
    sampling: Sampling
    #: Tokens that end the text.
    stop: tuple[int, ...]
    #: Draws the tokens; one number for each.
    chances: np.random.Generator
    #: The pages that it holds, in the order of its text.
    table: list[int] = dataclasses.field(default_factory=list)
    #: Tokens whose keys and values are in its pages.
    n_kept: int = 0
    #: How it ended: done, cancelled or failed; empty until then.
    ended: str = ""
    #: Why it failed, if it did.
    error: Exception | None = None
    #: Why guesses for it failed the last time that they did. The text does
    #: not suffer: without a guess a step writes one token.
    guess_error: Exception | None = None
    #: Tokens in pages that it found filled when it last began to read.
    n_found: int = 0
    #: How often it had to give its pages to somebody who came before it.
    n_preempted: int = 0

    @property
    def written(self) -> list[int]:
        """The tokens that the server has written for this request so far.

        Those of the prompt are not among them.
        """
        return self.tokens[self.n_prompt :]

    @property
    def state(self) -> str:
        """How it ended; until then "running" if it holds pages, else
        "waiting"."""
        return self.ended or ("running" if self.table else "waiting")


def sample(request: Request, guesses: list[int], logits: Tensor) -> list[int]:
    """Draw one token from the first of the logits (1 + guesses, V), and leave
    the guesses alone: the `accept` of a server that does not guess."""
    texts, chances = [request.tokens], [request.chances]
    return request.sampling.choose(logits[:1], texts, chances).tolist()


@dataclasses.dataclass(eq=False, repr=False)
class Server:
    """One model that serves many requests.

    Raises:
        ValueError: a number of pages, a page size or a budget below 1.
    """

    model: GPT
    _: dataclasses.KW_ONLY
    n_pages: int
    #: Tokens that a page has room for.
    page_size: int = 16
    #: New tokens that a step reads at most.
    budget: int = 256
    #: Whether no bit may depend on who else is served; see `read_parts`.
    exact: bool = False
    #: Tokens that may follow a request's own; a step reads them as well. An
    #: error in it counts as no guess, since guesses only save time.
    guess: Callable[[Request], Sequence[int]] = lambda request: []
    #: From a request, g guesses, and the logits (1 + g, V) after its last
    #: token and after each guess, to the tokens that are written: the first
    #: few of the guesses, or none, and then one more.
    accept: Callable[[Request, list[int], Tensor], list[int]] = sample

    def __post_init__(self) -> None:
        whole("budget", self.budget, at_least=1)
        self.pages = Pages(self.n_pages, self.page_size, self.model)
        #: The requests that have not ended, in order of arrival.
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
        """Queue a request, which gets what `attnbook.generate.complete` gives
        for the same prompt and options.

        Raises:
            TypeError: a prompt or stop tokens that are no whole numbers.
            ValueError: what `check_prompt` refuses; a text that may become
                longer than the model's context, or than all pages together.
        """
        check_prompt("the prompt", prompt, self.model, max_new_tokens, stop)
        end = len(prompt) + max_new_tokens
        self._check_length(len(prompt), max_new_tokens)
        own = np.random.SeedSequence(whole("seed", seed, at_least=0)).spawn(1)
        request = Request(
            tokens=[*prompt],
            n_prompt=len(prompt),
            end=end,
            sampling=sampling or Sampling(),
            stop=(*stop,),
            chances=np.random.default_rng(*own),
        )
        self.open.append(request)
        return request

    def _check_length(self, n_prompt: int, n_new: int) -> None:
        """Raise for a text that the model, or the pages, cannot hold."""
        n_read = n_prompt + n_new - 1  # the last token is never read
        got = f"got {n_prompt} in the prompt and {n_new} to write"
        context = self.model.config.context
        if n_read > context:
            raise ValueError(
                f"the text's length would be {n_read} without its last token; "
                f"expected at most {context}, the model's context; {got}"
            )
        n_pages = len(self.pages.holders)
        room = n_pages * self.pages.size
        if n_read > room:
            raise ValueError(
                f"the text would need room for {n_read} tokens; expected at "
                f"most {room}, which is what {n_pages} pages of "
                f"{self.pages.size} hold; {got}"
            )

    def fork(self, request: Request, *, seed: int) -> Request:
        """Make a second request that goes on from where a running one is.

        Both use the same pages until one of them writes on a page, which is
        then copied.

        Args:
            seed: of what the second request draws.

        Raises:
            ValueError: a request that is not running.
        """
        if request.state != "running":
            raise ValueError(
                "only a running request can be forked, because a fork shares "
                f"its pages; expected running; got {request.state!r}"
            )
        more = request.end - len(request.tokens)
        other = self.submit(
            request.tokens,
            more,
            sampling=request.sampling,
            stop=request.stop,
            seed=seed,
        )
        other.table = self.pages.share(request.table)
        other.n_kept = request.n_kept
        return other

    def cancel(self, request: Request) -> None:
        """Stop writing a text and take its pages back. For a request that has
        ended nothing happens."""
        if request in self.open:
            self._give_back(request, "cancelled")

    def run(self) -> None:
        """Make one step after another, until every request has ended."""
        while self.open:
            self.step()

    async def stream(
        self, prompt: Sequence[int], max_new_tokens: int, **options: Any
    ) -> AsyncIterator[int]:
        """Submit a request, and give its tokens as they come.

        Whoever waits for a token makes the next step, for all requests. A
        reader who stops listening cancels the request.

        Args:
            options: those of `submit`.

        Raises:
            Exception: what `submit` refuses, or what made the request fail.
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
        """Make one pass of the model over what the schedule lets in.

        What goes wrong when a request chooses its tokens ends that request
        alone; its error is kept in `request.error`.
        """
        plan = self._plan()
        if not plan:
            return
        read = read_parts(self.model, self.pages, [*plan.values()], self.exact)
        for (request, part), logits in zip(plan.items(), read):
            try:
                self._take_in(request, part, logits)
            except Exception as error:  # its own: the others go on
                self._give_back(request, "failed", error)

    def _plan(self) -> dict[Request, Part]:
        """Who reads what in the next step, on pages that are reserved."""
        plan: dict[Request, Part] = {}
        left = self.budget
        pages_are_short = False
        for request in [*self.open]:
            waits = not request.table
            # Once pages are short, nobody who waits is let in.
            while left and (request.table or not pages_are_short):
                part = self._part(request, left)
                if part is not None:
                    plan[request] = part
                    left -= len(part.tokens)
                    break
                pages_are_short = True
                if waits:  # it keeps none of the pages that it has found
                    self._give_back(request)
                    continue
                last = [other for other in self.open if other.table][-1]
                last.n_preempted += 1
                self._give_back(last)
        return plan

    def _part(self, request: Request, left: int) -> Part | None:
        """What a request reads next, at most `left` tokens, on pages that are
        now reserved; None if there are not enough free pages."""
        if not request.table:
            # The last token is read in any case: its logits are wanted.
            found = self.pages.find(request.tokens[:-1])
            request.table = self.pages.share(found)
            request.n_kept = len(found) * self.pages.size
            request.n_found = request.n_kept
        start = request.n_kept
        unread = request.tokens[start:]
        new = unread[:left]
        guesses: list[int] = []
        if len(unread) == 1:
            most = min(left, request.end - len(request.tokens)) - 1
            guesses = self._guesses(request, most)
        for guessed in (guesses, []):  # if need be without the guesses
            tokens = new + guessed
            if self.pages.reserve(request.table, start, start + len(tokens)):
                return Part(request.table, start, tokens, 1 + len(guessed))
        return None

    def _guesses(self, request: Request, most: int) -> list[int]:
        """At most so many guesses of what follows; none if guessing fails.

        One bad guess would otherwise stop the step, and with it everybody.
        """
        below = self.model.config.vocab_size
        try:
            guesses = list(self.guess(request))[: max(0, most)]
            return [
                whole("a guess", g, at_least=0, below=below) for g in guesses
            ]
        except Exception as error:
            request.guess_error = error
            return []

    def _take_in(self, request: Request, part: Part, logits: Tensor) -> None:
        """Count in what a request has read, and write what comes next."""
        tokens = request.tokens
        ended = False
        end = part.start + len(part.tokens)
        if end >= len(tokens):  # all is read
            new = self._accepted(request, part, logits)
            stops = [n for n, t in enumerate(new, 1) if t in request.stop]
            tokens += new[: min(stops, default=len(new))]
            ended = bool(stops) or len(tokens) == request.end
        # The last token is not read yet, and what was guessed wrong is gone.
        request.n_kept = min(end, len(tokens) - 1)
        if request.n_kept // self.pages.size > part.start // self.pages.size:
            # A page has been filled: others may find it.
            self.pages.remember(request.table, tokens[: request.n_kept])
        self.pages.cut(request.table, request.n_kept)
        if ended:
            self._give_back(request, "done")

    def _accepted(
        self, request: Request, part: Part, logits: Tensor
    ) -> list[int]:
        """The tokens that `accept` writes, if they are what they may be."""
        if logits.isnan().any():
            raise ValueError(
                f"the model's logits are NaN after {len(request.tokens)} "
                "tokens of this request; expected numbers; got NaN"
            )
        guesses = [*part.tokens[len(part.tokens) - part.n_logits + 1 :]]
        new = self.accept(request, guesses, logits)
        if not new or new[:-1] != guesses[: len(new) - 1]:
            raise ValueError(
                "accept has given tokens that it was not offered; expected "
                f"the first few of {guesses}, or none, and one more token; "
                f"got {new}"
            )
        return new

    def _give_back(
        self,
        request: Request,
        ended: str = "",
        error: Exception | None = None,
    ) -> None:
        """Take a request's pages. If it has not ended, it will read its text
        again when there is room."""
        self.pages.cut(request.table, 0)
        request.n_kept = 0
        request.ended = ended
        request.error = error
        if ended:
            self.open.remove(request)
