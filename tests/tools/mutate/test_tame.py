"""Cases that are all alike in one respect let a wrong answer pass."""

from dataclasses import replace

import pytest
import tame as command
import torch
from mutants import reason, reasons
from mutate.tame import TABLE, mutants_of_tameness, table, varied, ways
from mutate.tasks import mutants_of_task, passes

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.inputs import ints, marks
from attnbook.teach.check.running import call
from attnbook.teach.check.task import task

TASKS = all_tasks()


def one_task(cases, right):
    return task(cases, against="itself")(right)


def lengths(tokens, pad=0):
    return (tokens != pad).sum(-1)


def hidden(scores, mask, scale=1.0):
    return (scores * scale).masked_fill(~mask, 0.0)


SCORES = torch.arange(1.0, 7.0, dtype=torch.float64).reshape(2, 3)

#: A task, what its cases do not vary, and a case that does.
TAME = [
    (
        hidden,
        {"a": (SCORES, marks("110", "110"))},
        "mask: rows that differ",
        (SCORES, marks("110", "011")),
    ),
    (
        hidden,
        {"a": (SCORES, marks("110", "011"), 2.0)},
        "scale: not that of the first",
        (SCORES, marks("110", "011"), 3.0),
    ),
    (
        lengths,
        {"a": (ints([3, 9, 0], [4, 0, 0]),)},
        "tokens: numbers from 256 on",
        (ints([3, 256, 0]),),
    ),
    (
        lengths,
        {"a": (ints([3, 9, 8]), 7)},
        "tokens: has pad inside",
        (ints([3, 7, 8]), 7),
    ),
    (
        lengths,
        {"a": (ints([3, 9, 8]), 7)},
        "pad: above 10",
        (ints([30, 30, 8]), 30),
    ),
    (
        lambda tokens: tokens + 1,
        {"a": (ints([3, 9, 8]),)},
        "tokens: 0 among its numbers",
        (ints([3, 0]),),
    ),
    (
        lambda gradient: gradient / 2,
        {"a": (torch.tensor([0.1, 0.2]),)},
        "gradient: longer than 1",
        (torch.tensor([3.0, 4.0]),),
    ),
    (
        lambda weight: weight.mT,
        {"a": (torch.ones(2, 2),)},
        "weight: not square",
        (torch.ones(2, 3),),
    ),
    (
        lambda tensors: sorted(tensors),
        {"a": ({"weight": 1},)},
        "tensors: names with dots",
        ({"h.0.weight": 1},),
    ),
    (
        lambda q, k: q @ k.mT,
        {"a": (torch.ones(2, 3), torch.ones(2, 3))},
        "q, k: two lengths",
        (torch.ones(2, 3), torch.ones(4, 3)),
    ),
    (
        lambda keys: keys.cumsum(0),
        {"a": (torch.ones(128, 3),)},
        "keys: axis -2 beyond 128",
        (torch.ones(131, 3),),
    ),
]


@pytest.mark.parametrize(
    "right, cases, way, more", TAME, ids=[name for _, _, name, _ in TAME]
)
def test_a_respect_in_which_cases_are_tame_is_seen(right, cases, way, more):
    tame = one_task(cases, right)
    assert varied(tame)[way] is False
    wild = one_task(cases | {"b": call(*more)}, right)
    assert varied(wild)[way] is True
    for some, told in ((tame, True), (wild, False)):
        (mutant,) = (
            m for m in mutants_of_tameness(some) if m.name.endswith(way)
        )
        assert bool(passes(mutant, some)) is told


def test_a_task_is_asked_about_its_tame_mutants():
    some = TASKS["decoder_mask"]
    names = {m.name for m in mutants_of_task(some)}
    assert "tame in real: rows that differ" in names


def test_the_table_has_every_task_and_a_reason_for_what_is_tame():
    rows = table()
    assert list(rows) == list(TASKS)
    for name, row in rows.items():
        known = {way.name for way in ways(TASKS[name])}
        tame = row.get("tame", {})
        assert set(row["varies"]) | set(tame) == known, name
        assert not set(row["varies"]) & set(tame), name
        for way, why in tame.items():
            assert len(why.split()) > 3, f"{name}: {way} has no reason"
    of_this_kind = reasons()["passes"]["give_back"]
    assert reason({"give_back": of_this_kind}, ("give_back", "x")) == ""
    for mutant in of_this_kind:
        assert reason(reasons()["passes"], ("give_back", mutant))


@pytest.mark.parametrize("name", TASKS)
def test_the_table_is_what_the_cases_say(name):
    told = varied(TASKS[name])
    row = table()[name]
    assert [way for way, seen in told.items() if seen] == row["varies"]


def test_one_case_less_would_be_tame():
    some = TASKS["cross_entropy"]
    given = dict(some.given)
    given.pop("large logits, targets here and there")
    less = replace(some, given=given)
    way = "targets: numbers from 256 on"
    assert varied(some)[way] and not varied(less)[way]


def test_the_command_lists_reasons_and_writes_the_table_as_it_is(capsys):
    assert command.written(table()) == TABLE.read_text("utf-8")
    assert command.main(["give_back"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("give_back: tame in holders: numbers from 256")
    assert len(said) == 1 and "no reason" not in said[0]
