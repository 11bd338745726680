"""The way of a wrong answer to the sentence about it, followed by a tool.

The way begins where the answer has run (`judge.verdict_on`) and ends with the
words. It is followed through the engine's rooms by Python's own profiler, so
what is counted here is what runs, and not what somebody has read.
"""

import sys
from pathlib import Path

import pytest
import torch

from attnbook.teach.check import judge
from attnbook.teach.check.judge import attempted, verdict_on
from attnbook.teach.check.task import task
from attnbook.teach.check.telling import messages

#: Where the rooms of the engine are.
ENGINE = Path(judge.__file__).parent
X = torch.arange(1, 4, dtype=torch.float64)


@task({"one number": (X[:1],), "three": (X,)}, against="x", gradients=True)
def double(x):
    """twice x"""
    return x * 2


@double.mistake()
def halves(x):
    """What one sees.
    cause: Why.
    fix: What to do.
    hint: Which way?"""
    return x / 2


double.slip("adds two", "Plus?", lambda x: x + 2)


def raises(x):
    raise KeyError("x")


#: Wrong answers, and the rooms on the way of each, in the order in which they
#: are first entered. How a finder finds is its own matter: it is one step.
WAYS = {
    "wrong": (
        lambda x: x**3,
        "judge examine hints messages results words helping",
    ),
    "error": (
        raises,
        "judge examine hints messages results stops words helping",
    ),
    "known mistake": (lambda x: x * 0.5, "judge examine messages words"),
    "slip": (lambda x: x + 2, "judge examine messages words"),
}
FINDERS = {"examined", "examined_error", "help_for", "Attempt.is_like"}
#: What is handed from room to room. To ask for a part of it is no step.
DATA = {"Attempt", "Difference", "Help", "Outcome", "Task", "Trial"}


class Walk:
    """Notes the functions of the engine that are called, as Python runs.

    Attributes:
        rooms: the rooms in the order in which they are first entered.
        names: the functions that are called, but for those that have no name.
        to_sentence: how many they were when the sentence that says what is
            wrong was made; what follows are the case and its numbers.
        returns: calls into a room from another one, while the room is still
            at work: there the way comes back to where it has been.
    """

    def __init__(self):
        self.rooms = []
        self.names = set()
        self.returns = []
        self.to_sentence = 0
        self.stack = []
        self.inside = 0

    def __call__(self, frame, event, _):
        code = frame.f_code
        path = Path(code.co_filename)
        in_engine = path.is_relative_to(ENGINE)
        if not in_engine or event not in ("call", "return"):
            return
        name = code.co_qualname
        if event == "return":
            if self.stack:
                self.stack.pop()
                self.inside -= name in FINDERS
            if name == "headline" and not self.to_sentence:
                self.to_sentence = len(self.names)
            return
        room = path.stem
        if self.stack and self.stack[-1] != room and room in self.stack:
            self.returns.append(f"{self.stack[-1]} calls {room}.{name}")
        self.stack.append(room)
        is_step = "<" not in name and name.partition(".")[0] not in DATA
        if is_step and not self.inside:
            self.names.add(f"{room}.{name}")
            if room not in self.rooms:
                self.rooms.append(room)
        self.inside += name in FINDERS


def followed(answer):
    tried, _ = attempted(answer, double)
    walk = Walk()
    sys.setprofile(walk)
    try:
        verdict = verdict_on(tried)
    finally:
        sys.setprofile(None)
    return walk, verdict


@pytest.mark.parametrize("kind", WAYS)
def test_the_way_to_a_sentence_never_comes_back(kind):
    """It goes from room to room, and by a dozen names to the sentence."""
    answer, rooms = WAYS[kind]
    walk, verdict = followed(answer)
    assert verdict.kind == ("known mistake" if kind == "slip" else kind)
    assert walk.returns == []
    assert walk.rooms == rooms.split()
    assert walk.to_sentence <= 12, walk.names
    assert len(walk.names) <= 26, walk.names


def test_a_way_that_came_back_would_be_noticed(monkeypatch):
    """Here the room of the words judges once more."""
    inputs = messages.inputs

    def judging(*args):
        judge.judge(double, double)
        return inputs(*args)

    monkeypatch.setattr(messages, "inputs", judging)
    walk, _ = followed(WAYS["wrong"][0])
    assert walk.returns[0] == "messages calls judge.judge"
