"""An answer is found in its notebook, with all that it needs."""

import ast
import signal

import pytest

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check import guard
from attnbook.teach.check.answers import (
    answered,
    marked,
    marked_here,
    needed,
    other_answers,
    unreadable,
)

TASK = "leave_one_out"
PAGE = "import torch\nfrom attnbook.teach.exercises import check"
HEAD = "def my_leave_one_out(keys, values, bandwidth):\n"
BODY = """\
    scores = -((keys[:, None] - keys) ** 2) / (2 * bandwidth**2)
    scores = scores.masked_fill(torch.eye(len(keys)).bool(), -torch.inf)
    return torch.softmax(scores, -1) @ values
"""
HELPED = HEAD + "    return helper(keys, values, bandwidth)\n"
HELPER = BODY.replace("    ", "\n    ", 1)


def names(*cells):
    """What is run for `my_x`, as text."""
    return [ast.unparse(s) for s in needed(cells, "my_x")]


HONEST = {
    "a counter": [
        "calls = 0",
        HEAD + "    global calls\n    calls += 1\n" + BODY,
    ],
    "a helper by exec": [
        f"exec({'def helper(keys, values, bandwidth):' + HELPER!r})",
        HELPED,
    ],
    "a helper by exec that needs another": [
        "import math as m",
        "exec('factor = m.sqrt(1.0)')",
        HEAD + BODY.replace("@ values", "@ values * factor"),
    ],
    "a helper by setattr": [
        "class T: pass",
        "def one(keys, values, bandwidth):\n" + BODY,
        "setattr(T, 'helper', staticmethod(one))",
        HEAD + "    return T.helper(keys, values, bandwidth)",
    ],
    "a helper by globals()": [
        "def one(keys, values, bandwidth):\n" + BODY,
        "globals()['helper'] = one",
        HELPED,
    ],
    "a helper in a list": [
        "def one(keys, values, bandwidth):\n" + BODY,
        "helpers = []",
        "helpers.append(one)",
        HEAD + "    return helpers[0](keys, values, bandwidth)",
    ],
    "magic in the cell": [
        "%%time\n%matplotlib inline\n  \n" + HEAD + BODY + "\ntorch.eye?",
    ],
    "a broken cell beside it": ["x = (", HEAD + BODY],
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_answers_are_right(name):
    assert marked_here([PAGE, *HONEST[name]], TASK) == ("right", "")


@pytest.mark.parametrize("given", ["mine", "lambda *a: mine(*a)", "T.mine"])
def test_an_answer_of_another_name_is_judged_by_it(given):
    other = BODY.replace("    ", "\n    ", 1)
    cells = [PAGE, "def mine(keys, values, bandwidth):" + other]
    cells += ["class T: mine = staticmethod(mine)"]
    cells += [f"check.{TASK}(my_{TASK})", f"check.{TASK}({given})"]
    assert other_answers(cells) == {TASK: given}
    assert marked_here(cells, TASK, given) == ("right", "")
    # Nothing is called as the exercise asks.
    kind, why = marked_here(cells, TASK)
    assert (kind, why) == ("not tried", f"nothing in it is called my_{TASK}")


def test_only_what_an_answer_needs_is_run():
    found = names(
        "import os, torch\nfrom math import *",
        "print('much')\nx = []\nx.append(1)\nx[0] = 2\nunused = 1",
        "os.remove('x')\ncheck.x(my_x)\nfor i in x: print(i)",
        "def my_x(): return x",
    )
    used = ["x = []", "x.append(1)", "x[0] = 2", "def my_x():\n    return x"]
    imports = ["import os, torch", "from math import *"]
    assert found == [*imports, *used] or found[1:] == used


def test_a_line_that_begins_with_a_sign_of_python_is_python():
    (found,) = names("my_x = (7\n% 4)")
    assert found == "my_x = 7 % 4"
    assert unreadable(["x = (7\n% 4)", "%magic", "!ls", "x = !ls"]) == []
    assert unreadable(["%%bash\nls -la |", "x = (", "x?", "1 +"]) == [2, 4]


def test_an_answer_that_cannot_be_read_is_an_error():
    for cell in ("def my_x(: pass", "class my_x(", "my_x = ("):
        with pytest.raises(SyntaxError):
            needed([cell], "my_x")
    needed(["my_x = 1", "my_x = my_x\nlater("], "my_x")


def test_a_name_that_nothing_makes_is_told():
    kind, why = marked_here([PAGE, HELPED], TASK)
    assert kind == "error" and "name 'helper' is not defined" in why
    assert why.endswith("; no statement that could be read gives it a value")


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="there is no clock"
)
def test_the_clock_of_a_call_follows_the_limit(monkeypatch):
    """The check's own would end what may take longer."""
    monkeypatch.setattr(guard, "SECONDS", 30.0)
    answered([PAGE, HEAD + BODY], TASK, "", 120)
    assert guard.SECONDS == 120
    slow = HEAD + "    while True: pass"
    sent = answered([PAGE, slow], TASK, "", 0.1)
    assert marked(TASK, sent) == ("limit", "no result after 0.1 seconds")


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [],
        {},
        "right",
        ["right", ""],
        {"failed": ["right", ""]},
        {"failed": ["not right", ""]},
        {"failed": ["error"]},
        {"outcomes": [], "changed": ""},
        {"outcomes": [{}], "changed": ""},
        {"outcomes": [None] * 9, "changed": ""},
        {"outcomes": 3, "changed": ""},
    ],
    ids=str,
)
def test_nothing_that_is_sent_can_say_right(sent):
    with pytest.raises(ValueError):
        marked(TASK, sent)


def test_there_is_an_outcome_for_each_case():
    sent = answered([PAGE, HEAD + BODY], TASK)
    assert marked(TASK, sent) == ("right", "")
    few = sent["outcomes"][:-1]
    many = sent["outcomes"] * 2
    for outcomes in (few, many):
        with pytest.raises(ValueError):
            marked(TASK, {**sent, "outcomes": outcomes})


def test_known_mistakes_and_slips_are_named_from_data_alone():
    """As `judge` names them, which has the function itself."""
    count = 0
    for task in list(all_tasks().values())[:12]:
        module = task.right.__module__
        for name, mistake in task.known.items():
            cell = f"from {module} import {mistake.wrong.__name__} as it"
            sent = answered([cell], task.name, "it")
            assert marked(task.name, sent) == ("not right", name)
            count += 1
        for words in task.slips:
            given = f"tasks()[{task.name!r}].slips[{words!r}].wrong"
            cell = "from attnbook.teach.catalogue import all_tasks as tasks"
            sent = answered([cell], task.name, given)
            kind, told = marked(task.name, sent)
            assert kind == "not right" and told in {*task.slips, *task.known}
            count += 1
    assert count > 30
