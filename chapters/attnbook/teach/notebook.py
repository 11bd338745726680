"""What every notebook needs: set-up, seeded numbers, printing, sources."""

from __future__ import annotations

import inspect
import re
import textwrap
import warnings
from typing import Any

import numpy as np
import torch
from IPython.display import Markdown, display
from torch import Tensor

from attnbook.teach import seeded
from attnbook.teach.figures import as_array, use_style

#: Where the notebooks compute. The graphics chips of some laptops ("mps")
#: have no float64, which the proofs need, so they are not used.
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def setup() -> torch.device:
    """Fix the figure style; return the device to compute on."""
    use_style()
    # transformers complains when Jupyter has no widgets; no bar is shown.
    warnings.filterwarnings("ignore", message="IProgress not found")
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
    those of one shape below each other. Unlike the print-out of a tensor
    this shows no device, no gradient function and no −0.0000.

    >>> show(by_hand=torch.tensor([105.0, 1 / 3]), other=torch.ones(2))
    by_hand (2,)  [105.       0.3333]
    other   (2,)  [  1.       1.    ]
    """
    values = {name: _rounded(value, decimals) for name, value in named.items()}
    texts = {
        name: np.array2string(
            value, precision=decimals, suppress_small=True, max_line_width=75
        )
        for name, value in values.items()
    }
    rows = {n for n, v in values.items() if v.size == (1, *v.shape)[-1]}
    longest = max(map(len, rows), default=0)
    for name, value in values.items():
        if value.ndim == 0:
            print(f"{name:{longest}} = {value.item()}")
            continue
        if name in rows and value.dtype.kind in "biuf":
            alike = [texts[n] for n in rows if values[n].shape == value.shape]
            row = _in_columns(texts[name], alike)
            line = f"{name:{longest}} {value.shape}  {row}"
            if len(line) <= WIDTH:
                print(line)
                continue
        print(f"{name} {value.shape}\n{texts[name]}")


def _rounded(value: Any, decimals: int) -> np.ndarray:
    value = as_array(value)
    if np.issubdtype(value.dtype, np.floating):
        value = value.astype(np.float64).round(decimals) + 0.0
    return value


def _in_columns(row: str, rows: list[str]) -> str:
    """A row of numbers, its points and its ends where all `rows` have them."""
    cells = " ".join(r.strip("[]") for r in rows).split()
    after = max((len(c) - c.find(".") for c in cells if "." in c), default=0)

    def filled(cell: str) -> str:
        whole = re.match(r"-?\d+(?=\.|$)", cell)
        return cell.ljust(whole.end() + after) if whole else cell

    width = max((len(filled(cell)) for cell in cells), default=0)
    own = " ".join(filled(c).rjust(width) for c in row.strip("[]").split())
    opened = len(row) - len(row.lstrip("["))
    return "[" * opened + own + "]" * opened


def show_source(*objects: Any) -> None:
    """Show the source of functions or classes of the package, highlighted.

    It is read from the code that the chapter runs, so that the page and the
    package cannot drift apart.
    """
    show_code(
        "\n\n\n".join(
            textwrap.dedent(inspect.getsource(o)).rstrip() for o in objects
        )
    )


def show_code(source: str) -> None:
    """Show Python code, highlighted."""
    display(Markdown(f"```python\n{source}\n```"))
