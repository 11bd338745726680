"""Mutants of a room, and its own tests asked about them."""

import mutants
import pytest
from mutate.rooms import OWN, Room, mutants_of_room, rooms

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
        "4 → 5 in width = 4",
        "4 → 3 in width = 4",
        *(m.name for m in every if m.function == "toy.unseen"),
    }


def test_the_catalogues_test_is_asked_where_a_task_is_at_home():
    """For the other rooms it would only be collected, which takes seconds."""
    from attnbook.teach.catalogue import all_tasks

    homes = {(task.home or "").split(".")[0] for task in all_tasks().values()}
    found = rooms()
    assert {name for name, room in found.items() if OWN in room.tests} == {
        *found
    } & homes
    (tests,) = found["hands"].tests
    assert tests.endswith("run/test_hands.py")
