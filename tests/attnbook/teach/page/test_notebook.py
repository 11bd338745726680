"""Printing, drawing, sources and figures as the notebooks use them."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attnbook.teach.page import figures, notebook

matplotlib.use("Agg")


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


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


def test_heatmap_writes_every_number(ax):
    matrix = torch.tensor([[0.0, 0.25, np.nan], [1.0, 0.5, 0.75]])
    figures.heatmap(ax, matrix, rows="ab", columns="xyz", title="weights")
    written = " ".join(t.get_text() for t in ax.texts)
    assert written == "0.00 0.25 1.00 0.50 0.75"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    shown = ax.images[0].get_array()
    np.testing.assert_array_equal(np.asarray(shown), matrix.numpy())
    with pytest.raises(ValueError, match=r"expected \(2, 3\); got \(1, 3\)"):
        figures.heatmap(ax, matrix, rows="a", columns="xyz")


def test_numbers_in_a_heatmap_can_be_read(ax):
    """Contrast of at least 4.5 to 1 between number and cell (WCAG AA)."""
    values = np.linspace(0, 1, 41)[None]
    figures.heatmap(ax, values, rows="a", columns=[str(i) for i in range(41)])
    colours = matplotlib.colormaps[figures.COLOUR_MAP](values[0])[:, :3]
    for text, colour in zip(ax.texts, colours, strict=True):
        ink = matplotlib.colors.to_rgb(text.get_color())
        light, dark = sorted((_luminance(ink), _luminance(colour)))[::-1]
        assert (light + 0.05) / (dark + 0.05) >= 4.5, text.get_text()


def _luminance(rgb):
    c = np.asarray(rgb)
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_band_draws_mean_and_two_standard_errors(ax):
    figures.band(ax, [0, 1], torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 4])
    edges = ax.collections[0].get_paths()[0].vertices
    error = 2 * np.sqrt(2) / np.sqrt(2)  # of the first: deviation √2, n = 2
    assert np.isclose(edges[edges[:, 0] == 0][:, 1].max(), 2 + error)
