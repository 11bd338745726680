"""What may help where no mistake is recognised: one thing, or nothing.

The finders look at an `Attempt`, which has run already, and run nothing of the
answer themselves (but for `Attempt.float32_line`, which does so safely). They
decide by kinds and numbers and make no sentences.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnbook.teach.check.difference import Differs
from attnbook.teach.check.examine import same_parts
from attnbook.teach.check.finding import SAYS_ALL, Finding, Help, Kind
from attnbook.teach.check.guesses import guess
from attnbook.teach.check.likeness import likeness
from attnbook.teach.check.rules import RuleBroken
from attnbook.teach.check.running import Outcome
from attnbook.teach.check.task import Mistake, Slip
from attnbook.teach.check.trial import Attempt
from attnbook.teach.check.words import number_kind

#: What ends the graph that gradients follow.
_CUTTING = ("detach", "data", "no_grad", "item", "tolist")

#: Kinds of likeness that are a factor, or a number added.
_BY_A_NUMBER = {
    Kind.FACTOR,
    Kind.SIGN,
    Kind.OFFSET,
    Kind.TOO_LARGE,
}

NOTHING = Help()


def help_for(tried: Attempt) -> Help:
    """What may help somebody whose answer is wrong.

    The finders are asked one after the other, and the first that finds
    something has the word.
    """
    if _says_all(tried.finding):
        return NOTHING
    finders: list[Callable[[Attempt], Help]] = []
    if not isinstance(tried.error, RuleBroken):
        finders += [_coarse, _near]
    if not tried.error:
        finders += [_guessed, _akin]
    finders += [_cut_off, _told_and_asked, _by_cases, _nan, _otherwise]
    for find in finders:
        if found := find(tried):
            return found
    return NOTHING


def _says_all(found: Finding) -> bool:
    """Whether the finding says already what to do, so that no help is
    needed."""
    if found.kind in SAYS_ALL or found.advice == "writes into a leaf":
        return True
    if found.kind == Kind.TYPE:
        return isinstance(found.answer, tuple)
    if found.kind == Kind.NUMBER_TYPE:
        return number_kind(found.expected) == "boolean"
    return False


def _coarse(tried: Attempt) -> Help:
    """That the answer has only the digits of a float32, and the line that
    makes one; nothing, if that is not so."""
    if not all(tried.near(n, part=1e-5) for n in tried.failing):
        return NOTHING
    line = tried.float32_line()
    return Help(Finding(Kind.FLOAT32, line=line)) if line else NOTHING


def _near(tried: Attempt) -> Help:
    """That the answer is nearly right, so that only digits are missing;
    nothing, if that is not so.

    The values may even be right and a gradient nearly so: something small
    that is added, such as an eps, moves it by more than it moves the values.
    """
    if tried.error or tried.finding.kind == Kind.ZERO_GRADIENT:
        return NOTHING
    if tried.difference.kind in (Differs.CHANGED, Differs.UNCHANGED):
        return NOTHING
    if not all(tried.near(n, part=1e-4) for n in tried.failing):
        return NOTHING
    # It may be a rounding, or a formula that comes near the right one here.
    question = _asked(tried) or tried.trial.task.otherwise
    return Help(Finding(Kind.ALMOST), question)


def _guessed(tried: Attempt) -> Help:
    """What `guesses` finds that the answer may have done.

    Of an argument that the answer reads, and that decides nothing all the
    same, the question that the task asks says more.
    """
    found = guess(tried)
    if found and found.kind == Kind.IGNORED and tried.reads(found.argument):
        question = _asked(tried) or tried.trial.task.otherwise
        return Help(replace(found, advice="read"), question)
    return Help(found)


def _told_and_asked(tried: Attempt) -> Help:
    """What the result shows by itself, and the catalogue's question."""
    told = None if tried.error else _told(tried)
    question = _asked(tried)
    if told and not question:
        question = tried.trial.task.otherwise
    return Help(told, question)


def _told(tried: Attempt) -> Finding | None:
    """What the first wrong result shows besides, or None."""
    answer = tried.got[tried.first].result
    expected = tried.trial.wanted[tried.first].result
    return (
        _later_part(answer, expected)
        or _increment(tried)
        or _out_of_step(answer, expected)
    )


def _later_part(answer: Any, expected: Any) -> Finding | None:
    """What can be said of a later part, where of the first nothing can."""
    if not isinstance(answer, tuple) or not isinstance(expected, tuple):
        return None
    silent = False
    for n, (a, b) in enumerate(zip(answer, expected)):
        both = isinstance(a, Tensor) and isinstance(b, Tensor)
        if both and not same_parts(a, b):
            like = likeness(a, b)
            if like and like.kind != Kind.SOME_PLACES:
                if not silent:
                    return None
                place = (("part", n),)
                return Finding(Kind.LATER_PART, place=place, inner=like)
            silent = True
    return None


