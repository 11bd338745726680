"""The words and the sentences of the book's own language.

A grammar is a Python generator. It yields a distribution, {word:
probability}, and is sent the word that was chosen. So one and the same
grammar draws stories and computes the probability of each of their words. In
`town` such sentences become stories.

The distributions come first (`uniform`, `usually`, `mixed`), then the
sentences that can stand anywhere in a story (`aside`).
"""

import itertools
from collections.abc import Generator
from functools import cache

PAD, START, END = "<pad>", "<s>", "</s>"
PEOPLE = ("mira", "omar", "lena", "tomas", "nora", "emil", "ada", "jonas")
PLACES = tuple(
    "library harbour market mill tower school garden station".split()
)
WHEN = ("early", "late", "alone", "today")
WALKED = ("went", "walked", "ran")
WALKING = ("going", "walking", "running")
#: Each person has habits, and follows them three times in five: how or when to
#: go, and where to, if nobody is there yet.
USUAL_PLACE = dict(zip(PEOPLE, PLACES))
USUAL_WHEN = dict(zip(PEOPLE, WHEN * 2))
USUALLY = 0.6
COLOURS = ("red", "blue", "green", "white", "brown", "yellow", "grey")
NOUNS = ("boat", "bridge", "house", "cart", "gate", "tree", "lamp", "wall")
NEAR = ("near", "behind", "beside", "below")
SIZES = ("old", "new", "small", "big")
#: Who can leave a bank, and which kind of bank: a boat leaves the river's
#: only, robbers only the city's.
LEAVERS = {"boat": ("river",), "robbers": ("city",)} | dict.fromkeys(
    ("fisher", "children", "baker", "miller"), ("river", "city")
)
#: How one goes on from each of the two banks.
LEFT = {
    "river": ("drifted", "sailed", "floated"),
    "city": ("drove", "hurried", "marched"),
}
TIMES = ("dawn", "noon", "dusk", "night")
#: Every word of the language; a word's place is its token's number.
WORDS = (
    PAD, START, END, ".", "the", "to", "is", "are", "back", "left", "bank",
    "at", "and", "home", "away",
    *PEOPLE, *PLACES, *WALKED, *WALKING, *WHEN, *COLOURS,
    *NOUNS, *(noun + "s" for noun in NOUNS), *NEAR, *SIZES,
    *(leaver for leaver in LEAVERS if leaver not in NOUNS),
    *LEFT, *itertools.chain(*LEFT.values()), *TIMES,
)  # fmt: skip

#: The probability of each word that can come next.
Distribution = dict[str, float]
#: What yields distributions, and is sent the words that were chosen.
Grammar = Generator[Distribution, str, None]


def mixed(*parts: tuple[float, Distribution]) -> Distribution:
    """A weighted sum of distributions that have no word in common.

    Args:
        parts: weights and distributions; the weights add up to 1.
    """
    return {word: w * p for w, part in parts for word, p in part.items()}


@cache
def uniform(words: tuple[str, ...]) -> Distribution:
    """The distribution that gives each of some words the same probability."""
    return {word: 1 / len(words) for word in words}


@cache
def usually(usual: str, words: tuple[str, ...]) -> Distribution:
    """A distribution that prefers one word, as people have habits.

    The usual word has probability `USUALLY`, and all others share the rest
    equally. If the usual word is not among the words, or there is no other,
    all of them are equally probable.
    """
    if usual not in words or len(words) == 1:
        return uniform(words)
    other = (1 - USUALLY) / (len(words) - 1)
    return {word: USUALLY if word == usual else other for word in words}


def in_turn(text: str) -> Grammar:
    """The part of a sentence in which each word of a text must come, one
    after the other."""
    for word in text.split():
        yield uniform((word,))


#: Distributions of a single word: the first word of an aside, and the full
#: stop.
THE = uniform(("the",))
STOP = uniform((".",))

#: How a sentence about someone ends: with a word on how or when that person
#: goes, or with the full stop at once.
ENDINGS = {
    name: mixed((0.2, STOP), (0.8, usually(USUAL_WHEN[name], WHEN)))
    for name in PEOPLE
}
#: The word after the "the" of an aside. Half of the asides are about somebody
#: who leaves a bank, half about what is near what.
_LEAVES = {leaver: 0.5 / len(LEAVERS) for leaver in LEAVERS}
_STANDS = {n: 0.25 / len(NOUNS) for one in NOUNS for n in (one, one + "s")}
_SUBJECTS = {
    w: _LEAVES.get(w, 0.0) + _STANDS.get(w, 0.0) for w in _LEAVES | _STANDS
}


def aside() -> Grammar:
    """A sentence between those about people, from its second word on.

    Its first word, "the", has been chosen by then. It tells of somebody who
    left a bank and how that went on ("the boat left the river bank at dawn
    and drifted away ."), or of something near another thing ("the boats near
    the old bridge are red .").
    """
    subject = yield _SUBJECTS
    left = _LEAVES.get(subject, 0.0) / _SUBJECTS[subject]
    after = {"left": left} if left else {}
    if left < 1:
        after |= {near: (1 - left) / len(NEAR) for near in NEAR}
    verb = yield after
    yield from in_turn("the")
    if verb == "left":
        bank = yield uniform(LEAVERS[subject])
        yield from in_turn("bank at")
        yield uniform(TIMES)
        yield from in_turn("and")
        yield uniform(LEFT[bank])
        yield uniform(("home", "away"))
    else:
        others = _others(subject.removesuffix("s"))
        if (yield _sized(others)) in SIZES:
            yield uniform(others)
        yield uniform(("are" if subject.endswith("s") else "is",))
        yield uniform(COLOURS + SIZES)
    yield STOP


@cache
def _others(noun: str) -> tuple[str, ...]:
    """Every noun but one, in the singular and in the plural."""
    return tuple(n + s for n in NOUNS if n != noun for s in ("", "s"))


@cache
def _sized(nouns: tuple[str, ...]) -> Distribution:
    """The distribution of what follows "near the": in half of the cases a
    noun, in the other half the size of one, and then the noun comes next."""
    return mixed((0.5, uniform(nouns)), (0.5, uniform(SIZES)))
