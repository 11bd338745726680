"""`python -m attnbook check`: 0 for right, 1 for wrong, 2 for bad input."""

import os
import re
import subprocess
import sys

import pytest
from notebooks import CHAPTERS

import attnbook.__main__ as door
from attnbook.teach.catalogue.forms import all_forms
from attnbook.teach.check.own import command

MINE = """
import math
number = 3

def attention(query, key, value, attn_mask=None):
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)

def unscaled(query, key, value, attn_mask=None):
    return attention(query * query.shape[-1] ** 0.5, key, value, attn_mask)

class Group:
    softmax = staticmethod(lambda x, dim=-1: x.softmax(dim))
"""
AS = ["--as", "scaled_dot_product_attention", "--layout", "BTHd"]
AS += ["--masks", "hidden"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    path = tmp_path / "mine_to_check.py"
    path.write_text(MINE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine_to_check", raising=False)
    return path


def test_a_right_function(mine, capsys):
    assert command.main([f"{mine}:attention", *AS]) == 0
    assert "attention agrees with torch's" in capsys.readouterr().out
    assert command.main([f"{mine}:Group.softmax", "--as", "softmax"]) == 0


def test_a_wrong_one_says_what_the_book_says(mine, capsys):
    assert command.main([f"{mine}:unscaled", *AS]) == 1
    said = capsys.readouterr().out
    assert "this is a known mistake, forgets_the_scale" in said
    assert "(yours was called with tensors laid out BTHd" in said


def test_the_command_from_a_shell(mine):
    line = [
        sys.executable,
        "-m",
        "attnbook",
        "check",
        "mine_to_check:unscaled",
    ]
    done = subprocess.run(
        [*line, *AS],
        cwd=mine.parent,
        env=os.environ | {"PYTHONPATH": str(CHAPTERS)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "forgets_the_scale" in done.stdout


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["{}:attention", "--as", "attention"], "there is no task called"),
        (
            ["{}:attention", "--as", "nonsense"],
            "no task called 'nonsense'; `python -m attnbook check --list` l",
        ),
        (["{}:atention", *AS], "there is no atention in"),
        (["{}:number", *AS], "number in {} is a int; expected a function"),
        (["{}", *AS], "expected a file and a name in it, such as mine.py:"),
        (["nowhere.py:attention", *AS], "there is no file nowhere.py"),
        (["nowhere:attention", *AS], "nowhere cannot be imported: Module"),
        (["{}.txt:attention", *AS], "cannot be imported"),
        ([], "expected a function and a task, such as mine.py:attention"),
        (["{}:attention", *AS, "--sizes", "T"], "--sizes takes pairs such"),
        (["{}:attention", *AS, "--sizes", "T=x"], "a size is a whole number"),
        (["{}:attention", *AS, "--dtype", "int8"], "dtype is one of auto,"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, mine, capsys):
    words = [word.replace("{}", str(mine)) for word in words]
    assert command.main(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert sentence.replace("{}", str(mine)) in said.err


def test_a_file_that_fails(tmp_path, capsys):
    path = tmp_path / "broken_file.py"
    path.write_text("import nothing_of_this_name", encoding="utf-8")
    assert command.main([f"{path}:f", *AS]) == 2
    said = capsys.readouterr().err
    assert "broken_file.py cannot be imported: ModuleNotFoundError" in said
    path.write_text("raise SystemExit(0)", encoding="utf-8")
    assert command.main([f"{path}:f", *AS]) == 2


def test_the_list_has_every_task(capsys):
    assert door.main(["check", "--list"]) == 0
    said = capsys.readouterr().out
    for name, form in all_forms().items():
        assert f"  {name} (" in said and f"{form.topic}:" in said


def test_the_page_has_every_task_with_a_topic():
    page = (CHAPTERS / "check_your_own.md").read_text("utf-8")
    page = page.partition("## What there is to check against")[2]
    topics: dict[str, set[str]] = {}
    for name, form in all_forms().items():
        topics.setdefault(form.topic, set()).add(name)
    rows = dict(re.findall(r"^\| ([^|`]+) \| (`.*`) \|$", page, re.MULTILINE))
    found = {t: set(re.findall(r"`(\w+)`", row)) for t, row in rows.items()}
    assert found == topics
