"""The book's own language: what it says about itself must be true."""

import collections
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from attnbook import town as language
from attnbook.gpt import GPT
from attnbook.teach.check.proof import agrees
from attnbook.town import (
    START,
    WORDS,
    Town,
    accuracy,
    bigram,
    encode,
    grammar_draft,
    vocabulary,
)
from attnbook.training import train

TOWN = Town()
LONG = Town(people=(4, 4), returns=(5, 8), asides=9, aside=0.5)
OTHERS = [TOWN, LONG, Town((2, 2), (1, 1), 0), Town((8, 8), (1, 3), 1)]
towns = st.sampled_from(OTHERS)
seeds = st.integers(0, 2**31)


@pytest.fixture(scope="module")
def stories():
    return TOWN.stories(2000, seed=1)


def test_the_examples_of_the_book_are_possible():
    """What the chapters quote, word for word."""
    for said in [
        "the boat left the river bank at dawn and drifted home",
        "the robbers left the city bank at noon and hurried away",
        "mira went to the library . omar went to the harbour . mira is going "
        "back to the library",
        "the boats near the old bridge are red",
    ]:
        assert TOWN.next_words([START, *said.split()])


@given(towns, seeds, st.floats(0, 1))
@settings(deadline=None)
def test_what_follows_sums_to_one(town, seed, part):
    story = town.stories(1, seed=seed)[0]
    following = town.next_words(story[: round(part * len(story))])
    if following:
        assert math.fsum(following.values()) == pytest.approx(1, abs=1e-12)
        assert all(0 < p <= 1 for p in following.values())
        assert set(following) <= set(WORDS) - {language.PAD}


@given(towns, seeds)
@settings(deadline=None)
def test_every_story_is_possible_and_whole(town, seed):
    story = town.stories(1, seed=seed)[0]
    logs = town.log_probabilities(story)
    assert len(logs) == len(story) <= town.longest + 1
    assert (
        story[-1] == language.END
        and story.count(START) == story.count(language.END) == 1
    )
    town.next_words([]).clear()  # it is the caller's
    assert town.next_words([]) == {START: 1.0} and not town.next_words(story)


def test_the_longest_story_is_told():
    for town in (OTHERS[2], Town((3, 3), (2, 2), 1, 0.9)):
        assert max(map(len, town.stories(2000, seed=1))) - 1 == town.longest


def test_the_probability_of_a_story_is_the_product_of_next_words():
    story = TOWN.stories(1, seed=3)[0]
    told = [TOWN.next_words(story[:n])[w] for n, w in enumerate(story)]
    logs = [math.log(p) for p in told]
    assert TOWN.log_probabilities(story) == pytest.approx(logs)


def test_stories_are_drawn_with_the_probabilities_that_are_told(stories):
    """Chi-squared over every place with a choice, gathered by what may
    follow there. Seen from outside: only words and what was told."""
    counts = collections.defaultdict(collections.Counter)
    for story in stories:
        for n in range(1, len(story)):
            following = TOWN.next_words(story[:n])
            if len(following) > 1:
                counts[tuple(sorted(following.items()))][story[n]] += 1
    p_values = []
    for told, found in counts.items():
        expected = [found.total() * p for _, p in told]
        if min(expected) >= 5:
            seen = [found[word] for word, _ in told]
            p_values.append(stats.chisquare(seen, expected).pvalue)
    assert len(p_values) > 20
    assert min(p_values) > 0.01 / len(p_values)
    # Neither too far off nor too good: the p-values are uniform.
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_the_entropy_is_that_of_the_whole_distribution():
    """The mean of −log p over what was drawn, against Σ −p log p over all
    that might have been, along the same stories."""
    sample = TOWN.stories(3000, seed=5)
    expected = [
        -sum(p * math.log(p) for p in TOWN.next_words(story[:n]).values())
        for story in sample[:300]
        for n in range(1, len(story))
    ]
    mean = math.fsum(expected) / len(expected)
    assert TOWN.entropy(sample) == pytest.approx(mean, abs=0.01)
    assert 0.7 < mean < 1.5


def test_stories_are_the_same_for_a_seed_on_every_machine():
    assert " ".join(TOWN.stories(1, seed=7)[0]) == (
        "<s> tomas went to the mill . emil walked to the library late . "
        "mira walked to the harbour . mira is running back to the harbour . "
        "mira is walking back to the harbour today . </s>"
    )


def test_encoded_stories_hold_all_their_words(stories):
    assert [t.shape for t in encode([[START, language.END]])] == [(1, 1)] * 2
    tokens, targets = encode(stories[:50])
    assert tokens.dtype == targets.dtype == torch.int64
    decode = language.vocabulary().decode
    for story, row, aims in zip(stories[:50], tokens, targets, strict=True):
        n = len(story) - 1
        assert decode(row[:n]).split() == story[:-1]
        assert decode(aims[:n]).split() == story[1:]
        assert (row[n:] == WORDS.index(language.PAD)).all() and (
            aims[n:] == -100
        ).all()


def test_batches_hang_on_the_generator_alone():
    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return [TOWN.batches(4, generator)[0] for _ in range(2)]

    (one, two), (other, _) = draw(0), draw(1)
    agrees([one, two], draw(0), name="the same seed")
    assert not torch.equal(one, two) and not torch.equal(one, other)
    assert one.shape[0] == 4 and one.shape[1] <= TOWN.longest


