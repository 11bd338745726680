"""What may help where no mistake is recognised, at most one thing."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.guesses import guess
from attnbook.teach.check.proof import Outcome, outcome_difference
from attnbook.teach.check.rules import RuleBroken
from attnbook.teach.check.telling import (
    float32_line,
    headline,
    increment,
    later_part,
    out_of_step,
)
from attnbook.teach.check.trial import Attempt
from attnbook.teach.check.words import fill

#: After one of these no help is needed.
_SAYS_ALL = re.compile(
    "was changed in place|leaf Variable that requires|right but for the order|"
    "the right numbers(,| in another f)|ours is a tuple|the reference booleans"
)

#: What ends the graph that gradients follow.
_CUTTING = ("detach", "data", "no_grad", "item", "tolist")


def hints(tried: Attempt) -> list[str]:
    """The first of these that has something to say, in a line or two."""
    fn, trial, got, failing = tried.fn, tried.trial, tried.got, tried.failing
    with suppress(Exception):  # an answer may raise anything
        if _SAYS_ALL.search(_headline(trial, got, failing[0])):
            return []
    error = got[failing[0]].error
    finders = [] if isinstance(error, RuleBroken) else [_coarse, _near]
    finders += [] if error else [_guessed, _akin]
    for find in [*finders, _cut_off, _told_and_asked, _by_cases, _nan]:
        try:
            words = find(fn, trial, got, failing)
        except Exception:  # an answer may give anything
            continue
        if words:
            return [fill(line, "  ") for line in words.splitlines()]
    return []


def _coarse(fn, trial, got, failing) -> str:
    pairs = [(got[n], trial.wanted[n]) for n in failing]
    if not all(_nearly(*pair, part=1e-5) for pair in pairs):
        return ""
    line = float32_line(fn, trial.cases[failing[0]])
    return line and (
        "it is right to the digits of a float32, and no further: the first is "
        f"made {line}"
    )


def _near(fn, trial, got, failing) -> str:
    pairs = [(got[n], trial.wanted[n]) for n in failing]
    near = all(_nearly(*pair, part=1e-4) for pair in pairs)
    if not near or _right_values(trial, got, failing):
        return ""
    return (
        "hint: it is nearly right. Is a number in it rounded, something small "
        "added, or a derivative a quotient of differences?"
    )


def _guessed(fn, trial, got, failing) -> str:
    words = guess(trial.task.right, trial.cases, trial.wanted, got, failing)
    return words and f"{words}."


def _told_and_asked(fn, trial, got, failing) -> str:
    told = "" if got[failing[0]].error else _told(trial, got, failing)
    return f"{told}\n{_asked(trial, got, failing)}".strip()


def _told(trial, got, failing) -> str:
    n = failing[0]
    words = later_part(got[n].result, trial.wanted[n].result)
    words = words or increment(trial.cases[n], got[n], trial.wanted[n])
    words = words or out_of_step(got[n].result, trial.wanted[n].result)
    return words and f"{words}."


def _akin(fn, trial, got, failing) -> str:
    """The hint of the one mistake that goes wrong in the same way.

    Two thirds of the wrong numbers, or more, are those of the mistake; or half
    of the wrong results are, it has no others, and some results are right.
    """
    found: dict[str, tuple] = {}
    asked = trial.task.questions
    for each in [*trial.task.known.values(), *trial.task.slips.values()]:
        theirs = list(trial.of(each.wrong))
        if not each.hint or len(theirs) < len(got):
            continue
        share, enough = _share(got, theirs, trial.wanted), 2 / 3
        at = trial.failing(theirs)
        if failing[0] not in at and trial.cases[failing[0]].label in asked:
            continue  # a question of this case says more
        apt = len(at) > 1 and len(failing) < len(got)
        if apt and all(trial.same(got[n], theirs[n]) for n in at):
            share, enough = max(share, len(at) / len(failing)), 1 / 2
        if share >= enough:
            rank = (failing[0] in at, share)
            found[each.hint] = max(rank, found.get(each.hint, rank))
    best = [hint for hint in found if found[hint] == max(found.values())]
    return f"perhaps: {best[0]}" if len(best) == 1 else ""


def _cut_off(fn, trial, got, failing) -> str:
    """What lets no gradient through, where only a gradient is wrong."""
    mine, told = got[failing[0]], _headline(trial, got, failing[0])
    if not _right_values(trial, got, failing) or _has_nan(mine.gradients):
        return ""
    names = inspect.unwrap(fn).__code__.co_names
    found = [name for name in names if name in _CUTTING]
    if not found or "detach()" in told:  # which has said it
        return ""
    return (
        f"hint: {found[0]}, in your code, lets no gradient through. Does one "
        "have to pass there?"
    )


def _asked(trial, got, failing) -> str:
    n = failing[0]
    told, error = _headline(trial, got, n), got[n].error
    rule = isinstance(error, RuleBroken)
    other = rule or not error and _right_values(trial, got, failing)
    label = "" if other else trial.cases[n].label
    for words, question in trial.task.questions.items():
        if words.startswith("…") and words[1:] in told or words == label:
            return f"hint: {question}"
    return ""


def _headline(trial, got, n) -> str:
    if got[n].error:
        return str(got[n].error)
    found = outcome_difference(got[n], trial.wanted[n], **trial.options)
    return headline(found)


def _right_values(trial, got, failing) -> bool:
    """Whether only a gradient is wrong, where it is wrong at first."""
    mine, right = got[failing[0]], trial.wanted[failing[0]]
    return trial.same(replace(right, result=mine.result), right)


def _by_cases(fn, trial, got, failing) -> str:
    """The hint of the mistake that fails on the same few cases, if all that do
    have this one: else it would often mislead."""
    many = 2 * len(failing) > len(got)  # else it would say nothing
    if many or _right_values(trial, got, failing):
        return ""
    known, slips = trial.task.known.values(), trial.task.slips.values()
    found = {
        each.hint
        for each in [*known, *slips]
        if each.hint and failing == trial.failing(trial.of(each.wrong))
    }
    if len(found) != 1 or not found & {each.hint for each in known}:
        return ""
    return f"perhaps: {found.pop()}"


def _nan(fn, trial, got, failing) -> str:
    n = failing[0]
    if _has_nan(trial.wanted[n].result) or not _has_nan(got[n].result):
        return ""
    return "which line makes 0/0, ∞/∞, ∞ − ∞ or 0 · ∞ of these numbers?"


def _share(
    got: list[Outcome], theirs: list[Outcome], wanted: list[Outcome]
) -> float:
    """Of the numbers that either gets wrong, the share that both get alike;
    of the part of the result in which it is smallest."""
    wrong, alike = Counter(), Counter()
    met = set()
    for outcomes in zip(got, theirs, wanted):
        leaves = zip(*(tree_leaves(each.result) for each in outcomes))
        for part, three in enumerate(leaves):
            if not all(map(_is_float, three)):
                continue
            a, b, c = (x.detach().as_subclass(Tensor).double() for x in three)
            if a.shape == b.shape == c.shape:
                off = ((a - c).abs() > 1e-9) | ((b - c).abs() > 1e-9)
                same = a[off & ((a - b).abs() <= 1e-9)].tolist()
                wrong[part] += int(off.sum())
                alike[part] += len(same)
                met |= {round(x, 6) for x in same if x != round(x)}
    if len(met) < 4:  # few numbers, and 0 and 1, are often met by chance
        return 0.0
    return min(alike[part] / n for part, n in wrong.items() if n)


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _has_nan(results: Any) -> bool:
    return any(
        _is_float(x) and x.detach().as_subclass(Tensor).isnan().any()
        for x in tree_leaves(results)
    )


def _nearly(mine: Outcome, right: Outcome, *, part: float) -> bool:
    """Whether two outcomes differ by a small part of their size only."""
    if mine.error or right.error:
        return False
    # Of a wrong result no gradient was taken.
    compared = mine if mine.gradients else replace(right, result=mine.result)
    within = part * min(1.0, _size(right.result))
    return not outcome_difference(
        compared, right, within=within, equal_nan=True
    )


def _size(result: Any) -> float:
    """The largest of its fractional numbers."""
    leaves = [x for x in tree_leaves(result) if isinstance(x, (Tensor, float))]
    floats = [x for x in map(torch.as_tensor, leaves) if x.numel()]
    sizes = [x.abs().max().item() for x in floats if x.is_floating_point()]
    return max(sizes, default=0.0)
