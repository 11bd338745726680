"""The book's own language: what it says about itself must be true."""

import collections
import itertools
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from attnbook.gpt import GPT
from attnbook.teach.proof import agrees
from attnbook.town import (
    END,
    KINDS,
    NEAR,
    PAD,
    PEOPLE,
    PLACES,
    START,
    TOWN_CONFIG,
    TOWN_RECIPE,
    USUAL_PLACE,
    WORDS,
    Town,
    accuracy,
    bigram,
    encode,
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


def _beginning(town, seed):
    """A story of the town, cut anywhere."""
    story = town.stories(1, seed=seed)[0]
    return story[: random.Random(seed).randrange(len(story) + 1)]


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


@given(towns, seeds)
@settings(deadline=None)
def test_what_follows_sums_to_one(town, seed):
    following = town.next_words(_beginning(town, seed))
    if following:
        assert math.fsum(following.values()) == pytest.approx(1, abs=1e-12)
        assert all(0 < p <= 1 for p in following.values())
        assert set(following) <= set(WORDS) - {PAD}


@given(towns, seeds)
@settings(deadline=None)
def test_every_story_is_possible_and_whole(town, seed):
    story = town.stories(1, seed=seed)[0]
    logs = town.log_probabilities(story)
    assert len(logs) == len(story) <= town.longest + 1
    assert story[0] == START and story[-1] == END
    assert story.count(START) == story.count(END) == 1
    assert town.next_words(story) == {}


def test_stories_are_drawn_with_the_probabilities_that_are_told(stories):
    """Chi-squared over every place with a choice, gathered by what may
    follow there. Seen from outside: only words and what was told."""
    told, counts = {}, collections.defaultdict(collections.Counter)
    for story in stories:
        for n in range(1, len(story)):
            following = TOWN.next_words(story[:n])
            if len(following) > 1:
                key = tuple(sorted(following.items()))
                told[key] = following
                counts[key][story[n]] += 1
    p_values = []
    for key, following in told.items():
        n = counts[key].total()
        if n * min(following.values()) >= 5:
            found = [counts[key][word] for word in following]
            expected = [n * p for p in following.values()]
            p_values.append(stats.chisquare(found, expected).pvalue)
    assert len(p_values) > 20
    assert min(p_values) > 0.01 / len(p_values)
    # Neither too far off nor too good: the p-values are uniform.
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_the_entropy_is_that_of_the_whole_distribution():
    """The mean of −log p over what was drawn, against Σ −p log p over all
    that might have been, along the same stories."""
    sample = TOWN.stories(3000, seed=5)
    expected, words = [], 0
    for story in sample[:300]:
        for n in range(1, len(story)):
            following = TOWN.next_words(story[:n])
            expected.append(-sum(p * math.log(p) for p in following.values()))
            words += 1
    mean = math.fsum(expected) / words
    assert TOWN.entropy(sample) == pytest.approx(mean, abs=0.01)


def test_stories_are_the_same_for_a_seed_on_every_machine():
    assert TOWN.stories(1, seed=7) != TOWN.stories(1, seed=8)
    assert " ".join(TOWN.stories(1, seed=7)[0]) == (
        "<s> tomas went to the mill . emil walked to the library late . "
        "mira walked to the harbour . mira is running back to the harbour . "
        "mira is walking back to the harbour today . </s>"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("town", [TOWN, LONG])
def test_questions_are_answered_by_the_language(town, kind):
    """The answer is possible, the other candidates are not; with another
    word at the antecedent, the answer would be another."""
    for question in town.questions(kind, 100, seed=2):
        following = town.next_words(question.prompt)
        possible = [c for c in question.candidates if c in following]
        assert question.kind == kind and possible == [question.answer]
        assert len(set(question.candidates)) == len(question.candidates) > 1
        changed = list(question.prompt)
        changed[question.antecedent] = _another(question)
        assert question.answer not in town.next_words(changed)


def _another(question):
    word = question.prompt[question.antecedent]
    if question.kind == "returning":
        return next(p for p in PLACES if p not in question.prompt)
    if question.kind == "bank":
        return "city" if word == "river" else "river"
    return word.removesuffix("s") if word.endswith("s") else word + "s"


def test_no_short_cut_answers_returning():
    """A bag of the words before cannot tell the places apart, and neither
    the first, the last, nor the nearest one is right more than by chance."""
    questions = TOWN.questions("returning", 4000, seed=4)
    chance = sum(1 / len(q.candidates) for q in questions) / len(questions)
    for place in (-2, -1, 0, 1):
        right = sum(q.candidates[place] == q.answer for q in questions)
        assert right / len(questions) == pytest.approx(chance, abs=0.03)
    for q in questions:  # each candidate is said once, and only the names
        said = collections.Counter(q.prompt)
        assert {said[c] for c in q.candidates} == {1}
        walkers = [p for p in PEOPLE if said[p]]
        assert len(walkers) == len(q.candidates)
        assert not {USUAL_PLACE[name] for name in walkers} & set(q.candidates)


def test_habits_alone_answer_returning_only_in_ordinary_stories(stories):
    """So that the questions must be chosen as they are."""
    backs = [(s, n) for s in stories for n, w in enumerate(s) if w == "back"]
    usual = sum(USUAL_PLACE[s[n - 3]] == s[n + 3] for s, n in backs)
    assert usual / len(backs) > 0.5


def test_the_nearest_noun_answers_agreement_half_of_the_time():
    questions = TOWN.questions("agreement", 2000, seed=6)
    right = sum(
        (q.prompt[-1].endswith("s")) == (q.answer == "are") for q in questions
    )
    assert right / len(questions) == pytest.approx(0.5, abs=0.03)
    assert all(q.prompt[q.antecedent + 1] in NEAR for q in questions)


def test_encoded_stories_hold_all_their_words(stories):
    tokens, targets = encode(stories[:50])
    assert tokens.dtype == targets.dtype == torch.int64
    assert tokens.shape == targets.shape
    names = vocabulary()
    for story, row, aims in zip(stories, tokens, targets, strict=False):
        n = len(story) - 1
        assert names.decode(row[:n]).split() == story[:-1]
        assert names.decode(aims[:n]).split() == story[1:]
        assert (row[n:] == WORDS.index(PAD)).all()
        assert (aims[n:] == -100).all()


def test_batches_hang_on_the_generator_alone():
    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return [TOWN.batches(4, generator) for _ in range(2)]

    (one, two), again, other = draw(0), draw(0), draw(1)
    agrees([one, two], again, name="the same seed")
    assert not torch.equal(one[0], two[0])
    assert not torch.equal(one[0], other[0][0])
    assert one[0].shape[0] == 4 and one[0].shape[1] <= TOWN.longest


def test_bigram_probabilities_are_counted(stories):
    p = bigram(stories).exp()
    assert p.sum(-1).tolist() == pytest.approx([1] * len(WORDS))
    after_is = [
        b for s in stories for a, b in itertools.pairwise(s) if a == "is"
    ]
    going = p[WORDS.index("is"), WORDS.index("going")].item()
    share = after_is.count("going") / len(after_is)
    assert going == pytest.approx(share, rel=0.01)


class Biased(nn.Module):
    """Always the same logits, a number for each word of the town; other
    ones in training mode."""

    def __init__(self, likes) -> None:
        super().__init__()
        logits = torch.zeros(len(WORDS))
        for word, logit in likes.items():
            logits[WORDS.index(word)] = logit
        self.logits = nn.Parameter(logits)

    def forward(self, tokens):
        sign = -1 if self.training else 1
        return (sign * self.logits).expand(*tokens.shape, -1)


def test_accuracy_counts_answers_that_beat_their_candidates():
    questions = Town().questions("agreement", 40, seed=1)
    plural = sum(q.answer == "are" for q in questions) / len(questions)
    assert 0 < plural < 1
    # The likeliest word of all is no candidate, and does not count.
    assert accuracy(Biased({"are": 2, "mira": 9}), questions) == plural
    assert accuracy(Biased({"is": 2}), questions) == 1 - plural


def test_accuracy_looks_at_the_word_after_the_prompt():
    questions = Town().questions("bank", 20, seed=2)
    words = vocabulary()

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


@pytest.mark.parametrize("training", [True, False])
def test_accuracy_leaves_the_model_as_it_was(training):
    questions = Town().questions("agreement", 5, seed=3)
    model = Biased({"are": 2}).train(training)
    accuracy(model, questions)
    assert model.training == training


def test_the_towns_recipe_trains_as_it_did():
    """The stored model and chapter 11 come from these very numbers."""
    torch.manual_seed(TOWN_RECIPE.seed)
    model, found = GPT(TOWN_CONFIG), []

    def note(done, losses):
        found[:] = losses
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model, TOWN.batches, TOWN_RECIPE, on_step=note)
    assert found[0] == pytest.approx(4.908512, abs=1e-5)
    assert found[-1] == pytest.approx(3.127989, abs=1e-4)


@pytest.mark.parametrize(
    "prefix, n, possible",
    [
        ("mira", 0, START),
        ("<s> mira is going", 2, "went"),
        ("<s> mira went to the mill . omar went to the mill .", 11, "tower"),
        ("<s> the boats near the bridge is", 6, "are"),
        ("<s> the dog", 2, "boat"),
        (" ".join(TOWN.stories(1, seed=0)[0]) + " .", None, ""),
    ],
)
def test_an_impossible_beginning_is_refused_at_its_first_wrong_word(
    prefix, n, possible
):
    words = prefix.split()
    n = len(words) - 1 if n is None else n  # nothing follows the end
    for ask in (TOWN.next_words, TOWN.log_probabilities):
        with pytest.raises(ValueError, match=f"word {n} .*{words[n]!r}"):
            ask(words)
    assert possible in TOWN.next_words(words[:n]) or not possible


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Town(people=(1, 3)), "people"),
        (lambda: Town(people=(4, 3)), "people"),
        (lambda: Town(people=(3, 9)), "people"),
        (lambda: Town(returns=(3, 2)), "returns"),
        (lambda: Town(aside=1.0), "aside"),
        (lambda: Town((2, 5)).questions("returning", 1, seed=0), "people"),
        (lambda: TOWN.questions("riddle", 1, seed=0), "riddle"),
        (lambda: accuracy(Biased({}), []), "story"),
        (lambda: encode([[START]]), "story"),
        (lambda: encode([[START, "dog"]]), "'dog'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
