"""Tasks: what a function shall do, and how it is known to go wrong.

A task is a right answer that is independent of the book's own code, and a
list of awkward inputs, the smallest first. The same task proves the book's
function, checks a reader's, and must catch every known mistake.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch

from attnbook.teach.check.finding import Finding, Kind
from attnbook.teach.check.rules import Rule
from attnbook.teach.check.running import Case, as_cases

#: Labels and arguments (a tuple, or `call`), or a function that makes them.
Cases = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

_PARTS = re.compile(r"^(cause|fix|hint): ", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Task:
    """What a function shall do. Calling the task gives the right answer.

    Attributes:
        right: the independent reference; its docstring says what is wanted.
        given: the inputs under their labels, the smallest first.
        against: what the reference is, in a few words: "torch.softmax".
        home: the book's own function that does it, as "module.function"
            inside the book's package; empty if there is none.
        within: the largest |Δ| allowed.
        bounds: by the label of a case, the largest |Δ| of its result and of
            its gradients, where these are not `within`.
        gradients: whether the gradients must be right too.
        layer: how an answer that is a class is called, where a class is
            allowed: `layer(kind, *arguments)`.
        rules: what an answer has to do without, see `rules`.
        chapter: the chapter of its book that teaches it; 0 if none does.
        known: the known mistakes, by name.
        slips: smaller mistakes, by what is wrong, in words. They are
            recognised and answered with a question, and have no page.
        questions: what is asked about an answer in which nothing is
            recognised, by the label of the first case that it fails. A
            question has to fit whatever can go wrong there.
        asked: questions that hang on what was found there; the first that
            fits goes before the case's.
        otherwise: what is asked where there is no other question. It has to
            fit whatever can go wrong in the task.
        read: what is made of each result before it is compared, where two
            ways to write one result are both right; None if nothing is.
    """

    right: Callable
    given: Cases
    against: str
    home: str = ""
    within: float = 1e-9
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    gradients: bool = False
    layer: Callable | None = None
    rules: Sequence[Rule] = ()
    chapter: int = 0
    questions: Mapping[str, str] = field(default_factory=dict)
    asked: Sequence[Asked] = ()
    otherwise: str = ""
    read: Callable[[Any], Any] | None = None
    known: dict[str, Mistake] = field(default_factory=dict)
    slips: dict[str, Slip] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.right(*args, **kwargs)

    @property
    def name(self) -> str:
        """What the function is called on the page, and in ``check.<name>``."""
        return self.right.__name__

    @cached_property
    def wanted(self) -> str:
        """What the function should return, in the words of the docstring of
        its reference."""
        return " ".join((self.right.__doc__ or "").split())

    def cases(self) -> list[Case]:
        """The inputs of the task, the smallest first, made anew at each call.

        So a function that changes its arguments spoils no later call.
        """
        with torch.inference_mode(False):
            given = self.given() if callable(self.given) else self.given
            return as_cases(given)

    def mistake(
        self,
        seen: str = "",
        *,
        symptom: str | Iterable[str] = (),
        not_looked_up: str = "",
    ) -> Callable[[Callable], Callable]:
        """Register the decorated function as a known mistake.

        Its docstring says what one sees, then ``cause:`` and ``fix:``, and
        where an exercise asks for the task ``hint:``.

        Args:
            seen: public threads, as "owner/name #1, owner/name #2".
            symptom: the heading, or the headings, under which somebody looks
                who sees what the mistake does.
            not_looked_up: those of the threads that nobody could open and
                read; the page of all mistakes says so of each.

        Raises:
            ValueError: if the task has a mistake of this name already, or
                if a thread that was not looked up is not among those seen.
        """
        headings = (symptom,) if isinstance(symptom, str) else tuple(symptom)
        threads = threads_in(seen)
        unopened = threads_in(not_looked_up)
        if unknown := set(unopened) - set(threads):
            raise ValueError(
                "a thread that was not looked up has to be one of those seen; "
                f"expected some of {threads}; got {sorted(unknown)}"
            )

        def register(wrong: Callable) -> Callable:
            if wrong.__name__ in self.known:
                raise ValueError(
                    f"two mistakes of {self.name} are named "
                    f"{wrong.__name__}; expected a name for each"
                )
            parts = _PARTS.split(inspect.getdoc(wrong) or "")
            told, *rest = (" ".join(part.split()) for part in parts)
            named = dict(zip(rest[::2], rest[1::2], strict=True))
            self.known[wrong.__name__] = Mistake(
                self,
                wrong,
                told,
                seen=seen,
                headings=headings,
                not_looked_up=frozenset(unopened),
                **named,
            )
            return wrong

        return register

    def slip(self, words: str, hint: str, wrong: Callable) -> None:
        """Register a slip that the exercise recognises.

        Args:
            words: what is wrong, in a few words; the slip's name.
            hint: the question that a reader who made it is asked.
            wrong: the wrong function.

        Raises:
            ValueError: if the task has a slip of these words already.
        """
        if words in self.slips:
            raise ValueError(
                f"two slips of {self.name} are called {words!r}; expected "
                "other words for each"
            )
        self.slips[words] = Slip(wrong, hint)


@dataclass(frozen=True)
class Asked:
    """A question that is asked where something of a kind was found.

    What is left at its default fits everything.

    Attributes:
        question: what is asked.
        kind: the kind of the finding.
        gradient: whether it has to be about a gradient.
        gradient_of: the tensor argument whose gradient it is about.
        part: the part of the result that it is about.
    """

    question: str
    kind: Kind | None = None
    gradient: bool = False
    gradient_of: int | None = None
    part: int | None = None

    def fits(self, found: Finding) -> bool:
        """Whether this question is the one to ask about a finding."""
        if self.kind is not None and found.kind != self.kind:
            return False
        of_gradient = self.gradient or self.gradient_of is not None
        if of_gradient and found.gradient_of is None:
            return False
        if self.gradient_of not in (None, found.gradient_of):
            return False
        return self.part is None or found.place[:1] == (("part", self.part),)


class Slip(NamedTuple):
    """A wrong function that has no page of its own, and a question."""

    wrong: Callable
    hint: str


@dataclass(frozen=True, eq=False)
class Mistake:
    """One known mistake.

    Attributes:
        task: the task that it gets wrong.
        wrong: the wrong function.
        symptom: what one sees, in a sentence.
        cause: why it happens.
        fix: what to write instead.
        seen: public threads where it was seen.
        hint: what a reader who made it is asked; it does not give the answer.
        headings: where a list by what one sees has it.
        not_looked_up: the threads, as "owner/name #1", that nobody could open.
    """

    task: Task
    wrong: Callable
    symptom: str
    cause: str
    fix: str
    seen: str = ""
    hint: str = ""
    headings: tuple[str, ...] = ()
    not_looked_up: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The wrong function's name, by which pages and verdicts call it."""
        return self.wrong.__name__

    @property
    def chapter(self) -> int:
        """The number of the chapter that its task belongs to."""
        return self.task.chapter

    def source(self) -> str:
        """The wrong function as it would stand in a reader's notebook."""
        source = textwrap.dedent(inspect.getsource(self.wrong))
        source = source[source.index(f"def {self.name}(") :]
        docstring = re.compile(r'\n *""".*?"""\n+', re.DOTALL)
        source = docstring.sub("\n", source, count=1).rstrip()
        return re.sub(r"  # noqa.*", "", source)


_THREAD = re.compile(r"([\w.-]+/[\w.-]+) ((?:#\d+(?:, )?)+)")


def threads_in(text: str) -> list[str]:
    """The public threads named in a text, each as "owner/name #1"."""
    return [
        f"{repository} #{number}"
        for repository, numbers in _THREAD.findall(text)
        for number in re.findall(r"\d+", numbers)
    ]


def task(
    cases: Cases,
    *,
    against: str,
    home: str = "",
    within: float = 1e-9,
    gradients: bool = False,
    layer: Callable | None = None,
    rules: Sequence[Rule] = (),
    chapter: int = 0,
    questions: Mapping[str, str] | None = None,
    asked: Sequence[Asked] = (),
    otherwise: str = "",
    read: Callable[[Any], Any] | None = None,
) -> Callable[[Callable], Task]:
    """Make the decorated function the right answer of a task (see `Task`)."""
    return lambda right: Task(
        right,
        cases,
        against,
        home=home,
        within=within,
        gradients=gradients,
        layer=layer,
        rules=rules,
        chapter=chapter,
        questions=questions or {},
        asked=asked,
        otherwise=otherwise,
        read=read,
    )
