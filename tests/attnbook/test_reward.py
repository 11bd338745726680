"""Rewards: optima in closed form, and what estimators give on average, by
sums over all answers and over all groups of answers."""

import itertools
import math

import pytest
import torch

from attnbook.reward import (
    KL_ESTIMATES,
    advantages,
    best_law,
    best_law_forward,
    clipped_gain,
    divergence,
    expected_gradient,
)
from attnbook.teach.check.seeded import randn

Y = 89


def some(n=Y, seed=0):
    """Logits now, the law before, and rewards of which many are equal."""
    logits = randn(n, seed=seed)
    before = (logits + randn(n, seed=seed + 1) / 2).softmax(-1)
    rewards = (randn(n, seed=seed + 2) > 0.8).double()
    return logits, before, rewards


def gradient_of(function, logits):
    x = logits.clone().requires_grad_()
    function(x.softmax(-1)).backward()
    return x.grad


def close(ours, theirs, within=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=within)


def test_the_best_law_by_hand():
    law = best_law(
        torch.tensor([0.5, 0.25, 0.25]).double(),
        torch.tensor([0.0, 0.0, 1.0]).double(),
        1 / math.log(3),
    )
    close(law, torch.tensor([1 / 3, 1 / 6, 1 / 2], dtype=torch.float64))


@pytest.mark.parametrize("beta", [0.05, 0.3, 2.0])
def test_at_the_best_law_the_gradient_is_zero_and_all_else_is_worse(beta):
    _, before, rewards = some()

    def aim(law):
        return law @ rewards - beta * divergence(law, before)

    best = best_law(before, rewards, beta)
    assert gradient_of(aim, best.log()).abs().max() < 1e-13
    # It is the log of Z, times β.
    Z = (before * (rewards / beta).exp()).sum()
    close(aim(best), beta * Z.log())
    for seed in range(20):
        other = (best.log() + randn(Y, seed=seed) / 100).softmax(-1)
        assert aim(other) < aim(best)


@pytest.mark.parametrize("beta", [0.05, 0.3, 2.0])
def test_the_other_divergence_has_another_best_law(beta):
    _, before, rewards = some()

    def aim(law):
        return law @ rewards - beta * divergence(before, law)

    best = best_law_forward(before, rewards, beta)
    close(best.sum(), torch.ones(()).double())
    assert gradient_of(aim, best.log()).abs().max() < 1e-12
    away = (best - best_law(before, rewards, beta)).abs().max()
    assert away > 0.001
    for seed in range(20):
        other = (best.log() + randn(Y, seed=seed) / 100).softmax(-1)
        assert aim(other) < aim(best)


def test_a_large_reward_does_not_overflow():
    before = torch.full((3,), 1 / 3).double()
    rewards = torch.tensor([0.0, 1e4, 1e4]).double()
    law = best_law(before, rewards, 0.1)
    close(law, torch.tensor([0, 0.5, 0.5]).double())


def test_what_was_never_said_is_not_said_now():
    before = torch.tensor([0.5, 0.5, 0.0]).double()
    rewards = torch.tensor([0.0, 0.0, 9.0]).double()
    law = best_law(before, rewards, 1.0)
    close(law, before)
    assert divergence(law, before) == 0


def test_the_divergence_is_that_of_torch():
    logits, before, _ = some()
    law = logits.softmax(-1)
    wanted = torch.distributions.kl_divergence(
        torch.distributions.Categorical(probs=law),
        torch.distributions.Categorical(probs=before),
    )
    close(divergence(law, before), wanted)
    assert divergence(law, law) == 0


def test_the_expected_gradient_is_that_of_the_mean_reward():
    logits, _, rewards = some()
    wanted = gradient_of(lambda law: law @ rewards, logits)
    close(expected_gradient(logits, rewards), wanted, 1e-15)
    # And the sum over all answers of π(y) · r(y) · ∇ log π(y), one by one.
    law = logits.softmax(-1)
    each = (law * rewards)[:, None] * (torch.eye(Y).double() - law)
    close(each.sum(0), wanted, 1e-15)


def test_a_baseline_changes_no_expected_gradient():
    logits, _, rewards = some()
    with_baseline = expected_gradient(logits, rewards - 0.7)
    close(with_baseline, expected_gradient(logits, rewards), 1e-15)


def test_k1_and_k3_have_the_value_and_k2_has_it_nearly():
    logits, before, _ = some()
    law = logits.softmax(-1)
    ratio = law.log() - before.log()
    mean = {name: law @ k(ratio) for name, k in KL_ESTIMATES.items()}
    true = divergence(law, before)
    close(mean["k1"], true)
    close(mean["k3"], true)
    assert 0.001 < abs(mean["k2"] - true) < 0.2 * true
    assert (KL_ESTIMATES["k3"](ratio) >= 0).all()
    assert (KL_ESTIMATES["k2"](ratio) >= 0).all()
    assert (KL_ESTIMATES["k1"](ratio) < 0).any()


