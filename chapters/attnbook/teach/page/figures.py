"""One style for all figures, and the two kinds of plots that recur.

These are `heatmap`, a matrix as coloured cells, and `band`, a curve of
repeated measurements with its uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import cycler  # type: ignore[attr-defined]
from matplotlib.axes import Axes
from torch import Tensor

#: Colours that stay apart for colour-blind readers (Okabe and Ito, 2008).
BLUE, ORANGE, GREEN, PINK, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#555555",
)

#: The scale of heat maps: even in lightness, safe for colour-blind readers.
COLOUR_MAP = "cividis"


def use_style() -> None:
    """Set the book's figure style for all plots that follow.

    Figures are white, also on a dark page.
    """
    mpl.rcParams.update(
        {
            "figure.figsize": (6.4, 3.4),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "font.size": 10,
            "axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN, PINK]),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10,
            "legend.frameon": False,
            "lines.linewidth": 2,
        }
    )


def as_array(values: Any) -> np.ndarray:
    """Numbers as a numpy array.

    They can be a list, an array or a tensor, also one on a graphics card or
    in bfloat16, which numpy does not have.
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.is_floating_point():
            values = values.double()
    return np.asarray(values)


def heatmap(
    ax: Axes,
    matrix: Tensor | np.ndarray,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    limits: tuple[float, float] = (0.0, 1.0),
    decimals: int | None = 2,
) -> None:
    """Draw a matrix as coloured cells with the numbers in them.

    Args:
        ax: where it is drawn.
        matrix: of shape (len(rows), len(columns)). A cell that is NaN stays
            white.
        rows, columns: the names of the rows, from the top, and of the
            columns, from the left.
        title: the words above it.
        limits: the values at the two ends of the colour scale.
        decimals: how many decimals the numbers in the cells have; None leaves
            the numbers out.

    Raises:
        ValueError: labels that do not fit the matrix.
    """
    matrix = as_array(matrix).astype(float)
    if matrix.shape != (len(rows), len(columns)):
        raise ValueError(
            "the labels do not fit the matrix; expected "
            f"{matrix.shape}; got {(len(rows), len(columns))}"
        )
    low, high = limits
    ax.imshow(matrix, cmap=COLOUR_MAP, vmin=low, vmax=high, aspect="auto")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
    if decimals is None:
        return
    cells = ax.images[0].to_rgba(matrix)  # (rows, columns, 4)
    for (i, j), value in np.ndenumerate(matrix):
        if not np.isnan(value):
            ax.text(
                j,
                i,
                f"{value:.{decimals}f}",
                ha="center",
                va="center",
                color=_ink(cells[i, j, :3]),
                fontsize=9,
            )


def _ink(rgb: np.ndarray) -> str:
    """Black or white, whichever reads better on a colour (WCAG 2.2)."""
    linear = np.where(
        rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4
    )
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    return "white" if luminance < 0.179 else "black"


def band(
    ax: Axes,
    x: Sequence[float],
    samples: Tensor | np.ndarray,
    *,
    label: str = "",
    colour: str = BLUE,
) -> None:
    """Plot the mean of repeated measurements, with ±2 standard errors around
    it as a band.

    Args:
        ax: where it is drawn.
        x: where the measurements belong on the horizontal axis.
        samples: of shape (repeats, len(x)), with at least two repeats.
        label: the curve's name in the legend.
        colour: that of the curve and its band.
    """
    samples = as_array(samples)
    mean = samples.mean(0)
    error = 2 * samples.std(0, ddof=1) / np.sqrt(len(samples))
    ax.plot(x, mean, "o-", color=colour, label=label, markersize=4)
    ax.fill_between(x, mean - error, mean + error, color=colour, alpha=0.25)
