"""What is decided hangs on kinds and numbers, and not on the words."""

import contextlib
import importlib
import inspect
import pkgutil
from dataclasses import replace
from functools import cache, partial
from itertools import groupby

import pytest
from trials import trials_kept

from attnbook.teach import check as engine
from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check import (
    difference,
    finding,
    guesses,
    hints,
    running,
    telling,
)
from attnbook.teach.check.finding import Finding, Help, Kind
from attnbook.teach.check.judge import judge
from attnbook.teach.check.running import outcome_difference
from attnbook.teach.check.task import Asked
from attnbook.teach.check.telling import helping, messages, results, stops
from attnbook.teach.check.trial import Trial

TASKS = all_tasks()

#: The parts of the one room that has sentences.
SENTENCES = [results, stops, helping, messages]

#: Every known mistake and slip: its task, its name, the wrong function.
WRONGS = [
    (task, group, name, each.wrong)
    for task in TASKS.values()
    for group in ("known", "slips")
    for name, each in getattr(task, group).items()
]


def without(task, group, name):
    """The task, to which one of its mistakes is a stranger."""
    left = {n: x for n, x in getattr(task, group).items() if n != name}
    return replace(task, **{group: left})


@contextlib.contextmanager
def nonsense():
    """Here every sentence of the room that tells is another word; which of
    them were said is known at the end."""
    said = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        for room in SENTENCES:
            functions = inspect.getmembers(room, inspect.isfunction)
            for name, function in functions:
                if function.__module__ == room.__name__:
                    replace_everywhere(monkeypatch, name, function, said)
        yield said


@contextlib.contextmanager
def answers_kept():
    """Here an answer to a task is run once, and judged as often as wanted.

    What an answer computes hangs on no sentence. What it raises may be a
    sentence of the engine's, so an answer with an error runs each time.
    """
    kept = {}
    run = Trial.outcomes

    def outcomes(trial, fn, *args, **kwargs):
        # The judge wraps a class in a new `partial` each time.
        layered = isinstance(fn, partial) and fn.func is trial.task.layer
        same = fn.args[0] if layered else fn
        if same not in kept:
            got = run(trial, fn, *args, **kwargs)
            if any(outcome.error for outcome in got):
                return got
            kept[same] = got
        return list(kept[same])

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Trial, "outcomes", outcomes)
        yield


def replace_everywhere(monkeypatch, name, function, said):
    """Let a function that tells something say another word."""
    returned = inspect.signature(function).return_annotation
    lines = "list" in str(returned)

    def speak(*args, **kwargs):
        said.append(name)
        return ["flurble"] if lines else "flurble"

    for room in [*rooms(), telling, *SENTENCES]:
        if vars(room).get(name) is function:
            monkeypatch.setattr(room, name, speak)


@cache
def rooms():
    """All modules of the engine, which import sentences by name."""
    return [
        importlib.import_module(f"{engine.__name__}.{module.name}")
        for module in pkgutil.iter_modules(engine.__path__)
        if module.name != "telling"
    ]


def decided(verdict):
    """All of a verdict that is no sentence."""
    found, told = verdict.finding, verdict.help
    return (
        verdict.kind,
        verdict.mistake,
        found and (found.kind, found.case, found.place, found.gradient_of),
        told.finding and (told.finding.kind, told.finding.argument),
        told.question,
        told.perhaps,
    )


def decisions(wrongs):
    """Of each wrong function, known and as a stranger."""
    return [
        (
            decided(judge(wrong, task)),
            decided(judge(wrong, without(task, group, name))),
        )
        for task, group, name, wrong in wrongs
    ]


def hang_on_no_words(wrongs):
    told = set()
    for _, same_task in groupby(wrongs, key=lambda each: each[0].name):
        of_task = list(same_task)
        with trials_kept(), answers_kept():
            with_sentences = decisions(of_task)
            with nonsense() as said:
                with_nonsense = decisions(of_task)
        assert with_nonsense == with_sentences
        names = [name for _, _, name, _ in of_task]
        assert [known[1] for known, _ in with_nonsense] == names
        told.update(said)
    assert {"wrong", "known_mistake"} <= told


