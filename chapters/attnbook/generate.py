"""Generating text: logits are bent, a token is drawn, and it goes back in.

Axis names: B rows (sequences), T tokens of a prompt, V size of the
vocabulary. Samplers take logits (..., V) and give as many.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.config import check_fields, option
from attnbook.gpt import GPT
from attnbook.values import bad_value, whole

#: Tokens that the cache has room for at first, behind the longest prompt.
ROOM = 1024


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. Without options the likeliest is taken."""

    temperature: float = option(0.0, "0: the likeliest", at_least=0)
    top_k: int | None = option(None, "how many are kept", at_least=1)
    top_p: float | None = option(None, "share kept", above=0, at_most=1)
    min_p: float | None = option(
        None, "least share of the likeliest's", at_least=0, at_most=1
    )
    repetition_penalty: float = option(1.0, "of tokens seen", above=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def bend(self, logits: Tensor, texts: Sequence[list[int]]) -> Tensor:
        """The logits to draw from after each of some texts, (B, V): −∞ where
        a token is out."""
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
        """The token after each text, (B,), from logits (B, V); it is drawn by
        one number of the text's own generator."""
        if self.temperature == 0:
            return self.bend(logits, texts).argmax(-1)
        # In half precision a low temperature would make all of them −∞.
        p = self.bend(logits.double(), texts).softmax(-1)  # (B, V)
        return draw(p, p.new_tensor([own.random() for own in chances]))


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Lower the logits (..., V) of tokens that are True in `seen` (..., V).

    A positive one is divided by the penalty, a negative one multiplied.

    Source: Keskar et al. (2019), arXiv:1909.05858, section 4.1, with the
    product for negative logits that transformers added.
    """
    lowered = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, lowered, logits)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """−∞ everywhere but at the k largest (and what equals the last of them).

    Source: Fan, Lewis and Dauphin (2018), arXiv:1805.04833, section 5.4.
    """
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < least, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """−∞ outside the smallest set of likeliest tokens that together reach p.

    Source: Holtzman et al. (2020), arXiv:1904.09751, section 3.1.
    """
    if p == 1:  # which a rounded sum may reach too early
        return logits
    ordered, order = logits.sort(descending=True, stable=True)  # (..., V)
    probabilities = ordered.softmax(-1, dtype=torch.float64)
    before = probabilities.cumsum(-1) - probabilities  # of likelier ones
    out = torch.empty_like(logits, dtype=torch.bool)
    out.scatter_(-1, order, before >= p)
    out.scatter_(-1, order[..., :1], False)  # never the likeliest
    return logits.masked_fill(out, -torch.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """−∞ where a token has less than p times the likeliest's probability.

    Source: Nguyen et al. (2024), arXiv:2407.01082, section 3.
    """
    probabilities = logits.softmax(-1)
    least = p * probabilities.amax(-1, keepdim=True)  # (..., 1)
    return logits.masked_fill(probabilities < least, -torch.inf)


def draw(probabilities: Tensor, chance: Tensor) -> Tensor:
    """A token a row, (B,): the first at which the running sum of the
    probabilities (B, V) is above the row's chance (B,), in [0, 1)."""
    reached = probabilities.double().cumsum(-1)  # (B, V)
    wanted = chance.double()[:, None] * reached[:, -1:]  # (B, 1)
    return torch.searchsorted(reached, wanted, right=True)[:, 0]


def pad_left(
    sequences: Sequence[Sequence[int]], *, device: Any = None
) -> tuple[Tensor, Tensor | None]:
    """Tokens (B, T), short rows filled up from the left, and True at real
    tokens, (B, T), or None where there is no padding."""
    lengths = [len(s) for s in sequences]
    whole("a prompt's length", min(lengths, default=0), at_least=1)
    T = max(lengths)
    rows = [[0] * (T - len(s)) + list(s) for s in sequences]
    tokens = torch.tensor(rows, device=device)  # (B, T)
    if min(lengths) == T:
        return tokens, None
    start = T - torch.tensor(lengths, device=device)  # (B,)
    return tokens, torch.arange(T, device=device) >= start[:, None]


def check_prompt(
    name: str, prompt: Any, model: GPT, n: int, stop: Sequence[int]
) -> None:
    """Refuse a prompt that a model cannot continue by n tokens."""
    config = model.config
    for what, tokens in {name: prompt, "stop": stop}.items():
        if not isinstance(tokens, Sequence):
            raise bad_value(TypeError, what, tokens, "token numbers")
        for token in tokens:
            whole(what, token, at_least=0, below=config.vocab_size)
    length = whole(f"{name}'s length", len(prompt), at_least=1)
    length += whole("max_new_tokens", n, at_least=1) - 1  # last is unread
    if config.positions == "learned":
        whole("the text's length", length, at_most=config.context)
    if model.training and config.dropout:
        raise bad_value(ValueError, "dropout", "training", "model.eval()")


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

    Each step yields a list with the next token of each prompt, None where it
    has ended, which takes it out of the batch and of the cache. Each draws
    with a generator of its own, so it goes on as it would alone: prompt r
    with number r of `np.random.SeedSequence(seed).spawn`. Refuses at once.

    Args:
        prompts: token numbers, at least one a prompt; or a tensor (B, T).
        stop: a prompt ends after one of these tokens.
        cached: keep keys and values, or compute all again, to the same end.
    """
    if isinstance(prompts, Tensor):
        prompts = prompts.tolist()
    for n, prompt in enumerate(prompts):
        check_prompt(f"prompt {n}", prompt, model, max_new_tokens, stop)
    pad_left(prompts)  # refuses to continue nothing
    whole("seed", seed, at_least=0)
    sequences = [[*prompt] for prompt in prompts]
    return steps(
        model, sequences, max_new_tokens, sampling, set(stop), seed, cached
    )


def complete(
    model: GPT,
    prompts: Sequence[Sequence[int]] | Tensor,
    max_new_tokens: int,
    **options: Any,
) -> list[list[int]]:
    """What `generate` gives for each prompt, all at once: new tokens only."""
    written: list[list[int]] = [[] for _ in prompts]
    for step in generate(model, prompts, max_new_tokens, **options):
        for row, token in zip(written, step):
            if token is not None:
                row.append(token)
    return written


def steps(
    model: GPT,
    sequences: list[list[int]],
    max_new_tokens: int,
    sampling: Sampling,
    stop: set[int],
    seed: int,
    cached: bool,
) -> Iterator[list[int | None]]:
    """The loop of `generate`; the sequences take in the new tokens."""
    device = model.token_embedding.weight.device
    open_rows = list(range(len(sequences)))
    seeds = np.random.SeedSequence(seed).spawn(len(sequences))
    chances = [np.random.default_rng(each) for each in seeds]
    # The last token is never read, so it needs no room.
    longest = max(len(s) for s in sequences)
    most = longest + max_new_tokens - 1
    room = min(most, longest + ROOM)
    cache = model.new_cache(len(sequences), room) if cached else None
    for step in range(max_new_tokens):
        if cache is not None and longest + step > cache.capacity:
            cache.grow(min(most, 2 * cache.capacity))
        # Not around the yield: the mode would be the caller's too.
        with torch.inference_mode():
            texts = [sequences[row] for row in open_rows]
            unread = [t[-1:] for t in texts] if cache and step else texts
            tokens, real = pad_left(unread, device=device)  # (B, T)
            logits = model(tokens, real=real, cache=cache, last=True)[:, 0]
            own = [chances[row] for row in open_rows]
            found = sampling.choose(logits, texts, own)  # (B,)
            found = found.masked_fill(logits.isnan().any(-1), -1)
        chosen: list[int] = found.tolist()
        if -1 in chosen:
            row = chosen.index(-1)
            got = f"NaN after token {len(texts[row])} of row {open_rows[row]}"
            raise bad_value(ValueError, "a logit", got, "numbers")
        news: list[int | None] = [None] * len(sequences)
        for row, token in zip(open_rows, chosen):
            sequences[row].append(token)
            news[row] = token
        still = [n for n, token in enumerate(chosen) if token not in stop]
        if cache is not None and 0 < len(still) < len(open_rows):
            cache.select(still)
        open_rows = [open_rows[n] for n in still]
        yield news
        if not open_rows:
            return
