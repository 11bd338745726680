"""What the command tells of the mutants that pass."""

import json

import mutants
import pytest
from mutants import Result
from mutate.tasks import named_in_catalogue


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


def test_a_rooms_result_is_kept_though_the_next_one_fails(
    tmp_path, monkeypatch
):
    def results(options):
        yield "first", Result(3, 9), True
        raise KeyboardInterrupt

    stored = tmp_path / "mutants.json"
    monkeypatch.setattr(mutants, "STORED", stored)
    monkeypatch.setattr(mutants, "_import_once", lambda: None)
    monkeypatch.setattr(mutants, "_results", results)
    with pytest.raises(KeyboardInterrupt):
        mutants.main(["--store", "masks", "norms"])
    kept = json.loads(stored.read_text("utf-8"))
    assert kept["first"]["mutants"] == 3 and len(kept) == 1


@pytest.mark.parametrize(
    "asked, rows",
    [
        ("softmax", []),  # a part of chapter 4
        ("task:softmax", []),
        ("task:ring", []),
        ("ring", ["ring"]),  # the room, and not the task of chapter 24
        ("07", ["07"]),  # all tasks of the chapter
    ],
)
def test_a_part_takes_no_place_in_what_is_stored(
    asked, rows, tmp_path, monkeypatch, capsys
):
    stored = tmp_path / "mutants.json"
    monkeypatch.setattr(mutants, "STORED", stored)
    monkeypatch.setattr(mutants, "_import_once", lambda: None)
    monkeypatch.setattr(mutants, "ask_task", lambda *_: Result(1, 1))
    monkeypatch.setattr(mutants, "ask_room", lambda *_: Result(9, 9))
    whole = {"04": {"mutants": 50}, "24": {"mutants": 50}}
    stored.write_text(json.dumps(whole))
    mutants.main(["--store", asked])
    kept = json.loads(stored.read_text("utf-8"))
    assert kept | whole == kept
    assert kept.keys() - whole.keys() == set(rows)
    row = f"task:{asked.removeprefix('task:')}"
    assert (row in capsys.readouterr().out) == (not rows)


@pytest.mark.parametrize("name", ["99", "4", "no_such_room", "task:masks", ""])
def test_what_has_no_mutants_is_refused(name, monkeypatch, capsys):
    def results(options):
        raise AssertionError("something is asked")

    monkeypatch.setattr(mutants, "_results", results)
    assert mutants.main(["masks", name]) == 2
    said = capsys.readouterr().err
    assert f"no mutants of {name}; expected a chapter such as 04" in said
    assert "masks" in said


def test_each_task_and_chapter_can_be_asked_for():
    from attnbook.teach.catalogue import all_tasks

    chapters, tasks = named_in_catalogue()
    assert tasks == all_tasks().keys()
    assert chapters == {f"{t.chapter:02}" for t in all_tasks().values()}
