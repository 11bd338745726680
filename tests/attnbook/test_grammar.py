"""The words and sentences of which the town's stories are made."""

import math

import pytest

from attnbook.grammar import (
    ENDINGS,
    NOUNS,
    PEOPLE,
    SIZES,
    USUALLY,
    WORDS,
    aside,
    in_turn,
    mixed,
    uniform,
    usually,
)


def test_about_a_hundred_words_each_once():
    assert 80 <= len(WORDS) == len(set(WORDS)) <= 120


def test_a_habit_is_the_usual_word_if_it_can_be():
    found = usually("b", ("a", "b", "c"))
    assert found == pytest.approx({"a": 0.2, "b": USUALLY, "c": 0.2})
    assert usually("x", ("a", "b")) == {"a": 0.5, "b": 0.5}
    assert usually("a", ("a",)) == {"a": 1}


def test_a_mixture_weighs_its_parts():
    found = mixed((0.25, uniform(("a", "b"))), (0.75, uniform(("c",))))
    assert found == {"a": 0.125, "b": 0.125, "c": 0.75}


def test_words_in_turn_leave_no_choice():
    assert list(in_turn("at the")) == [{"at": 1}, {"the": 1}]


@pytest.mark.parametrize("person", PEOPLE)
def test_what_ends_a_sentence_sums_to_one(person):
    assert math.fsum(ENDINGS[person].values()) == pytest.approx(1)


def sentences(said=()):
    """All asides, as (words, probability), found by saying every word that
    can come next."""
    grammar = aside()
    following = next(grammar)
    chance = 1.0
    for word in said:
        chance *= following[word]
        try:
            following = grammar.send(word)
        except StopIteration:
            return [(said, chance)]
    return [end for word in following for end in sentences((*said, word))]


def test_asides_are_a_distribution_and_each_agrees():
    found = sentences()
    assert math.fsum(p for _, p in found) == pytest.approx(1)
    banks = [words for words, _ in found if "bank" in words]
    assert math.fsum(p for w, p in found if "bank" in w) == pytest.approx(0.5)
    assert {w[0] for w in banks if w[3] == "city"} == {
        "robbers", "fisher", "children", "baker", "miller",
    }  # fmt: skip
    for words, _ in found:
        assert words[-1] == "."
        if "bank" not in words:
            verb = "are" if words[0].endswith("s") else "is"
            assert verb in words
            # "near the bridge are red .", or "near the old bridge are red .":
            # a size is never the last word before the verb.
            assert words[words.index(verb) - 1].removesuffix("s") in NOUNS
            assert (words[3] in SIZES) == (len(words) == 8)
