"""The two kinds of plots that recur: they show the numbers they are given."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attnbook.teach.page import figures


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_a_heat_map_shows_its_numbers_in_its_cells(ax):
    matrix = torch.tensor([[0.25, 1.0, torch.nan], [0.0, 0.5, 0.125]])
    figures.heatmap(ax, matrix, rows="ab", columns="xyz", title="weights")
    cells = {t.get_position(): t.get_text() for t in ax.texts}
    assert cells == {
        (0, 0): "0.25", (1, 0): "1.00",
        (0, 1): "0.00", (1, 1): "0.50", (2, 1): "0.12",
    }  # fmt: skip
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert ax.get_title() == "weights"
    shown = ax.images[0].get_array()
    np.testing.assert_array_equal(np.asarray(shown), matrix.numpy())
    dark, light = ax.texts[2], ax.texts[1]  # the cells of 0 and of 1
    assert (dark.get_color(), light.get_color()) == ("white", "black")


def test_labels_that_do_not_fit_are_refused(ax):
    with pytest.raises(ValueError, match=r"expected \(2, 2\); got \(2, 1\)"):
        figures.heatmap(ax, np.eye(2), rows="ab", columns="x")


def test_numbers_in_a_heatmap_can_be_read(ax):
    """Contrast of at least 4.5 to 1 between number and cell (WCAG AA)."""
    values = np.linspace(0, 1, 41)[None]
    figures.heatmap(ax, values, rows="a", columns=[str(i) for i in range(41)])
    colours = mpl.colormaps[figures.COLOUR_MAP](values[0])[:, :3]
    for text, colour in zip(ax.texts, colours, strict=True):
        ink = mpl.colors.to_rgb(text.get_color())
        light, dark = sorted((_luminance(ink), _luminance(colour)))[::-1]
        assert (light + 0.05) / (dark + 0.05) >= 4.5, text.get_text()


def _luminance(rgb):
    c = np.asarray(rgb)
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_a_band_is_two_standard_errors_wide(ax):
    samples = np.array([[1.0, 10.0], [3.0, 10.0]])
    figures.band(ax, [0, 1], samples, label="mean")
    assert ax.lines[0].get_ydata().tolist() == [2, 10]
    heights = ax.collections[0].get_paths()[0].vertices
    at_0 = heights[heights[:, 0] == 0][:, 1]
    # Their standard deviation is √2, and that of the mean is 1.
    assert (at_0.min(), at_0.max()) == pytest.approx((0, 4))


def test_numbers_of_any_kind_become_an_array():
    for values in (torch.ones(2, dtype=torch.bfloat16), [1, 1], np.ones(2)):
        assert figures.as_array(values).tolist() == [1, 1]


def test_the_style_is_white_on_every_page():
    with mpl.rc_context():
        figures.use_style()
        assert mpl.rcParams["figure.facecolor"] == "white"
