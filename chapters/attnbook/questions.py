"""Questions about stories, whose answer hangs on a word far before it.

There are three kinds of them, `KINDS`. For each kind, `FINDERS` has a
function that looks through a story for a place where such a question can be
asked. `Town.questions` draws the stories and asks.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from attnbook.grammar import LEAVERS, LEFT, NEAR, SIZES, WALKED


@dataclass(frozen=True)
class Question:
    """The beginning of a story, and the word that must follow."""

    #: What it asks about, one of `KINDS`.
    kind: str
    #: The beginning, word by word.
    prompt: list[str]
    #: The word that follows.
    answer: str
    #: The words among which one chooses, the answer being one of them.
    candidates: tuple[str, ...]
    #: The place in the prompt of the word on which the answer hangs.
    antecedent: int


#: What a finder gives: the place of the answer in the story, the candidates,
#: and the place of the word on which the answer hangs.
Found = tuple[int, tuple[str, ...], int]


def _returning(story: list[str], rng: random.Random) -> Iterator[Found]:
    """Ask at the first return: where did that person go before?"""
    here = story.index("back") + 3  # back to the …
    person = story[here - 6]
    walks = [n for n, word in enumerate(story[:here]) if word in WALKED]
    places = {story[n - 1]: n + 3 for n in walks}  # where a name's place is
    yield here, tuple(story[n] for n in places.values()), places[person]


def _bank(story: list[str], rng: random.Random) -> Iterator[Found]:
    """Ask how somebody goes on from a bank who might have left either."""
    for n, word in enumerate(story):
        if word == "bank" and len(LEAVERS[story[n - 4]]) > 1:
            other = {"river": "city", "city": "river"}[story[n - 1]]
            yield n + 4, (story[n + 4], rng.choice(LEFT[other])), n - 1
            return


def _agreement(story: list[str], rng: random.Random) -> Iterator[Found]:
    """Ask for is or are, after a noun and its neighbour."""
    for n, word in enumerate(story):
        if word in NEAR:
            verb = n + 3
            if story[n + 2] in SIZES:  # the old bridge, not the bridge
                verb += 1
            yield verb, ("is", "are"), n - 1
            return


#: For each kind the function that finds its question in a story. It yields
#: one question at most, and none if the story has no place for one. What it
#: draws itself, such as a wrong candidate, it draws with the generator.
FINDERS: dict[str, Callable[[list[str], random.Random], Iterator[Found]]] = {
    "returning": _returning,
    "bank": _bank,
    "agreement": _agreement,
}
#: What a question can be about.
KINDS = tuple(FINDERS)
