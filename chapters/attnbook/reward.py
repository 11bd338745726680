"""Rewards: how answers that are judged by a number change a model.

A model that answers is a *policy*: a law π over answers. Each answer has a
reward r, and π is changed so that the mean reward grows, while it is kept near
the law π₀ that it began with.

The first half of this room is exact. Where there are few answers, as for one
word of the town's 89, every expectation is a sum over all of them: `best_law`
is the optimum, and `expected_gradient` is what any estimator gives on average.
The second half is what is used where answers are drawn: `advantages`,
`clipped_gain` and the estimators of a divergence, `KL_ESTIMATES`.

Axis names: Y answers, G answers drawn for one prompt, V words.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnbook.shapes import expect
from attnbook.values import number, one_of, whole

#: What is taken off the rewards of a group, and what they are divided by.
BASELINES = ("none", "mean", "others", "deviation")


def best_law(before: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """The law with the largest mean reward minus β · KL(π‖π₀).

    It is π₀ e^{r/β} / Z: each answer's probability is multiplied by a factor
    that depends on its reward alone, and Z makes the sum 1 again. An answer
    that the model never gave is not given now either.

    Args:
        before: π₀, probabilities (..., Y).
        rewards: r, (..., Y).
        beta: what a nat of divergence costs, in units of the reward; above 0.

    Raises:
        TypeError, ValueError: shapes that do not fit, or a beta out of range.

    >>> import math
    >>> before = torch.tensor([0.5, 0.25, 0.25])
    >>> rewards = torch.tensor([0.0, 0.0, 1.0])
    >>> best_law(before, rewards, 1 / math.log(3))
    tensor([0.3333, 0.1667, 0.5000])
    """
    expect("float", before=(before, "... Y"), rewards=(rewards, "... Y"))
    number("beta", float(beta), above=0)
    return (before.log() + rewards / beta).softmax(-1)


def best_law_forward(before: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """The law with the largest mean reward minus β · KL(π₀‖π).

    The divergence has its two laws the other way round than in `best_law`,
    and the optimum is another one: β π₀ / (λ − r), with the number λ, above
    all rewards, for which the sum is 1. It is found by halving an interval.

    Args:
        before: π₀, probabilities (Y,), none of them 0.
        rewards, beta: as in `best_law`.

    Raises:
        TypeError, ValueError: shapes that do not fit, or a beta out of range.
    """
    expect("float", before=(before, "Y"), rewards=(rewards, "Y"))
    number("beta", float(beta), above=0)
    # At λ = max r + β the sum is at most 1, as each term is at most π₀.
    low = rewards.max()
    high = low + beta
    for _ in range(200):
        middle = (low + high) / 2
        if (beta * before / (middle - rewards)).sum() > 1:
            low = middle
        else:
            high = middle
    law = beta * before / (high - rewards)
    return law / law.sum()


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p‖q) = Σ p log(p/q) of two laws (..., Y), in nats: (...).

    Answers with p = 0 add nothing.
    """
    expect("float", p=(p, "... Y"), q=(q, "... Y"))
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum(-1)


def expected_gradient(logits: Tensor, weights: Tensor) -> Tensor:
    """What weight · ∇ log π(y) is on average over answers y drawn from π.

    The gradient is with respect to the logits. That of log π(y) is one at y
    minus π everywhere, so the average is π · (w − Σ π w). With w = r it is
    the gradient of the mean reward.

    Shapes: logits of π and weights w, (..., Y) → (..., Y).
    """
    expect("float", logits=(logits, "... Y"), weights=(weights, "... Y"))
    law = logits.softmax(-1)
    return law * (weights - (law * weights).sum(-1, keepdim=True))


def advantages(rewards: Tensor, baseline: str = "others") -> Tensor:
    """How much better than expected each answer of a group is.

    Args:
        rewards: of G answers to the same prompt, (..., G).
        baseline: what is taken off each of them:

            - "none": nothing.
            - "mean": the mean of all G, its own included. The gradient is
              then 1 − 1/G times the true one on average.
            - "others": the mean of the other G − 1 (leave one out, RLOO);
              the gradient is right on average.
            - "deviation": the mean, and what is left is divided by the
              standard deviation of the G rewards (over G − 1, as torch's
              `std` does) plus 1e-4 (GRPO).

    Returns:
        (..., G), of mean 0 except with "none".

    Raises:
        ValueError: another baseline; fewer than two answers for one.

    Source: Shao et al. (2024), arXiv:2402.03300, section 4.1.2, for
    "deviation"; Ahmadian et al. (2024), arXiv:2402.14740, for "others".
    """
    expect("float", rewards=(rewards, "... G"))
    one_of("baseline", baseline, BASELINES)
    if baseline == "none":
        return rewards
    G = whole("answers in a group", rewards.shape[-1], at_least=2)
    left = rewards - rewards.mean(-1, keepdim=True)
    if baseline == "others":
        # r − (ΣR − r)/(G − 1) is this difference times G/(G − 1).
        return left * G / (G - 1)
    if baseline == "deviation":
        return left / (rewards.std(-1, keepdim=True) + 1e-4)
    return left


def clipped_gain(
    log_ratio: Tensor,
    advantage: Tensor,
    low: float = 0.2,
    high: float = 0.2,
) -> Tensor:
    """What is gained by a change of an answer's probability, at most so far.

    The ratio is that of the answer's probability now to its probability when
    it was drawn. The gain is ratio · advantage. Once the ratio has moved in
    the wanted direction beyond 1 − low or 1 + high, it gains nothing more,
    and the gradient is 0. A ratio that has moved in the wrong direction is
    not cut, so it is always pulled back.

    Args:
        log_ratio: log of the ratio, (...), with gradients.
        advantage: (...), a number without gradients.
        low, high: how far a ratio may go below and above 1.

    Raises:
        TypeError, ValueError: shapes that do not fit, or a bound out of its
            range.

    Source: Schulman et al. (2017), arXiv:1707.06347, equation 7.
    """
    expect("float", log_ratio=(log_ratio, "..."), advantage=(advantage, "..."))
    number("low", low, above=0, below=1)
    number("high", high, above=0)
    ratio = log_ratio.exp()
    cut = ratio.clamp(1 - low, 1 + high)
    return torch.minimum(ratio * advantage, cut * advantage)


def k1(log_ratio: Tensor) -> Tensor:
    """log(π/π₀): its mean over π is KL(π‖π₀). It may be negative."""
    return log_ratio


def k2(log_ratio: Tensor) -> Tensor:
    """½ log²(π/π₀): its mean is near KL(π‖π₀) for laws that are near each
    other, and its gradient is that of KL(π‖π₀) exactly."""
    return log_ratio**2 / 2


def k3(log_ratio: Tensor) -> Tensor:
    """π₀/π − 1 + log(π/π₀): its mean over π is KL(π‖π₀), and it is never
    negative. Its gradient is that of KL(π₀‖π)."""
    return torch.expm1(-log_ratio) + log_ratio


#: Estimators of KL(π‖π₀) from log(π/π₀) at answers drawn from π.
#:
#: Source: Schulman (2020), Approximating KL divergence.
KL_ESTIMATES = {"k1": k1, "k2": k2, "k3": k3}
