"""The first word after `python -m attnbook` chooses the command."""

import importlib

import pytest

import attnbook.__main__ as door


@pytest.mark.parametrize("word", door.COMMANDS)
def test_a_command_has_a_module_with_a_main(word):
    assert callable(importlib.import_module(door.COMMANDS[word]).main)


def test_a_command_gets_the_rest_of_the_line(monkeypatch):
    module = importlib.import_module(door.COMMANDS["grade"])
    monkeypatch.setattr(module, "main", lambda words: ["grade", *words])
    found = door.main(["grade", "folder", "--out", "x"])
    assert found == ["grade", "folder", "--out", "x"]


@pytest.mark.parametrize("words", [[], ["./grade"], ["t.txt", "grade"]])
def test_all_else_trains(words, monkeypatch):
    from attnbook.run import command

    monkeypatch.setattr(command, "main", lambda rest: ["train", *rest])
    assert door.main(words) == ["train", *words]
