"""Make modules of somebody's own class, and fill a case's matrices in."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.teach.check.own.form import PARTS, SYNONYMS
from attnbook.teach.check.own.layouts import Unfit
from attnbook.teach.check.own.ways import WrongUse
from attnbook.teach.check.words import listed

#: What many modules want beside sizes, by the names that it has: no dropout,
#: and room for as many tokens as any case has.
_BESIDES: dict[str, Any] = {
    "dropout": 0.0,
    "dropout_prob": 0.0,
    "dropout_p": 0.0,
    "drop_prob": 0.0,
    "attn_drop": 0.0,
    "context_length": 512,
    "block_size": 512,
    "max_seq_len": 512,
    "max_len": 512,
    "max_position_embeddings": 512,
}


def takes(name: str, others: Mapping[str, Any]) -> str:
    """Which of somebody's names means what a name of the task means, or ""."""
    lower = {other.lower(): other for other in reversed(list(others))}
    for word in (name, *SYNONYMS.get(name, ())):
        if word in lower:
            return lower[word]
    return ""


def built(
    make: Callable,
    sizes: Mapping[str, Any],
    names: Mapping[str, str] | None = None,
) -> nn.Module:
    """A module made by its class, or by a function, from sizes.

    Args:
        make: the class, or the function.
        sizes: the sizes of a case, by the task's names.
        names: its names of arguments by the task's, as far as they are said.

    Raises:
        WrongUse: if it wants something that no size is, or makes no module.
        Unfit: if it refuses to be made of these sizes.
    """
    given = _arguments(make, sizes, names or {})
    named = getattr(make, "__name__", "it")
    try:
        module = make(**given)
    except Exception as error:  # somebody's code may raise anything
        why = str(error).splitlines()[0] if str(error) else "no reason given"
        raise Unfit(
            f"{named} cannot be made for it ({type(error).__name__}: {why})"
        ) from error
    if not isinstance(module, nn.Module):
        raise WrongUse(
            f"{named} was to make an nn.Module; it gave a "
            f"{type(module).__name__}"
        )
    return module


