"""Call somebody's own function with the arguments of a task's cases.

`Own` gives them the names, order, layout and type that the function wants, and
gives its results back as the task has them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

from attnbook.teach.check.own.form import Form, Role
from attnbook.teach.check.own.layouts import (
    Lead,
    Unfit,
    causal,
    copies_of,
    flat_positions,
    laid_out,
    lead_of,
    mask_back,
    mask_given,
    taken_back,
    to_halves,
    to_neighbours,
)
from attnbook.teach.check.own.modules import (
    Places,
    built,
    copied,
    has_parameters,
    is_module_class,
    parameters_of,
    takes,
    wants,
)
from attnbook.teach.check.own.optimizers import Optimizers
from attnbook.teach.check.own.ways import DTYPES, Ways, WrongUse
from attnbook.teach.check.running import Case
from attnbook.teach.check.task import Task
from attnbook.teach.check.words import listed

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_LAID_OUT = ("heads", "pairs", "tokens", "weights")


class Own:
    """A function, class or module of somebody's, as an answer to a task.

    It is called with the arguments of the task's cases and gives results as
    the task has them. In between stands a call in the function's own ways.

    Args:
        target: the function; a class of modules, or with `ways.module` a
            function that makes them; or a module.
        task: what it shall do.
        form: what of the task may have another form.
        ways: the ways of the function.

    Raises:
        WrongUse: if the target cannot be called as the task would have it.
    """

    def __init__(
        self, target: Any, task: Task, form: Form, ways: Ways
    ) -> None:
        if not callable(target):
            raise WrongUse(
                "expected a function, a class or a module; got a "
                f"{type(target).__name__}"
            )
        self.target = copied(target)
        self.task, self.form, self.ways = task, form, ways
        self.signature = inspect.signature(task.right)
        self.dtype = DTYPES.get(ways.dtype, torch.float64)
        self.part: int | None = ways.result
        self._modules: dict[tuple, nn.Module] = {}
        self.makes = ways.module or is_module_class(target)
        self.fills = form.module is not None and (
            self.makes or has_parameters(target)
        )
        if self.makes and form.module is None:
            raise WrongUse(
                f"{task.name} is no task that a module does; expected a "
                "function, or a module that has no parameters"
            )
        self.optimizers: Optimizers | None = None
        if form.settings:
            parameters = self.signature.parameters
            defaults = {n: parameters[n].default for n in form.settings}
            self.optimizers = Optimizers(
                target, defaults, ways.names, ways.fixed
            )
        self.__wrapped__ = self.target
        self.__name__ = getattr(target, "__name__", type(target).__name__)
        self.__signature__ = self.signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        named = self.named(args, kwargs)
        # Whoever watches which numbers the function makes is not to see those
        # that are made for it here.
        with torch._C.DisableTorchFunction():
            target, given, words, lead = self._translated(named)
            before = copies_of(named, (*given, *words.values()))
        result = target(*given, **words)
        for original, copy_, kept in before:
            if not bool(((copy_ == kept) | (kept != kept)).all()):
                original.add_(1)  # for whoever looks at the original
        return self._back(result, lead)

    def named(self, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a case by the task's names, defaults too."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_KEYWORD:
                named |= value
            else:
                named[name] = value
        return named

    def fits(self, case: Case) -> str:
        """Why a case cannot be put to the function, or ""."""
        try:
            self._translated(self.named(case.args, case.kwargs))
        except Unfit as why:
            return str(why)
        return ""

    def _translated(
        self, named: dict[str, Any]
    ) -> tuple[Callable, list, dict[str, Any], Lead]:
        """What is to be called, and with which arguments.

        Raises:
            Unfit: if it cannot be called with this case.
            WrongUse: if it can be called with none.
        """
        lead = self._lead(named)
        if self.optimizers is not None:
            if why := self.optimizers.why_not(named):
                raise Unfit(why)
            return (
                self.optimizers.parameters_after,
                [self._cast(named)],
                {},
                lead,
            )
        target = self.target
        names = list(named)
        if self.fills:
            assert self.form.module is not None
            names = [n for n in self.form.module.given if n in named]
            target = self._module(named)
        wanted = parameters_of(self.target if not self.makes else target)
        names, named = self._with_others(names, named, wanted or {})
        given, words = self._placed(names, named, wanted)
        args = [self._argument(n, named, lead) for n in given]
        by_name = {
            theirs: self._argument(ours, named, lead)
            for ours, theirs in words.items()
        }
        return target, args, by_name, lead

    def _with_others(
        self,
        names: list[str],
        named: dict[str, Any],
        wanted: Mapping[str, inspect.Parameter],
    ) -> tuple[list[str], dict[str, Any]]:
        """The arguments of a case, some of them replaced by others that the
        function has in their place, such as lengths for numbers of texts."""
        for other, (name, make) in self.form.instead.items():
            theirs = takes(name, wanted) or self.ways.names.get(name)
            if name not in names or theirs or not takes(other, wanted):
                continue
            made = make(named[name], not self._one_text())
            names = [other if n == name else n for n in names]
            named = {**named, other: made}
        return names, named

    def _one_text(self) -> bool:
        """Whether the function has no axis for texts, as its layout says."""
        return bool(self.ways.layout) and "B" not in self.ways.layout

    def _lead(self, named: Mapping[str, Any]) -> Lead:
        """The axes of a case before tokens and components: see `Lead`."""
        tensors = []
        axes = ""
        for name, role in self.form.arguments.items():
            if role.kind in ("heads", "pairs", "tokens") and isinstance(
                named.get(name), Tensor
            ):
                axes = axes or role.axes
                if role.axes == axes:
                    tensors.append(named[name])
        return lead_of(tensors, with_heads="H" in axes)

    def _placed(
        self,
        names: list[str],
        named: Mapping[str, Any],
        wanted: Mapping[str, inspect.Parameter] | None,
    ) -> tuple[list[str], dict[str, str]]:
        """Which arguments are given in order, and which by what name."""
        required = [n for n in names if self._is_required(n)]
        optional = [n for n in names if n not in required]
        if wanted is None:  # some built-in functions have no signature
            words = {
                n: self.ways.names.get(n, n)
                for n in optional
                if named[n] is not None
            }
            return required, words
        theirs = {n: self._theirs(n, wanted) for n in names}
        required = self._fitting(required, theirs, named, wanted)
        in_order = not all(theirs[n] for n in required) or any(
            wanted[theirs[n]].kind == inspect.Parameter.POSITIONAL_ONLY
            for n in required
            if theirs[n] in wanted
        )
        given = required if in_order else []
        words = {} if in_order else {n: theirs[n] for n in required}
        places = [p.name for p in wanted.values() if p.kind in _POSITIONAL]
        used = places[: len(given)]
        for name in optional:
            target = theirs[name]
            if target and target not in used:
                default = wanted[target].default if target in wanted else None
                empty = default is inspect.Parameter.empty
                if named[name] is not None or empty:
                    words[name] = target
            elif not self._may_lack(name, named):
                raise Unfit(f"the function takes no {name}")
        return given, words

    def _fitting(
        self,
        required: list[str],
        theirs: Mapping[str, str],
        named: Mapping[str, Any],
        wanted: Mapping[str, inspect.Parameter],
    ) -> list[str]:
        """The arguments that a function gets in any case.

        Raises:
            Unfit: if it lacks one on which this case hangs.
            WrongUse: if it cannot take them.
        """
        places = [p for p in wanted.values() if p.kind in _POSITIONAL]
        open_ = any(p.kind == p.VAR_POSITIONAL for p in wanted.values())
        if open_ or len(places) >= len(required):
            return required
        required = self._without_implied(required, theirs, named)
        by_name = all(theirs[n] for n in required)
        if len(places) < len(required) and not by_name:
            raise WrongUse(
                f"{self.task.name} is a function of "
                f"{listed(required, 9)}; yours takes "
                f"{listed(wanted, 9) if wanted else 'nothing'}; write a "
                "function of these arguments that calls it"
            )
        return required

    def _is_required(self, name: str) -> bool:
        """Whether the task itself has no default value for an argument."""
        if name not in self.signature.parameters:
            return False
        default = self.signature.parameters[name].default
        return default is inspect.Parameter.empty

    def _theirs(
        self, name: str, wanted: Mapping[str, inspect.Parameter]
    ) -> str:
        """The function's name for an argument of the task, or ""."""
        if said := self.ways.names.get(name):
            if said not in wanted and not any(
                p.kind == p.VAR_KEYWORD for p in wanted.values()
            ):
                raise WrongUse(
                    f"the function has no argument {said!r}; it has "
                    f"{listed(wanted, 12)}"
                )
            return said
        return takes(name, wanted)

    def _without_implied(
        self,
        required: list[str],
        theirs: Mapping[str, str],
        named: Mapping[str, Any],
    ) -> list[str]:
        """Leave out arguments whose value a function implies, such as
        positions.
        """
        kept = []
        for name in required:
            implied = self.form.implied.get(name)
            if theirs[name] or implied is None:
                kept.append(name)
            elif not implied(named):
                raise Unfit(f"the function takes no {name}")
        return kept

    def _may_lack(self, name: str, named: Mapping[str, Any]) -> bool:
        """Whether a case can be tried on a function without an argument."""
        value = named[name]
        implied = self.form.implied.get(name)
        if name in self.ways.fixed or (implied and implied(named)):
            return True
        if name == "mask" and value is not None:
            return self._hides_that(value)
        if value is None or name not in self.signature.parameters:
            return value is None
        default = self.signature.parameters[name].default
        return value is default or bool(value == default)

    def _hides_that(self, mask: Tensor) -> bool:
        """Whether the function hides what a mask hides without being told."""
        if not self.ways.causal or mask.dtype != torch.bool or mask.ndim > 2:
            return False
        return bool((mask == causal(*mask.shape)).all())

    def _argument(
        self, name: str, named: Mapping[str, Any], lead: Lead
    ) -> Any:
        """One argument of a case, in the form that the function wants."""
        value = named[name]
        role = self.form.arguments.get(name)
        if role and role.kind == "mask":
            if value is None:
                value = torch.ones(self._visible(named), dtype=torch.bool)
            elif self._hides_that(value) and not wants(self.target, name):
                value = None
        if not isinstance(value, Tensor):
            return self._cast(value)
        if role and role.kind == "mask":
            made = mask_given(value, lead, self.ways, self.dtype)
            return made.to(self.ways.device)
        value = self._cast(value)
        if role and role.kind == "positions" and self.ways.layout:
            value = flat_positions(value, lead)
        elif role and role.kind == "documents" and self._one_text():
            if len(value) > 1:
                raise Unfit("several rows, and no axis for them")
            value = value[0]
        elif role and role.kind in _LAID_OUT:
            if role.kind == "pairs" and self.ways.pairs == "neighbours":
                value = to_neighbours(value)
            value = laid_out(value, lead, role.axes, self.ways)
        return value

    def _visible(self, named: Mapping[str, Any]) -> tuple[int, int]:
        """How many queries and how many keys a case has: a mask's shape."""
        tensors = [
            named[name]
            for name, role in self.form.arguments.items()
            if role.kind in ("heads", "pairs", "tokens")
        ]
        keys = tensors[1] if len(tensors) > 1 else tensors[0]
        return tensors[0].shape[-2], keys.shape[-2]

    def _cast(self, value: Any) -> Any:
        """Tensors in the type of numbers and on the device asked for.

        What has no tensor in it stays the same object, so that it is seen if
        the function changes a list.
        """
        if not any(isinstance(x, Tensor) for x in tree_leaves(value)):
            return value

        def one(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            if x.dtype == torch.float64:
                x = x.to(self.dtype)
            return x.to(self.ways.device)

        return tree_map(one, value)

    def _module(self, named: dict[str, Any]) -> Callable:
        """Make a function that calls a module with a case's matrices in it."""
        form = self.form.module
        assert form is not None
        sizes = form.sizes(named)
        if self.makes:
            key = tuple(sizes.items())
            if key not in self._modules:
                self._modules[key] = built(self.target, sizes, self.ways.names)
            module = self._modules[key]
        else:
            module = self.target
        module.eval().to(self.ways.device, self.dtype)
        values = Places(module, self.ways.weights).filled(
            self._cast(form.parameters(named)),
            sizes.get("n_kv_heads", sizes.get("n_heads", 1)),
        )

        def call_module(*args: Any, **kwargs: Any) -> Any:
            return functional_call(module, values, args, kwargs)

        call_module.__wrapped__ = module  # type: ignore[attr-defined]
        return call_module

    def _back(self, result: Any, lead: Lead) -> Any:
        """A result as the task has it, of float64 where it is no integer."""
        roles = self.form.results
        if self.part is not None and isinstance(result, (tuple, list)):
            result = result[self.part]
        if isinstance(result, Tensor):
            return self._part_back(result, roles[0], lead)
        if isinstance(result, (tuple, list)) and len(roles) > 1:
            pairs = zip(result, roles)
            return tuple(self._part_back(r, role, lead) for r, role in pairs)
        return tree_map(lambda x: self._part_back(x, Role(""), lead), result)

    def _part_back(self, y: Any, role: Role, lead: Lead) -> Any:
        """One part of a result, on the CPU, in the task's own layout."""
        if not isinstance(y, Tensor):
            return y
        y = y.cpu()
        if role.kind == "mask":
            return mask_back(y, role.axes, self.ways)
        if role.kind in _LAID_OUT:
            y = taken_back(y, lead, role.axes, self.ways)
            if role.kind == "pairs" and self.ways.pairs == "neighbours":
                y = to_halves(y)
        return y.double() if y.is_floating_point() else y
