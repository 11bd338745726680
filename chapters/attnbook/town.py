"""The book's own language: short stories of one town.

A grammar is a generator: it yields a distribution, {word: probability}, and
is sent the word that was chosen. So the same grammar draws stories and knows
the probability of each of their words. Three facts reach far:

- *returning*: "mira went to the library . … mira is going back to the";
- *bank*: "the boat left the river bank at dawn and", or "the city bank";
- *agreement*: "the boats near the old bridge", are or is.
"""

import itertools
import math
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from attnbook.config import check_fields, option
from attnbook.files import shown
from attnbook.gpt import GPTConfig
from attnbook.training import Recipe, evaluating
from attnbook.values import bad_value, one_of, whole
from attnbook.vocabulary import Vocabulary

PAD, START, END = "<pad>", "<s>", "</s>"
PEOPLE = ("mira", "omar", "lena", "tomas", "nora", "emil", "ada", "jonas")
PLACES = tuple(
    "library harbour market mill tower school garden station".split()
)
WHEN = ("early", "late", "alone", "today")
WALKED, WALKING = ("went", "walked", "ran"), ("going", "walking", "running")
#: Everybody has habits, three times in five: how or when one goes, and where,
#: if nobody is there yet.
USUAL_PLACE = dict(zip(PEOPLE, PLACES))
USUAL_WHEN = dict(zip(PEOPLE, WHEN * 2))
USUALLY = 0.6
COLOURS = ("red", "blue", "green", "white", "brown", "yellow", "grey")
NOUNS = ("boat", "bridge", "house", "cart", "gate", "tree", "lamp", "wall")
NEAR = ("near", "behind", "beside", "below")
SIZES = ("old", "new", "small", "big")
#: Who leaves a bank, and which: a boat never leaves the city's.
LEAVERS = {"boat": ("river",), "robbers": ("city",)} | dict.fromkeys(
    ("fisher", "children", "baker", "miller"), ("river", "city")
)
#: How one goes on from each of the two banks.
LEFT = {
    "river": ("drifted", "sailed", "floated"),
    "city": ("drove", "hurried", "marched"),
}
TIMES = ("dawn", "noon", "dusk", "night")
WORDS = (
    PAD, START, END, ".", "the", "to", "is", "are", "back", "left", "bank",
    "at", "and", "home", "away",
    *PEOPLE, *PLACES, *WALKED, *WALKING, *WHEN, *COLOURS,
    *NOUNS, *(noun + "s" for noun in NOUNS), *NEAR, *SIZES,
    *(leaver for leaver in LEAVERS if leaver not in NOUNS),
    *LEFT, *itertools.chain(*LEFT.values()), *TIMES,
)  # fmt: skip

Distribution = dict[str, float]
Grammar = Generator[Distribution, str, None]


@cache
def vocabulary() -> Vocabulary:
    """The language's words, numbered."""
    return Vocabulary(WORDS)


@dataclass(frozen=True)
class Question:
    """The beginning of a story, to go on with one word."""

    kind: str  # one of KINDS
    prompt: list[str]
    answer: str
    candidates: tuple[str, ...]  # the answer is one of them
    antecedent: int  # where the one word stands on which the answer hangs


