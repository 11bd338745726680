"""What an answer leaves behind is undone, and none runs for ever."""

import math
import os
import signal
import sys
import threading

import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook as hook_all

from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check import guard
from attnbook.teach.check.guard import Clock, OutOfTime
from attnbook.teach.check.inputs import f64
from attnbook.teach.check.judge import judge
from attnbook.teach.check.task import task
from attnbook.teach.exercises import check

X, Y = f64(1, 2, 3), f64(4, 5, 6)
TABLE = f64(1, 2)  # a tensor of the page
COUNT = 0


@task({"one": (X[:1],), "three": (X,)}, against="x")
def double(x):
    """twice x"""
    return x * 2


def counts(x):
    global COUNT
    COUNT += 1
    return x * 2


def overwrites(x):
    TABLE.zero_()
    return x * 2


def yes(a, b):
    """Calls whatever it compares equal."""
    return torch.ones(a.shape, dtype=torch.bool)


def after(change):
    return lambda x: (change(), x * 2)[1]


@pytest.mark.parametrize(
    "answer, words",
    [
        (after(lambda: torch.set_default_dtype(torch.half)), "default dtype"),
        (after(lambda: torch.set_default_device("meta")), "default device"),
        (after(lambda: torch.manual_seed(3)), "torch's seed"),
        (after(lambda: torch.set_num_threads(3)), "threads"),
        (after(lambda: torch.set_grad_enabled(False)), ""),
        (after(lambda: torch.autograd.set_detect_anomaly(True)), "anomaly"),
        (after(lambda: os.chdir("/")), "working directory"),
        (after(lambda: setattr(sys, "stdout", None)), "print"),
        (after(lambda: sys.setrecursionlimit(9999)), "recursion"),
        (after(lambda: hook_all(lambda *_: None)), "hooks of all modules"),
        (after(lambda: setattr(torch, "softmax", sum)), "torch.softmax"),
        (after(lambda: setattr(torch.Tensor, "sin", sum)), "torch.Tensor.sin"),
        (after(lambda: setattr(torch.Tensor, "__eq__", yes)), "Tensor.__eq__"),
        (after(lambda: vars(math).pop("exp", 0)), "math.exp"),
        (after(lambda: (torch.rand(3), np.random.rand(3))), ""),
        (counts, "COUNT of the page"),
        (overwrites, "TABLE of the page"),
    ],
)
def test_what_an_answer_changes_is_said_and_set_back(answer, words):
    states = [get for get, _ in guard._SETTINGS.values()]
    states += [torch.get_rng_state, torch.initial_seed, TABLE.tolist]
    states += [lambda: np.random.get_state()[1], lambda: COUNT]
    states += [lambda: (torch.softmax, torch.Tensor.sin, math.exp)]
    states += [lambda: torch.Tensor.__eq__]
    before = [repr(get()) for get in states]
    verdict = judge(answer, double)
    assert [repr(get()) for get in states] == before
    assert verdict.kind == "right"
    assert ("your code also changed" in verdict.message) == bool(words)
    assert words in verdict.message


def test_an_answer_that_changes_what_equal_is_is_not_right():
    def wrong(x):
        torch.Tensor.__eq__ = yes
        return x * 3

    equal = torch.Tensor.__eq__
    verdict = judge(wrong, double)
    assert verdict.kind == "wrong" and torch.Tensor.__eq__ is equal


def test_what_torch_replaces_itself_is_nobodys_change(monkeypatch):
    """torch.func wraps this one when it is first used."""

    def manual_seed(seed):
        return seed

    manual_seed.__module__ = "torch._dynamo"
    monkeypatch.setattr(torch, "manual_seed", torch.manual_seed)
    answer = after(lambda: setattr(torch, "manual_seed", manual_seed))
    assert judge(answer, double).message == "double: right on all 2 cases."


def endless(x):
    while True:
        try:
            while True:
                pass
        except Exception:  # does not end the end
            continue


def stubborn(x):
    try:
        endless(x)
    except BaseException:
        return endless(x)


def deaf(x):
    while True:
        try:
            while True:
                pass
        except:  # noqa: E722
            x = -x


def test_a_clock_ends_a_loop_that_catches_all():
    with pytest.raises(OutOfTime), Clock(0.05):
        deaf(X)
    assert sys.gettrace() is None


def test_a_clock_rings_again_for_one_that_does_not_listen():
    with pytest.raises(OutOfTime), Clock(0.05):
        stubborn(X)


@pytest.mark.timeout(0)  # whose clock would be in the way
def test_an_answer_that_does_not_end_is_stopped(monkeypatch, capsys):
    monkeypatch.setattr(guard, "SECONDS", 0.05)
    verdict = judge(endless, double)
    assert verdict.kind == "error" and verdict.error is None
    words = " ".join(verdict.message.split())
    assert 'not right yet on "one": no result after 0.05 sec' in words
    assert "stopped in line" in words and "ever end?" in words
    check.softmax(lambda scores, dim=-1: endless(scores))  # raises nothing
    assert "no result after" in capsys.readouterr().out
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_another_clock_goes_on():
    rung = []

    def rings(*_):
        rung.append(1)

    before = signal.signal(signal.SIGALRM, rings)
    try:
        signal.setitimer(signal.ITIMER_REAL, 30, 7)
        with Clock(9):
            pass
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 7
        with pytest.raises(OutOfTime), Clock(0.01):
            endless(X)
        assert not rung and signal.getsignal(signal.SIGALRM) is rings
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_in_another_thread_there_is_no_clock_and_all_else_holds():
    found = []
    work = threading.Thread(target=lambda: found.append(judge(counts, double)))
    work.start()
    work.join()
    assert found[0].kind == "right" and COUNT == 0


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit]
)
def test_whatever_an_answer_raises_is_told(kind, capsys):
    calls = []

    def answer(scores, dim=-1):
        calls.append(1)
        raise kind

    softmax = all_tasks()["softmax"]
    verdict = judge(answer, softmax)
    assert verdict.kind == "error" and len(calls) == 1  # not asked again
    assert f"your code raised {kind.__name__}" in verdict.message
    assert "raise kind" in verdict.message
    if kind is KeyboardInterrupt:  # the reader's own wish
        with pytest.raises(KeyboardInterrupt):
            check.softmax(answer)
    else:
        check.softmax(answer)
