"""Where an answer is tried: on the cases of a task, beside the right results.

An answer may raise anything; `running` keeps what it raises as an `Outcome`.
Whoever looks for what is wrong gets an `Attempt`: the outcomes, and where each
of them differs from the right one. Nobody needs to run the answer again, or to
compare it once more.
"""

from __future__ import annotations

import dis
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.again import wrong_again
from attnbook.teach.check.difference import Difference, Differs
from attnbook.teach.check.examine import (
    examined,
    examined_error,
    readers_files,
)
from attnbook.teach.check.finding import Finding, Kind, Line
from attnbook.teach.check.guard import Guard
from attnbook.teach.check.rules import Rule
from attnbook.teach.check.running import (
    Case,
    Outcome,
    attempt,
    outcome_difference,
    outcome_of,
)
from attnbook.teach.check.task import Task


class ReferenceFailed(RuntimeError):
    """The reference of a task raised an error, so nothing can be judged.

    It is the fault of the task, and of no answer.
    """


@dataclass(frozen=True)
class Trial:
    """The cases of a task, and what its reference makes of them.

    Attributes:
        task: the task.
        cases: its inputs, the smallest first.
        wanted: the reference's outcome on each.
        tried: the outcomes of known mistakes on each case that somebody has
            asked for, so that each runs on a case once at most.
        guessed: what the reference makes of a changed case; None if it cannot
            be changed. By what was changed, the number of the case that fails
            first, and the number of this case.
    """

    task: Task
    cases: list[Case]
    wanted: list[Outcome]
    tried: dict[tuple[Callable, int], tuple[Outcome, Difference | None]] = (
        field(default_factory=dict, repr=False)
    )
    guessed: dict[tuple[Finding, int, int], Outcome | None] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def on(cls, task: Task) -> Trial:
        """Run the reference of a task on all its cases.

        Raises:
            ReferenceFailed: the reference raises an error. It must not become
                a result, or answers would be right that raise the same.
        """
        cases = task.cases()
        wanted = []
        for case in cases:
            outcome = outcome_of(task.right, case, gradients=task.gradients)
            error = outcome.error
            if outcome.broken_off and error:
                raise error  # somebody wanted to end it all
            if error:
                raise ReferenceFailed(
                    f'the reference of {task.name} failed on "{case.label}"; '
                    "expected a result to compare answers with; got "
                    f"{type(error).__name__}: {error}"
                ) from error
            wanted.append(outcome)
        return cls(task, cases, wanted)

    def bounds(self, n: int) -> dict[str, Any]:
        """How far two outcomes of a case may be apart, for
        `outcome_difference`."""
        one = self.task.within
        result, gradients = self.task.bounds.get(
            self.cases[n].label, (one, one)
        )
        return {
            "within": result,
            "gradients_within": gradients,
            "equal_nan": True,
        }

    def outcomes(
        self, fn: Callable, rules: Sequence[Rule] = (), timed: bool = False
    ) -> list[Outcome]:
        """What a function does on each case, until it is broken off.

        One that is right on all of them is called again with each, the
        largest first, and then with tensors that are not contiguous (see the
        room `again`). What it does then, if it is wrong, stands in place of
        what it did before.
        """
        got: list[Outcome] = []
        for n, case in enumerate(self.cases):
            outcome, _ = attempt(
                fn,
                case,
                self.wanted[n],
                gradients=self.task.gradients,
                rules=rules,
                timed=timed,
                **self.bounds(n),
            )
            got.append(outcome)
            if outcome.broken_off:
                return got
        if any(self.differs(one, n) for n, one in enumerate(got)):
            return got

        def is_wrong(outcome: Outcome, n: int) -> bool:
            same = replace(outcome, gradients=got[n].gradients)
            return self.differs(same, n) is not None

        wrong = wrong_again(
            lambda case: outcome_of(fn, case, rules=rules, timed=timed),
            self.cases,
            self.task.right,
            is_wrong,
        )
        if wrong is not None:
            got[wrong[0]] = wrong[1]
        return got

    def differs(self, outcome: Outcome, n: int) -> Difference | None:
        """Where an outcome of case n differs from the right one, or None."""
        return outcome_difference(
            self._read(outcome), self.wanted[n], **self.bounds(n)
        )

    def attempt_of(self, fn: Callable, got: list[Outcome]) -> Attempt:
        """Compare what a function has done with what is right.

        The function may have replaced what compares two tensors, so this is
        called when all that it has changed is set back, or in another process.
        """
        found = [self.differs(one, n) for n, one in enumerate(got)]
        got = [self._read(outcome) for outcome in got]
        return Attempt(fn, self, got, found)

    def _read(self, outcome: Outcome) -> Outcome:
        """An outcome with what the task reads in its result (`Task.read`)."""
        if self.task.read is None or outcome.error:
            return outcome
        return replace(outcome, result=self.task.read(outcome.result))

    def known(self, wrong: Callable, n: int) -> Outcome:
        """What a known mistake does on the case of a number. It runs when it
        is asked for, once."""
        return self._known(wrong, n)[0]

    def known_to_fail(self, wrong: Callable, n: int) -> bool:
        """Whether a known mistake is wrong on the case of a number."""
        return self._known(wrong, n)[1] is not None

    def _known(
        self, wrong: Callable, n: int
    ) -> tuple[Outcome, Difference | None]:
        """What a known mistake does on one case, and where that is wrong.

        Both are kept, so that each mistake runs once on each case.
        """
        if (wrong, n) not in self.tried:
            outcome, found = attempt(
                wrong,
                self.cases[n],
                self.wanted[n],
                gradients=self.task.gradients,
                **self.bounds(n),
            )
            if self.task.read:
                outcome = self._read(outcome)
                found = outcome_difference(
                    outcome, self.wanted[n], **self.bounds(n)
                )
            self.tried[wrong, n] = outcome, found
        return self.tried[wrong, n]


