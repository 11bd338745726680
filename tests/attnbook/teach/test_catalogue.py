"""The catalogue: right answers pass, known mistakes are caught and named."""

import inspect
import re

import attnbook
import pytest
from attnbook.teach import mistakes
from attnbook.teach.catalogue import all_mistakes, all_tasks
from attnbook.teach.mistakes import get, links
from attnbook.teach.tasks import judge
from book import CHAPTER_FILES, exercises
from notebooks import ROOT

TASKS = all_tasks()
MISTAKES = all_mistakes()

#: Mistakes seen in the five notebooks that the book grew out of.
COVERAGE = ROOT / "tests" / "chapters" / "coverage.md"
LABELLED = re.findall(r"`(\w+)`", COVERAGE.read_text(encoding="utf-8"))


def by_chapter(entry):
    """With the chapter in front, so that `make check CHAPTER=` finds it."""
    return f"{entry.chapter:02}-{entry.name}"


each_task = pytest.mark.parametrize("task", TASKS.values(), ids=by_chapter)
each_mistake = pytest.mark.parametrize(
    "mistake", MISTAKES.values(), ids=by_chapter
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
    asked = {e.task for path in CHAPTER_FILES for e in exercises(path)}
    hinted = {m.task.name for m in MISTAKES.values() if m.hint}
    assert hinted <= asked
    missing = [
        m.name
        for m in MISTAKES.values()
        if m.task.name in asked and not m.hint
    ]
    assert missing == []


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