def _increment(tried: Attempt) -> Finding | None:
    """How what is added to an argument differs, where that is a factor."""
    case = tried.trial.cases[tried.first]
    given: list[Any] = []
    for x in tree_leaves((case.args, case.kwargs)):
        given += x.parameters() if isinstance(x, nn.Module) else [x]
    tensors = [
        x.detach().as_subclass(Tensor).cpu()
        for x in given
        if isinstance(x, Tensor)
        and x.layout == torch.strided
        and not x.is_complex()
    ]
    pairs = zip(
        tree_leaves(tried.got[tried.first].result),
        tree_leaves(tried.trial.wanted[tried.first].result),
    )
    for a, b in pairs:
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            continue
        if a.dtype == b.dtype and torch.equal(a, b):
            continue  # this part of the result is right
        for x in tensors:
            if a.shape == b.shape == x.shape and _varied(x):
                like = likeness(_minus(a, x), _minus(b, x))
                if like and like.kind in _BY_A_NUMBER:
                    return Finding(Kind.INCREMENT, answer=x, inner=like)
    return None


def _minus(a: Tensor, x: Tensor) -> Tensor:
    """What is left of a result without an argument; booleans as numbers."""
    if a.dtype == torch.bool or x.dtype == torch.bool:
        return a.double() - x.double()
    return a - x


def _varied(x: Tensor) -> bool:
    """Whether a tensor has enough different numbers to show a factor."""
    return x.unique().numel() > 2


def _out_of_step(answer: Any, expected: Any) -> Finding | None:
    """The finding that a list has the right parts at other places, or None.

    They may be reversed, or all of them one place further on or back.
    """
    for x in (answer, expected):
        if not isinstance(x, (tuple, list)):
            return None
    if len(answer) != len(expected) or len(answer) < 2:
        return None
    if same_parts(answer[::-1], expected):
        return Finding(Kind.LIST_REVERSED)
    if len(answer) > 2 and not same_parts(expected[1:-1], expected[2:]):
        if same_parts(answer[1:], expected[:-1]):
            return Finding(Kind.LIST_LATE)
        if same_parts(answer[:-1], expected[1:]):
            return Finding(Kind.LIST_EARLY)
    return None


def _akin(tried: Attempt) -> Help:
    """The hint of the one mistake that goes wrong in the same way.

    Two thirds of the wrong numbers, or more, are those of the mistake; or half
    of the wrong results are, it has no others, and some results are right.
    """
    found: dict[str, tuple[bool, float]] = {}
    for each in _known(tried):
        rank = _kinship(tried, each.wrong) if each.hint else None
        if rank is not None:
            found[each.hint] = max(rank, found.get(each.hint, rank))
    best = [hint for hint in found if found[hint] == max(found.values())]
    if len(best) != 1:
        return NOTHING
    return Help(question=best[0], perhaps=True)


#: Of the wrong numbers, or of the wrong results, how many have to be alike.
_OF_NUMBERS, _OF_RESULTS = 2 / 3, 1 / 2


def _kinship(tried: Attempt, wrong: Callable) -> tuple[bool, float] | None:
    """How like a known mistake an answer is; None if not enough.

    The mistake runs on case after case, the first that fails and then the
    largest, until what is left could not make it like enough.

    Returns:
        Whether the mistake fails on the first case too, and the share.
    """
    trial, failing = tried.trial, tried.failing
    question = trial.task.questions.get(tried.finding.case)
    sizes = [_sizes(outcome.result) for outcome in trial.wanted]
    cases = sorted(range(len(tried.got)), key=lambda n: -sizes[n].total())
    cases.remove(tried.first)
    left = sum(sizes, Counter[int]())
    apt = len(failing) < len(tried.got)
    at: list[int] = []
    so_far = _Shared()
    for n in (tried.first, *cases):
        other = trial.known(wrong, n)
        if other.broken_off:
            return None
        if trial.known_to_fail(wrong, n):
            at.append(n)
            apt = apt and tried.same(wrong, n)
        elif question and n == tried.first:
            return None  # a question of this case says more
        left.subtract(sizes[n])
        so_far.add(tried.got[n], other, trial.wanted[n])
        if not apt and so_far.most(left) < _OF_NUMBERS:
            return None
    share = so_far.share()
    enough = _OF_NUMBERS
    if apt and len(at) > 1:
        share = max(share, len(at) / len(failing))
        enough = _OF_RESULTS
    return (tried.first in at, share) if share >= enough else None


def _sizes(result: Any) -> Counter[int]:
    """How many fractional numbers each part of a result has."""
    leaves = enumerate(tree_leaves(result))
    return Counter({n: x.numel() for n, x in leaves if _is_float(x)})


