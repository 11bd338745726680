"""The stored measurements have the form that "How fast is it?" shows.

What was measured is not asserted: it is one machine's.
"""

import json

import pytest
from notebooks import CHAPTERS

STORED = json.loads(
    (CHAPTERS / "attnbook" / "data" / "speed.json").read_text("utf-8")
)


def quartiles(found):
    """Every list of three numbers, wherever it stands."""
    if isinstance(found, dict):
        for value in found.values():
            yield from quartiles(value)
    elif isinstance(found, list) and len(found) == 3:
        yield found


@pytest.mark.parametrize(
    "section",
    ["decode", "limit", "uncached", "layouts", "attention", "training"],
)
def test_ratios_are_a_median_between_its_quartiles(section):
    found = list(quartiles(STORED[section]))
    assert found
    for low, middle, high in found:
        assert 0 < low <= middle <= high


def test_every_goal_has_its_row():
    rows = STORED["decode"]["rows"]
    assert len(rows) == 5 and "1 × 32" in rows
    for row in rows.values():
        assert list(row["ratio"]) == ["plain", "packed", "int8"]


def test_the_machine_is_named():
    named = {"processor", "instructions", "threads", "cores", "dtype"}
    assert named <= set(STORED["machine"])
