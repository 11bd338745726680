"""Weights that are learned from examples of what people type."""

import pytest
from ranked import in_node

from attnbook.teach.page.learning import learn
from attnbook.teach.page.ranking import make_index, rank

ENTRIES = [
    {"text": "the mask of a batch, the mask of a row"},
    {"text": "the mask and the padding of a long text"},
    {"text": "the cache of keys"},
]
INDEX = make_index(ENTRIES, {"text": 1.0}, [["padding", "filler"]])
EXAMPLES = [("mask", 1), ("wrong mask", 1), ("mask ignored", 1), ("row", 0)]


def test_a_word_leads_to_the_entry_that_people_mean_by_it():
    assert rank(INDEX, "mask")[0][0] == 0
    assert rank(learn(INDEX, EXAMPLES * 3), "mask")[0][0] == 1


def test_a_group_of_synonyms_is_learned_as_a_word_is():
    listed = learn(INDEX, [("filler", 1)])["terms"]
    assert listed["=0"][1] > INDEX["terms"]["=0"][1]


def test_only_weights_of_words_change():
    learned = learn(INDEX, [*EXAMPLES, ("mask batch", 0)])
    assert learned["phrases"] == INDEX["phrases"]
    assert list(learned["terms"]) == list(INDEX["terms"])
    for term, listed in INDEX["terms"].items():
        assert learned["terms"][term][::2] == listed[::2]
        if " " in term or "cache" in term:
            assert learned["terms"][term] == listed


def test_an_example_of_unknown_words_teaches_nothing():
    learned = learn(INDEX, [("xyzzy", 0), ("padding", 1)])["terms"]
    assert learned["mask"] == INDEX["terms"]["mask"]


@pytest.mark.parametrize("examples", [[], [("xyzzy", 0)]])
def test_nothing_to_learn_from_is_refused(examples):
    with pytest.raises(ValueError, match="nothing to learn from"):
        learn(INDEX, examples)


def test_what_learned_weights_speak_against_is_not_found():
    index = {"phrases": {}, "terms": {"mask": [0, -3, 1, 5], "row": [0, 2]}}
    expected = {"mask": [[1, 5]], "mask row": [[1, 5]], "row": [[0, 2]]}
    found = in_node(
        "given.typed.map((q) => ranking.rank(ranking.open(given.index), q))",
        {"index": index, "typed": list(expected)},
    )
    assert found == list(expected.values())
    for typed, best in expected.items():
        assert [list(one) for one in rank(index, typed)] == best