def _arguments(
    make: Callable, sizes: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """The arguments by which a module is made of sizes (see `built`)."""
    wanted: Mapping[str, inspect.Parameter] = {}
    with contextlib.suppress(TypeError, ValueError):
        wanted = inspect.signature(make).parameters
    needed = {n: p for n, p in wanted.items() if p.default is p.empty}
    given: dict[str, Any] = {}
    for name, size in sizes.items():
        # Its required arguments are looked at first, because an optional `dim`
        # may be an axis.
        said = names.get(name, "")
        theirs = said or takes(name, needed) or takes(name, wanted)
        if theirs and theirs not in given:
            given[theirs] = size
    named = getattr(make, "__name__", "it")
    for name, parameter in wanted.items():
        if name in given:
            continue
        if name.lower() in _BESIDES:
            given[name] = _BESIDES[name.lower()]
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise WrongUse(
                f"{named} wants {name!r}, and that is none of the sizes of "
                f"this task, {listed(sizes, 9)}; write a function of these "
                "that makes the module, and check that function as a module"
            )
    return given


class Places:
    """Where the matrices of a task have their places in a module.

    Args:
        module: the module.
        weights: its names of parameters by the task's, see `Ways.weights`;
            what is not said there is guessed by names that are in use.
    """

    def __init__(self, module: nn.Module, weights: Mapping[str, str]) -> None:
        self.module = module
        self.weights = weights
        self.own = dict(module.named_parameters())

    def filled(
        self, values: Mapping[str, Tensor], n_heads: int
    ) -> dict[str, Tensor]:
        """The module's parameters by name, with a case's values in them.

        A bias that the task does not have is 0.

        Raises:
            WrongUse: if a value has no place, or a parameter no value.
            Unfit: if a value does not fit the size of its place.
        """
        found: dict[str, Tensor] = {}
        left = dict(values)
        for theirs, parts, by_head in self._said(values):
            for suffix in ("weight", "bias", ""):
                name = f"{theirs}.{suffix}" if suffix else theirs
                ours = [f"{p}.{suffix}" if suffix else p for p in parts]
                if name in self.own and all(o in left for o in ours):
                    joined = _joined([left.pop(o) for o in ours], by_head)
                    found[name] = self._fitting(name, joined(n_heads))
        self._guess(left, found, n_heads)
        for name, parameter in self.own.items():
            if name not in found and name.lower().endswith("bias"):
                found[name] = torch.zeros_like(parameter)
        rest = [name for name in self.own if name not in found]
        if left or rest:
            raise WrongUse(self._objection(list(left), rest))
        return found

    def _said(
        self, values: Mapping[str, Tensor]
    ) -> list[tuple[str, list[str], bool]]:
        """What was said about places: the module's name, the task's names,
        and whether these take turns head by head."""
        said = []
        known = {name.rpartition(".")[0] for name in values} | set(values)
        for ours, theirs in self.weights.items():
            by_head = "/" in ours
            parts = ours.replace("/", "+").split("+")
            for part in parts:
                if part not in known:
                    raise WrongUse(
                        f"this task has no matrix called {part!r}; expected "
                        f"one of {listed(sorted(known - {''}), 30)}"
                    )
            inside = any(
                n == theirs or n.startswith(f"{theirs}.") for n in self.own
            )
            if not inside:
                raise WrongUse(
                    f"the module has no parameter {theirs!r}; it has "
                    f"{listed(self.own, 12) if self.own else 'none'}"
                )
            said.append((theirs, parts, by_head))
        return said

    def _guess(
        self, left: dict[str, Tensor], found: dict[str, Tensor], n_heads: int
    ) -> None:
        """Find places for what is left, by names that are in use."""
        for parts, names in [*PARTS.items(), *((n, (n,)) for n in list(left))]:
            for suffix in ("weight", "bias", ""):
                ours = [
                    f"{p}.{suffix}" if suffix else p for p in parts.split("+")
                ]
                if not all(o in left for o in ours):
                    continue
                place = self._place(
                    (*names, parts), suffix, found, exact=not suffix
                )
                if place:
                    joined = _joined([left.pop(o) for o in ours], False)
                    found[place] = self._fitting(place, joined(n_heads))

    def _place(
        self, names: tuple[str, ...], suffix: str, taken: Any, *, exact: bool
    ) -> str:
        """The one free parameter whose name ends in one of these, or ""."""
        free = [name for name in self.own if name not in taken]
        for word in names:
            ending = f"{word}.{suffix}" if suffix else word
            fits = [
                name
                for name in free
                if name.lower() == ending
                or (not exact and name.lower().endswith(f".{ending}"))
            ]
            if len(fits) == 1:
                return fits[0]
        return ""

    def _fitting(self, name: str, value: Tensor) -> Tensor:
        """A value in the orientation of its place.

        `nn.Linear` keeps (out, in); what is no matrix of a linear layer is
        taken to be multiplied from the right, (in, out).
        """
        place = self.own[name]
        if value.ndim == 2:
            owner = self.module.get_submodule(name.rpartition(".")[0])
            if not isinstance(owner, nn.Linear):
                value = value.mT
        if value.ndim == 1 and place.ndim != 1:
            same = math.prod(place.shape) == len(value)
            value = value.reshape(place.shape) if same else value
        if value.shape != place.shape:
            raise Unfit(
                f"{name} has the shape {tuple(place.shape)}, the case's "
                f"{tuple(value.shape)}"
            )
        return value

    def _objection(self, left: list[str], rest: list[str]) -> str:
        """The message that it is not clear which matrix belongs where.

        Args:
            left: the task's matrices that have found no place.
            rest: the module's parameters that have got no value.
        """
        text = "the places of the task's matrices are not clear;"
        if left:
            text += f" without a place: {listed(left, 12)};"
        if rest:
            text += f" without a value: {listed(rest, 12)};"
        return text + (
            " say which is which by weights, such as query=attn.q_proj, or "
            "query+key+value=c_attn where one matrix holds all three"
        )


def _joined(values: list[Tensor], by_head: bool) -> Callable[[int], Tensor]:
    """Several matrices (out, in) as one, below each other or by heads."""

    def join(n_heads: int) -> Tensor:
        if len(values) == 1:
            return values[0]
        if not by_head:
            return torch.cat(values)
        cut = [v.unflatten(0, (n_heads, -1)) for v in values]
        return torch.cat(cut, 1).flatten(0, 1)

    return join


def is_module_class(target: Any) -> bool:
    """Whether something is a class of modules, which has to be made first."""
    return inspect.isclass(target) and issubclass(target, nn.Module)


def has_parameters(target: Any) -> bool:
    """Whether something is a module that has weights to be filled."""
    return isinstance(target, nn.Module) and bool([*target.parameters()])


def parameters_of(target: Any) -> Mapping[str, inspect.Parameter] | None:
    """The parameters of what is called; of a module those of `forward`."""
    module = getattr(target, "__wrapped__", target)
    if isinstance(module, nn.Module):
        target = module.forward
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError):
        return None


def wants(target: Any, name: str) -> bool:
    """Whether a function cannot be called without an argument of this name."""
    wanted = parameters_of(target) or {}
    theirs = wanted.get(takes(name, wanted))
    return theirs is not None and theirs.default is theirs.empty


def copied(target: Any) -> Any:
    """A copy of a module, so that its owner's stays as it is."""
    return copy.deepcopy(target) if isinstance(target, nn.Module) else target