class _Shared:
    """Of the numbers that either of two functions gets wrong, those that both
    get alike; part by part of the result."""

    def __init__(self) -> None:
        self.wrong: Counter[int] = Counter()
        self.alike: Counter[int] = Counter()
        self.met: set[float] = set()

    def add(self, got: Outcome, other: Outcome, wanted: Outcome) -> None:
        """Count the wrong numbers of a case, and those of the mistake.

        Args:
            got: what the answer gives.
            other: what a known mistake gives.
            wanted: what is right.
        """
        results = (each.result for each in (got, other, wanted))
        leaves = zip(*(tree_leaves(result) for result in results))
        for part, three in enumerate(leaves):
            if not all(map(_is_float, three)):
                continue
            a, b, c = (x.double() for x in three)
            if a.shape == b.shape == c.shape:
                off = ((a - c).abs() > 1e-9) | ((b - c).abs() > 1e-9)
                same = a[off & ((a - b).abs() <= 1e-9)].tolist()
                self.wrong[part] += int(off.sum())
                self.alike[part] += len(same)
                self.met |= {round(x, 6) for x in same if x != round(x)}

    def share(self) -> float:
        """The smallest share, over the parts of the results.

        It is 0 if only a few different numbers were met, which agree by
        chance.
        """
        if len(self.met) < 4:  # a few numbers, or 0 and 1, are met by chance
            return 0.0
        return self.most(Counter())

    def most(self, left: Counter[int]) -> float:
        """The share, if all numbers that are left are wrong and alike."""
        shares = [
            (self.alike[part] + left[part]) / (n + left[part])
            for part, n in self.wrong.items()
            if n
        ]
        return min(shares, default=1.0)


def _known(tried: Attempt) -> list[Mistake | Slip]:
    """All wrong functions that the catalogue has for a task."""
    task = tried.trial.task
    return [*task.known.values(), *task.slips.values()]


def _fails_as(tried: Attempt, wrong: Callable) -> bool:
    """Whether a known mistake fails on the same cases as the answer."""
    return all(
        tried.trial.known_to_fail(wrong, n) == (n in tried.failing)
        for n in range(len(tried.trial.cases))
    )


def _cut_off(tried: Attempt) -> Help:
    """Help where only a gradient is wrong: what in the answer stops gradients.

    It looks for names such as `detach` in the answer's code.
    """
    if tried.error or not tried.difference.beside_the_result:
        return NOTHING
    if tried.finding.kind == Kind.ZERO_GRADIENT:  # the finding says so
        return NOTHING
    if _has_nan(tried.got[tried.first].gradients):
        return NOTHING
    code = getattr(inspect.unwrap(tried.fn), "__code__", None)
    names = code.co_names if code else ()
    found = [name for name in names if name in _CUTTING]
    if not found:
        return NOTHING
    return Help(Finding(Kind.CUTS_GRADIENT, name=found[0]))


def _asked(tried: Attempt) -> str:
    """The catalogue's question: for what was found, or else for the case."""
    found = tried.finding
    task = tried.trial.task
    for each in task.asked:
        if each.fits(found):
            return each.question
    rule = isinstance(tried.error, RuleBroken)
    if rule or not tried.error and tried.difference.beside_the_result:
        return ""  # the case has a question about its result
    return task.questions.get(found.case, "")


def _by_cases(tried: Attempt) -> Help:
    """The hint of the mistake that fails on the same few cases, if all that do
    have this one: else it would often mislead."""
    many = 2 * len(tried.failing) > len(tried.got)  # else it would say nothing
    beside = not tried.error and tried.difference.beside_the_result
    if many or beside:
        return NOTHING
    task = tried.trial.task
    found = {
        each.hint
        for each in _known(tried)
        if each.hint and _fails_as(tried, each.wrong)
    }
    hints = {mistake.hint for mistake in task.known.values()}
    if len(found) != 1 or not found & hints:
        return NOTHING
    return Help(question=found.pop(), perhaps=True)


def _otherwise(tried: Attempt) -> Help:
    """The task's last question; of a gradient, one that fits every task."""
    found = tried.finding
    if isinstance(tried.error, RuleBroken):
        return NOTHING
    if found.gradient_of is None:
        return Help(question=tried.trial.task.otherwise)
    if found.kind == Kind.ZERO_GRADIENT:  # it says where to look
        return NOTHING
    which = found.gradient_of
    return Help(Finding(Kind.HANDS_BACK, gradient_of=which))


def _nan(tried: Attempt) -> Help:
    """Help where the answer makes a NaN and the right result has none."""
    if (
        tried.finding.kind == Kind.NAN
        and tried.finding.gradient_of is not None
    ):
        return Help(Finding(Kind.MAKES_NAN))
    wanted = tried.trial.wanted[tried.first].result
    if _has_nan(wanted) or not _has_nan(tried.got[tried.first].result):
        return NOTHING
    return Help(Finding(Kind.MAKES_NAN))


def _is_float(x: Any) -> bool:
    """Whether something is a tensor of fractional numbers."""
    return isinstance(x, Tensor) and x.is_floating_point()


def _has_nan(results: Any) -> bool:
    """Whether there is a NaN in any tensor of a result."""
    return any(_is_float(x) and x.isnan().any() for x in tree_leaves(results))
