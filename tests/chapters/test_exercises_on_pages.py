"""The exercises of the pages: stubs and solutions, through their checks."""

import pytest
import torch
from book import CHAPTER_FILES, by_notebook, defined, exercises

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.judge import judge
from attnbook.teach.exercises import check

EXERCISES = [(path, e) for path in CHAPTER_FILES for e in exercises(path)]


@by_notebook(CHAPTER_FILES)
def test_a_chapter_has_three_to_five_exercises(path):
    assert 3 <= len(exercises(path)) <= 5


@pytest.mark.parametrize(
    "path, exercise",
    EXERCISES,
    ids=[f"{path.name[:2]}-{e.task}" for path, e in EXERCISES],
)
def test_stub_and_solution(path, exercise, capsys):
    task = all_tasks()[exercise.task]
    assert task.chapter == int(path.name[:2])
    mine = f"my_{task.name}"
    assert defined(exercise.stub) == {mine}
    exec(exercise.stub, {"check": check, "torch": torch})
    assert capsys.readouterr().out == f"{task.name}: not attempted yet.\n"
    names = {"torch": torch}
    exec(exercise.solution, names)
    verdict = judge(names[mine], task)
    assert verdict.kind == "right", verdict.message
