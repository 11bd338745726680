"""One step on one rank and on several: threads, and real processes."""

import contextlib
import functools
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


@functools.cache
def of_threads(ranks):
    return on_threads(ranks, compare)[0]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_way_is_as_one_rank(ranks):
    found = of_threads(ranks)
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


def test_processes_send_and_find_what_threads_do(tmp_path):
    """Four processes joined by gloo, and groups of 1 to 4 of them: the same
    differences to the bit, and the same bytes. Their sum is torch's."""
    assert killed.in_processes(helper.all_cases, tmp_path, n=4) == [0] * 4
    for rank in range(4):
        found = pickle.loads((tmp_path / f"{rank}.pickle").read_bytes())
        for size in range(4 - rank, 5):
            assert found[size] == of_threads(size)
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


#: A thing for each way and rank, and what is dealt out in it.
DEALT = {
    "data parallel": 7,
    "ZeRO, stage 1": 7,
    "tensor parallel": 5,
    "ring attention": 9,
    "experts": 5,
    "pipeline": 5,
}


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_bytes_are_those_of_the_sizes(ranks):
    """Written out, with the sizes of what is compared."""
    sent = {one.way: one.sent for one in of_threads(ranks)}
    # Token and position tables, two norms and one more, the four matrices of
    # attention, the two of the feed-forward layer, and their biases.
    d = 8
    block = 4 * d + 4 * d * d + 4 * d + 8 * d * d + 5 * d
    weights = 11 * d + 6 * d + block + 2 * d
    once = 2 * (ranks - 1) * 8
    assert sent["data parallel"] == once * (weights + 2)
    assert sent["ZeRO, stage 1"] == 4 * once * (weights + 3)
    assert sent["tensor parallel"] == 4 * once * 2 * 6 * 15
    assert sent["ring attention"] == once * 2 * 9 * (4 + 3)
    assert sent["pipeline"] == once * (7 * 5 + 1)
    # Of each token 4 numbers, for a choice that is elsewhere; a whole number
    # of them, and at most both choices of all nine tokens.
    away, rest = divmod(sent["experts"] - (ranks - 1) * 5 * 8, 4 * 4 * 8)
    assert rest == 0 and 0 < away <= 2 * 9
    for one in of_threads(ranks):
        assert sum(one.shares) == DEALT[one.way]


def test_the_sequences_have_unequal_numbers_of_targets():
    model, tokens, targets = hands.small_gpt()
    assert tokens.shape == targets.shape == (7, 6)
    counts = (targets != -100).sum(1)
    assert counts.tolist() == [1, 6, 2, 5, 4, 6, 3]
    assert (targets[targets != -100] >= 0).all()
    for one in (tokens, targets):
        assert one.max() == 10
    assert next(model.parameters()).dtype == torch.float64
    assert hands.n_bytes(model) == 8 * sum(
        p.numel() for p in model.parameters()
    )


def test_making_a_model_draws_nothing_from_the_common_generator():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    on_threads(1, compare)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_each_gradient_of_a_block_is_compared(monkeypatch):
    """Fourteen of them; one that is off is noticed, whichever it is."""
    together = hands.together
    n_calls = 0
    for wrong in range(14):
        n_calls = 0

        def spoiled(x, wrong=wrong):
            nonlocal n_calls
            n_calls += 1
            return together(x) + (n_calls == wrong + 1)

        monkeypatch.setattr(hands, "together", spoiled)
        (found,) = on_threads(1, hands.by_heads)
        assert n_calls == 14 and found.difference > hands.CLOSE


def test_how_far_two_things_are_apart():
    """As a share of a tensor's largest number, if that is above 1."""
    zeros, empty = torch.zeros(3), torch.zeros(0)
    wanted = torch.tensor([1.0, -8.0, 2.0])
    found = torch.tensor([1.0, -8.0, 6.0])
    assert hands.apart([found], [wanted]) == 0.5
    assert hands.apart([zeros + 0.25, found], [zeros, wanted]) == 0.5
    assert hands.apart([found, zeros - 0.75], [wanted, zeros]) == 0.75
    assert hands.apart([empty], [empty]) == hands.apart([], []) == 0.0
    with pytest.raises(ValueError, match="shorter"):
        hands.apart([zeros], [])


def test_a_difference_of_any_rank_is_told_by_all(monkeypatch):
    def way(wire):
        wire.sent += 8 * (wire.rank + 1)
        return Shared("a way", [1, 1, 1], wire.rank / 4, wire.sent, 48)

    monkeypatch.setattr(hands, "WAYS", (way, way))
    wanted = [Shared("a way", [1, 1, 1], 0.5, 48, 48)] * 2
    assert on_threads(3, compare) == [wanted] * 3


def test_a_table_by_hand():
    one = Shared("a way", [1, 12], 1e-12, 1234, 1235)
    assert not as_one([one])
    assert as_one([Shared("a way", [1, 12], 1e-12, 1234, 1234)])
    assert not as_one([Shared("a way", [1, 12], 1.1e-12, 1234, 1234)])
    assert report([one], "2 ranks").splitlines() == [
        "2 ranks, against one rank",
        "                shares        largest difference    "
        "bytes sent  by formula",
        "a way           1 12          at most 1e-12       "
        "       1,234       1,235",
    ]


@pytest.mark.parametrize("difference, code", [(1e-13, 0), (1e-11, 1)])
def test_the_command_of_a_process_ends_as_that_of_threads(
    monkeypatch, capsys, difference, code
):
    """In this process, with what `torch.distributed` does left out."""
    done = []

    class Wire:
        def finish(self):
            done.append("finish")

    def compared(wire):
        done.append("compare")
        return [Shared("a way", [1, 1, 5], difference, 16, 16)]

    monkeypatch.setattr(hands, "processes_here", lambda: (0, 3))
    monkeypatch.setattr(hands, "joined", contextlib.nullcontext)
    monkeypatch.setattr(hands, "ProcessWire", Wire)
    monkeypatch.setattr(hands, "compare", compared)
    monkeypatch.setattr(hands.dist, "barrier", lambda: done.append("barrier"))
    assert main(["--ranks", "2"]) == code
    assert done == ["compare", "finish", "barrier"]
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "3 ranks, processes joined by gloo, against one rank"
