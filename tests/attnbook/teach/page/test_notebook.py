"""Printing and set-up as the notebooks use them; test_figures has figures."""

import matplotlib
import pytest
import torch

from attnbook.teach.page import notebook

matplotlib.use("Agg")


@pytest.mark.parametrize(
    "value, text",
    [
        (torch.tensor([[-0.00001, 1.0]]), "x (1, 2)  [[0. 1.]]\n"),
        (torch.tensor([1 / 3], requires_grad=True), "x (1,)  [0.3333]\n"),
        (torch.arange(0), "x (0,)\n[]\n"),
        (["a b", "c"], "x (2,)\n['a b' 'c']\n"),
        (torch.tensor([0.5], dtype=torch.bfloat16), "x (1,)  [0.5]\n"),
    ],
)
def test_show(value, text, capsys):
    notebook.show(x=value)
    assert capsys.readouterr().out == text


def test_show_rounds_as_told(capsys):
    notebook.show(decimals=2, x=torch.tensor([2 / 3]), y=0.125)
    assert capsys.readouterr().out == "x (1,)  [0.67]\ny = 0.12\n"


def test_a_row_stands_beside_its_name_within_70_columns(capsys):
    numbers = " ".join(f"{n:2}" for n in range(20))
    notebook.show(x=torch.arange(20))
    assert capsys.readouterr().out == f"x (20,)  [{numbers}]\n"
    notebook.show(xx=torch.arange(20))
    assert capsys.readouterr().out == f"xx (20,)\n[{numbers}]\n"
    notebook.show(x=torch.arange(20), y=-torch.arange(20))
    assert capsys.readouterr().out.startswith(
        f"x (20,)\n[{numbers}]\ny (20,)\n[  0  -1"
    )


def test_long_rows_shown_together_are_each_its_own(capsys):
    rows = {name: torch.arange(200.0) + n for n, name in enumerate("abcdefg")}
    notebook.show(**rows)
    found = capsys.readouterr().out.split(" (200,)\n[")[1:]
    assert [row.split(".")[0].strip() for row in found] == list("0123456")


def test_randn_is_seeded_and_drawn_on_the_cpu_by_its_own_generator():
    generator = torch.Generator().manual_seed(3)
    wanted = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    state = torch.get_rng_state()
    drawn = notebook.randn(2, 5, seed=3)
    assert torch.equal(drawn.cpu(), wanted)
    assert drawn.device.type == notebook.DEVICE.type
    assert torch.equal(torch.get_rng_state(), state)


def test_setup_gives_the_device_and_the_style():
    matplotlib.rcdefaults()
    assert notebook.setup() is notebook.DEVICE
    assert matplotlib.rcParams["figure.facecolor"] == "white"
