"""Processes that share a batch, told from within one of them."""

import killed
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from attnbook.run import processes
from attnbook.run.processes import shared_loss, usable_device
from attnbook.training import loss_share


@pytest.fixture
def among(monkeypatch):
    """Be one of n processes; what it adds to the sum of all is kept."""

    def be(rank, n):
        added = []
        monkeypatch.setattr(processes, "processes_here", lambda: (rank, n))
        monkeypatch.setattr(
            dist, "all_reduce", lambda mean: added.append(mean.item())
        )
        return added

    return be


@pytest.mark.parametrize("n", [2, 4])
def test_the_shares_of_all_processes_are_the_mean_of_what_counts(among, n):
    """Targets of −100 do not count, in whichever process they are: here all
    but one are in the rows of the first."""
    model = killed.small(dtype=torch.float64)
    tokens, targets = killed.padded(8, torch.Generator().manual_seed(5))
    targets[::n, 1:] = -100
    targets[1, 3] = -100
    wanted = F.cross_entropy(
        model(tokens).flatten(0, 1), targets.flatten(), ignore_index=-100
    )
    expected = torch.autograd.grad(wanted, model.parameters())
    means = []
    model.zero_grad()
    for rank in range(n):
        added = among(rank, n)
        loss = shared_loss(model, tokens, targets)
        (loss / n).backward()  # as DistributedDataParallel averages them
        means += added
    assert sum(means) == pytest.approx(wanted.item(), rel=1e-12)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-9, atol=1e-12)


def test_a_piece_of_a_batch_counts_over_the_whole(among):
    model = killed.small(dtype=torch.float64)
    tokens, targets = killed.padded(8, torch.Generator().manual_seed(5))
    segments = torch.arange(8).expand(8, -1) // 4
    wanted = loss_share(model, tokens, targets, segments)
    total = int((targets != -100).sum())
    means = []
    for rows in (slice(0, 4), slice(4, 8)):
        piece = tokens[rows], targets[rows], segments[rows]
        for rank in range(2):
            added = among(rank, 2)
            shared_loss(model, *piece, total=total)
            means += added
    assert sum(means) == pytest.approx(wanted.item(), rel=1e-12)


@pytest.mark.parametrize("name", ["abacus", "meta", "cuda:99"])
def test_a_device_that_there_is_not_is_refused(name):
    assert usable_device("cpu").type == "cpu"
    with pytest.raises(ValueError, match=f"expected cpu, or cuda.*got {name}"):
        usable_device(name)
