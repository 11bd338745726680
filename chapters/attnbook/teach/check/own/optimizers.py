"""Run somebody's own optimizer over the steps of a case.

A task of optimizers gives groups of parameters, their gradients step by step
and the settings. The optimizer is made from the first and the last; before
each step the parameters get their gradients.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.teach.check.own.layouts import Unfit
from attnbook.teach.check.own.modules import takes
from attnbook.teach.check.own.ways import WrongUse
from attnbook.teach.check.words import listed

#: The names that the two decay rates of Adam have where each is an argument
#: of its own.
_RATES = (("beta1", "b1", "beta_1"), ("beta2", "b2", "beta_2"))


def stepped(
    optimizer: Any,
    parameters: Sequence[Tensor],
    gradients: Sequence[Sequence[Tensor | None]],
    factors: Sequence[float] | None = None,
) -> dict[str, list[Tensor]]:
    """The parameters after each step of an optimizer, as "step 1" and so on.

    Args:
        optimizer: it has been given the parameters, and has a method `step`.
        parameters: in the order of the gradients.
        gradients: for each step a gradient of each parameter, or None for a
            parameter that took no part.
        factors: what the learning rates of the beginning are multiplied by at
            each step, as a schedule does it; None if they stay as they are.
    """
    rates = []
    if factors is not None:
        rates = [group["lr"] for group in optimizer.param_groups]
    found = {}
    for step, those in enumerate(gradients):
        for parameter, gradient in zip(parameters, those, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        if factors is not None:
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * factors[step]
        optimizer.step()
        found[f"step {step + 1}"] = [p.detach().clone() for p in parameters]
    return found


def as_parameters(
    groups: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The groups of a case with parameters of their own in them."""
    made = []
    for group in groups:
        inside = [nn.Parameter(x.detach().clone()) for x in group["params"]]
        made.append({**group, "params": inside})
    return made


class Optimizers:
    """Somebody's class of optimizers, or a function that makes them.

    Args:
        make: called with parameters, or groups of them, and settings.
        settings: the settings of the task, and their default values.
        names: its names of settings, by the task's, as far as said.
        fixed: the names of settings that it has built in.

    Raises:
        WrongUse: what it makes is no optimizer.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        settings: Mapping[str, Any],
        names: Mapping[str, str],
        fixed: Mapping[str, Any],
    ) -> None:
        self.make = make
        self.defaults = settings
        self.fixed = fixed
        self.wanted: Mapping[str, inspect.Parameter] = {}
        with contextlib.suppress(TypeError, ValueError):
            self.wanted = inspect.signature(make).parameters
        open_ = any(p.kind == p.VAR_KEYWORD for p in self.wanted.values())
        self.theirs: dict[str, str] = {}
        for name in settings:
            if name in fixed:
                continue
            said = names.get(name) or takes(name, self.wanted)
            if said or open_:
                self.theirs[name] = said or name
        self._check_wanted()
        self.has_groups, self.has_rates = self._tried()

    def _check_wanted(self) -> None:
        """Raise `WrongUse` for a function that wants more than settings."""
        known = {*self.theirs.values(), *self._two_rates("betas")}
        kinds = (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        )
        more = [
            name
            for name, p in [*self.wanted.items()][1:]
            if p.default is p.empty and p.kind not in kinds
            if name not in known
        ]
        if more:
            raise WrongUse(
                "expected a class of optimizers, or a function that makes one "
                f"of parameters and settings; yours wants {listed(more)} as "
                "well; a function that does one step on tensors has a task of "
                "its own"
            )

    def _tried(self) -> tuple[bool, bool]:
        """Whether it takes groups, and whether these have a rate "lr", found
        out by making an optimizer.

        Raises:
            WrongUse: what it makes has no method `step`.
        """
        plain = [nn.Parameter(torch.ones(1))]
        settings = self._settings(self.defaults)
        made: Any = None
        with contextlib.suppress(Exception):  # the judge tells of its errors
            made = self.make(plain, **settings)
            if not hasattr(made, "step"):
                made = type(made)
        if isinstance(made, type):
            raise WrongUse(
                "expected a class of optimizers, or a function that makes one "
                "of parameters and settings, with a method step; it gave a "
                f"{made.__name__}"
            )
        try:
            groups = self.make([{"params": plain}], **settings).param_groups
            return True, "lr" in groups[0]
        except Exception:  # somebody's code may raise anything
            return False, False

    def parameters_after(
        self, named: Mapping[str, Any]
    ) -> dict[str, list[Tensor]]:
        """The parameters of a case after each step.

        Raises:
            Unfit: see `why_not`; else whatever the optimizer raises.
        """
        if why := self.why_not(named):
            raise Unfit(why)
        groups = as_parameters(named["groups"])
        parameters = [p for group in groups for p in group["params"]]
        plain = len(groups) == 1 and list(groups[0]) == ["params"]
        given: list[Any] = parameters
        if not plain:
            given = [
                {self.theirs.get(k, k): value for k, value in group.items()}
                for group in groups
            ]
        optimizer = self.make(given, **self._settings(named))
        return stepped(
            optimizer, parameters, named["gradients"], named["factors"]
        )

    def why_not(self, named: Mapping[str, Any]) -> str:
        """Why a case cannot be put to the optimizer, or ""."""
        groups = named["groups"]
        own = {name for group in groups for name in group if name != "params"}
        if not self.has_groups and (own or len(groups) > 1):
            return "the optimizer takes no groups of parameters"
        if not self.has_rates and named["factors"]:
            return "the optimizer has no groups whose rate could be changed"
        for name, default in self.defaults.items():
            if name in self.theirs or self._two_rates(name):
                continue
            other = name not in self.fixed and named[name] != default
            if name in own or other:
                return f"the optimizer takes no {name}"
        return ""

    def _two_rates(self, name: str) -> list[str]:
        """Its names of both decay rates, where they are two arguments."""
        if name != "betas":
            return []
        found = [
            next((word for word in words if word in self.wanted), "")
            for words in _RATES
        ]
        return found if all(found) else []

    def _settings(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a case under the optimizer's own names."""
        found = {}
        for name in self.defaults:
            if name in self.theirs:
                found[self.theirs[name]] = named[name]
            elif both := self._two_rates(name):
                found |= dict(zip(both, named[name], strict=True))
        return found
