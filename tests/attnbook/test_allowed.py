"""Only allowed words: what an automaton accepts, and the distribution that a
model has on it, held against a list of all texts."""

import itertools
import math

import numpy as np
import pytest
import torch
from real_models import SMOLLM2, needs_smollm2

from attnbook.allowed import (
    Automaton,
    chance_of,
    chance_to_finish,
    finished_after,
    given_allowed,
    masked,
    only,
    over_tokens,
    tokens_allowed,
    without_dead_ends,
)
from attnbook.pretrained import load_tokenizer

V, END, MOST = 4, 3, 5


def drawn(seed):
    """A random model and a random automaton in which some text is allowed.

    Some transitions of the model have the probability 0.
    """
    rng = np.random.default_rng(seed)
    table = rng.random((V, V)) * (rng.random((V, V)) > 0.2)
    table += 1e-3 * (table.sum(-1, keepdims=True) == 0)
    table = torch.tensor(table / table.sum(-1, keepdims=True))
    S = int(rng.integers(1, 5))
    moves = [
        {t: int(rng.integers(S)) for t in range(END) if rng.random() < 0.6}
        for _ in range(S)
    ]
    accepting = frozenset(s for s in range(S) if rng.random() < 0.5)
    return table, Automaton(moves, accepting or frozenset({0}))


def texts(most):
    """Every text of fewer than `most` tokens, the end token not written."""
    for n in range(most):
        yield from itertools.product(range(END), repeat=n)


def by_hand(automaton, text):
    """Whether a text is accepted, by a walk of its own."""
    here = 0
    for token in text:
        here = automaton.moves[here].get(token, -1)
        if here < 0:
            return False
    return here in automaton.accepting


def alone(table, text, last):
    """p(text, then the end) after a token, by a product of its own."""
    pairs = itertools.pairwise((last, *text, END))
    return math.prod(table[a][b] for a, b in pairs)


@pytest.mark.parametrize("seed", range(20))
def test_the_pass_from_the_back_is_the_sum_over_all_texts(seed):
    table, automaton = drawn(seed)
    chances = chance_to_finish(table, automaton, END, MOST)
    rows = table.tolist()
    accepted = [t for t in texts(MOST) if by_hand(automaton, t)]
    assert chances.shape == (MOST + 1, V, len(automaton.moves))
    for n, last in itertools.product(range(MOST + 1), range(V)):
        listed = math.fsum(
            alone(rows, text, last) for text in accepted if len(text) < n
        )
        assert abs(chances[n, last, 0].item() - listed) < 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_what_is_drawn_is_the_model_given_that_the_text_is_allowed(seed):
    """Word by word, the exact rule multiplies to p(text) / p(allowed)."""
    table, automaton = drawn(seed)
    chances = chance_to_finish(table, automaton, END, MOST)
    total = chances[MOST, 0, 0].item()
    rows = table.tolist()
    seen = 0.0
    for text in texts(MOST):
        if not by_hand(automaton, text) or alone(rows, text, 0) == 0:
            continue
        product = 1.0
        state = 0
        last = 0
        for n, token in enumerate((*text, END), start=1):
            after = finished_after(automaton, chances[MOST - n], state, END)
            p = given_allowed(table[last], after)
            assert abs(p.sum().item() - 1) < 1e-12
            product *= p[token].item()
            state = automaton.moves[state].get(token, state)
            last = token
        assert abs(product - alone(rows, text, 0) / total) < 1e-12
        seen += product
    assert abs(seen - (total > 0)) < 1e-12


def test_a_mask_is_another_distribution_by_a_known_factor():
    table = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 4, dtype=torch.float64)
    automaton = only([[1], [2, 1]])
    alone_1, mask_1 = chance_of(table, automaton, END, [0, 1])
    alone_2, mask_2 = chance_of(table, automaton, END, [0, 2, 1])
    assert math.isclose(alone_1, 0.2 * 0.4)
    assert math.isclose(alone_2, 0.3 * 0.2 * 0.4)
    # Of the first step 0.2 + 0.3 is left; later steps have one token each.
    assert math.isclose(mask_1, 0.2 / 0.5)
    assert math.isclose(mask_2, 0.3 / 0.5)
    # 1 / mask is the product of what was left, times nothing else.
    assert math.isclose(mask_1, alone_1 / (0.5 * 0.4))
    assert math.isclose(mask_2, alone_2 / (0.5 * 0.2 * 0.4))
    exact = alone_1 / (alone_1 + alone_2)
    assert math.isclose(exact, 0.08 / 0.104)
    assert abs(exact - mask_1) > 0.3


