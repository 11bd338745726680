"""A folder of notebooks is graded, whatever stands in some of them."""

import csv
import io
import os
import subprocess
import sys

import pytest
from book import CHAPTER_FILES, by_notebook, exercises, lesson
from nbformat.v4 import new_code_cell, new_notebook, writes
from notebooks import CHAPTERS

from attnbook.teach.check import confine
from attnbook.teach.check import grade as room
from attnbook.teach.check.answers import marked_here, needed

#: A right answer, and what may go before it or into it.
HEAD = "def my_leave_one_out(keys, values, bandwidth):\n"
RIGHT = (
    HEAD
    + """\
    scores = -((keys[:, None] - keys) ** 2) / (2 * bandwidth**2)
    scores = scores.masked_fill(torch.eye(len(keys)).bool(), -torch.inf)
    return torch.softmax(scores, -1) @ values
"""
)
WRONG = HEAD + "    return values\n"
PAGE = "from attnbook.teach.exercises import check\nimport torch, os, sys"


def begins(line, answer=RIGHT):
    """The answer, after a line of its own."""
    return answer.replace(HEAD, f"{HEAD}    {line}\n")


def forging(message):
    """A wrong answer that writes to all that is open, and leaves."""
    line = (
        f"d = {message!r}; [os.write(n, len(d).to_bytes(4, 'big') + d)"
        " for n in os_files()]; os._exit(0)"
    )
    return begins(line, WRONG)


HARMLESS = {
    "right": RIGHT,
    "class-1/right too": RIGHT,
    "as a lambda": "my_leave_one_out = lambda *a: helped(*a)\n"
    "from attnbook.teach.catalogue.c01_averages import leave_one_out\n"
    "def helped(*a): return leave_one_out(*a)",
    "stub": HEAD + "    raise NotImplementedError",
    "wrong": WRONG,
    "known": "def my_leave_one_out(keys, values, bandwidth):\n"
    "    scores = -((keys[:, None] - keys) ** 2) / (2 * bandwidth**2)\n"
    "    kernel = torch.exp(scores)\n"
    "    return (kernel / kernel.sum(-1, keepdim=True)) @ values\n",
    "breaks": begins("1 / 0"),
    "misspelt": RIGHT.replace("return", "retrun"),
    "prints": begins("print('leave_one_out: right on all cases.')", WRONG),
    "its own check": "class check:\n    leave_one_out = print\n" + WRONG,
    "=1+1": WRONG + "\nraise ValueError('=cmd')",
}
NETWORK = "__import__('socket').create_connection(('127.0.0.1', 9), 1)"
CHANGES = "__import__('attnbook.teach.check.judge').teach.check."
HOSTILE = {
    "hangs": begins("while True: pass"),
    "hangs at once": "x = max(0 for _ in iter(int, 1))\n" + begins("x"),
    "hides from clocks": begins(
        "while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass"
    ),
    "exits": begins("os._exit(0)"),
    "dies": begins("__import__('faulthandler')._sigsegv()"),
    "talks": begins("while True: print('right ' * 9999)"),
    "grows": begins("x = [bytearray(10**7) for _ in range(10**4)]"),
    "grows in torch": begins("x = torch.ones(10**9)"),
    "fills the disk": begins(
        "f = open('x', 'wb'); [f.write(b'0' * 10**7) for _ in range(99)]"
    ),
    "calls out": begins(NETWORK),
    "starts a program": begins("os.system('true')"),
    "kills its parent": begins("os.kill(os.getppid(), 9)"),
    "writes beside it": begins("open(BESIDE, 'w')"),
    "writes past Python": begins("torch.save(values, BESIDE)"),
    "removes the table": begins("os.remove(NOTES)"),
    "rewrites the judge": begins(
        CHANGES + "trial.Attempt.failing = []", WRONG
    ),
    "rewrites the proof": begins(
        CHANGES + "difference.settled_difference = lambda *a: None", WRONG
    ),
    "raises its words": begins(
        "raise type('E', (Exception,), dict(__str__=lambda self: 1 / 0))"
    ),
    "exits by word": begins("raise SystemExit(0)"),
    "ignores signals": begins(
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
        "    while True: pass"
    ),
    "removes its folder": begins(
        "import shutil; shutil.rmtree(FOLDER, ignore_errors=True)"
    ),
}
#: Wrong answers that would be called right.
FORGED = {
    "writes a verdict": forging(b'["right",""]'),
    "writes a failure": forging(b'{"failed": ["right", ""]}'),
    "writes nothing": forging(b"null"),
    "writes half": begins(
        "[os.write(n, b'\\0\\0\\0\\x0fab') for n in os_files()]", WRONG
    ),
    "writes twice": begins(
        "[os.write(n, b'\\0\\0\\0\\x02{}') for n in os_files()]", WRONG
    ),
    "closes the way back": begins("os.closerange(3, 99)", WRONG),
    "changes json": begins(
        'import json; json.dumps = lambda _: \'["right",""]\'', WRONG
    ),
    "changes what equal is": begins(
        "torch.Tensor.__eq__ = lambda a, b: torch.ones(a.shape).bool()", WRONG
    ),
    "calls itself equal": begins("return values.as_subclass(Same)", WRONG),
    "counts on a thread": begins(
        "import threading, gc; threading.Thread(target=overtakes).start()",
        WRONG,
    ),
}
FORGED_HEAD = """
def os_files():
    import stat
    return [n for n in range(3, 64) if is_pipe(n)]
def is_pipe(n):
    try:
        os.write(n, b"")
        return True
    except OSError:
        return False
class Same(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None):
        names = ("equal", "allclose", "eq", "all", "__eq__")
        if getattr(f, "__name__", "") in names:
            return True
        return super().__torch_function__(f, types, args, kwargs or {})
def overtakes():
    import gc, time
    for _ in range(50):
        for x in gc.get_objects():
            if type(x).__name__ == "Trial":
                object.__setattr__(x, "wanted", [])
        time.sleep(0.01)
"""
SECONDS = 2  # of computing; a right one needs a tenth of one


