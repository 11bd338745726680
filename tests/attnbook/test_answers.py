"""Answers: prompts get no gradient, padding changes nothing, and the optimum
of DPO is the law that the rewards ask for."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from models import random_model

from attnbook.answers import (
    answer_batch,
    answer_logs,
    preference_loss,
    token_logs,
)
from attnbook.gpt import GPTConfig
from attnbook.reward import best_law
from attnbook.teach.check.seeded import randn
from attnbook.training import loss_share

PROMPTS = [[3, 4, 5], [6], [1, 2]]
ANSWERS = [[7, 2], [8, 9, 2], [2]]
CONFIG = GPTConfig(vocab_size=11, context=8, d_model=8, n_heads=2, n_layers=1)


def test_a_batch_by_hand():
    tokens, targets = answer_batch(PROMPTS, ANSWERS, pad=10)
    assert tokens.tolist() == [[3, 4, 5, 7], [6, 8, 9, 10], [1, 2, 10, 10]]
    no = -100
    assert targets.tolist() == [[no, no, 7, 2], [8, 9, 2, no], [no, 2, no, no]]
    assert answer_batch(PROMPTS, ANSWERS)[0][1].tolist() == [6, 8, 9, 0]


def test_the_gradient_at_a_prompts_predictions_is_exactly_zero():
    tokens, targets = answer_batch(PROMPTS, ANSWERS)
    logits = randn(*tokens.shape, 11, seed=1).requires_grad_()
    F.cross_entropy(logits.mT, targets).backward()
    counts = targets >= 0
    assert not logits.grad[~counts].any()
    assert (logits.grad[counts].abs().sum(-1) > 0.01).all()


def test_a_batch_has_the_loss_of_its_rows_alone():
    model = random_model(CONFIG)
    whole = loss_share(model, *answer_batch(PROMPTS, ANSWERS, pad=5))
    total = sum(map(len, ANSWERS))
    alone = sum(
        loss_share(model, *answer_batch([p], [a]), total=total)
        for p, a in zip(PROMPTS, ANSWERS)
    )
    torch.testing.assert_close(whole, alone, rtol=0, atol=1e-12)


def test_the_log_of_an_answer_is_the_sum_over_its_tokens():
    model = random_model(CONFIG)
    tokens, targets = answer_batch(PROMPTS, ANSWERS)
    found = answer_logs(model, tokens, targets)
    for n, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS)):
        text = [*prompt, *answer]
        law = model(torch.tensor([text])).log_softmax(-1)[0]
        wanted = sum(
            law[at - 1, text[at]] for at in range(len(prompt), len(text))
        )
        assert abs(found[n] - wanted) < 1e-12
    each = token_logs(model(tokens), targets)
    assert each.shape == targets.shape
    assert not each[targets < 0].any()
    assert (each[targets >= 0] < 0).all()


def test_a_preference_by_hand():
    # The model has done nothing yet: log 2. Then a gain of 1 and a loss of 2.
    zero = torch.zeros(2).double()
    loss = preference_loss(zero - 3, zero - 4, zero - 3, zero - 4, 0.5)
    assert loss.tolist() == pytest.approx([math.log(2)] * 2, abs=1e-15)
    loss = preference_loss(zero - 2, zero - 6, zero - 3, zero - 4, 0.5)
    wanted = math.log(1 + math.exp(-0.5 * 3))
    assert loss.tolist() == pytest.approx([wanted] * 2, abs=1e-15)


def test_the_gradient_of_a_preference_in_closed_form():
    logs = [randn(4, seed=n).requires_grad_() for n in range(4)]
    beta = 0.3
    preference_loss(*logs, beta).sum().backward()
    margin = (logs[0] - logs[2]) - (logs[1] - logs[3])
    push = beta * torch.sigmoid(-beta * margin)
    signs = (-1, 1, 1, -1)
    for log, sign in zip(logs, signs):
        torch.testing.assert_close(log.grad, sign * push)


def expected_preference_loss(logits, before, rewards, beta, weights):
    """The mean of the loss over all pairs of answers, where answer i is
    preferred to j with probability σ(rᵢ − rⱼ) (Bradley and Terry)."""
    law = logits.log_softmax(-1)
    start = before.log()
    total = torch.zeros(()).double()
    for i, j in itertools.permutations(range(len(before)), 2):
        wins = torch.sigmoid(rewards[i] - rewards[j])
        loss = preference_loss(law[i], law[j], start[i], start[j], beta)
        total = total + weights[i, j] * wins * loss
    return total


@pytest.mark.parametrize("beta", [0.1, 1.0, 3.0])
def test_the_optimum_of_all_pairs_is_the_law_of_the_rewards(beta):
    """Whatever the pairs that are shown, if each is shown both ways round."""
    before = randn(5, seed=1).softmax(-1)
    rewards = randn(5, seed=2)
    weights = randn(5, 5, seed=3).exp()
    weights = weights + weights.mT
    optimum = best_law(before, rewards, beta)
    logits = optimum.log().requires_grad_()
    expected_preference_loss(logits, before, rewards, beta, weights).backward()
    assert logits.grad.abs().max() < 1e-12
    elsewhere = before.log().requires_grad_()
    expected_preference_loss(
        elsewhere, before, rewards, beta, weights
    ).backward()
    assert elsewhere.grad.abs().max() > 1e-3


def test_as_many_answers_as_prompts():
    with pytest.raises(ValueError, match="3 prompts and 2 answers"):
        answer_batch(PROMPTS, ANSWERS[:2])


def test_nothing_is_asked_of_no_tokens():
    for prompts, answers, said in (
        ([], [], "number of prompts is not allowed.*got 0"),
        ([[]], [[1]], "length of a prompt is not allowed.*got 0"),
        ([[1], []], [[1], [2]], "length of a prompt is not allowed.*got 0"),
        ([[1]], [[]], "length of an answer is not allowed.*got 0"),
    ):
        with pytest.raises(ValueError, match=said):
            answer_batch(prompts, answers)
    tokens, targets = answer_batch([[3]], [[4]])
    assert tokens.tolist() == [[3]] and targets.tolist() == [[4]]
    assert tokens.dtype == targets.dtype == torch.int64


def test_logs_by_hand_and_what_does_not_fit():
    logits = torch.tensor([[[0.0, 1.0], [2.0, 2.0], [5.0, 9.0]]])
    found = token_logs(logits, torch.tensor([[1, 0, -100]]))
    wanted = [-math.log(1 + math.exp(-1)), -math.log(2), 0]
    assert found.tolist()[0] == pytest.approx(wanted, abs=1e-6)
    with pytest.raises(ValueError, match="axis T of targets is 2; expected"):
        token_logs(logits, torch.tensor([[1, 0]]))
    with pytest.raises(TypeError, match="targets is of the wrong type"):
        token_logs(logits, torch.ones(1, 3))
    with pytest.raises(TypeError, match="logits is of the wrong type"):
        token_logs(logits.long(), torch.ones(1, 3).long())


def test_what_is_no_preference_is_refused():
    one = torch.ones(2)
    for beta in (0, -0.5):
        said = f"beta is not allowed.*got {beta}"
        with pytest.raises(ValueError, match=said):
            preference_loss(one, one, one, one, beta)
    names = "preferred", "other", "preferred_before", "other_before"
    for n, name in enumerate(names):
        given = [one] * 4
        given[n] = one.long()
        with pytest.raises(TypeError, match=f"{name} is of the wrong type"):
            preference_loss(*given, 0.1)
        given[n] = torch.ones(3)
        with pytest.raises(ValueError, match="leading axes do not broadcast"):
            preference_loss(*given, 0.1)
