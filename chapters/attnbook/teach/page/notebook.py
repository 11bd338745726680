"""What the set-up cell of every notebook brings.

`setup` prepares torch and chooses the device, `randn` draws numbers from a
seed, `show` prints values in the same way on every machine, and `show_source`
shows the code of a function.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
import warnings
from typing import Any

import numpy as np
import torch
from IPython.display import Markdown, display
from torch import Tensor

from attnbook.teach.check import seeded
from attnbook.teach.page.figures import as_array, use_style

#: Where the notebooks compute. The graphics chips of some laptops ("mps")
#: have no float64, which the proofs need, so they are not used.
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def setup() -> torch.device:
    """Fix the figure style; return the device to compute on."""
    use_style()
    # transformers complains when Jupyter has no widgets; no bar is shown.
    warnings.filterwarnings("ignore", message="IProgress not found")
    # On a card torch complains where a backward pass begins with a product
    # of matrices: it must first make the card ready, and does.
    warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
    return DEVICE


def randn(*size: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers, drawn on the CPU, then moved to `DEVICE`.

    CPU and GPU draw different numbers from one seed; drawn here, they are
    the same wherever the notebook runs.
    """
    return seeded.randn(*size, seed=seed, dtype=dtype).to(DEVICE)


#: The columns in which a row of numbers stands beside its name.
WIDTH = 70


def show(decimals: int = 4, **named: Any) -> None:
    """Print values under their names: shape first, then rounded numbers.

    A single row stands beside its name where it fits, and the numbers of
    those of one shape and type below each other. Unlike the print-out of a
    tensor this shows no device, no gradient function and no −0.0000.

    >>> show(by_hand=torch.tensor([105.0, 1 / 3]), other=torch.ones(2))
    by_hand (2,)  [105.       0.3333]
    other   (2,)  [  1.       1.    ]
    >>> show(lost=31, day_12=85.02781)
    lost   = 31
    day_12 = 85.0278
    """
    values = {name: _rounded(value, decimals) for name, value in named.items()}
    rows = {name: v for name, v in values.items() if _is_one_row(v)}
    longest = max(map(len, rows), default=0)
    for name, value in values.items():
        if value.ndim == 0:
            print(f"{name:{longest}} = {value.item()}")
            continue
        line = ""
        if name in rows and value.dtype.kind in "biuf":
            row = _row_beside_its_like(name, rows, decimals)
            line = f"{name:{longest}} {value.shape}  {row}"
        if line and len(line) <= WIDTH:
            print(line)
        else:
            print(f"{name} {value.shape}\n{_written(value, decimals)}")


def _is_one_row(value: np.ndarray) -> bool:
    """Whether it is a single number, or all its numbers lie in one axis."""
    return value.ndim == 0 or value.size == value.shape[-1] > 0


def _row_beside_its_like(
    name: str, rows: dict[str, np.ndarray], decimals: int
) -> str:
    """One row, written as wide as those of the same shape and type."""
    value = rows[name]
    alike = [
        other
        for other, row in rows.items()
        if row.shape == value.shape and row.dtype.kind == value.dtype.kind
    ]
    table = np.stack([rows[other].ravel() for other in alike])
    lines = _written(table, decimals, sys.maxsize).splitlines()
    numbers = lines[alike.index(name)][2:].rstrip("]")
    return "[" * value.ndim + numbers + "]" * value.ndim


def _rounded(value: Any, decimals: int) -> np.ndarray:
    """Values as an array, with fractions rounded, and 0.0 in place of −0.0."""
    value = as_array(value)
    if np.issubdtype(value.dtype, np.floating):
        value = value.astype(np.float64).round(decimals) + 0.0
    return value


def _written(value: np.ndarray, decimals: int, width: int = 75) -> str:
    """An array as text, with its numbers written out and not as powers of
    ten."""
    return np.array2string(
        value,
        precision=decimals,
        suppress_small=True,
        max_line_width=width,
        threshold=max(width, 1000),  # a wide one is written whole
    )


def show_source(*objects: Any) -> None:
    """Show the source of functions or classes of the package, highlighted.

    The source is read from the code that the chapter runs, so that the page
    and the package cannot drift apart.
    """
    show_code(
        "\n\n\n".join(
            textwrap.dedent(inspect.getsource(o)).rstrip() for o in objects
        )
    )


def show_code(source: str) -> None:
    """Display Python code on the page, coloured as in an editor."""
    display(Markdown(f"```python\n{source}\n```"))