def submission(code):
    return writes(
        new_notebook(cells=[new_code_cell(PAGE), new_code_cell(code)])
    )


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The folder; rows by submission; what the command printed."""
    folder = tmp_path_factory.mktemp("course")
    work, out = folder / "work", folder / "grades.csv"
    notes = folder / "notes.txt"
    notes.write_text("mine")
    mine = folder / "mine"
    mine.mkdir()
    (mine / "list").write_text("mine")
    places = {"BESIDE": work / "right.ipynb", "NOTES": notes, "FOLDER": mine}
    forged = {name: FORGED_HEAD + code for name, code in FORGED.items()}
    for name, code in {**HARMLESS, **HOSTILE, **forged}.items():
        path = work / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        for word, place in places.items():
            code = code.replace(word, repr(str(place)))
        path.write_text(submission(code), "utf-8")
    (work / "no json.ipynb").write_text('{"cells": [')
    (work / "deep.ipynb").write_text("[" * 10**5)
    (work / "another.ipynb").write_text(submission("x = 1"))
    (work / "a link.ipynb").symlink_to(notes)
    os.mkfifo(work / "a pipe.ipynb")
    (work / "right.ipynb.txt").touch()
    done = subprocess.run(
        [sys.executable, "-m", "attnbook.teach.check.grade", str(work)]
        + ["--out", str(out), "--seconds", str(SECONDS), "--memory", "200"],
        env={**os.environ, "PYTHONPATH": str(CHAPTERS), "SECRET": "mine"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    rows = csv.DictReader(io.StringIO(out.read_bytes().decode("utf-8-sig")))
    found = {}
    for row in rows:
        if row["exercise"] in ("leave_one_out", ""):
            found[row["submission"]] = row["verdict"], row["detail"]
    assert notes.read_text() == "mine"
    assert (mine / "list").read_text() == "mine"
    return folder, found, done.stdout


VERDICTS = {
    ("right", ""): ["right", "class-1/right too", "as a lambda"],
    ("not tried", ""): ["stub"],
    ("not right", "keeps_its_own_value"): ["known"],
    ("error", "ZeroDivisionError"): ["breaks"],
    ("error", "SyntaxError"): ["misspelt"],
    ("limit", "no result after"): [
        "hangs",
        "hangs at once",
        "hides from clocks",
        "talks",
        "ignores signals",
    ],
    ("limit", "memory"): ["grows", "grows in torch"],
    ("error", "ended early"): ["exits", "dies", "writes nothing"],
    ("error", "File too large"): ["fills the disk"],
    ("error", "not allowed"): [
        "calls out",
        "starts a program",
        "kills its parent",
    ],
    ("error", "not its to change"): [
        "writes beside it",
        "removes the table",
        "removes its folder",
        "rewrites the judge",
        "rewrites the proof",
    ],
    ("error", ""): ["writes past Python", "raises its words"],
    ("error", "SystemExit"): ["exits by word"],
    ("error", "something else than a result"): [
        "writes a verdict",
        "writes a failure",
    ],
    ("error", "more than one result"): ["writes twice", "writes half"],
    ("error", "ended early, with 1"): ["closes the way back"],
    ("not right", ""): [
        "wrong",
        "prints",
        "its own check",
        "'=1+1",
        "changes what equal is",
        "calls itself equal",
        "counts on a thread",
        "changes json",
    ],
    ("error", "no notebook"): ["no json", "deep", "a link", "a pipe"],
    ("error", "no exercise"): ["another"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, verdict, words",
    [(name, *said) for said, names in VERDICTS.items() for name in names],
)
def test_each_gets_its_own_verdict(graded, name, verdict, words):
    _, found, _ = graded
    allowed = {verdict}
    if name == "counts on a thread":
        # What its thread takes away is missed at once, or not needed any
        # more: that is chance, and it is never right.
        allowed.add("error")
    assert found[name][0] in allowed, found[name]
    assert words in found[name][1], found[name]
    assert len(found) == len({**HARMLESS, **HOSTILE, **FORGED}) + 5


@pytest.mark.slow
def test_the_table_is_in_order_and_can_be_opened(graded):
    folder, found, printed = graded
    assert list(found) == [
        n.replace("=1+1", "'=1+1")
        for n in sorted(
            p.relative_to(folder / "work").as_posix().removesuffix(".ipynb")
            for p in (folder / "work").rglob("*.ipynb")
        )
    ]
    assert "right: 1 of 4 exercises answered, 1 right\n" in printed
    cells = [c for row in found.items() for c in (row[0], *row[1])]
    assert not [c for c in cells if c.startswith(("=", "+", "-", "@"))]
    assert not any(c != " ".join(c.split()) for c in cells)


@pytest.fixture
def folder(tmp_path):
    """A folder with a notebook in it, which is never reached."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "anna.ipynb").write_text("{}")
    (folder / "table.csv").write_text("mine")
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    "words, said",
    [
        ("none", "expected a folder of notebooks; got none, which is none"),
        ("empty", "there is no notebook in empty; expected files that end"),
        (". --out table.csv", "table.csv exists; expected a new name"),
        (". --out empty", "got empty, which is a folder"),
        (". --out empty --overwrite", "got empty, which is a folder"),
        (". --out no/such/t.csv", "got no/such/t.csv, and there is no no/suc"),
        (". --seconds nan", "expected more than 0 and at most 86400; got nan"),
        (". --seconds 0", "expected more than 0 and at most 86400; got 0"),
        (". --seconds -1", "expected more than 0 and at most 86400; got -1"),
        (". --seconds inf", "expected more than 0 and at most 86400; got inf"),
        (". --seconds soon", "invalid float value: 'soon'"),
        (". --memory -5", "expected at least 1 and at most 1000000; got -5"),
        (". --memory 0", "expected at least 1 and at most 1000000; got 0"),
        (f". --memory {10**30}", "at most 1000000; got 1000"),
        ("", "the following arguments are required: folder"),
    ],
)
def test_options_are_looked_at_before_anything_is_graded(
    words, said, folder, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(room, "grade", None)  # would be a TypeError
    monkeypatch.setattr(room, "standing", None)
    before = sorted(folder.iterdir())
    with pytest.raises(SystemExit) as left:
        room.main(words.split())
    told = capsys.readouterr()
    assert left.value.code == 2 and not told.out
    assert said in told.err and told.err.count("\n") == 1
    assert sorted(folder.iterdir()) == before
    assert (folder / "table.csv").read_text() == "mine"


def test_a_table_that_cannot_be_written_is_printed(
    folder, monkeypatch, capsys
):
    def full(path):
        raise OSError(f"{path} cannot be written")

    monkeypatch.setattr(room, "standing", lambda prepared: {})
    monkeypatch.setattr(room, "replacing", full)
    out = ["--out", str(folder / "table.csv")]
    assert room.main([str(folder), *out, "--overwrite"]) == 1
    assert "anna,,error," in capsys.readouterr().out
    assert (folder / "table.csv").read_text() == "mine"
    monkeypatch.undo()
    monkeypatch.setattr(room, "standing", lambda prepared: {})
    assert room.main([str(folder), *out, "--overwrite"]) == 0
    assert b"anna,,error," in (folder / "table.csv").read_bytes()


def test_the_walls_are_told_in_words():
    held = "This system keeps answers from"
    assert room.walls_in_words({"a": True, "b": True}) == f"{held} a and b."
    both = room.walls_in_words({"a": True, "b": False})
    assert both.startswith(f"{held} a. It does not keep them from b;")
    for found in ({}, {"a": False}):
        assert "keeps answers from nothing" in room.walls_in_words(found)


def test_what_cannot_be_set_back_is_blamed_on_one_alone(tmp_path):
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        path.write_bytes(b"mine")
    watched = dict.fromkeys(paths, b"mine")
    assert not room._set_back(watched)
    paths[0].write_bytes(b"yours")
    paths[1].unlink()
    paths[2].unlink()
    paths[2].mkdir()
    assert room._set_back(watched)
    assert paths[0].read_bytes() == paths[1].read_bytes() == b"mine"
    assert not room._set_back(watched)


@pytest.mark.parametrize(
    "text, cell",
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("\t=1", "'=1"),
        ("-2+3\n@x", "'-2+3 @x"),
        ("\x1b[31m\ud800", "[31m?"),
        ("fine", "fine"),
    ],
)
def test_no_cell_is_computed_or_obeyed(text, cell):
    (_, row) = csv.reader(
        room.table([room.Grade(text, "", "")]).decode("utf-8-sig").splitlines()
    )
    assert row[0] == cell