@dataclass(frozen=True)
class Attempt:
    """What a function made of the cases of a trial.

    Attributes:
        fn: the function.
        trial: the cases and their right outcomes.
        got: the function's outcomes; fewer than there are cases where it was
            broken off.
        differences: where each outcome differs from the right one; None
            where it is right.
    """

    fn: Callable
    trial: Trial
    got: list[Outcome]
    differences: list[Difference | None]

    @cached_property
    def failing(self) -> list[int]:
        """The numbers, from 0 on, of the cases that the function fails."""
        return [n for n, d in enumerate(self.differences) if d is not None]

    @cached_property
    def first(self) -> int:
        """The number of the first case that is wrong by more than a rounding.

        Where a formula differs, the smallest case may hide it: of a first
        step that is off by 10⁻⁹ one would look for a rounding. And of a case
        whose gradient alone is wrong, while another has wrong values, one
        would look for what stops a gradient: eps beside the root moves the
        values of one token less than the bound. So wrong values come before
        wrong gradients; if all cases are nearly right, it is the first.
        """
        plain = [n for n in self.failing if not self._is_nearly(n)]
        values = [n for n in plain if not self._is_in_a_gradient(n)]
        return [*values, *plain, *self.failing][0]

    def _is_nearly(self, n: int) -> bool:
        """Whether case n, one of those that fail, is off by a rounding."""
        found = self.differences[n]
        if self.got[n].error or found is None or found.kind != Differs.VALUE:
            return False
        # One look at the gap tells it of most.
        size = found.expected.double().abs().max().item()
        if found.gap > 1e-6 * size:
            return False
        return self.finding_of(n).kind == Kind.NEARLY

    def _is_in_a_gradient(self, n: int) -> bool:
        """Whether on case n the values are right, and a gradient is not."""
        found = self.differences[n]
        return found is not None and found.gradient_of is not None

    @cached_property
    def finding(self) -> Finding:
        """What is wrong on the first case that fails, as data."""
        return self.finding_of(self.first)

    def finding_of(self, n: int) -> Finding:
        """What is wrong on case n, which is one of those that fail."""
        label = self.trial.cases[n].label
        error = self.got[n].error
        if error:
            case = self.trial.cases[n]
            given = [*case.args, *case.kwargs.values()]
            return examined_error(error, self.fn, label, given)
        found = self.differences[n]
        assert found is not None
        return examined(found, label)

    @property
    def difference(self) -> Difference:
        """Where the result is wrong first, on the first case that fails."""
        found = self.differences[self.first]
        assert found is not None
        return found

    @property
    def error(self) -> BaseException | None:
        """The error that the first failing case has ended with, or None."""
        return self.got[self.first].error

    def near(self, n: int, *, part: float) -> bool:
        """Whether case n is off by a small part of its size only.

        Of a wrong gradient, whose result may be 0 everywhere, it is the size
        of the gradient.
        """
        outcome = self.got[n]
        wanted = self.trial.wanted[n]
        found = self.differences[n]
        if found is None or outcome.error or wanted.error:
            return False
        of = found.gradient_of
        size = _size(wanted.result)
        if of is not None:
            size = _size(wanted.gradients[of : of + 1])  # () if there is none
        within = part * min(1.0, size)
        if found.kind == Differs.VALUE and found.gap > within:
            return False
        # No gradient was taken of a wrong result; then results are compared.
        compared = outcome
        if not outcome.gradients:
            compared = replace(wanted, result=outcome.result)
        return not outcome_difference(
            compared, wanted, within=within, equal_nan=True
        )

    def reads(self, argument: str) -> bool:
        """Whether the function's own code reads an argument of the task.

        The function may call it otherwise; it is found by its place then.
        """
        code = getattr(inspect.unwrap(self.fn), "__code__", None)
        names = list(inspect.signature(self.trial.task.right).parameters)
        at = names.index(argument)
        if code is None or at >= code.co_argcount + code.co_kwonlyargcount:
            return False
        own = code.co_varnames
        name = argument if argument in own else own[at]
        for step in dis.get_instructions(code):
            read = step.argval
            loaded = read if isinstance(read, tuple) else (read,)
            if step.opname.startswith("LOAD_") and name in loaded:
                return True
        return False

    def is_like(self, wrong: Callable) -> bool:
        """Whether a known mistake does the same on every case.

        The first case that fails is looked at first: most mistakes do
        something else there, and need not run on the others.
        """
        others = (n for n in range(len(self.got)) if n != self.first)
        return all(self.same(wrong, n) for n in (self.first, *others))

    def same(self, wrong: Callable, n: int) -> bool:
        """Whether a known mistake does the same as the function on case n.

        Where both are right they do.
        """
        if self.trial.known_to_fail(wrong, n) != (n in self.failing):
            return False
        if n not in self.failing:
            return True  # both are right
        other = self.trial.known(wrong, n)
        bounds = self.trial.bounds(n)
        return not outcome_difference(self.got[n], other, **bounds)

    def float32_line(self) -> Line | None:
        """The reader's line in which a float32 is first made of others.

        For this the function runs once more, on the first case that fails.
        None if there is a float32 among the arguments, or none is made.
        """
        case = self.trial.cases[self.first]
        if any(map(_is_float32, tree_leaves((case.args, case.kwargs)))):
            return None
        watch = _Float32(readers_files(self.fn))

        def watched(*args: Any, **kwargs: Any) -> Any:
            with watch:
                return self.fn(*args, **kwargs)

        with Guard(self.fn):
            outcome_of(watched, case, timed=True)
        return watch.line