def test_masked_shares_out_what_is_left():
    p = torch.tensor([0.5, 0.25, 0.25])
    assert masked(p, {0, 2}).tolist() == pytest.approx([2 / 3, 0, 1 / 3])
    with pytest.raises(ValueError, match="nothing can come next"):
        masked(p, set())


@pytest.mark.parametrize("seed", range(30))
def test_without_dead_ends_accepts_the_same_and_always_goes_on(seed):
    _, automaton = drawn(seed)
    accepted = [t for t in texts(7) if by_hand(automaton, t)]
    if not accepted:
        with pytest.raises(ValueError, match="no text is allowed"):
            without_dead_ends(automaton)
        return
    trimmed = without_dead_ends(automaton)
    assert [t for t in texts(7) if trimmed.accepts(t)] == accepted
    # Each state that a text can be in has a way to an end.
    for text in texts(4):
        if (state := trimmed.state_after(text)) is not None:
            assert tokens_allowed(trimmed, state, END)
            more = texts(len(trimmed.moves) + 1)
            assert any(trimmed.accepts((*text, *rest)) for rest in more)


def test_only_accepts_the_given_texts_and_each_of_them():
    given = [(), (0,), (0, 1, 2), (2, 2)]
    automaton = only(given)
    assert {t for t in texts(6) if automaton.accepts(t)} == {*given}
    assert tokens_allowed(automaton, 0, END) == {0, 2, END}
    assert tokens_allowed(automaton, automaton.state_after((0, 1)), END) == {2}


def test_over_tokens_accepts_each_spelling_and_nothing_else():
    """The automaton over tokens accepts what, spelled out, is accepted."""
    vocabulary = ["a", "b", "ab", "", "ba", "bab"]
    characters = only(["ab", "abab", "b"])
    automaton = over_tokens(characters, vocabulary)
    numbers = [n for n, text in enumerate(vocabulary) if text]
    found = set()
    for n in range(5):
        for tokens in itertools.product(numbers, repeat=n):
            spelled = "".join(vocabulary[t] for t in tokens)
            assert automaton.accepts(tokens) == characters.accepts(spelled)
            if automaton.accepts(tokens):
                found.add(tokens)
    assert {(2,), (0, 1), (2, 2), (0, 5), (0, 4, 1), (1,)} <= found
    assert all(3 not in moves for moves in automaton.moves)


def test_a_vocabulary_that_cannot_spell_it_is_refused():
    with pytest.raises(ValueError, match="no text is allowed"):
        over_tokens(only(["abc"]), ["a", "b"])
    # A way that the vocabulary cannot finish is left out.
    automaton = over_tokens(only(["abc", "aa"]), ["a", "b"])
    assert automaton.state_after([0, 1]) is None
    assert automaton.accepts([0, 0])


def test_what_is_wrong_is_refused():
    with pytest.raises(ValueError, match="states that it does not have"):
        Automaton([{1: 2}], frozenset({0}))
    with pytest.raises(ValueError, match="states that it does not have"):
        Automaton([], frozenset())
    with pytest.raises(ValueError, match="at least one; got an empty list"):
        only([])
    table = torch.full((4, 4), 0.25)
    with pytest.raises(ValueError, match="does not accept this text"):
        chance_of(table, only([[1]]), END, [0, 2])
    with pytest.raises(ValueError, match="most is not allowed"):
        chance_to_finish(table, only([[1]]), END, -1)
    with pytest.raises(ValueError, match="nothing can come next"):
        given_allowed(table[0], torch.zeros(4))


@needs_smollm2
def test_a_real_vocabulary_has_several_spellings():
    """The numbers that chapter 15 says, for SmolLM2's table."""
    tokenizer = load_tokenizer(SMOLLM2)
    n = len(tokenizer.tokens)
    texts_of = [tokenizer.decode([token]) for token in range(n)]
    vocabulary = ["" if "\ufffd" in text else text for text in texts_of]

    def spellings(*words):
        automaton = over_tokens(only(words), vocabulary)

        def after(state):
            on = sum(after(to) for to in automaton.moves[state].values())
            return on + (state in automaton.accepting)

        return after(0)

    assert (spellings("yes", "no"), spellings("Paris")) == (6, 15)
    for word in ("yes", "no", "Paris"):
        assert len(tokenizer.encode(word)) == 1
