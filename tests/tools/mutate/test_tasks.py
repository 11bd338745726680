"""Mutants of a right answer, and a task that is asked about them."""

import pytest
import torch
from mutate.killable import answers_of
from mutate.tasks import mutants_of_task, passes

from attnbook.teach.check.task import task


@pytest.mark.parametrize("numbers", [[[1, 2, 5], [4, 3, 6]], [0]])
def test_a_check_made_weak_lets_mutants_pass(numbers):
    x = torch.tensor(numbers, dtype=torch.float64) / 3

    @task(against="a toy", cases={"a case": (x,)}, gradients=x.ndim == 2)
    def toy(x):
        """two and a half times the numbers"""
        return x * 2.5

    solution = "def my_toy(x):\n    y = x\n    return y * 2.5"
    every = mutants_of_task(toy, solution)
    answers = answers_of(lambda m: passes(m, toy), every, batch=20)
    alive = {m.name for m, passed in answers if passed is True}
    # A toy with a case of six numbers is small, and is told so.
    alive = {name for name in alive if " beyond " not in name}
    assert ("half the digits" in alive) == (numbers == [0])
    assert numbers == [0] or not alive
    assert "x * 2.5 → 2.5 in return x * 2.5" not in alive
