"""Somebody's own optimizer under the checks: what it is made from, what it
may lack, and what of it is told to be wrong."""

import pytest
import torch
from torch import nn

from attnbook.teach.check.own import WrongUse, examine, hold

GROUPS = "two groups with settings of their own"


class Own(torch.optim.Optimizer):
    """AdamW as one writes it, with one thing wrong if that is wanted."""

    wrong = ""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=0.0):
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "wd": wd}
        )
        self.count = 0

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.count += 1
                state = self.state[p]
                n = state["n"] = state.get("n", 0) + 1
                if self.wrong == "one count":
                    n = self.count
                means = []
                for name, beta, x in zip("ms", group["betas"], (1, 2)):
                    old = state.get(name, torch.zeros_like(p))
                    state[name] = beta * old + (1 - beta) * p.grad**x
                    means.append(state[name] / (1 - beta**n))
                p.mul_(1 - group["lr"] * group["wd"])
                p -= group["lr"] * means[0] / (means[1].sqrt() + group["eps"])


class OneCount(Own):
    wrong = "one count"


class WithoutGroups:
    """Takes a list of parameters, and nothing else."""

    def __init__(self, params, learning_rate, beta1, beta2, epsilon, decay):
        self.inside = torch.optim.AdamW(
            params,
            lr=learning_rate,
            betas=(beta1, beta2),
            eps=epsilon,
            weight_decay=decay,
        )
        for p in params:
            assert isinstance(p, nn.Parameter)

    def step(self):
        self.inside.step()


def test_right_optimizers_get_one_sentence():
    for right in (torch.optim.AdamW, Own):
        said = " ".join(hold(right, "AdamW").split())
        name = right.__name__
        assert said.startswith(f"{name} agrees with torch.optim.AdamW in 14")


def test_an_optimizer_without_groups_is_tried_on_one_group():
    found = examine(WithoutGroups, "AdamW")
    assert found.right
    assert (
        found.left_out[GROUPS] == "the optimizer takes no groups of parameters"
    )
    assert found.left_out["a rate that changes"].startswith(
        "the optimizer has no groups whose rate"
    )
    assert len(found.labels) == 11


def test_known_mistakes_have_their_names():
    found = examine(torch.optim.Adam, "AdamW")
    assert found.verdict.mistake == "decays_along_with_the_gradient"
    found = examine(OneCount, "AdamW")
    assert found.verdict.mistake == "counts_each_parameter_as_a_step"


def test_a_setting_that_is_missing_or_built_in():
    def without_decay(params, lr, betas, eps):
        return torch.optim.Adam(params, lr=lr, betas=betas, eps=eps)

    found = examine(without_decay, "AdamW")
    assert not found.right  # the default of the task is a decay of 0.01
    found = examine(without_decay, "AdamW", fixed={"weight_decay": 0.0})
    assert found.right
    assert found.left_out[GROUPS] == "the optimizer takes no weight_decay"


def test_names_that_nobody_uses_can_be_said():
    def mine(params, speed, betas, eps, weight_decay):
        return torch.optim.AdamW(
            params, lr=speed, betas=betas, eps=eps, weight_decay=weight_decay
        )

    with pytest.raises(WrongUse, match="yours wants speed as well"):
        examine(mine, "AdamW")
    found = examine(mine, "AdamW", names={"lr": "speed"})
    assert found.verdict.finding.case == GROUPS  # torch knows "lr" alone
    assert examine(mine, "AdamW", names={"lr": "speed"}, skip="groups").right


def test_an_error_of_the_optimizer_is_told():
    class Breaks(torch.optim.AdamW):
        def step(self):
            raise ValueError("not today")

    found = examine(Breaks, "AdamW")
    assert not found.right and "ValueError: not today" in found.message


def test_what_is_no_optimizer_is_said():
    def one_step(w, gradient, mean, square, step, rate, decay):
        return w

    with pytest.raises(
        WrongUse, match="one step on tensors has a task of its own"
    ):
        examine(one_step, "AdamW")
    with pytest.raises(WrongUse, match="with a method step; it gave a list"):
        examine(lambda params, lr, betas, eps, weight_decay: [], "AdamW")


def test_wrong_in_late_steps_alone_is_wrong():
    class Forgets(Own):
        def step(self):
            for group in self.param_groups:
                group["eps"] = 1e-3 if self.count >= 10 else group["eps"]
            super().step()

    assert examine(Forgets, "AdamW").verdict.finding.case == "forty steps"
