"""One step on one rank and on several: threads, and real processes."""

import os
import pickle
import subprocess
import sys

import hands as helper
import killed
import pytest
import torch
from notebooks import CHAPTERS

from attnbook.run import hands
from attnbook.run.hands import Shared, as_one, compare, main, report, unequal
from attnbook.wire import on_threads


@pytest.fixture(scope="module")
def of_threads():
    return {n: on_threads(n, compare)[0] for n in (1, 2, 3, 4)}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_way_is_as_one_rank(of_threads, ranks):
    found = of_threads[ranks]
    assert len(found) == len(hands.WAYS) == 6
    for one in found:
        assert one.difference <= 1e-12, one
        assert one.sent == one.formula, one
        assert len(one.shares) == ranks
        assert (one.sent > 0) == (ranks > 1)
    assert as_one(found)


def test_shares_are_unequal():
    assert unequal(9, 4) == [1, 1, 1, 6]
    assert unequal(9, 1) == [9]


def test_processes_send_and_find_what_threads_do(of_threads, tmp_path):
    """Four processes joined by gloo, and groups of 1 to 4 of them: the same
    differences to the bit, and the same bytes. Their sum is torch's."""
    assert killed.in_processes(helper.all_cases, tmp_path, n=4) == [0] * 4
    for rank in range(4):
        found = pickle.loads((tmp_path / f"{rank}.pickle").read_bytes())
        for size in range(4 - rank, 5):
            assert found[size] == of_threads[size]
        torch.testing.assert_close(
            found["ours"], found["theirs"], rtol=0, atol=1e-12
        )
        if rank == 2:
            assert "rank 2 has waited too long for a tensor" in found["vain"]
        if rank == 0:
            said = "rank 0 got nothing from rank 3, which has failed or sent"
            assert said in found["gone"]


def test_the_command_of_several_processes(tmp_path):
    """As the book has it, by torchrun; with as many as the page says."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        + ["--nproc-per-node", "2", "-m", "attnbook", "hands"],
        env=os.environ | {"PYTHONPATH": str(CHAPTERS), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "2 ranks, processes joined by gloo, against one rank"
    assert sum("at most 1e-12" in line for line in lines) == 6


def test_the_command_without_torchrun(capsys):
    assert main(["--ranks", "2"]) == 0
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first == "2 ranks, threads of one process, against one rank"
    assert len(rows) == 6
    assert "data parallel   1 6           at most 1e-12" in rows[0]
    for row in rows:
        sent, formula = row.split()[-2:]
        assert sent == formula


@pytest.mark.parametrize("ranks", ["0", "5", "x"])
def test_a_wrong_number_of_ranks_is_one_line(capsys, ranks):
    with pytest.raises(SystemExit) as stopped:
        main(["--ranks", ranks])
    assert stopped.value.code == 2
    assert "ranks" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [{"difference": 1e-11}, {"sent": 8}])
def test_what_differs_is_said(monkeypatch, capsys, wrong):
    fields = {"difference": 1e-13, "sent": 16, "formula": 16} | wrong
    one = Shared("a way", [1, 2], **fields)
    assert not as_one([one])
    assert ("TOO LARGE" in report([one], "2 ranks")) == ("difference" in wrong)
    monkeypatch.setattr(hands, "compare", lambda wire: [one])
    assert main(["--ranks", "1"]) == 1


def test_a_sum_that_is_left_out_is_found(monkeypatch):
    """Each rank keeps its own gradients: a difference of the size of 1."""
    monkeypatch.setattr(
        "attnbook.data_parallel.all_reduce",
        lambda wire, x: x,
    )
    found = on_threads(2, hands.by_data)
    assert max(one.difference for one in found) > 0.01
