"""The catalogue: right answers pass, known mistakes are caught and named."""

import inspect
import re
import sys
from unittest import mock

import attnbook
import pytest
from attnbook.teach import mistakes
from attnbook.teach.catalogue import all_mistakes, all_tasks
from attnbook.teach.exercises import check
from attnbook.teach.mistakes import get, links
from attnbook.teach.tasks import judge
from book import (
    CHAPTER_FILES,
    chapter_file,
    defined,
    exercises,
    run_in_process,
)
from notebooks import ROOT

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
def test_a_check_accepts_the_right_answer(task):
    verdict = judge(task.right, task)
    assert verdict.kind == "right", verdict.message


@each_task
def test_the_packages_own_function_passes(task):
    if task.home:
        assert judge(task.ours(), task).kind == "right"


@each_task
def test_cases_are_the_same_each_time(task):
    first, second = task.cases(), task.cases()
    assert [repr(c) for c in first] == [repr(c) for c in second]
    assert len(first) > 1


@each_mistake
def test_every_mistake_is_caught_by_its_check(mistake):
    verdict = mistake.verdict()
    assert verdict.kind in ("wrong", "error"), verdict.message


@each_mistake
def test_every_mistake_is_recognised_by_its_name(mistake):
    verdict = judge(mistake.wrong, mistake.task)
    assert verdict.mistake == mistake.name


@each_mistake
def test_a_mistake_has_the_signature_of_the_right_answer(mistake):
    right = inspect.signature(mistake.task.right).parameters
    wrong = inspect.signature(mistake.wrong).parameters
    assert list(right) == list(wrong)


@each_mistake
def test_an_entry_is_whole(mistake):
    for text in (mistake.symptom, mistake.cause, mistake.fix):
        assert text.endswith(".") and len(text) > 20, text
    assert mistake.hint == "" or mistake.hint.endswith(("?", "."))
    assert links(mistake.seen) or mistake.name in LABELLED
    assert not re.search(r"\bS\d\.\d", mistake.seen)


def test_an_exercise_has_a_hint_for_each_mistake():
    asked = {exercise.task for _, exercise in EXERCISES}
    hinted = {m.task.name for m in MISTAKES.values() if m.hint}
    assert hinted <= asked
    missing = [
        m.name
        for m in MISTAKES.values()
        if m.task.name in asked and not m.hint
    ]
    assert missing == []


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


def test_nearly_all_mistakes_are_on_a_page():
    assert len(TAUGHT) > 0.7 * len(MISTAKES)


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


def test_what_was_seen_in_the_sources_is_in_the_catalogue():
    assert len(LABELLED) > 30 and set(LABELLED) <= set(MISTAKES)


def test_the_source_shown_is_the_function_alone():
    source = get("divides_by_n_again").source()
    assert source.startswith("def divides_by_n_again(values, weights):")
    assert "cause" not in source


def test_the_package_has_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", attnbook.__version__)
