"""The catalogue: right answers pass, known mistakes are caught and named."""

import inspect
import re
import sys
from dataclasses import replace
from unittest import mock

import pytest
import torch
from book import (
    CHAPTER_FILES,
    chapter_file,
    defined,
    exercises,
    run_in_process,
)
from notebooks import ROOT

import attnbook
from attnbook.teach import mistakes
from attnbook.teach.catalogue import all_mistakes, all_tasks
from attnbook.teach.catalogue.symptoms import SYMPTOMS
from attnbook.teach.exercises import check
from attnbook.teach.inputs import watched
from attnbook.teach.mistakes import get, links
from attnbook.teach.tasks import judge

TASKS = all_tasks()
MISTAKES = all_mistakes()

#: Mistakes seen in the five notebooks that the book grew out of.
COVERAGE = ROOT / "tests" / "chapters" / "coverage.md"
LABELLED = re.findall(r"`(\w+)`", COVERAGE.read_text(encoding="utf-8"))

each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
each_mistake = pytest.mark.parametrize(
    "mistake", MISTAKES.values(), ids=MISTAKES
)


@each_task
def test_the_right_answer_and_the_packages_own_pass(task):
    verdict = judge(task.right, task)
    assert verdict.kind == "right", verdict.message
    if task.home:
        assert judge(task.ours(), task).kind == "right"
    assert task.against and task.wanted and task.chapter


@each_task
def test_cases_are_the_same_each_time(task):
    first, second = task.cases(), task.cases()
    assert [repr(c) for c in first] == [repr(c) for c in second]
    assert len(first) > 1


@each_mistake
def test_every_mistake_is_caught_and_recognised_by_its_name(mistake):
    verdict = mistake.verdict()
    assert verdict.kind in ("wrong", "error"), verdict.message
    assert judge(mistake.wrong, mistake.task).mistake == mistake.name


def test_an_entry_is_whole():
    for name, m in MISTAKES.items():
        right, wrong = map(inspect.signature, (m.task.right, m.wrong))
        assert list(right.parameters) == list(wrong.parameters), name
        for text in (m.symptom, m.cause, m.fix):
            assert text.endswith(".") and len(text) > 20, text
        # Public threads and nothing else, or a row of the sources.
        threads = r"([\w.-]+/[\w.-]+ #\d+(, #\d+)*(, )?)*"
        assert re.fullmatch(threads, m.seen), m.seen
        assert m.seen or name in LABELLED, name


def test_an_exercise_has_a_hint_for_each_mistake_and_nothing_else_has():
    asked = {exercise.task for _, exercise in EXERCISES}
    for name, m in MISTAKES.items():
        assert bool(m.hint) == (m.task.name in asked), name


def test_every_mistake_is_found_by_what_one_sees():
    named = [name for names in SYMPTOMS.values() for name in names]
    assert set(named) == set(MISTAKES)
    for symptom, names in SYMPTOMS.items():
        assert len(names) == len(set(names)) >= 5, symptom


def test_two_of_one_name_are_refused():
    task = replace(TASKS["softmax"], known={})
    wrong = MISTAKES["divides_by_n_again"].wrong
    task.mistake()(wrong)
    with pytest.raises(ValueError, match="divides_by_n_again"):
        task.mistake()(wrong)


def test_a_tensor_too_large_for_an_exercise_is_refused():
    (x,) = watched(torch.ones(200))
    assert (x * 2).sum() == 400
    with pytest.raises(ValueError, match="expected at most 10000"):
        x[:, None] * x


def _homes(task):
    """Every place in the package and its user that holds the function."""
    ours = task.ours()
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "attnbook":
            for attribute, value in vars(module).items():
                if value is ours:
                    yield module, attribute


@pytest.mark.parametrize("path", CHAPTER_FILES, ids=lambda p: p.stem)
def test_a_chapter_runs_without_an_injection(path):
    """Else the next test would pass for the wrong reason."""
    error = run_in_process(path)
    assert error is None, error


def _on_a_page(mistake):
    """Whether its task has a function in the package or on the page; the
    others are exercises alone, which their check looks after."""
    task = mistake.task
    return task.home or task.name in defined(chapter_file(task.chapter))


TAUGHT = {name: m for name, m in MISTAKES.items() if _on_a_page(m)}


@pytest.mark.parametrize("mistake", TAUGHT.values(), ids=TAUGHT)
def test_the_page_notices_the_mistake(mistake):
    """The chapter's own cells fail when the wrong function takes the place
    of the right one, in the package and wherever the page defines it."""
    task = mistake.task
    patches = [
        mock.patch.object(module, attribute, mistake.wrong)
        for module, attribute in (_homes(task) if task.home else [])
    ]
    for patch in patches:
        patch.start()
    try:
        error = run_in_process(
            chapter_file(task.chapter), task.name, mistake.wrong
        )
    finally:
        for patch in patches:
            patch.stop()
    assert error is not None, f"no cell of the chapter notices {mistake.name}"
    # Not for a reason that has nothing to do with what it computes.
    assert not isinstance(
        error, (NameError, ImportError, SyntaxError, AttributeError, TypeError)
    ), error


@pytest.mark.parametrize("path", CHAPTER_FILES, ids=lambda p: p.stem)
def test_a_chapter_has_three_to_five_exercises(path):
    assert 3 <= len(exercises(path)) <= 5


EXERCISES = [(path, e) for path in CHAPTER_FILES for e in exercises(path)]


@pytest.mark.parametrize(
    "path, exercise",
    EXERCISES,
    ids=[f"{path.name[:2]}-{e.task}" for path, e in EXERCISES],
)
def test_stub_and_solution(path, exercise, capsys):
    task = TASKS[exercise.task]
    assert task.chapter == int(path.name[:2])
    exec(exercise.stub, {"check": check, **_imports()})
    assert capsys.readouterr().out == f"{task.name}: not attempted yet.\n"
    namespace = _imports()
    exec(exercise.solution, namespace)
    names = [n for n in (f"my_{task.name}", task.name) if n in namespace]
    verdict = judge(namespace[names[0]], task)
    assert verdict.kind == "right", verdict.message


def _imports():
    import torch

    return {"torch": torch}


def test_a_mistake_that_no_check_catches_would_fail():
    """The tests above can fail: a right answer, entered as a mistake."""
    task = TASKS["weighted_average"]
    assert judge(task.right, task).kind == "right"
    assert run_in_process(chapter_file(1), task.name, task.right) is None


def test_an_unknown_mistake_is_refused():
    with pytest.raises(ValueError, match="no known mistake 'typo'; expected"):
        get("typo")


def test_a_run_tells_the_whole_entry(capsys):
    mistakes.run("divides_by_n_again")
    out = capsys.readouterr().out
    for text in (
        "what happens: The average is too small",
        "cause:",
        "fix:",
        "caught by check.weighted_average",
        "expected 105.0",
        "got 35.0",
    ):
        assert text in out


def test_the_threads_are_links():
    found = links("a/b #1, #2; asked in c/d.e #3 (there in a text)")
    assert list(found) == ["a/b #1", "a/b #2", "c/d.e #3"]
    assert found["a/b #2"] == "https://github.com/a/b/issues/2"
    assert len(LABELLED) > 30 and set(LABELLED) <= set(MISTAKES)


def test_the_source_shown_is_the_function_alone():
    source = get("divides_by_n_again").source()
    assert source.startswith("def divides_by_n_again(values, weights):")
    assert "cause" not in source


def test_the_package_has_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", attnbook.__version__)
