"""Vocabularies: texts become numbers, and come back as they were."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnbook.vocabulary import Vocabulary


@given(st.text(min_size=1))
@example(" a\n")
@settings(deadline=None)
def test_characters_survive_the_round_trip(line):
    vocabulary = Vocabulary.of_characters(line)
    numbers = vocabulary.encode(line)
    assert vocabulary.decode(numbers) == line
    assert set(numbers) == set(range(len(vocabulary)))
    assert list(Vocabulary(list(vocabulary))) == list(vocabulary)


def test_characters_are_in_order_of_their_codes_not_of_appearance():
    """So the same characters give the same numbers, whatever the text."""
    assert list(Vocabulary.of_characters("banana \n")) == list("\n abn")
    assert Vocabulary.of_characters("nab").encode("ban") == [1, 0, 2]


def test_words_survive_the_round_trip():
    words = ["<s>", "the", "boat", "a"]
    vocabulary = Vocabulary(words)
    words.clear()  # it has its own
    assert Vocabulary(["of", "a"]).decode([1, 0]) == "a of"
    assert vocabulary.encode("the  boat\nthe a") == [1, 2, 1, 3]
    assert vocabulary.decode(torch.tensor([0, 2])) == "<s> boat"
    assert "boat" in vocabulary and "bank" not in vocabulary
    assert 0 not in vocabulary


AB = Vocabulary(["a", "b"])
OLD = Vocabulary(["the", "boat"])


@pytest.mark.parametrize(
    "fn, arguments, names",
    [
        (Vocabulary, ([],), "needs tokens"),
        (Vocabulary, (["a", ""],), "''"),
        (Vocabulary, (["a", "b", "a"],), "'a'"),
        (Vocabulary, (["the boat"],), "'the boat'"),
        (OLD.encode, (" \n",), "the text has no tokens"),
        (AB.encode, ("abxa",), "'x'"),
        (AB.decode, ([0, 2],), "got 2"),
        (AB.decode, ([-1],), "got -1"),
    ],
)
def test_bad_vocabularies_and_texts_are_named(fn, arguments, names):
    with pytest.raises(ValueError, match=names):
        fn(*arguments)
