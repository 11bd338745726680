"""What every notebook needs: set-up, seeded numbers, printing, sources."""

from __future__ import annotations

import inspect
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


def show(decimals: int = 4, **named: Any) -> None:
    """Print values under their names: shape first, then rounded numbers.

    Unlike the print-out of a tensor it shows no device, no gradient
    function and no −0.0000.

    >>> show(average=torch.tensor([105.0, 1 / 3]))
    average (2,)
    [105.       0.3333]
    """
    for name, value in named.items():
        value = as_array(value)
        if np.issubdtype(value.dtype, np.floating):
            value = value.astype(np.float64).round(decimals) + 0.0
        if value.ndim == 0:
            print(f"{name} = {value.item()}")
            continue
        text = np.array2string(
            value, precision=decimals, suppress_small=True, max_line_width=75
        )
        print(f"{name} {value.shape}\n{text}")


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
