"""Answers to prompts: what a model is taught from, and how it is compared.

A language model is taught to answer by texts of two parts, a prompt and an
answer. The prompt is read, but only the answer is to be learned
(`answer_batch`). How probable an answer is, as a whole, is the sum of the logs
of its tokens' probabilities (`answer_logs`). From two answers to one prompt,
of which the first is preferred, `preference_loss` makes a loss (DPO).

Axis names: B rows, one for each answer; T tokens; V size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.shapes import expect
from attnbook.values import number, whole


def answer_batch(
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    *,
    pad: int = 0,
) -> tuple[Tensor, Tensor]:
    """Put prompts and answers into one batch, in which only answers count.

    Position t predicts token t + 1. So the last token of a prompt predicts
    the first of its answer, and that one counts.

    Args:
        prompts: token numbers of each prompt, at least one.
        answers: token numbers of each answer, at least one. If a model shall
            learn to stop, its last token is the one that ends a text.
        pad: the token that fills up shorter rows, on the right. No real token
            sees it in a causal model, and its targets are −100.

    Returns:
        Tokens and targets, each (B, T), int64, where T is one less than the
        longest prompt with its answer. A target is −100 where it does not
        count: in the prompt, and at padding.

    Raises:
        ValueError: as many answers as prompts are expected, and none of them
            empty.

    >>> answer_batch([[7, 8, 9]], [[4, 5]])
    (tensor([[7, 8, 9, 4]]), tensor([[-100, -100,    4,    5]]))
    """
    if len(prompts) != len(answers):
        raise ValueError(
            "each prompt has one answer here; repeat a prompt that has "
            f"several; got {len(prompts)} prompts and {len(answers)} answers"
        )
    whole("number of prompts", len(prompts), at_least=1)
    rows = []
    targets = []
    for prompt, answer in zip(prompts, answers):
        whole("length of a prompt", len(prompt), at_least=1)
        whole("length of an answer", len(answer), at_least=1)
        row = [*prompt, *answer]
        rows.append(torch.tensor(row[:-1]))
        silent = [-100] * (len(prompt) - 1)
        targets.append(torch.tensor([*silent, *answer]))
    pad_sequence = nn.utils.rnn.pad_sequence
    return pad_sequence(rows, True, pad), pad_sequence(targets, True, -100)


def token_logs(logits: Tensor, targets: Tensor) -> Tensor:
    """log p of each target, and 0 where the target is −100.

    Shapes: logits (B, T, V), targets (B, T) → (B, T).
    """
    expect("float", logits=(logits, "B T V"))
    expect("integer", targets=(targets, "B T"), T=logits.shape[1])
    losses = F.cross_entropy(logits.mT, targets, reduction="none")
    return -losses  # cross_entropy gives 0 at −100


def answer_logs(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """log p of each whole answer, given its prompt: the sum over its tokens.

    Arguments are those that `answer_batch` returns.

    Shapes: tokens, targets (B, T) → (B,).
    """
    return token_logs(model(tokens), targets).sum(-1)


def preference_loss(
    preferred: Tensor,
    other: Tensor,
    preferred_before: Tensor,
    other_before: Tensor,
    beta: float,
) -> Tensor:
    """The loss of direct preference optimisation (DPO), for each pair.

    It is −log σ(β · margin). The margin says how much more the preferred
    answer has gained, in log-probability, than the other one, since the
    model was what it was before.

    Args:
        preferred, other: log p of the two whole answers to one prompt, in the
            model that is trained, (...).
        preferred_before, other_before: the same in the model as it was.
        beta: how strongly it is held to what it was; above 0.

    Raises:
        TypeError, ValueError: shapes that do not fit, or a beta out of range.

    Source: Rafailov et al. (2023), arXiv:2305.18290, equation 7.
    """
    expect(
        "float",
        preferred=(preferred, "..."),
        other=(other, "..."),
        preferred_before=(preferred_before, "..."),
        other_before=(other_before, "..."),
    )
    number("beta", beta, above=0)
    gain = preferred - preferred_before
    other_gain = other - other_before
    return -F.logsigmoid(beta * (gain - other_gain))
