"""Where an answer runs: on the cases of a task, beside their right results.

An answer may raise anything, and `proof.run` keeps what it raises as an
`Outcome`. Whoever looks for what is wrong gets an `Attempt`, which holds the
outcomes, and need not run the answer again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnbook.teach.check.proof import (
    Case,
    Outcome,
    attempt,
    outcome_difference,
    run,
)
from attnbook.teach.check.rules import Rule
from attnbook.teach.check.task import Task


@dataclass(frozen=True)
class Trial:
    """The cases of a task, and what its reference makes of them."""

    task: Task
    cases: list[Case]
    wanted: list[Outcome]

    @classmethod
    def on(cls, task: Task) -> Trial:
        """Run the reference of a task on all its cases."""
        cases = task.cases()
        wanted = [run(task.right, c, gradients=task.gradients) for c in cases]
        return cls(task, cases, wanted)

    @property
    def options(self) -> dict[str, Any]:
        """How two results are compared."""
        return {"within": self.task.within, "equal_nan": True}

    def of(
        self, fn: Callable, rules: Sequence[Rule] = (), timed: bool = False
    ) -> Iterator[Outcome]:
        """What a function does on each case, until it is broken off."""
        for case, wanted in zip(self.cases, self.wanted, strict=True):
            outcome = attempt(
                fn,
                case,
                wanted,
                gradients=self.task.gradients,
                rules=rules,
                timed=timed,
                **self.options,
            )
            yield outcome
            if outcome.broken_off:
                return

    def same(self, a: Outcome, b: Outcome) -> bool:
        """Whether two outcomes are equal, or two errors of one type."""
        if a.error or b.error:
            return type(a.error) is type(b.error)
        return not outcome_difference(a, b, **self.options)

    def alike(self, got: Iterable[Outcome], wrong: Callable) -> bool:
        """Whether two functions do the same on every case."""
        return all(self.same(a, b) for a, b in zip(got, self.of(wrong)))

    def failing(self, got: Iterable[Outcome]) -> list[int]:
        """On which cases the outcome is not the right one."""
        pairs = enumerate(zip(got, self.wanted))
        return [n for n, (a, b) in pairs if not self.same(a, b)]


@dataclass(frozen=True)
class Attempt:
    """What a function made of the cases of a trial.

    Attributes:
        fn: the function.
        trial: the cases and their right outcomes.
        got: the function's outcomes; fewer than there are cases where it was
            broken off.
        failing: the numbers of the cases that it gets wrong.
    """

    fn: Callable
    trial: Trial
    got: list[Outcome]
    failing: list[int]