def test_decisions_do_not_hang_on_words():
    """Of every fortieth mistake or slip; the slow test takes all."""
    hang_on_no_words(WRONGS[::40])


@pytest.mark.slow
def test_no_decision_hangs_on_words():
    hang_on_no_words(WRONGS)


def test_every_kind_has_words():
    told = {*results.LIKENESS, *stops.STOPPED, *helping.HELP}
    by_name = {Kind.CHANGED, Kind.UNCHANGED}
    assert told | by_name == set(Kind)


def test_only_one_room_has_sentences():
    """Where a sentence of `telling` stands, no other room has one alike."""
    for words in ("of the wrong sign", "the right numbers", "perhaps"):
        for room in [*rooms(), finding]:
            source = inspect.getsource(room)
            code = "\n".join(
                line for line in source.splitlines() if "#" not in line
            )
            assert f'"{words}' not in code, (room.__name__, words)


def test_a_wrong_answer_runs_and_is_compared_a_few_times(monkeypatch):
    """A difference is found once and handed on to whoever asks.

    Of one wrong scaled_dot_product_attention on nine cases: 272 runs and 585
    comparisons before that.
    """
    counted = {"runs": 0, "compared": 0}
    right_outcome, compare = running.outcome_of, difference.settled_difference

    def outcome_of(*args, **kwargs):
        counted["runs"] += 1
        return right_outcome(*args, **kwargs)

    def settled_difference(*args, **kwargs):
        counted["compared"] += 1
        return compare(*args, **kwargs)

    monkeypatch.setattr(running, "outcome_of", outcome_of)
    monkeypatch.setattr(guesses, "outcome_of", outcome_of)
    for room in rooms():
        if room is not difference and hasattr(room, "settled_difference"):
            monkeypatch.setattr(room, "settled_difference", settled_difference)

    def wrong(q, k, v, *args, **kwargs):
        weights = (q @ k.mT).cos().softmax(-1)
        return weights @ v, weights

    verdict = judge(wrong, TASKS["scaled_dot_product_attention"])
    assert verdict.kind == "wrong"
    assert counted["runs"] <= 80 and counted["compared"] <= 100, counted


def test_a_known_mistake_runs_on_a_case_once():
    task = TASKS["softmax"]
    calls = []

    def wrong(scores, dim=-1):
        calls.append(1)
        return scores * 0

    trial = Trial.on(task)
    double = lambda scores, dim=-1: scores * 2  # noqa: E731
    tried = trial.attempt_of(double, trial.outcomes(double))
    for _ in range(3):
        assert not tried.is_like(wrong)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "asked, fits",
    [
        (Asked("?"), True),
        (Asked("?", kind=Kind.NAN), True),
        (Asked("?", kind=Kind.FACTOR), False),
        (Asked("?", gradient=True), True),
        (Asked("?", gradient_of=1), True),
        (Asked("?", gradient_of=0), False),
        (Asked("?", part=1), False),
    ],
)
def test_a_question_fits_a_finding_by_its_data(asked, fits):
    found = Finding(Kind.NAN, gradient_of=1)
    assert asked.fits(found) == fits
    assert Asked("?", part=1).fits(replace(found, place=(("part", 1),)))
    assert not Asked("?", gradient=True).fits(Finding(Kind.NAN))


def test_help_that_has_nothing_is_none():
    assert not Help() and Help(question="?") and Help(Finding(Kind.ALMOST))


def test_a_finders_own_error_is_not_hidden(monkeypatch):
    def broken(tried):
        raise KeyError("a bug of the finder's")

    monkeypatch.setattr(hints, "guess", broken)
    with pytest.raises(KeyError, match="bug of the finder"):
        judge(lambda s, dim=-1: s * s, TASKS["softmax"])


def test_outcomes_that_are_errors_of_one_type_are_alike():
    trial = Trial.on(TASKS["softmax"])

    def breaks(scores, dim=-1):
        raise KeyError(dim)

    tried = trial.attempt_of(breaks, trial.outcomes(breaks))
    assert tried.is_like(breaks) and len(tried.failing) == len(trial.cases)
    one = tried.got[0]
    assert outcome_difference(one, one, within=0) is None
    assert outcome_difference(one, trial.wanted[0], within=0) is not None
