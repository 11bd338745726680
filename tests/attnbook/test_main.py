"""The first word after `python -m attnbook` chooses the command."""

import importlib
import os
import subprocess
import sys

import pytest
from notebooks import CHAPTERS

import attnbook.__main__ as door
from attnbook.run.options import OTHERS, training_parser


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


def test_the_help_names_each_other_command_with_a_line():
    assert OTHERS.keys() == door.COMMANDS.keys()
    lines = training_parser().format_help().splitlines()
    for word, what in OTHERS.items():
        assert f"  python -m attnbook {word:<8}{what}" in lines


@pytest.mark.parametrize("words", [[], ["--steps", "5"]])
def test_a_line_without_a_text_is_told_what_there_is(words, capsys):
    with pytest.raises(SystemExit) as ended:
        door.main(words)
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "expected the file of a text to train on" in line
    assert all(word in line for word in door.COMMANDS)


def test_an_output_that_is_cut_off_shows_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "attnbook", "check", "--list"],
        env={**os.environ, "PYTHONPATH": str(CHAPTERS)},
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=600,
    )
    os.close(writing)
    assert done.returncode == 1 and done.stderr == b""
