"""Layers dealt out among ranks, and a batch in pieces: the step of one."""

import copy

import pytest
import torch
from torch import nn

from attnbook.pipeline import pipeline
from attnbook.teach.check.difference import difference
from attnbook.teach.check.seeded import randn
from attnbook.wire import on_threads


def same(ours, theirs):
    assert difference(ours, theirs, within=1e-12) is None


def layers():
    made = []
    for n in range(5):
        linear = nn.Linear(4, 4).double()
        with torch.no_grad():
            linear.weight.copy_(randn(4, 4, seed=n))
            linear.bias.copy_(randn(4, seed=10 + n))
        made.append(nn.Sequential(linear, nn.Tanh()))
    return made


@pytest.mark.parametrize("cut", [[5], [1, 4], [3, 1, 1], [1, 1, 2, 1]])
@pytest.mark.parametrize("pieces", [[7], [1, 6], [2, 1, 4], [1] * 7])
def test_a_pipeline_is_one_process(cut, pieces):
    """For unequal stages and pieces; and each border is crossed by all
    activations once, and by their gradients once."""
    model = nn.Sequential(*layers())
    x = randn(7, 4, seed=20)
    wanted = model(x).square().sum()
    gradients = torch.autograd.grad(wanted, [*model.parameters()])
    asked = []

    def work(wire):
        first = sum(cut[: wire.rank])
        stage = copy.deepcopy(model[first : first + cut[wire.rank]])

        def loss_of(y, number):
            asked.append((wire.rank, number, len(y)))
            return y.square().sum()

        loss = pipeline(stage, x.split(pieces), loss_of, wire)
        return loss, [p.grad for p in stage.parameters()], wire.sent

    found = on_threads(len(cut), work)
    for loss, *_ in found:
        assert loss == pytest.approx(wanted.item(), abs=1e-12)
    same([g for _, grads, _ in found for g in grads], list(gradients))
    last = len(cut) - 1
    assert asked == [(last, n, size) for n, size in enumerate(pieces)]
    borders = 2 * last * x.numel() * 8
    assert sum(sent for *_, sent in found) == borders + 2 * last * 8