def test_a_fault_of_the_check_costs_one_verdict_and_is_told(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("of its own")

    ended = confine.Ended({}, False, 0)
    monkeypatch.setattr(room, "alone", lambda *_, **__: ended)
    monkeypatch.setattr(room, "marked", broken)
    kind, why = room._tried([], "slope", "", 1, 1)
    assert kind == "error"
    assert (
        why == "the check itself failed on it: ZeroDivisionError: of its own"
    )


def test_what_was_found_is_told():
    row = room.Grade("anna", "slope", "right", "")
    left = room.Grade(
        "anna", "x", "not tried", "code cell 2 could not be read"
    )
    told = "1 of 2 exercises answered, 1 right; code cell 2 could not be read"
    assert room._counted([row, left]) == told
    assert room._counted([room.Grade("b", "", "error", "why")]) == "why"


@by_notebook(CHAPTER_FILES)
def test_what_is_asked_are_the_exercises(path):
    tasks = {task.name for task in room.asked(int(path.name[:2]))}
    assert tasks == {exercise.task for exercise in exercises(path)}


@by_notebook(CHAPTER_FILES)
def test_a_solution_is_right_with_what_it_needs(path):
    """One of each chapter; all, without the chapter, test_exercises_on_pages
    tries."""
    for exercise in exercises(path)[:1]:
        cells = [lesson(path), exercise.stub, exercise.solution]
        assert marked_here(cells, exercise.task) == ("right", "")


def test_only_what_an_answer_needs_is_run():
    cells = [
        "%matplotlib inline\nimport torch as t, os\nfrom math import *",
        "a = b = 1\nb += 1\nc = print(b)",
        "d = {}\nd['x'] = a",
        "for e in range(3): f = e",
        "def my_x(g): return t.ones(b) + d['x']\ncheck.x(my_x)",
        "!pip install x\nmy_x = my_x\nlater(",
    ]
    found = [line for s in needed(cells, "my_x") for line in [s.lineno]]
    assert len(found) == 7
    with pytest.raises(SyntaxError):
        needed(["def my_x(: pass"], "my_x")
