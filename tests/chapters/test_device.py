"""The notebooks on a graphics card, pretended where there is none."""

from unittest import mock

import numpy as np
import pytest
import torch
from attnbook.teach import notebook
from book import by_notebook, run_in_process
from pretend import CARD, Pretended
from torch import nn


@by_notebook()
def test_a_notebook_runs_on_a_card(path):
    with mock.patch.object(notebook, "DEVICE", CARD), Pretended():
        error = run_in_process(path)
    assert error is None, error


def there(*size):
    return torch.ones(size, device=CARD)


def _step(layer, x):
    """A training step, after which the layer is still where it was."""
    optimiser = torch.optim.Adam(layer.parameters())
    optimiser.zero_grad()
    layer(x).sum().backward()
    optimiser.step()
    layer(x)


@pytest.mark.parametrize(
    "code",
    [
        lambda: there(3) + torch.ones(3),
        lambda: torch.ones(3)[there(3).long()],
        lambda: torch.stack([there(2), torch.ones(2)]),
        lambda: there(2, 3) @ torch.ones(3, 2),
        lambda: torch.ones(3).to(CARD) * torch.arange(3),
        lambda: nn.Linear(3, 2)(there(3)),
        lambda: nn.Linear(3, 2).to(CARD)(torch.ones(3)),
        lambda: nn.Linear(3, 2, device=CARD)(torch.ones(3)),
        lambda: there(3).numpy(),
        lambda: np.asarray(there(3)),
        lambda: there(3).masked_fill(torch.ones(3).bool(), 0),
        lambda: torch.where(torch.ones(3).bool(), there(3), 0.0),
        lambda: torch.ones(3) + there(),
    ],
)
def test_what_a_card_refuses_is_refused(code):
    code()  # on the CPU it works
    with Pretended(), pytest.raises((RuntimeError, TypeError)):
        code()


@pytest.mark.parametrize(
    "code",
    [
        lambda: there(3) + torch.tensor(2.0),
        lambda: there(3)[torch.arange(2)],
        lambda: there(3).cpu().numpy(),
        lambda: torch.zeros_like(there(3)) + there(3),
        lambda: nn.Linear(3, 2).to(CARD)(there(3)),
        lambda: nn.Linear(3, 2, device=CARD)(there(3)),
        lambda: _step(nn.Linear(3, 2, device=CARD), there(3)),
        lambda: there(3).tolist() + [float(there(1))],
        lambda: torch.randn(3).to(CARD) @ there(3),
        lambda: torch.ones(3).copy_(there(3)) + torch.ones(3),
    ],
)
def test_what_a_card_takes_is_taken(code):
    with Pretended():
        code()
