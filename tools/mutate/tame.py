"""Whether the cases of a task are tame: all alike in one respect.

A check that is right otherwise lets a wrong answer pass where no case varies
what the answer gets wrong: one mask for all texts, token ids below 256, one
factor, sizes that are equal or small, short vectors, a special number that
never occurs as an ordinary one. Here each such answer is made by changing the
arguments before the right answer gets them; what it gives instead is right on
tame cases, and on those alone.

`tame.toml` has the table: for each task what its cases vary, which is found
out by running the reference, and a reason for each respect in which they are
tame all the same. `python tools/tame.py --store` writes it anew.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mutate.beyond import sizes_of
from mutate.mutations import Mutant

TABLE = Path(__file__).with_name("tame.toml")

#: Arguments of a case by name.
Given = dict[str, Any]

#: Bounds that a wrong answer may count on: numbers of one byte are below 256,
#: and somebody may write out ten cases by hand.
BYTE, TEN = 256, 10

#: Arguments whose value is a token number with a meaning of its own.
SPECIAL = {"pad", "stop", "mask_token", "start"}

#: Pairs of arguments that may be of different lengths.
TWO_TEXTS = (("q", "k"), ("x", "memory"), ("target", "source"))

#: Stands for a value that a wrong answer leaves out.
NOTHING = object()


class Tame(NamedTuple):
    """A wrong answer that is right where the cases do not vary in one respect.

    Attributes:
        name: the respect in which the cases have to vary for the answer to be
            refused.
        change: makes, of the arguments of a case and of those of the first
            case, the arguments for the right answer. What the right answer
            gives for these is what the wrong one gives for the case. None says
            that it gives nothing.
    """

    name: str
    change: Callable[[Given, Given], Given | None]


def ways(task: Any) -> list[Tame]:
    """The wrong answers of this kind that a task's arguments allow."""
    cases = [given(task, case) for case in task.cases()]
    values: dict[str, list[Any]] = {}
    for case in cases:
        for name, value in case.items():
            values.setdefault(name, []).append(value)
    found = []
    for name, those in values.items():
        found += [
            Tame(f"{name}: {what}", _one(name, change))
            for what, fits, change in RESPECTS
            if any(map(fits, those))
        ]
        if all(isinstance(v, (bool, int, float)) for v in those):
            found.append(
                Tame(f"{name}: not that of the first", _kept(name, those[0]))
            )
        others = [n for n in values if n != name]
        if name in SPECIAL and all(type(v) is int for v in those):
            found += [
                Tame(f"{other}: has {name} inside", _without(name, other))
                for other in others
                if any(map(_has_numbers, values[other]))
            ]
    for a, b in TWO_TEXTS:
        if a in values and b in values:
            found.append(Tame(f"{a}, {b}: two lengths", _alike(a, b)))
    return found + _of_sizes(values)


def _of_sizes(values: Mapping[str, list[Any]]) -> list[Tame]:
    """Wrong answers that are right up to the usual block of one size."""
    blocks = {
        size.place: (name, size.block)
        for name, those in values.items()
        for value in those
        for size in sizes_of(name, value)
    }
    return [
        Tame(f"{place} beyond {block}", _within(name, place))
        for place, (name, block) in blocks.items()
    ]


def given(task: Any, case: Any) -> Given:
    """All arguments of a case by name, with the defaults that are numbers."""
    names = inspect.signature(task.right).parameters
    own = {
        name: each.default
        for name, each in names.items()
        if isinstance(each.default, (bool, int, float))
    }
    return {**own, **dict(zip(names, case.args)), **case.kwargs}


def _one(name: str, change: Callable[[Any], Any]) -> Callable:
    """A change of one argument; None where its new value is `NOTHING`."""

    def changed(case: Given, first: Given) -> Given | None:
        if name not in case:
            return case
        value = change(case[name])
        return None if value is NOTHING else case | {name: value}

    return changed


def _kept(name: str, value: Any) -> Callable:
    """A change that gives one argument always the same value."""

    def changed(case: Given, first: Given) -> Given:
        return case | {name: value} if name in case else case

    return changed


def _without(special: str, name: str) -> Callable:
    """A change that takes a special number out of another argument.

    Args:
        special: the argument whose value is special, such as "pad".
        name: the argument in which that value becomes the next number.
    """

    def changed(case: Given, first: Given) -> Given:
        if name not in case or special not in case:
            return case
        number = int(case[special])
        return case | {
            name: _numbers(
                case[name], lambda x: number + 1 if x == number else x
            )
        }

    return changed


def _alike(a: str, b: str) -> Callable:
    """A change that gives nothing where two texts have different lengths."""

    def changed(case: Given, first: Given) -> Given | None:
        alike = case[a].shape[-2:-1] == case[b].shape[-2:-1]
        return case if alike else None

    return changed


def _within(name: str, place: str) -> Callable:
    """A change that gives nothing where a size is beyond the usual block."""

    def changed(case: Given, first: Given) -> Given | None:
        sizes = sizes_of(name, case[name]) if name in case else ()
        beyond = any(size.beyond for size in sizes if size.place == place)
        return None if beyond else case

    return changed


def _is_rows(x: Any) -> bool:
    """Whether a value has a row of marks or whole numbers for each text."""
    tensor = isinstance(x, Tensor) and not x.is_floating_point()
    return tensor and x.ndim > 1 and x.numel() > 0


def _first_row(x: Any) -> Any:
    """The same with every row replaced by the first one."""
    return x[:1].expand_as(x).clone() if _is_rows(x) else x