def test_three_estimators_in_the_loss_pull_to_three_places():
    logits, before, _ = some()
    law = logits.softmax(-1)

    def pull(k):
        """The mean gradient of k at answers that are drawn from the law."""
        x = logits.clone().requires_grad_()
        ratio = x.log_softmax(-1) - before.log()
        (law * k(ratio)).sum().backward()
        return x.grad

    right = gradient_of(lambda p: divergence(p, before), logits)
    turned = gradient_of(lambda p: divergence(before, p), logits)
    assert pull(KL_ESTIMATES["k1"]).abs().max() < 1e-15
    close(pull(KL_ESTIMATES["k2"]), right, 1e-15)
    close(pull(KL_ESTIMATES["k3"]), turned, 1e-15)
    assert (right - turned).abs().max() > 0.001
    # In the reward instead of the loss, k1 is right.
    ratio = law.log() - before.log()
    close(expected_gradient(logits, ratio), right, 1e-15)


def mean_over_groups(logits, rewards, G, baseline):
    """The gradient of a group of G answers, averaged over all groups."""
    n = len(logits)
    law = logits.softmax(-1)
    total = torch.zeros(n).double()
    for group in itertools.product(range(n), repeat=G):
        chosen = list(group)
        weights = advantages(rewards[chosen], baseline)
        scores = torch.eye(n).double()[chosen] - law
        total += law[chosen].prod() * (weights[:, None] * scores).mean(0)
    return total


@pytest.mark.parametrize("G", [2, 3, 5])
def test_a_groups_mean_gives_its_share_of_the_true_gradient(G):
    logits = randn(4, seed=1)
    rewards = randn(4, seed=2)
    true = expected_gradient(logits, rewards)
    for baseline, share in (("mean", 1 - 1 / G), ("others", 1), ("none", 1)):
        found = mean_over_groups(logits, rewards, G, baseline)
        close(found, share * true)


@pytest.mark.parametrize("G", [4, 5])
def test_dividing_by_the_deviation_keeps_the_direction_of_yes_and_no(G):
    """With rewards 0 and 1, the factor depends on the chance of success."""
    factors = []
    for shift in (0.0, 2.0):
        logits = randn(4, seed=1)
        logits[0] += shift
        rewards = torch.tensor([1.0, 0, 0, 0]).double()
        true = expected_gradient(logits, rewards)
        found = mean_over_groups(logits, rewards, G, "deviation")
        factor = found / true
        close(factor, factor[:1].expand(4))
        factors.append(factor[0].item())
    assert factors[1] != pytest.approx(factors[0], abs=0.01)
    assert min(factors) > 1


def test_advantages_by_hand():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    third = 1 / 3
    hand = {
        "none": rewards.tolist(),
        "mean": [[0.75, -0.25, -0.25, -0.25], [0.0] * 4],
        "others": [[1.0, -third, -third, -third], [0.0] * 4],
        "deviation": [
            [0.75 / 0.5001, *[-0.25 / 0.5001] * 3],
            [0.0] * 4,
        ],
    }
    for baseline, wanted in hand.items():
        found = advantages(rewards, baseline)
        torch.testing.assert_close(found, torch.tensor(wanted))
    torch.testing.assert_close(
        advantages(rewards), torch.tensor(hand["others"])
    )


RATIOS = torch.tensor([0.5, 0.79, 0.81, 1.0, 1.29, 1.31, 3.0]).double()


def slope(advantage, **bounds):
    log_ratio = RATIOS.log().requires_grad_()
    gain = clipped_gain(
        log_ratio, torch.full_like(RATIOS, advantage), **bounds
    )
    gain.sum().backward()
    return gain.detach(), log_ratio.grad


def test_a_gain_is_cut_on_the_side_that_is_wanted_and_on_no_other():
    gain, grad = slope(2.0, low=0.2, high=0.3)
    close(gain, 2 * RATIOS.clamp(max=1.3))
    close(grad, 2 * RATIOS * (RATIOS < 1.3))
    gain, grad = slope(-2.0, low=0.2, high=0.3)
    close(gain, -2 * RATIOS.clamp(min=0.8))
    close(grad, -2 * RATIOS * (RATIOS > 0.8))
    gain, _ = slope(1.0)
    close(gain, RATIOS.clamp(max=1.2))
    gain, _ = slope(-1.0)
    close(gain, -RATIOS.clamp(min=0.8))


def test_at_the_first_step_a_clipped_gain_is_the_policy_gradient():
    logits, _, rewards = some(5)
    law = logits.softmax(-1)
    x = logits.clone().requires_grad_()
    log_ratio = x.log_softmax(-1) - law.log()
    (law * clipped_gain(log_ratio, rewards)).sum().backward()
    close(x.grad, expected_gradient(logits, rewards), 1e-15)


