"""The engine that makes wrong programs, on toys whose mutants are known."""

import ast
import os
import time

import mutants
import pytest
import torch
from mutants import Result
from mutate.killable import judged
from mutate.mutations import mutations
from mutate.rooms import Room, mutants_of_room
from mutate.tasks import mutants_of_task, passes

from attnbook.teach.check.task import task


def changes(source, **options):
    tree = ast.parse(source)
    return [c.change for c in mutations(tree, **options)]


@pytest.mark.parametrize(
    "source, wanted",
    {
        "a - b": {"a - b → a + b", "a - b → b - a", "a - b → a", "a - b → b"},
        "y = x.sum(-1)": {"x.sum(-1) → x.mean(-1)", "1 → 2", "1 → 0"},
        "x < y": {"x < y → x <= y", "x < y → x > y"},
        "y = f(a, b)": {"f(a, b) → f(b, a)"},
        "write(a)": {"write(a) → pass", "write(a) → a"},
        "x.mT": {"x.mT → x"},
        "~m": {"~m → m"},
        "y = x.masked_fill(m, v)": {
            "x.masked_fill(m, v) → x",
            "x.masked_fill(m, v) → x.masked_fill(~m, v)",
            "x.masked_fill(m, v) → x.masked_fill(v, m)",
        },
        "x[:n]": {"x[:n] → x", "x[:n] → x[:n + 1]", "x[:n] → x[:n + -1]"},
        "x = f(x)": {"x = f(x) → pass", "f(x) → x"},
        "x += 1": {"x += 1 → x -= 1", "x += 1 → pass", "1 → 2", "1 → 0"},
        "for a in b:\n    pass": {"for a in b: → the first alone"},
        "y = draw(seed=3)": set(),
        "y = maximum(a, b)": set(),
        "'a text'": set(),
    }.items(),
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_the_changes_of_a_line(source, wanted):
    assert set(changes(source)) == wanted


def test_a_refusal_is_changed_only_for_a_room():
    source = "if x < 1:\n    raise ValueError(f'{x + 1}')"
    assert changes(source) == []
    assert "x < 1 → x <= 1" in changes(source, guards=True)
    assert not any("x + 1" in c for c in changes(source, guards=True))


@pytest.mark.parametrize("numbers", [[[1, 2], [4, 3]], [0]])
def test_a_check_made_weak_lets_mutants_pass(numbers):
    x = torch.tensor(numbers, dtype=torch.float64) / 3

    @task(against="a toy", cases={"a case": (x,)}, gradients=x.ndim == 2)
    def toy(x):
        """two and a half times the numbers"""
        return x * 2.5

    solution = "def my_toy(x):\n    y = x\n    return y * 2.5"
    every = mutants_of_task(toy, solution)
    answers = judged(lambda m: passes(m, toy), every, batch=20)
    alive = {m.name for m, passed in answers if passed is True}
    assert ("half the digits" in alive) == (numbers == [0])
    assert numbers == [0] or not alive
    assert "x * 2.5 → 2.5 in return x * 2.5" not in alive


@pytest.mark.parametrize("batch", [1, 4])
def test_what_hangs_or_dies_is_ended_and_the_rest_is_asked(batch):
    def ask(n):
        if n == 1:
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    pass
        if n == 3:
            os._exit(1)
        return n * n

    answers = dict(judged(ask, [0, 1, 2, 3, 4], seconds=0.2, batch=batch))
    assert answers == {0: 0, 1: "ended", 2: 4, 3: "ended", 4: 16}


def test_a_reason_answers_a_survivor_and_nothing_else(tmp_path):
    text = (
        '[equivalent."f"]\n"a → b in c" = "the same"\n'
        '[passes."g"]\n"d → e" = "a digit"\n"gone" = "?"\n'
    )
    (tmp_path / "reasons.toml").write_text(text, "utf-8")
    known = mutants.reasons(tmp_path / "reasons.toml")
    alive = (("f", "a → b in c"), ("g", "d → e"), ("g", "a → b in c"))
    left = ("room.f", "a → b in c")
    row = mutants.sorted_out(Result(9, 9, (*alive, left)), known, room=False)
    assert row["equivalent"] == {"f: a → b in c": "the same"}
    assert row["left"] == 1
    assert row["survivors"] == {"g: d → e": "a digit", "g: a → b in c": ""}
    assert mutants.unused(alive, known) == ["g: gone"]


ROOM = """
LIMIT = 3

class Sizes:
    width = 4

def twice(x, times=2):
    if x < 0:
        raise ValueError("x is negative")
    return x * times

def unseen(x):
    return x + 1
"""
TESTS = """
import pytest
from attnbook.toy import LIMIT, twice

def test_twice():
    assert twice(3) == 6

def test_negative():
    with pytest.raises(ValueError):
        twice(-1)

def test_limit():
    assert LIMIT == 3
"""


@pytest.mark.slow
def test_a_room_is_asked_by_its_tests(tmp_path):
    package = tmp_path / "attnbook"
    package.mkdir()
    (package / "toy.py").write_text(ROOM)
    (package / "__init__.py").write_text("")
    (tmp_path / "test_toy.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    room = Room("toy", package / "toy.py", (str(tmp_path / "test_toy.py"),))
    every = mutants_of_room(room)
    reached = {m.name: len(m.tests) for m in every}
    assert reached["3 → 4 in LIMIT = 3"] == 3
    assert reached["4 → 5 in width = 4"] == 3
    assert reached["x * times → x / times in return x * times"] == 1
    assert reached["x + 1 → x - 1 in return x + 1"] == 0
    result = mutants.ask_room(room, 0, 0)
    assert result.mutants == result.of == len(every)
    assert {name for _, name in result.alive} == {
        "x < 0 → x <= 0 in if x < 0:",  # nobody asks about 0
        "0 → 1 in if x < 0:",
        *("4 → 5 in width = 4", "4 → 3 in width = 4"),
        *(m.name for m in every if m.function == "toy.unseen"),
    }
