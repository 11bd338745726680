"""Generating text: the next token is chosen, appended, and read in its turn.

`Sampling` says how a token is chosen from the model's logits, `generate` is
the loop around it, and `complete` runs the loop to its end. What may be a
prompt, and how several become one tensor, is in `prompts`.

Axis names: B rows (one for each text), T tokens of a prompt, V size of the
vocabulary. Samplers take logits (..., V) and return logits of that shape.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.config import check_fields, option
from attnbook.gpt import GPT
from attnbook.prompts import check_prompt, pad_left, window_start
from attnbook.values import whole

#: How many tokens after the longest prompt the cache has room for at first.
#: It grows when they are used up, so a text that stops early costs little.
ROOM = 1024


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; without options, the likeliest one.

    The options are applied in the order in which transformers applies them:
    repetition penalty, temperature, top-k, top-p, min-p.

    Raises:
        TypeError, ValueError: an option of another type, or out of its range.
    """

    temperature: float = option(
        0.0, "divides the logits; 0 takes the likeliest token", at_least=0
    )
    top_k: int | None = option(
        None, "how many of the likeliest tokens stay", at_least=1
    )
    top_p: float | None = option(
        None,
        "probability that the tokens which stay reach together",
        above=0,
        at_most=1,
    )
    min_p: float | None = option(
        None,
        "least probability of a token that stays, as a share of the largest",
        at_least=0,
        at_most=1,
    )
    repetition_penalty: float = option(
        1.0, "lowers tokens that the text has already; 1 changes none", above=0
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def bend(self, logits: Tensor, texts: Sequence[list[int]]) -> Tensor:
        """Apply the options to logits, so that a softmax gives the law.

        At temperature 0 only the penalty is applied, since the largest logit
        is taken and nothing else could change which one that is.

        Args:
            logits: of the next token, (B, V).
            texts: the B texts so far, whose tokens the penalty lowers.

        Returns:
            Logits (B, V), −∞ for each token that cannot be chosen.
        """
        if self.repetition_penalty != 1:
            seen = torch.zeros_like(logits, dtype=torch.bool)
            for row, text in zip(seen, texts):
                row[text] = True
            logits = penalise(logits, seen, self.repetition_penalty)
        if self.temperature == 0:
            return logits
        logits = logits / self.temperature
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        if self.min_p is not None:
            logits = keep_min_p(logits, self.min_p)
        return logits

    def choose(
        self,
        logits: Tensor,
        texts: Sequence[list[int]],
        chances: Sequence[np.random.Generator],
    ) -> Tensor:
        """Choose the token that follows each text, (B,), int64.

        Args:
            logits: of the next token, (B, V).
            texts: the B texts so far.
            chances: a generator for each text. One number is taken from it
                for a token that is drawn, none at temperature 0.
        """
        if self.temperature == 0:
            return self.bend(logits, texts).argmax(-1)
        # In half precision a low temperature would make all of them −∞.
        p = self.bend(logits.double(), texts).softmax(-1)  # (B, V)
        return draw(p, p.new_tensor([own.random() for own in chances]))


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Lower the logits (..., V) of tokens that are True in `seen` (..., V).

    A positive logit is divided by the penalty, a negative one multiplied:
    both become smaller if the penalty is above 1.

    Source: Keskar et al. (2019), arXiv:1909.05858, section 4.1, with the
    product for negative logits that transformers added.
    """
    lowered = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, lowered, logits)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Set all logits (..., V) to −∞ but the k largest.

    Logits that equal the k-th largest stay too, so more than k may stay.

    Source: Fan, Lewis and Dauphin (2018), arXiv:1805.04833, section 5.4.
    """
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < least, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the smallest set of likeliest tokens that together reach p.

    All other logits (..., V) become −∞. The likeliest token always stays.

    Source: Holtzman et al. (2020), arXiv:1904.09751, section 3.1.
    """
    if p == 1:  # which a rounded sum may reach too early
        return logits
    ordered, order = logits.sort(descending=True, stable=True)  # (..., V)
    probabilities = ordered.softmax(-1, dtype=torch.float64)
    before = probabilities.cumsum(-1) - probabilities  # of likelier tokens
    out = torch.empty_like(logits, dtype=torch.bool)
    out.scatter_(-1, order, before >= p)
    out.scatter_(-1, order[..., :1], False)  # never the likeliest
    return logits.masked_fill(out, -torch.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Set logits (..., V) to −∞ where a token is much less likely than the
    likeliest: where it has less than p times that one's probability.

    Source: Nguyen et al. (2024), arXiv:2407.01082, section 3.
    """
    probabilities = logits.softmax(-1)
    least = p * probabilities.amax(-1, keepdim=True)  # (..., 1)
    return logits.masked_fill(probabilities < least, -torch.inf)


def draw(probabilities: Tensor, chance: Tensor) -> Tensor:
    """Draw a token for each row by a number that is given for it.

    The token is the first at which the running sum of the row's
    probabilities is above the number. The probabilities need not sum to one:
    the number is a share of their sum.

    Shapes: probabilities (B, V); chance (B,), in [0, 1) → (B,), int64.
    """
    reached = probabilities.double().cumsum(-1)  # (B, V)
    wanted = chance.double()[:, None] * reached[:, -1:]  # (B, 1)
    return torch.searchsorted(reached, wanted, right=True)[:, 0]


def generate(
    model: GPT,
    prompts: Sequence[Sequence[int]] | Tensor,
    max_new_tokens: int,
    *,
    sampling: Sampling = Sampling(),
    stop: Sequence[int] = (),
    seed: int = 0,
    cached: bool = True,
) -> Iterator[list[int | None]]:
    """Continue prompts of any lengths, and give the tokens as they come.

    Each step yields a list with the next token of every prompt, or None for
    one that has ended; it is then taken out of the batch and of the cache.
    Every prompt draws with a generator of its own, prompt r with number r of
    `np.random.SeedSequence(seed).spawn`. So it goes on as it would alone.

    A text may become longer than the model's `context`: from then on the
    model sees its last `context` tokens or fewer, as `window_start` says.

    All arguments are checked here, before the first token is asked for.

    Args:
        prompts: for each prompt its token numbers, at least one; or a tensor
            (B, T).
        max_new_tokens: how many tokens are written for each at most.
        sampling: how a token is chosen.
        stop: tokens after which a prompt ends; the token itself is given.
        seed: of what is drawn, 0 or more.
        cached: keep keys and values between steps. Without, all is computed
            again at each step, and the text is the same.

    Raises:
        TypeError: prompts or stop tokens that are no whole numbers.
        ValueError: no prompts, an empty one, a token outside the vocabulary,
            a number out of its range, or a model whose dropout is on. In a
            later step: logits that are NaN.
    """
    if isinstance(prompts, Tensor):
        prompts = prompts.tolist()
    if len(prompts) == 0:
        raise ValueError(
            "there are no prompts; expected a list of at least one prompt, "
            "each a list of token numbers; got an empty list"
        )
    for n, prompt in enumerate(prompts):
        check_prompt(f"prompt {n}", prompt, model, max_new_tokens, stop)
    whole("seed", seed, at_least=0)
    seeds = np.random.SeedSequence(seed).spawn(len(prompts))
    chances = [np.random.default_rng(own) for own in seeds]
    texts = _Texts(model, prompts, max_new_tokens, cached)
    return _steps(texts, max_new_tokens, sampling, set(stop), chances)


def complete(
    model: GPT,
    prompts: Sequence[Sequence[int]] | Tensor,
    max_new_tokens: int,
    **options: Any,
) -> list[list[int]]:
    """Continue prompts to the end: for each a list of its new tokens.

    It takes the options of `generate`, and raises what `generate` raises.
    """
    written: list[list[int]] = [[] for _ in prompts]
    for step in generate(model, prompts, max_new_tokens, **options):
        for row, token in zip(written, step):
            if token is not None:
                row.append(token)
    return written


class _Texts:
    """Texts that are being written, and what the model has read of them.

    Args:
        model: the model that reads.
        prompts: the beginning of each text.
        n: how many tokens each may get, which bounds the cache.
        cached: whether keys and values are kept.
    """

    def __init__(
        self,
        model: GPT,
        prompts: Sequence[Sequence[int]],
        n: int,
        cached: bool,
    ) -> None:
        self.model = model
        self.texts = [[*prompt] for prompt in prompts]
        #: Numbers of the texts that go on, in the order of the cache's rows.
        self.open = list(range(len(prompts)))
        self._starts = [0] * len(prompts)  # see `window_start`
        # The last token is never read, so it needs no room.
        longest = max(len(text) for text in self.texts)
        self._most = min(model.config.context, longest + n - 1)
        self._cache = None
        if cached:
            room = min(self._most, longest + ROOM)
            self._cache = model.new_cache(len(prompts), room)

    def open_texts(self) -> list[list[int]]:
        """The tokens of each text that has not ended yet."""
        return [self.texts[number] for number in self.open]

    def next_logits(self) -> Tensor:
        """Read what is new of all open texts: logits (rows, V) of the token
        that follows each."""
        device = self.model.token_embedding.weight.device
        tokens, real = pad_left(self._unread(), device=device)  # (B, T)
        cache = self._cache
        return self.model(tokens, real=real, cache=cache, last=True)[:, 0]

    def _unread(self) -> list[list[int]]:
        """The tokens of each open text that the cache does not hold.

        Where a text's window has moved, that is the whole window, since the
        keys and values of its tokens were computed at other positions.
        """
        context = self.model.config.context
        texts = self.open_texts()
        starts = [window_start(len(text), context) for text in texts]
        windows = [text[start:] for text, start in zip(texts, starts)]
        if self._cache is None:
            return windows
        kept = [
            length if start == before else 0
            for length, start, before in zip(
                self._cache.lengths, starts, self._starts
            )
        ]
        self._starts = starts
        if kept != self._cache.lengths:
            self._cache.trim(kept)
        needed = max(len(window) for window in windows)
        if needed > self._cache.capacity:
            self._cache.grow(min(self._most, 2 * needed))
        return [window[n:] for window, n in zip(windows, kept)]

    def append(self, tokens: Sequence[int], stop: set[int]) -> None:
        """Append a token to each open text; a stop token closes the text."""
        for text, token in zip(self.open_texts(), tokens):
            text.append(token)
        still = [n for n, token in enumerate(tokens) if token not in stop]
        if self._cache is not None and 0 < len(still) < len(self.open):
            self._cache.select(still)
        self.open = [self.open[n] for n in still]
        self._starts = [self._starts[n] for n in still]


def _steps(
    texts: _Texts,
    max_new_tokens: int,
    sampling: Sampling,
    stop: set[int],
    chances: Sequence[np.random.Generator],
) -> Iterator[list[int | None]]:
    """The loop of `generate`: one token for every open text, again and again.

    `chances` has a generator for each text.
    """
    for _ in range(max_new_tokens):
        rows = texts.open
        # The block ends before the yield: whoever asks for the tokens would
        # otherwise be left in inference mode.
        with torch.inference_mode():
            logits = texts.next_logits()  # (rows, V)
            own = [chances[row] for row in rows]
            chosen = sampling.choose(logits, texts.open_texts(), own)
            is_nan = logits.isnan().any(-1)  # (rows,)
        if is_nan.any():
            row = rows[int(is_nan.nonzero()[0])]
            raise ValueError(
                f"the model's logits are NaN after token "
                f"{len(texts.texts[row])} of row {row}; expected numbers: "
                "look for NaN in the weights, or for a layer that overflows "
                "in half precision"
            )
        tokens = chosen.tolist()
        given: list[int | None] = [None] * len(texts.texts)
        for row, token in zip(rows, tokens):
            given[row] = token
        texts.append(tokens, stop)
        yield given
        if not texts.open:
            return
