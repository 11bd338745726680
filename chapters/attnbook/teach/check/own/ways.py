"""The ways in which somebody's own function may be called and compared.

They are what `hold` and the command `check` take as options: layouts, kinds of
masks, names of arguments, types of numbers, and which cases to leave out.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from attnbook.teach.check.own.form import Form
from attnbook.teach.check.running import Case
from attnbook.teach.check.words import listed

#: What a mask may be, and how it says that a key may be read.
MASKS = {
    "allowed": "boolean, True where a key may be read",
    "hidden": "boolean, True where a key is hidden",
    "either": "boolean as 'allowed', or numbers that are added to the scores",
    "ones": "numbers, 1 where a key may be read and 0 where it is hidden",
    "additive": "added to the scores: 0, or −∞ where a key is hidden",
    "lowest": "added to the scores: 0, or the lowest finite number",
}
PAIRS = {
    "half": "component i is turned with component i + d/2",
    "neighbours": "component 2i is turned with component 2i + 1",
}
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_SHORT = {"bf16": "bfloat16", "fp16": "float16", "half": "float16"}


class WrongUse(ValueError):
    """An option or a name was given to the check that it does not know.

    It says nothing about the function, which was not tried.
    """


@dataclass(frozen=True)
class Ways:
    """How a function is called, and how closely it is looked at.

    Attributes:
        layout: the axes of its tensors, such as "BTHd" or "Td": B texts,
            H heads, T tokens, d components; empty for the task's own.
        masks: what its masks mean, one of `MASKS`.
        mask_shape: the axes of its masks, such as "TS", "BTS", "B1TS"; empty
            for the task's own.
        pairs: which components a rotation turns together, one of `PAIRS`.
        causal: whether it hides later keys without being told to.
        names: its names of arguments, by the task's.
        fixed: values of arguments that are the same in every case, because
            the function has them built in.
        weights: its names of parameters, by the task's; the names on the
            left may be joined with +, where one matrix holds several, one
            below the other, or with / where they take turns head by head.
        module: whether the object makes a module when it is called.
        result: which part of what it returns is the task's; None to find
            out.
        dtype: the type of numbers that it is called with; "auto" for
            float64, and float32 where it computes in that.
        device: where it runs.
        within: the largest gap allowed; None for the task's own bound, or
            one that follows from the type of numbers.
        sizes: of one more case, drawn at random.
        only: words of which a case's label has one; all cases if empty.
        skip: words of which a case's label has none.
        strict: whether the cases decide on which right programs go separate
            ways.
        gradients: whether gradients are compared where the task asks for it.
    """

    layout: str = ""
    masks: str = "allowed"
    mask_shape: str = ""
    pairs: str = "half"
    causal: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    module: bool = False
    result: int | None = None
    dtype: str = "auto"
    device: str = "cpu"
    within: float | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    strict: bool = False
    gradients: bool = True

    def __post_init__(self) -> None:
        _one_of("masks", self.masks, MASKS)
        _one_of("pairs", self.pairs, PAIRS)
        _one_of("dtype", self.dtype, {"auto": 0} | DTYPES)
        _check_axes("layout", self.layout, "BHTd", needs="Td")
        _check_axes("mask_shape", self.mask_shape, "BHTS1", needs="TS")
        if self.mask_shape and not re.fullmatch(
            "[BH1]{0,2}TS", self.mask_shape
        ):
            raise WrongUse(
                "mask_shape ends in TS, with at most two of B, H and 1 before "
                f"it, such as B1TS; got {self.mask_shape!r}"
            )
        if self.within is not None and not 0 <= self.within < math.inf:
            raise WrongUse(
                "within is the largest gap allowed, a finite number that is "
                f"not negative; got {self.within}"
            )
        _check_device(self.device)

    @property
    def said(self) -> str:
        """What of this is not as the task has it, in words."""
        words = []
        if self.layout:
            words.append(f"tensors laid out {self.layout}")
        if self.masks != "allowed":
            words.append(f"masks of the kind {self.masks!r}")
        if self.mask_shape:
            words.append(f"masks of the axes {self.mask_shape}")
        if self.pairs != "half":
            words.append(f"pairs of {self.pairs}")
        if self.causal:
            words.append("no causal mask, for it hides later keys by itself")
        words += [f"{name} = {value}" for name, value in self.fixed.items()]
        return listed(words, len(words)) if words else ""


def ways_of(options: Mapping[str, Any]) -> Ways:
    """The ways that keyword arguments ask for.

    A dtype may be one of torch's, or its short name.

    Raises:
        WrongUse: if there is no such way, or no such value of it.
    """
    known = [each.name for each in fields(Ways)]
    for name in options:
        if name not in known:
            raise WrongUse(
                f"there is no way called {name!r}; expected one of "
                f"{listed(known, len(known))}"
            )
    options = dict(options)
    if "dtype" in options:
        name = str(options["dtype"]).removeprefix("torch.")
        options["dtype"] = _SHORT.get(name, name)
    for name in ("only", "skip"):
        if isinstance(options.get(name), str):
            options[name] = (options[name],)
    options["device"] = str(options.get("device", "cpu"))
    return Ways(**options)


def _one_of(what: str, value: str, known: Mapping[str, Any]) -> None:
    """Raise `WrongUse` if an option has a value that it may not have."""
    if value not in known:
        raise WrongUse(
            f"{what} is one of {listed(known, len(known))}; got {value!r}"
        )


def _check_axes(what: str, value: str, letters: str, *, needs: str) -> None:
    """Raise `WrongUse` if a text does not name axes, each of them once.

    Args:
        what: the option, for the message.
        value: the text; "" says nothing and is allowed.
        letters: the axes that there are.
        needs: those that must not be missing.
    """
    once = all(value.count(a) == 1 for a in set(value) - {"1"})
    known = set(value) <= set(letters)
    if value and not (once and known and set(needs) <= set(value)):
        raise WrongUse(
            f"{what} names axes, each once: {listed(letters, 9)}, and at "
            f"least {listed(needs)}; got {value!r}"
        )


def _check_device(name: str) -> None:
    """Raise `WrongUse` if no tensor can be made on a device."""
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise WrongUse(
            f"the device {name!r} cannot be used here: {why}"
        ) from error


def drawn(form: Form, ways: Ways) -> list[Case]:
    """One case more, drawn: of a usual size, or of that which is wanted."""
    if form.draw is None:
        if ways.sizes:
            raise WrongUse("this task has no case whose sizes can be chosen")
        return []
    if not ways.sizes:
        return [Case("a usual size", form.draw())]
    known = inspect.signature(form.draw).parameters
    for name, size in ways.sizes.items():
        if name not in known:
            raise WrongUse(
                f"there is no size called {name!r}; expected one of "
                f"{listed(known, len(known))}"
            )
        if type(size) is not int or size < 1:
            raise WrongUse(
                f"a size is a whole number above 0; got {name} = {size!r}"
            )
    words = [f"{name} = {size}" for name, size in ways.sizes.items()]
    label = f"your sizes, {', '.join(words)}"
    return [Case(label, form.draw(**ways.sizes))]