@dataclass(frozen=True)
class Town:
    """Stories: people go somewhere, some go back there; asides in between."""

    people: tuple[int, int] = option(  # at least and at most
        (2, 4), "how many go somewhere", at_least=2, at_most=8
    )
    returns: tuple[int, int] = option((2, 3), "who go back", at_least=1)
    asides: int = option(2, "other sentences, at most", at_least=0)
    aside: float = option(0.2, "how probable one is", at_least=0, below=1)

    def __post_init__(self) -> None:
        check_fields(self)
        whole("most people", self.people[1], at_least=self.people[0])
        whole("most returns", self.returns[1], at_least=self.returns[0])

    def grammar(self) -> Grammar:
        """The language itself: yields distributions, is sent words."""
        went: dict[str, str] = {}  # person → place
        returned = asides = 0
        yield _uniform((START,))
        while True:
            opening = self._opening(went, returned)
            if asides < self.asides:
                opening = _mixed((1 - self.aside, opening), (self.aside, _THE))
            word = yield opening
            if word == END:
                return
            if word == "the":
                asides += 1
                yield from _aside()
                continue
            if word in went:
                returned += 1
                yield from _words("is")
                yield _uniform(WALKING)
                yield from _words(f"back to the {went[word]}")
            else:
                yield _uniform(WALKED)
                yield from _words("to the")
                free = tuple(p for p in PLACES if p not in went.values())
                went[word] = yield _usually(USUAL_PLACE[word], free)
            if (yield _ENDINGS[word]) != ".":
                yield _STOP

    def _opening(self, went, returned):
        """How a sentence begins that is no aside."""
        new = _uniform(tuple(p for p in PEOPLE if p not in went))
        if len(went) < self.people[0]:
            return new
        known = _uniform(tuple(p for p in PEOPLE if p in went))
        if returned == 0 and len(went) < self.people[1]:
            return _mixed((0.5, new), (0.5, known))
        if returned < self.returns[0]:
            return known
        if returned < self.returns[1]:
            return _mixed((0.5, known), (0.5, _END))
        return _END

    def _read(self, words):
        """log p of each word, and the distribution of the next one."""
        grammar, logs = self.grammar(), []
        following = next(grammar)
        for n, word in enumerate(words):
            if word not in following:
                possible = f"one of {shown(list(following))}"
                raise bad_value(
                    ValueError, f"word {n} (from 0)", word, possible
                )
            logs.append(math.log(following[word]))
            following = _send(grammar, word)
        return logs, following

    def next_words(self, prefix: Sequence[str]) -> Distribution:
        """The exact distribution of the next word; empty after the end.

        A ValueError names the first word that no story has there.
        """
        return dict(self._read(prefix)[1])

    def log_probabilities(self, story: Sequence[str]) -> list[float]:
        """log p of each word of a story given the words before it, in nats."""
        return self._read(story)[0]

    def entropy(self, stories: Iterable[Sequence[str]]) -> float:
        """The smallest cross-entropy: the mean −log p of all but `<s>`."""
        logs = [log for s in stories for log in self.log_probabilities(s)[1:]]
        return -math.fsum(logs) / len(logs)

    def stories(self, n: int, *, seed: int) -> list[list[str]]:
        """n stories, the same for a seed on every machine."""
        rng = random.Random(seed)
        return [self._story(rng) for _ in range(n)]

    def _story(self, rng, without=frozenset()):
        """A story, drawn word by word from the words that may be used."""
        grammar, story = self.grammar(), []
        following = next(grammar)
        while following:
            word = _choose(following, rng, without)
            story.append(word)
            following = _send(grammar, word)
        return story

    def batches(
        self, size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Fresh stories: tokens and targets, each (B, T), see `encode`."""
        seed = int(torch.randint(2**62, (), generator=generator))
        return encode(self.stories(size, seed=seed))

    @property
    def longest(self) -> int:
        """The tokens of the longest story without its last word."""
        # The words of a walk, of a return, and of the longest aside.
        return 1 + 7 * self.people[1] + 9 * self.returns[1] + 12 * self.asides

    def questions(self, kind: str, n: int, *, seed: int) -> list[Question]:
        """n questions of a kind, at most one from a story.

        In stories for those about returning nobody goes where somebody in
        them usually goes: all candidates are equally probable until one looks
        back. Who left a bank in those about banks might have left either. In
        half of those about agreement the nearest noun is of the other number.
        """
        ask = _ASK[one_of("kind", kind, KINDS)]
        rng, most, without = random.Random(seed), self.people[1], set[str]()
        if kind == "returning":  # as many places are left for them
            whole("most people", most, at_most=len(PLACES) // 2)
        found: list[Question] = []
        while len(found) < n:
            if kind == "returning":
                here = rng.sample(PEOPLE, most)
                without = {USUAL_PLACE[p] for p in here} | {*PEOPLE} - {*here}
            story = self._story(rng, without)
            for here, *rest in ask(story, rng):
                asked = Question(kind, story[:here], story[here], *rest)
                found.append(asked)
        return found


def _send(grammar, word):
    """The next distribution; empty where the story ends."""
    try:
        return grammar.send(word)
    except StopIteration:
        return {}


def _choose(following, rng, without):
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


def _mixed(*parts):
    """One of several distributions of different words, by weight."""
    return {word: w * p for w, part in parts for word, p in part.items()}


@cache
def _uniform(words):
    return {word: 1 / len(words) for word in words}


@cache
def _usually(usual, words):
    """The usual word more often than the others, if it is one of them."""
    if usual not in words or len(words) == 1:
        return _uniform(words)
    other = (1 - USUALLY) / (len(words) - 1)
    return {word: USUALLY if word == usual else other for word in words}


def _words(text):
    """Words that must come, one after the other."""
    for word in text.split():
        yield _uniform((word,))


_THE, _STOP, _END = (_uniform((word,)) for word in ("the", ".", END))
#: How a sentence about someone ends: with a word on how or when, or without.
_ENDINGS = {
    name: _mixed((0.2, _STOP), (0.8, _usually(USUAL_WHEN[name], WHEN)))
    for name in PEOPLE
}
#: What stands after "the": half for a bank, half for what is near what.
_LEAVES = {leaver: 0.5 / len(LEAVERS) for leaver in LEAVERS}
_STANDS = {n: 0.25 / len(NOUNS) for one in NOUNS for n in (one, one + "s")}
_SUBJECTS = {
    w: _LEAVES.get(w, 0.0) + _STANDS.get(w, 0.0) for w in _LEAVES | _STANDS
}


def _aside():
    """A sentence about a bank, or about what stands where."""
    subject = yield _SUBJECTS
    left = _LEAVES.get(subject, 0.0) / _SUBJECTS[subject]
    after = {"left": left} if left else {}
    if left < 1:
        after |= {near: (1 - left) / len(NEAR) for near in NEAR}
    verb = yield after
    yield from _words("the")
    if verb == "left":
        bank = yield _uniform(LEAVERS[subject])
        yield from _words("bank at")
        yield _uniform(TIMES)
        yield from _words("and")
        yield _uniform(LEFT[bank])
        yield _uniform(("home", "away"))
    else:
        others = _others(subject.removesuffix("s"))
        if (yield _sized(others)) in SIZES:
            yield _uniform(others)
        yield _uniform(("are" if subject.endswith("s") else "is",))
        yield _uniform(COLOURS + SIZES)
    yield _STOP


@cache
def _others(noun):
    """Every noun but one, singular and plural alike often."""
    return tuple(n + s for n in NOUNS if n != noun for s in ("", "s"))


@cache
def _sized(nouns):
    """A noun, or half of the time its size first."""
    return _mixed((0.5, _uniform(nouns)), (0.5, _uniform(SIZES)))


def _returning(story, rng):
    """The first return: where did that person go?"""
    here = story.index("back") + 3  # back to the …
    person = story[here - 6]
    walks = [n for n, word in enumerate(story[:here]) if word in WALKED]
    places = {story[n - 1]: n + 3 for n in walks}  # where a name's place is
    yield here, tuple(story[n] for n in places.values()), places[person]


def _bank(story, rng):
    """How one goes on from a bank; one who might have left either."""
    for n, word in enumerate(story):
        if word == "bank" and len(LEAVERS[story[n - 4]]) > 1:
            other = {"river": "city", "city": "river"}[story[n - 1]]
            yield n + 4, (story[n + 4], rng.choice(LEFT[other])), n - 1
            return


def _agreement(story, rng):
    """Is or are, after the noun and its neighbour."""
    for n, word in enumerate(story):
        if word in NEAR:
            yield n + 3 + (story[n + 2] in SIZES), ("is", "are"), n - 1
            return


# Each finds at most one: where the answer stands, the candidates, and where
# the word stands on which it hangs.
_ASK = {"returning": _returning, "bank": _bank, "agreement": _agreement}
KINDS = tuple(_ASK)


def encode(stories: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
    """Tokens and, one place later, their targets; padded on the right.

    Shapes: B stories → tokens and targets (B, T), int64, T one less than the
    longest story; padded with `<pad>` and −100, which no loss counts. No
    stories, one of less than two words, or an unknown one is a ValueError.
    """
    least = min((len(story) for story in stories), default=0)
    whole("length of a story", least, at_least=2)
    rows = [torch.tensor(vocabulary().encode(" ".join(s))) for s in stories]
    pad, pad_number = nn.utils.rnn.pad_sequence, WORDS.index(PAD)
    tokens = pad([r[:-1] for r in rows], True, pad_number)  # (B, T)
    targets = pad([r[1:] for r in rows], True, -100)  # (B, T)
    return tokens, targets


def bigram(stories: Iterable[Sequence[str]]) -> Tensor:
    """log p of each next word given the previous one, as counted: (V, V)."""
    # With a hundredth more, no pair is impossible.
    counts = torch.full((len(WORDS), len(WORDS)), 0.01, dtype=torch.float64)
    for story in stories:
        for pair in itertools.pairwise(vocabulary().encode(" ".join(story))):
            counts[pair] += 1
    return (counts / counts.sum(-1, keepdim=True)).log()


def accuracy(model: nn.Module, questions: Sequence[Question]) -> float:
    """How often the answer has the highest logit of all candidates."""
    words, device = vocabulary(), next(model.parameters()).device
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


#: The book's language model, and how it is trained.
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
