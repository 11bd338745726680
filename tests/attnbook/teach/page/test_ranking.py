"""Words that somebody typed, and the entries that fit them."""

import pytest
from ranked import in_node

from attnbook.teach.page.ranking import (
    is_alike,
    joined,
    make_index,
    parts,
    rank,
    stem,
    stems,
    terms,
)

ENTRIES = [
    {"title": "A mask that hides nothing", "text": "the padding is read"},
    {"title": "Dropout is on", "text": "in evaluation, too"},
    {"title": "Grouped queries", "text": "GQA repeats the heads of keys"},
]
FIELDS = {"title": 2.0, "text": 1.0}
SYNONYMS = [["GQA", "grouped-query attention"], ["pad token", "padding"]]

#: Words with every ending that `stem` knows, and some that look like one.
WORDS = (
    "padding padded pads normalised normalization queries masses classes "
    "is causal loss losses generation generating generate quantization "
    "attention divided falls fully noise bias this 1e-9 k_v √d_k naïve Ünder "
    "GradScaler cutting rolled tokenize tokenise constructor __proto__ 🛶"
    " applied dropot grouuped PaddingMask MaskOfNothing"
)


@pytest.fixture(scope="module")
def index():
    return make_index(ENTRIES, FIELDS, SYNONYMS)


@pytest.mark.parametrize(
    "query, best",
    [
        ("padding mask", 0),
        ("evaluating with dropouts", 1),
        ("grouped query attention", 2),  # by its other name
        ("pad token", 0),
        ("evalu", 1),  # not typed to its end
        ("dropot", 1),  # a letter lost
        ("drop out", 1),  # in two parts
        ("PaddingMask", 0),  # as one
    ],
)
def test_the_entry_that_fits_comes_first(index, query, best):
    assert rank(index, query)[0][0] == best


@pytest.mark.parametrize("query", ["", "the", "xyzzy", "__proto__", "🛶"])
def test_words_that_no_entry_has_find_nothing(index, query):
    assert rank(index, query) == []


def test_forms_of_a_word_have_one_stem():
    assert stem("padding") == stem("padded") == stem("pads") == "pad"
    assert stem("normalised") == stem("normalization")
    assert stems("The Queries of it") == ["query"]


def test_neighbours_and_synonyms_are_terms():
    assert terms("pad token", {"pad token": "=1"}) == [
        "pad",
        "token",
        "pad token",
        "=1",
    ]


def test_the_script_has_the_same_stems():
    assert in_node("ranking.stems(given)", WORDS) == stems(WORDS)


def test_the_script_ranks_alike(index):
    queries = [*WORDS.split(), WORDS, "grouped query attention", "evalu", ""]
    queries += ["drop out", "pad ding mask", "paddingmaskgroupeddropout"]
    found = in_node(
        "given.queries.map((q) => ranking.rank(ranking.open(given.index), q))",
        {"index": index, "queries": queries},
    )
    wanted = [[list(one) for one in rank(index, q)] for q in queries]
    assert found == wanted
    assert any(wanted)


def test_a_word_that_is_only_spelled_alike_counts_less(index):
    [(first, exact)] = rank(index, "dropout")
    [(second, alike)] = rank(index, "dropot")
    assert first == second == 1
    assert 0 < alike < exact
    assert is_alike("embedding", "embeding")
    assert not is_alike("embedding", "encoding")


def test_words_that_were_typed_as_one_are_taken_apart():
    listed = {"pad", "mask", "attent", "kv", "group"}
    assert parts(listed, "paddingmask") == ["pad", "mask"]
    assert parts(listed, "groupedpaddingmask") == ["group", "pad", "mask"]
    assert parts(listed, "kvmask") == []  # a part has three letters at least
    assert parts(listed, "paddingxyzzy") == []
    assert parts(listed, "mask" * 5) == []  # more than four parts
    assert parts(listed, "mask" * 11) == []  # too long to be words


def test_a_word_that_was_typed_in_two_parts_is_put_together():
    assert joined(["drop", "out", "drop out"], {"dropout"}) == ["dropout"]
    assert joined(["drop", "out", "drop out"], {"drop"}) == []


def test_a_word_inside_a_phrase_may_count_less():
    """Of "grouped-query attention" the word "attention" alone says little."""
    typed = ["attention", "grouped-query attention", "query attention"]
    entries = [*ENTRIES, {"title": "Attention", "text": "attention"}]
    whole = make_index(entries, FIELDS, SYNONYMS)
    halved = {**whole, "covered": 5}
    scores = [dict(rank(whole, q)) for q in typed]
    found = [dict(rank(halved, q)) for q in typed]
    assert found[0] == scores[0]
    assert found[1][3] < scores[1][3]
    assert found[2] == scores[2]  # no whole phrase of synonyms
    ranked = in_node(
        "given.typed.map((q) => ranking.rank(ranking.open(given.index), q))",
        {"index": halved, "typed": typed},
    )
    assert ranked == [[list(r) for r in rank(halved, q)] for q in typed]