def _has_numbers(x: Any) -> bool:
    """Whether a value is a tensor, or lists, of whole numbers alone."""
    if isinstance(x, Tensor):
        whole = not x.is_floating_point() and x.dtype != torch.bool
        return whole and x.numel() > 0
    if isinstance(x, (list, tuple)) and x:
        return all(type(i) is int or _has_numbers(i) for i in x)
    return False


def _numbers(x: Any, change: Callable[[int], int]) -> Any:
    """A value with each of its whole numbers changed by `change`."""
    if not _has_numbers(x):
        return x
    if isinstance(x, Tensor):
        flat = [change(n) for n in x.flatten().tolist()]
        return torch.tensor(flat, dtype=x.dtype).reshape(x.shape)
    return type(x)(
        change(i) if type(i) is int else _numbers(i, change) for i in x
    )


def _is_count(x: Any) -> bool:
    """Whether a value is a whole number."""
    return type(x) is int


def _is_matrix(x: Any) -> bool:
    """Whether a value is a tensor of floats with two axes or more."""
    floats = isinstance(x, Tensor) and x.is_floating_point()
    return floats and x.ndim > 1 and x.numel() > 1


def _is_floats(x: Any) -> bool:
    """Whether a value is a tensor of floats, and not empty."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.numel() > 0


def _short(x: Any) -> Any:
    """A vector that is made no longer than 1, as clipping makes it."""
    if not _is_floats(x):
        return x
    length = torch.linalg.vector_norm(x.double().nan_to_num(0, 0, 0))
    return x / length if length > 1 else x


def _square(x: Any) -> Any:
    """The same, or `NOTHING` for a matrix that is not square."""
    if _is_matrix(x) and x.shape[-1] != x.shape[-2]:
        return NOTHING
    return x


def _is_named(x: Any) -> bool:
    """Whether a value is a dictionary with texts as its keys."""
    return isinstance(x, Mapping) and all(isinstance(k, str) for k in x)


def _last_names(x: Any) -> Any:
    """A dictionary with the last part of each dotted name as its key."""
    if not _is_named(x):
        return x
    return {name.rpartition(".")[2]: value for name, value in x.items()}


#: For each respect in which an argument has to vary: its name, which values it
#: applies to, and what a wrong answer makes of such a value. The wrong answer
#: is right where the argument does not vary in this respect.
RESPECTS: list[tuple[str, Callable[[Any], bool], Callable[[Any], Any]]] = [
    ("rows that differ", _is_rows, _first_row),
    (
        f"numbers from {BYTE} on",
        _has_numbers,
        lambda x: _numbers(x, lambda n: n % BYTE if n >= 0 else n),
    ),
    (
        "0 among its numbers",
        _has_numbers,
        lambda x: _numbers(x, lambda n: n or 1),
    ),
    (
        f"above {TEN}",
        _is_count,
        lambda x: min(x, TEN) if _is_count(x) else x,
    ),
    ("longer than 1", _is_floats, _short),
    ("not square", _is_matrix, _square),
    ("names with dots", _is_named, _last_names),
]


def varied(task: Any) -> dict[str, bool]:
    """For each respect whether the cases of a task vary in it enough.

    That is so if the wrong answer that belongs to it is refused.
    """
    from attnbook.teach.check.trial import Trial

    trial = Trial.on(task)
    return {way.name: _told(trial, way) for way in ways(task)}


def _told(trial: Any, way: Tame) -> bool:
    """Whether some case of a task shows that an answer of this kind is wrong.

    Args:
        trial: the cases of the task, with the results that are wanted.
        way: the wrong answer.
    """
    from dataclasses import replace

    from attnbook.teach.check.guard import Clock
    from attnbook.teach.check.running import outcome_difference, outcome_of

    task = trial.task
    first = given(trial.task, trial.cases[0])
    for n, (case, wanted) in enumerate(zip(trial.cases, trial.wanted)):
        asked = given(task, case)
        changed = way.change(asked, first)
        if changed is None:
            return True
        if all(changed[name] is asked[name] for name in asked):
            continue
        other = replace(case, args=(), kwargs=changed)
        with Clock(2.0):  # with odd arguments it may take long
            got = outcome_of(task.right, other)
        plain = replace(wanted, gradients=(), spoilt={})
        got = replace(got, gradients=(), spoilt={})
        if outcome_difference(got, plain, **trial.bounds(n)):
            return True
    return False


def mutants_of_tameness(task: Any) -> Iterator[Mutant]:
    """For each way to be right on tame cases alone a mutant of the task."""
    cases = task.cases()
    first = given(task, cases[0])
    names = list(inspect.signature(task.right).parameters)

    def make(way: Tame) -> Callable[[], Callable]:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            asked = {**dict(zip(names, args)), **kwargs}
            changed = way.change(asked, first)
            if changed is None:
                raise ValueError("right only on tame cases")
            first_ones = [changed[name] for name in names[: len(args)]]
            named = {name: changed[name] for name in kwargs}
            return task.right(*first_ones, **named)

        return lambda: wrong

    for way in ways(task):
        yield Mutant(task.name, f"tame in {way.name}", make=make(way))


def table(path: Path = TABLE) -> dict[str, dict[str, Any]]:
    """The stored table: by task `varies`, a list, and `tame`, reasons."""
    return tomllib.loads(path.read_text("utf-8"))


def reasons(path: Path = TABLE) -> dict[str, dict[str, str]]:
    """The reasons why cases stay tame, by task and by the mutant's name."""
    return {
        task: {f"tame in {name}": why for name, why in row["tame"].items()}
        for task, row in table(path).items()
        if row.get("tame")
    }
