"""The book's own language: short stories of one town.

Its truth is known: for every beginning of a story, the exact probability of
each next word. The words and the sentences are in `grammar`; here `Town` puts
sentences together into stories, draws them, and computes the probability of
each of their words.

Three things in a story hang on a word that stands far before them:

- *returning*: "mira went to the library . … mira is going back to the";
- *bank*: "the boat left the river bank at dawn and", or "the city bank";
- *agreement*: "the boats near the old bridge", are or is.

`questions` finds the places in a story where one can ask for such a word.
"""

import itertools
import math
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from attnbook.config import check_fields, option
from attnbook.files import shown
from attnbook.gpt import GPTConfig
from attnbook.grammar import (
    END,
    ENDINGS,
    PAD,
    PEOPLE,
    PLACES,
    START,
    STOP,
    THE,
    USUAL_PLACE,
    WALKED,
    WALKING,
    WORDS,
    Distribution,
    Grammar,
    aside,
    in_turn,
    mixed,
    uniform,
    usually,
)
from attnbook.questions import FINDERS, KINDS, Question
from attnbook.training import Recipe, evaluating
from attnbook.values import one_of, whole
from attnbook.vocabulary import Vocabulary

#: The distribution where a story can only end.
_END = uniform((END,))


@cache
def vocabulary() -> Vocabulary:
    """The words of the language, numbered in the order of `WORDS`."""
    return Vocabulary(WORDS)


