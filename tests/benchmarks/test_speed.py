"""What "How fast is it?" says of the stored numbers holds for them.

Nothing is measured here, and the page itself asserts none of this, so that
`make bench` can store what another machine gives and show it.
"""

import json

import pytest
from notebooks import CHAPTERS

STORED = json.loads(
    (CHAPTERS / "attnbook" / "data" / "speed.json").read_text("utf-8")
)


def median(quartiles):
    low, middle, high = quartiles
    assert low <= middle <= high
    return middle


@pytest.mark.parametrize("name", STORED["decode"]["rows"])
def test_packed_and_8_bits_write_faster_than_plain(name):
    ratio = STORED["decode"]["rows"][name]["ratio"]
    plain, packed, int8 = map(median, ratio.values())
    assert list(ratio) == ["plain", "packed", "int8"]
    assert 0.9 < plain < packed < int8


def test_what_the_goals_say():
    goals = (1.3, 1.3, 1.5, 2, 1.5)
    rows = STORED["decode"]["rows"].values()
    for row, goal in zip(rows, goals, strict=True):
        assert median(row["ratio"]["packed"]) >= goal
        assert median(row["ratio"]["plain"]) < goal
    assert median(STORED["uncached"]["ratio"]["packed"]) >= 12
    share = median(STORED["limit"]["1 × 32"]["share"]["packed"])
    assert 0.6 < share < 0.8
    for found in STORED["attention"].values():
        assert median(found["plain over fast path off"]) < 1.2
        assert median(found["packed over fast path off"]) >= 1.2


def test_a_third_and_two_thirds_of_memorys_speed():
    for found in STORED["limit"].values():
        share = {who: median(q) for who, q in found["share"].items()}
        assert 0.25 < share["plain"] < 0.4
        assert 0.25 < share["transformers"] < 0.4
        assert 0.6 < share["packed"] < 0.75
        assert 0.7 < share["packed"] / (1 - median(found["calls"])) < 0.8


def test_8_bits_gain_less_than_four_times():
    ratio = STORED["decode"]["rows"]["1 × 32"]["ratio"]
    assert 1.2 < median(ratio["int8"]) / median(ratio["packed"]) < 2
    loss = STORED["decode"]["int8_loss"]
    assert 0.85 < loss["same_choice"] < 0.95  # one choice in ten changes
    assert loss["town_returning"] == [1, 1]


def test_the_fast_path_is_the_slower_one_and_more_so_with_length():
    slower = [
        median(found["plain over as it comes"])
        / median(found["plain over fast path off"])
        for found in STORED["attention"].values()
    ]
    assert slower == sorted(slower) and slower[0] > 1 and slower[-1] > 2


def test_each_of_their_functions_brings_training_nearer():
    for peer in ("transformers", "its GELU in one call", "nanoGPT-style"):
        speed = [median(found[peer]) for found in STORED["training"].values()]
        assert speed == sorted(speed)
    assert 0.95 < speed[-1] < 1  # a few hundredths are left to the plain loop


def test_packed_beats_columns_and_both_beat_rows():
    for found in STORED["layouts"].values():
        assert 1 < median(found["columns"]) < median(found["packed"])