@pytest.mark.parametrize("rule", [best_law, best_law_forward])
def test_what_gives_no_best_law_is_refused(rule):
    half = torch.tensor([0.5, 0.5])
    for beta in (0, 0.0, -0.5):
        with pytest.raises(ValueError, match="beta is not allowed.*got -?0"):
            rule(half, half, beta)
    with pytest.raises(ValueError, match="Y is both 2 and 3; expected before"):
        rule(half, torch.ones(3), 1.0)
    with pytest.raises(TypeError, match="before is of the wrong type"):
        rule(half.long(), half, 1.0)
    with pytest.raises(TypeError, match="rewards is of the wrong type"):
        rule(half, half.long(), 1.0)


def test_a_beta_may_be_a_tensor_of_one_number():
    before = randn(5, seed=1).softmax(-1)
    rewards = randn(5, seed=2)
    for rule in (best_law, best_law_forward):
        found = rule(before, rewards, torch.tensor(0.5).double())
        close(found, rule(before, rewards, 0.5))


@pytest.mark.parametrize("beta", [1e-9, 1e-4, 10.0, 1e4])
def test_the_other_best_law_sums_to_one_whatever_a_nat_costs(beta):
    """Where β is tiny, λ is so near the largest reward that its last digits
    are lost; the sum is 1 all the same."""
    before = randn(5, seed=1).softmax(-1)
    rewards = randn(5, seed=2)
    law = best_law_forward(before, rewards, beta)
    close(law.sum(), torch.ones(()).double(), 1e-15)
    best = rewards.argmax()
    if beta < 1e-3:
        assert law[best] > 0.999
    if beta > 1e3:
        close(law, before, 1e-3)


def test_the_other_best_law_by_hand():
    """β π₀ / (λ − r) with λ = 3/2: a quarter and three quarters of ½ · ½."""
    before = torch.tensor([0.5, 0.5]).double()
    rewards = torch.tensor([0.0, 1.0]).double()
    beta = 0.75  # ½ · ¾ / 1.5 + ½ · ¾ / 0.5 = 0.25 + 0.75
    close(best_law_forward(before, rewards, beta), before.new([0.25, 0.75]))


def test_several_laws_at_once_are_each_what_they_are_alone():
    logits, weights = randn(3, 5, seed=1), randn(3, 5, seed=2)
    law, other = logits.softmax(-1), weights.softmax(-1)
    for rule, given in (
        (expected_gradient, (logits, weights)),
        (divergence, (law, other)),
        (lambda p, r: best_law(p, r, 0.5), (law, weights)),
        (advantages, (weights,)),
        (lambda r: advantages(r, "deviation"), (weights,)),
    ):
        wanted = torch.stack([rule(*row) for row in zip(*given)])
        close(rule(*given), wanted, 1e-15)


def test_what_cannot_be_compared_is_refused():
    x = torch.ones(2, 3)
    whole = x.long()
    for call, name in (
        (lambda: divergence(whole, x), "p"),
        (lambda: divergence(x, whole), "q"),
        (lambda: expected_gradient(whole, x), "logits"),
        (lambda: expected_gradient(x, whole), "weights"),
        (lambda: advantages(whole), "rewards"),
        (lambda: clipped_gain(whole, x), "log_ratio"),
        (lambda: clipped_gain(x, whole), "advantage"),
    ):
        with pytest.raises(TypeError, match=f"{name} is of the wrong type"):
            call()
    for call in (
        lambda: divergence(x, x[:, :2]),
        lambda: expected_gradient(x, x[:, :2]),
        lambda: clipped_gain(x, x[:, :2]),
    ):
        with pytest.raises(
            ValueError, match="Y is both 3 and 2|do not broadcast"
        ):
            call()


def test_a_group_has_two_answers_and_a_known_baseline():
    one = torch.ones(2, 1)
    for baseline in ("mean", "others", "deviation"):
        said = "answers in a group is not allowed.*got 1"
        with pytest.raises(ValueError, match=said):
            advantages(one, baseline)
    assert advantages(one, "none") is one
    with pytest.raises(ValueError, match="baseline"):
        advantages(one, "median")
    two = advantages(torch.tensor([0.0, 1.0]))
    assert two.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize(
    "bounds", [{"low": 0}, {"low": 1}, {"low": -0.5}, {"high": 0}]
)
def test_bounds_of_a_ratio_out_of_their_range_are_refused(bounds):
    ((name, value),) = bounds.items()
    with pytest.raises(ValueError, match=f"{name} is not allowed.*{value}"):
        clipped_gain(torch.zeros(1), torch.ones(1), **bounds)
    # There is no upper bound for `high`.
    found = clipped_gain(torch.ones(1), torch.ones(1), high=1.5)
    assert found.item() == 2.5


def test_estimates_by_hand():
    """At a ratio of 2: log 2, half its square, and ½ − 1 + log 2."""
    log = math.log(2)
    at = torch.tensor([log], dtype=torch.float64)
    found = [KL_ESTIMATES[name](at).item() for name in ("k1", "k2", "k3")]
    assert found == pytest.approx([log, log**2 / 2, log - 0.5], abs=1e-15)