@dataclass(frozen=True)
class Town:
    """A language of stories: people go somewhere, and some of them go back
    there later, with other sentences (asides) in between.

    Raises:
        TypeError, ValueError: a field of another type or out of its range.
    """

    people: tuple[int, int] = option(
        (2, 4),
        "people who go somewhere, least and most",
        at_least=2,
        at_most=8,
    )
    returns: tuple[int, int] = option(
        (2, 3), "times that one goes back, least and most", at_least=1
    )
    asides: int = option(2, "most other sentences in a story", at_least=0)
    aside: float = option(
        0.2, "probability that a sentence is an aside", at_least=0, below=1
    )

    def __post_init__(self) -> None:
        check_fields(self)
        whole("most people", self.people[1], at_least=self.people[0])
        whole("most returns", self.returns[1], at_least=self.returns[0])

    def grammar(self) -> Grammar:
        """The language itself: it yields the distribution of the next word,
        and is sent the word that was chosen."""
        went: dict[str, str] = {}  # person → place
        returned = 0
        asides = 0
        yield uniform((START,))
        while True:
            opening = self._opening(went, returned)
            if asides < self.asides:
                opening = mixed((1 - self.aside, opening), (self.aside, THE))
            word = yield opening
            if word == END:
                return
            if word == "the":
                asides += 1
                yield from aside()
                continue
            if word in went:
                returned += 1
                yield from in_turn("is")
                yield uniform(WALKING)
                yield from in_turn(f"back to the {went[word]}")
            else:
                yield uniform(WALKED)
                yield from in_turn("to the")
                free = tuple(p for p in PLACES if p not in went.values())
                went[word] = yield usually(USUAL_PLACE[word], free)
            if (yield ENDINGS[word]) != ".":
                yield STOP

    def _opening(self, went: dict[str, str], returned: int) -> Distribution:
        """The first word of a sentence that is no aside.

        Args:
            went: who went where so far.
            returned: how many have gone back.
        """
        new = uniform(tuple(p for p in PEOPLE if p not in went))
        if len(went) < self.people[0]:
            return new
        known = uniform(tuple(p for p in PEOPLE if p in went))
        if returned == 0 and len(went) < self.people[1]:
            return mixed((0.5, new), (0.5, known))
        if returned < self.returns[0]:
            return known
        if returned < self.returns[1]:
            return mixed((0.5, known), (0.5, _END))
        return _END

    def _read(self, words: Sequence[str]) -> tuple[list[float], Distribution]:
        """log p of each word, and the distribution of the word after them."""
        grammar = self.grammar()
        logs: list[float] = []
        following = next(grammar)
        for n, word in enumerate(words):
            if word not in following:
                raise ValueError(
                    f"no story has word {n} (counted from 0) like this; "
                    f"expected one of {shown(list(following))}; got {word!r}"
                )
            logs.append(math.log(following[word]))
            following = _send(grammar, word)
        return logs, following

    def next_words(self, prefix: Sequence[str]) -> Distribution:
        """The exact distribution of the next word; empty after the end.

        Raises:
            ValueError: no story begins like this. The message names the first
                word that is not possible.
        """
        return dict(self._read(prefix)[1])

    def log_probabilities(self, story: Sequence[str]) -> list[float]:
        """log p of each word of a story given the words before it, in nats.

        Raises:
            ValueError: a word that is not possible in its place.
        """
        return self._read(story)[0]

    def entropy(self, stories: Iterable[Sequence[str]]) -> float:
        """The smallest cross-entropy that any model can have on stories.

        It is the mean of −log p over all words but `<s>`, in nats a word.
        """
        logs = [log for s in stories for log in self.log_probabilities(s)[1:]]
        return -math.fsum(logs) / len(logs)

    def stories(self, n: int, *, seed: int) -> list[list[str]]:
        """Draw n stories. A seed gives the same ones on every machine."""
        rng = random.Random(seed)
        return [self._story(rng) for _ in range(n)]

    def _story(
        self, rng: random.Random, without: Collection[str] = ()
    ) -> list[str]:
        """A story drawn word by word, in which some words do not occur."""
        grammar = self.grammar()
        story: list[str] = []
        following = next(grammar)
        while following:
            word = _choose(following, rng, without)
            story.append(word)
            following = _send(grammar, word)
        return story

    def batches(
        self, size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw new stories for training: tokens and targets, each (B, T), as
        `encode` makes them. It is one of `attnbook.batches.Batches`."""
        seed = int(torch.randint(2**62, (), generator=generator))
        return encode(self.stories(size, seed=seed))

    @property
    def longest(self) -> int:
        """How many tokens the longest story has without its last word, which
        is only predicted: what a model's context must be."""
        # 7 words for each walk, 9 for a return, 12 for the longest aside.
        return 1 + 7 * self.people[1] + 9 * self.returns[1] + 12 * self.asides

    def questions(self, kind: str, n: int, *, seed: int) -> list[Question]:
        """Draw n questions of a kind, at most one from each story.

        Questions cannot be answered by what usually follows. In a story about
        returning, nobody goes where somebody in it usually goes, so without
        looking back all candidates are equally probable. Whoever left a bank
        might have left the other one. In half of the questions on agreement
        the nearest noun has the other number.

        Args:
            kind: one of `KINDS`.
            seed: of what is drawn.

        Raises:
            ValueError: an unknown kind, or too many people for questions on
                returning: twice as many places are needed.
        """
        ask = FINDERS[one_of("kind", kind, KINDS)]
        rng = random.Random(seed)
        most = self.people[1]
        without: set[str] = set()
        if kind == "returning":
            # Each takes away a place, and another must be left to go to.
            whole("most people", most, at_most=len(PLACES) // 2)
        found: list[Question] = []
        while len(found) < n:
            if kind == "returning":
                chosen = rng.sample(PEOPLE, most)
                without = {USUAL_PLACE[person] for person in chosen}
                without |= {*PEOPLE} - {*chosen}
            story = self._story(rng, without)
            for place, candidates, antecedent in ask(story, rng):
                answer = story[place]
                asked = Question(
                    kind, story[:place], answer, candidates, antecedent
                )
                found.append(asked)
        return found


def _send(grammar: Grammar, word: str) -> Distribution:
    """The distribution after a word; empty where the story has ended."""
    try:
        return grammar.send(word)
    except StopIteration:
        return {}


def _choose(
    following: Distribution, rng: random.Random, without: Collection[str]
) -> str:
    """Draw a word, but none of some that must not occur."""
    if len(following) == 1:  # most words; no number is drawn for them
        return next(iter(following))
    if without:
        following = {w: p for w, p in following.items() if w not in without}
    left = rng.random() * sum(following.values())
    for word, p in following.items():
        left -= p
        if left < 0:
            return word
    return word  # the sum was a rounding error short


def encode(stories: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
    """Turn stories into tokens and targets, padded on the right.

    Targets are the tokens one place later.

    Returns:
        Tokens and targets, each (B, T), int64, where T is one less than the
        words of the longest story. Padding is `<pad>` in the tokens and −100
        in the targets, which no loss counts.

    Raises:
        ValueError: no stories, one of fewer than two words, or an unknown
            word.
    """
    least = min((len(story) for story in stories), default=0)
    whole("length of a story", least, at_least=2)
    rows = [torch.tensor(vocabulary().encode(" ".join(s))) for s in stories]
    pad = nn.utils.rnn.pad_sequence
    pad_number = WORDS.index(PAD)
    tokens = pad([r[:-1] for r in rows], True, pad_number)  # (B, T)
    targets = pad([r[1:] for r in rows], True, -100)  # (B, T)
    return tokens, targets


def bigram(stories: Iterable[Sequence[str]]) -> Tensor:
    """A model that looks one word back: log p of each next word given the
    one before it, as counted in some stories, (V, V), float64."""
    # A hundredth is added to each count, so that no pair is impossible.
    counts = torch.full((len(WORDS), len(WORDS)), 0.01, dtype=torch.float64)
    for story in stories:
        for pair in itertools.pairwise(vocabulary().encode(" ".join(story))):
            counts[pair] += 1
    return (counts / counts.sum(-1, keepdim=True)).log()


def accuracy(model: nn.Module, questions: Sequence[Question]) -> float:
    """In what share of questions a model gives the answer a higher logit
    than all other candidates."""
    words = vocabulary()
    device = next(model.parameters()).device
    tokens, _ = encode([[*q.prompt, q.answer] for q in questions])
    with evaluating(model):
        logits = model(tokens.to(device)).cpu()  # (N, T, V)
    right = 0
    for row, q in zip(logits, questions):
        last = row[len(q.prompt) - 1]  # (V,): of the word after the prompt
        score = {word: last[words.number(word)] for word in q.candidates}
        right += max(score, key=lambda word: score[word]) == q.answer
    return right / len(questions)


def grammar_draft(town: Town) -> Callable[[list[int]], Tensor | None]:
    """A draft for `attnbook.speculative` that knows the truth.

    Args:
        town: the grammar whose stories are written.

    Returns:
        A function of a text, as token numbers: the exact probabilities of the
        next word, (V,), float64, or None where no story begins like the text
        or the story has ended.
    """
    words = vocabulary()

    def draft(text: list[int]) -> Tensor | None:
        try:
            following = town.next_words([words[token] for token in text])
        except ValueError:  # no story begins like this
            return None
        if not following:
            return None
        q = [following.get(word, 0.0) for word in WORDS]
        return torch.tensor(q, dtype=torch.float64)

    return draft


#: The sizes of the book's language model, and how it is trained.
TOWN_CONFIG = GPTConfig(
    vocab_size=len(WORDS),
    context=Town().longest,
    d_model=64,
    n_heads=4,
    n_layers=2,
    positions="alibi",
    initial_std=0.125,
)
TOWN_RECIPE = Recipe(
    steps=1000, batch_size=16, peak=3e-3, warmup=100, weight_decay=0.01
)