def makes_float32(fn: Callable, cases: Iterable[Case]) -> bool:
    """Whether a function makes a float32 of other numbers in some case."""
    watch = _Float32(set())

    def watched(*args: Any, **kwargs: Any) -> Any:
        with watch:
            return fn(*args, **kwargs)

    for case in cases:
        with Guard(fn):
            outcome_of(watched, case, timed=True)
        if watch.line:
            return True
    return False


class _Float32(TorchFunctionMode):
    """Notes the reader's line in which a float32 is first made of others."""

    def __init__(self, files: set[str]) -> None:
        super().__init__()
        self.files = files
        self.line: Line | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if not self.line and _is_float32(made):
            given = tree_leaves((args, kwargs or {}))
            if not any(map(_is_float32, given)):
                self.line = self._here()
        return made

    def _here(self) -> Line:
        """The line of the reader's code that runs now, the innermost one."""
        for frame in reversed(traceback.extract_stack()):
            if frame.filename in self.files and frame.lineno:
                return Line(frame.lineno, frame.line or "")
        return Line(0, "")


def _is_float32(x: Any) -> bool:
    """Whether something is a tensor of float32 numbers."""
    return isinstance(x, Tensor) and x.dtype == torch.float32


def _size(result: Any) -> float:
    """The largest absolute value among the fractional numbers of a result."""
    leaves = [x for x in tree_leaves(result) if isinstance(x, (Tensor, float))]
    floats = [x for x in map(torch.as_tensor, leaves) if x.numel()]
    sizes = [x.abs().max().item() for x in floats if x.is_floating_point()]
    return max(sizes, default=0.0)
