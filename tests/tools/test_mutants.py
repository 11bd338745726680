"""What the command tells of the mutants that pass."""

import json

import mutants
import pytest
from mutants import Result


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
        mutants.main(["--store", "first", "second"])
    kept = json.loads(stored.read_text("utf-8"))
    assert kept["first"]["mutants"] == 3 and len(kept) == 1
