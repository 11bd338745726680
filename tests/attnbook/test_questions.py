"""Questions about stories: only what stands far before answers them."""

import collections

import pytest

from attnbook.grammar import LEFT, NEAR, PEOPLE, PLACES, USUAL_PLACE
from attnbook.questions import KINDS
from attnbook.town import Town

TOWN = Town()
LONG = Town(people=(4, 4), returns=(5, 8), asides=9, aside=0.5)


@pytest.fixture(scope="module")
def stories():
    return TOWN.stories(2000, seed=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("town", [TOWN, LONG])
def test_questions_are_answered_by_the_language(town, kind):
    """The answer is possible, the other candidates are not; with another
    word at the antecedent, the answer would be another."""
    for question in town.questions(kind, 100, seed=2):
        following = town.next_words(question.prompt)
        assert question.kind == kind
        assert [c for c in question.candidates if c in following] == [
            question.answer
        ]
        assert len(set(question.candidates)) == len(question.candidates) > 1
        changed = list(question.prompt)
        changed[question.antecedent] = _another(question)
        assert question.answer not in town.next_words(changed)


def _another(question):
    word = question.prompt[question.antecedent]
    if question.kind == "returning":
        return next(p for p in PLACES if p not in question.prompt)
    other = word.removesuffix("s") if word.endswith("s") else word + "s"
    return {"river": "city", "city": "river"}.get(word, other)


def test_no_short_cut_answers_returning(stories):
    """A bag of the words before cannot tell the places apart, and neither
    the first, the last, nor the nearest one is right more than by chance,
    nor the one that goes best with the name, as counted in other stories."""
    questions = TOWN.questions("returning", 4000, seed=4)
    chance = sum(1 / len(q.candidates) for q in questions) / len(questions)
    habits = collections.Counter(
        (story[n - 3], story[n + 3])
        for story in stories
        for n, word in enumerate(story)
        if word == "back"
    )
    guesses = {n: [q.candidates[n] for q in questions] for n in (-2, -1, 0, 1)}
    guesses["habit"] = [
        max(q.candidates, key=lambda c: habits[q.prompt[-6], c])
        for q in questions
    ]
    for how, guessed in guesses.items():
        right = sum(g == q.answer for g, q in zip(guessed, questions))
        assert right / len(questions) == pytest.approx(chance, abs=0.03), how
    for q in questions:  # each candidate is said once, and only the names
        said = collections.Counter(q.prompt)
        assert {said[c] for c in q.candidates} == {1}
        walkers = [p for p in PEOPLE if said[p] == 1]
        assert len(walkers) == len(q.candidates) - 1
        usual = {USUAL_PLACE[p] for p in PEOPLE if said[p]}
        assert not usual & set(q.candidates)


def test_the_nearest_noun_answers_agreement_half_of_the_time():
    questions = TOWN.questions("agreement", 2000, seed=6)
    right = [
        q.prompt[-1].endswith("s") == (q.answer == "are") for q in questions
    ]
    assert sum(right) / len(right) == pytest.approx(0.5, abs=0.03)
    assert all(q.prompt[q.antecedent + 1] in NEAR for q in questions)


def test_the_bank_decides_and_nothing_else():
    for q in TOWN.questions("bank", 500, seed=6):
        who, _, _, bank, *rest = q.prompt[q.antecedent - 3 :]
        assert q.answer in LEFT[bank]
        assert rest[0] == "bank" and len(rest) == 4
        assert who not in ("boat", "robbers")  # they would give it away