def test_bigram_probabilities_are_counted(stories):
    table = bigram(stories)
    ones = torch.ones(len(WORDS), dtype=torch.float64)
    agrees(table.exp().sum(-1), ones, name="one")
    after = [
        two
        for s in stories
        for one, two in itertools.pairwise(s)
        if one == "is"
    ]
    going = table[WORDS.index("is"), WORDS.index("going")].exp().item()
    counted = after.count("going") / len(after)
    assert going == pytest.approx(counted, rel=0.01)
    never = table[WORDS.index("is"), WORDS.index(language.PAD)].exp().item()
    assert never == pytest.approx(0.01 / (len(after) + 0.01 * len(WORDS)))
    tokens, targets = encode(stories)
    loss = -table[tokens, targets.clamp(min=0)][targets >= 0].mean()
    assert TOWN.entropy(stories) * 1.2 < loss < math.log(len(WORDS))


class Biased(nn.Module):
    """The same logits everywhere; others in training mode."""

    def __init__(self, likes) -> None:
        super().__init__()
        logits = [likes.get(word, 0.0) for word in WORDS]
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, tokens):
        sign = -1 if self.training else 1
        return (sign * self.logits).expand(*tokens.shape, -1)


@pytest.mark.parametrize("training", [True, False])
def test_accuracy_counts_answers_that_beat_their_candidates(training):
    questions = TOWN.questions("agreement", 40, seed=1)
    plural = sum(q.answer == "are" for q in questions) / len(questions)
    assert 0 < plural < 1
    # The likeliest word of all is no candidate, and does not count.
    model = Biased({"are": 2, "mira": 9}).train(training)
    assert accuracy(model, questions) == plural
    assert accuracy(Biased({"is": 2}), questions) == 1 - plural
    assert model.training == training  # left as it was


def test_accuracy_looks_at_the_word_after_the_prompt():
    questions = TOWN.questions("bank", 20, seed=2)
    words = language.vocabulary()

    class Oracle(Biased):
        """Right after each prompt, and wrong everywhere else."""

        def forward(self, tokens):
            logits = super().forward(tokens).clone()
            for row, q in zip(logits, questions):
                wrong = [w for w in q.candidates if w != q.answer]
                row[:, [words.number(w) for w in wrong]] = 1.0
                row[len(q.prompt) - 1, words.number(q.answer)] = 2.0
            return logits

    assert accuracy(Oracle({}), questions) == 1


def test_the_towns_recipe_trains_as_it_did():
    """The stored model and chapter 11 come from these very numbers."""
    recipe, config = language.TOWN_RECIPE, language.TOWN_CONFIG
    assert (recipe.steps, recipe.weight_decay) == (1000, 0.01)
    assert config.context == TOWN.longest
    torch.manual_seed(language.TOWN_RECIPE.seed)
    model = GPT(language.TOWN_CONFIG)
    found = []

    def note(done, losses):
        found[:] = losses
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model, TOWN.batches, language.TOWN_RECIPE, on_step=note)
    assert found[0] == pytest.approx(4.908512, abs=1e-5)
    assert found[-1] == pytest.approx(3.127989, abs=1e-4)


@pytest.mark.parametrize(
    "prefix",
    [
        "mira",
        "<s> dog",
        "<s> mira is",
        "<s> the boats near the bridge is",
        "<s> mira went to the library . omar went to the library",
        "<s> mira ran to the mill . omar ran to the tower . lena ran to the "
        "market . omar is going back to the mill",
        " ".join(TOWN.stories(1, seed=0)[0]) + " .",
    ],
)
def test_an_impossible_beginning_is_refused_at_its_first_wrong_word(prefix):
    words = prefix.split()
    TOWN.next_words(words[:-1])
    for ask in (TOWN.next_words, TOWN.log_probabilities):
        with pytest.raises(ValueError, match=f"word {len(words) - 1} .*got"):
            ask([*words, "mira"])


def test_a_town_that_cannot_be_is_refused():
    for field, values in {
        "people": [(1, 3), (4, 3), (3, 9)],
        "returns": [(0, 1), (3, 2)],
        "asides": [-1],
        "aside": [1.0, -0.1],
    }.items():
        for value in values:
            with pytest.raises(ValueError, match=field):
                Town(**{field: value})


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Town((2, 5)).questions("returning", 1, seed=0), "people"),
        (lambda: TOWN.questions("riddle", 1, seed=0), "riddle"),
        (lambda: encode([]), "length of a story"),
        (lambda: encode([[START]]), "length of a story"),
        (lambda: encode([[START, "dog"]]), "'dog'"),
        (lambda: accuracy(Biased({}), []), "length of a story"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_grammar_is_the_truth_and_silent_outside_it():
    town, words = Town(), vocabulary()
    draft = grammar_draft(town)
    story = town.stories(1, seed=3)[0]
    tokens = words.encode(" ".join(story))
    for length in range(1, len(tokens)):
        expected = town.next_words(story[:length])
        q = draft(tokens[:length]).tolist()
        assert {words[i]: x for i, x in enumerate(q) if x} == expected
    assert draft(tokens) is None
    assert draft(words.encode("<s> the the")) is None
