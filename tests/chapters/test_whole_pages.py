"""Every notebook from its first cell to its last: in an empty folder, on a
graphics card, pretended where there is none."""

import numpy as np
import pytest
import torch
from book import by_notebook, code_cells, defined, is_stub, lesson, used
from nbformat.v4 import new_code_cell
from notebooks import notebooks
from planted import ran
from pretend import CARD, Pretended, names_a_card
from torch import nn


def asks_more_than_outputs(path):
    """Whether a page can compute on a card, or has exercises. Any other one
    would do here what it does where its outputs are compared."""
    cells = code_cells(path)
    return names_a_card(cells) or any(map(is_stub, cells))


@by_notebook([path for path in notebooks() if asks_more_than_outputs(path)])
def test_a_page_runs_on_a_card_and_its_exercises_take_nothing(path):
    assert (ran(path).error, ran(path).taken) == (None, [])


@by_notebook()
def test_no_stub_has_a_name_of_its_chapter(path):
    stubs = [c.source for c in code_cells(path) if is_stub(c)]
    ours = used(lesson(path)) | defined(lesson(path))
    assert not {name for stub in stubs for name in defined(stub)} & ours


@pytest.mark.parametrize(
    "source, named",
    [
        ("x = randn(3, seed=0)", True),
        ("from attnbook.teach.page.notebook import randn as draw", True),
        ("model.to(device)", True),
        ("notebook.DEVICE", True),
        ("again = setup()", True),
        ("x = torch.ones(3)", False),
    ],
)
def test_a_page_that_can_compute_on_a_card_is_known(source, named):
    set_up = new_code_cell("device = setup()", metadata={"tags": ["setup"]})
    assert names_a_card([set_up, new_code_cell(source)]) == named


def there(*size):
    return torch.ones(size, device=CARD)


@pytest.mark.parametrize(
    "code",
    [
        lambda: there(3) + torch.ones(3),
        lambda: torch.ones(3)[there(3).long()],
        lambda: torch.stack([there(2), torch.ones(2)]),
        lambda: torch.ones(3).to(CARD) * torch.arange(3),
        lambda: nn.Linear(3, 2)(there(3)),
        lambda: nn.Linear(3, 2).to(CARD)(torch.ones(3)),
        lambda: there(3).numpy(),
        lambda: np.asarray(there(3)),
        lambda: there(3).masked_fill(torch.ones(3).bool(), 0),
        lambda: torch.where(torch.ones(3).bool(), there(3), 0.0),
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
        lambda: there(3).tolist() + [float(there(1))],
        lambda: torch.randn(3).to(CARD) @ there(3),
        lambda: torch.ones(3).copy_(there(3)) + torch.ones(3),
    ],
)
def test_what_a_card_takes_is_taken(code):
    with Pretended():
        code()
