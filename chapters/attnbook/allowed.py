"""Only allowed words: an automaton says which tokens may come.

An automaton has states, and for each state the tokens that may come there and
the state to which each leads. In some states, the accepting ones, the text may
end. To end means here that the end token comes, which is a token of the model
but has no move of its own.

A mask takes the tokens that may come and divides their probabilities by what
they have together. The form is then certain, but the distribution is not
p(text | allowed), because each step forgets how likely it is that the rest
can be finished. `chance_to_finish` computes just that, in one pass from the
back, and with it `given_allowed` has the exact distribution of the next
token. This needs a model with few states: here, one that looks at the last
token only.

Axis names: V size of the vocabulary, S states.
Source: Willard and Louf (2023), arXiv:2307.09702: an automaton over a model's
tokens. The pass from the back is the backward pass of hidden Markov models.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from attnbook.shapes import expect
from attnbook.values import whole

Token = TypeVar("Token", bound=Hashable)


@dataclass(frozen=True)
class Automaton(Generic[Token]):
    """States 0, 1, …: which tokens may come in each, and where one may end.

    A text begins in state 0. `moves[state]` has, for each token that may
    come there, the state after it. `accepting` has the states in which the
    text may end. Tokens are numbers, or characters; see `over_tokens`.
    """

    moves: Sequence[Mapping[Token, int]]
    accepting: frozenset[int]

    def __post_init__(self) -> None:
        n = len(self.moves)
        named = {after for moves in self.moves for after in moves.values()}
        unknown = sorted((named | self.accepting) - {*range(n)})
        if unknown or not n:
            raise ValueError(
                "an automaton names states that it does not have; expected "
                f"states 0 to {n - 1}, one for each of `moves`, and at least "
                f"state 0; got {unknown}"
            )

    def state_after(self, text: Sequence[Token], state: int = 0) -> int | None:
        """The state after a text that begins in a state, or None if a token
        of it is not allowed there."""
        for token in text:
            if token not in self.moves[state]:
                return None
            state = self.moves[state][token]
        return state

    def accepts(self, text: Sequence[Token]) -> bool:
        """Whether each token of a text may come, and the text may end."""
        return self.state_after(text) in self.accepting


def only(texts: Sequence[Sequence[Token]]) -> Automaton[Token]:
    """The automaton that accepts the given texts and no other.

    It is a tree: each beginning of a text is a state.

    Raises:
        ValueError: no text at all.
    """
    if not texts:
        raise ValueError(
            "an automaton was to accept one of the given texts, but none is "
            "given; expected at least one; got an empty list"
        )
    moves: list[dict[Token, int]] = [{}]
    accepting = set()
    for text in texts:
        state = 0
        for token in text:
            if token not in moves[state]:
                moves[state][token] = len(moves)
                moves.append({})
            state = moves[state][token]
        accepting.add(state)
    return Automaton(moves, frozenset(accepting))


def without_dead_ends(automaton: Automaton[Token]) -> Automaton[Token]:
    """The same automaton without the moves after which no text can end.

    The states keep their numbers. What is accepted stays the same; only the
    ways that lead nowhere are gone, so that a mask cannot walk into them.

    Raises:
        ValueError: no text is accepted at all.
    """
    live = set(automaton.accepting)
    grown = True
    while grown:  # backwards from the accepting states
        before = len(live)
        for state, moves in enumerate(automaton.moves):
            if live.intersection(moves.values()):
                live.add(state)
        grown = len(live) > before
    if 0 not in live:
        raise ValueError(
            "no text is allowed: from state 0 no accepting state can be "
            f"reached; expected a way to one of {sorted(automaton.accepting)}"
            f"; got {len(automaton.moves)} states that never reach one"
        )
    kept = [
        {token: after for token, after in moves.items() if after in live}
        for moves in automaton.moves
    ]
    return Automaton(kept, automaton.accepting)


def over_tokens(
    automaton: Automaton[str], vocabulary: Sequence[str]
) -> Automaton[int]:
    """From an automaton over characters to one over a model's tokens.

    A token may come where all of its characters may come, one after the
    other. So a text is accepted however it is cut into tokens. Tokens that
    are empty strings, as control tokens are here, never come.

    Args:
        automaton: with single characters as its tokens.
        vocabulary: the characters of each token, in the order of numbers.

    Raises:
        ValueError: the vocabulary cannot spell any accepted text.
    """
    moves = []
    for state in range(len(automaton.moves)):
        found = {}
        for number, text in enumerate(vocabulary):
            after = automaton.state_after(text, state) if text else None
            if after is not None:
                found[number] = after
        moves.append(found)
    return without_dead_ends(Automaton(moves, automaton.accepting))


def tokens_allowed(
    automaton: Automaton[int], state: int, end: int
) -> set[int]:
    """The tokens that may come in a state: those that have a move there, and
    the end token if the text may end there."""
    ends = {end} if state in automaton.accepting else set()
    return {*automaton.moves[state]} | ends


def masked(p: Tensor, allowed: set[int]) -> Tensor:
    """What a mask makes of the next token's probabilities p (V,): 0 for what
    is not allowed, and the rest divided by its sum.

    Raises:
        ValueError: nothing that is allowed has any probability.
    """
    kept = torch.zeros_like(p)
    here = sorted(allowed)
    kept[here] = p[here]
    return _shared_out(kept, "a token that is allowed")


def chance_to_finish(
    table: Tensor, automaton: Automaton[int], end: int, most: int
) -> Tensor:
    """How likely a model is to finish an allowed text, from everywhere.

    It is one pass from the back. With n tokens left the text can end at once,
    if the state is accepting, or go on with any token that may come and then
    be finished with n − 1. The end token is counted among the n.

    Args:
        table: the model, p(next | last token), (V, V).
        automaton: over the tokens that are numbers below V.
        end: the number of the end token.
        most: how many tokens may still come, the end token among them.

    Returns:
        (most + 1, V, S): with n tokens left, after a last token, in a state.
    """
    expect("float", table=(table, "V V"))
    whole("most", most, at_least=0)
    V, S = len(table), len(automaton.moves)
    chances = [table.new_zeros(V, S)]  # with no token left none can end
    for _ in range(most):
        now = table.new_zeros(V, S)
        for state, moves in enumerate(automaton.moves):
            if state in automaton.accepting:
                now[:, state] += table[:, end]
            for token, after in moves.items():
                # p(token | last) times the chance from there on
                now[:, state] += table[:, token] * chances[-1][token, after]
        chances.append(now)
    return torch.stack(chances)


def finished_after(
    automaton: Automaton[int], chances: Tensor, state: int, end: int
) -> Tensor:
    """How likely it is, for each next token, that an allowed text is finished
    after it: (V,).

    It is 1 for the end token where the text may end, since then it is
    finished, and 0 for each token that may not come.

    Args:
        chances: (V, S), what `chance_to_finish` has for one token fewer than
            are left now.
        state: the automaton's state now.
        end: the number of the end token.
    """
    finished = chances.new_zeros(len(chances))
    for token, after in automaton.moves[state].items():
        finished[token] = chances[token, after]
    if state in automaton.accepting:
        finished[end] = 1.0
    return finished


def given_allowed(p: Tensor, finished: Tensor) -> Tensor:
    """The exact distribution of the next token, given that the text will be an
    allowed one: Bayes' rule.

    Args:
        p: the model's probabilities of the next token, (V,).
        finished: what `finished_after` returns, (V,).

    Raises:
        ValueError: from here no allowed text can be finished.
    """
    what = "a token after which an allowed text can be finished"
    return _shared_out(p * finished, what)


def chance_of(
    table: Tensor, automaton: Automaton[int], end: int, text: Sequence[int]
) -> tuple[float, float]:
    """The probabilities of an allowed text, by the model and under a mask.

    Args:
        table, automaton, end: as in `chance_to_finish`.
        text: its first token is given and not drawn; the end token follows
            the last one and is not in the list. The automaton reads what
            comes after the first.

    Returns:
        p(text) by the model alone, and by the mask: it is larger, by one
        over the product of what the allowed tokens had together in each
        step. Divided by the chance that a text is allowed, the first is the
        exact conditional probability.

    Raises:
        ValueError: the automaton does not accept the text.
    """
    first, *rest = text
    if not automaton.accepts(rest):
        raise ValueError(
            f"the automaton does not accept this text; expected one that it "
            f"accepts after the first token; got {list(text)}"
        )
    alone = by_mask = 1.0
    state = 0
    last = first
    for token in [*rest, end]:
        p = table[last]
        kept = masked(p, tokens_allowed(automaton, state, end))
        alone *= p[token].item()
        by_mask *= kept[token].item()
        if token != end:
            state = automaton.moves[state][token]
        last = token
    return alone, by_mask


def _shared_out(kept: Tensor, what: str) -> Tensor:
    """Probabilities that sum to 1 again, if anything is left of them."""
    total = kept.sum()
    if not total > 0:
        raise ValueError(
            f"nothing can come next: expected {what} with a probability "
            "above 0; got a sum of 0"
        )
    return kept / total
