"""The examples in the library's docstrings give what they say they give."""

import doctest
import importlib

import pytest
from notebooks import CHAPTERS

HOUSE = CHAPTERS / "attnbook"
ROOMS = [
    path.stem
    for path in sorted(HOUSE.glob("[a-z]*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("room", ROOMS)
def test_the_examples_of_a_room_run(room):
    module = importlib.import_module(f"attnbook.{room}")
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
