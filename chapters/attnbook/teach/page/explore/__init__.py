"""Figures that a reader can move, without a Python kernel.

`explore.js` has what all of them share, and each kind has a small script.

`explore` displays a figure as HTML that needs nothing besides itself, so it
moves in the built pages, in Jupyter and in Colab. Its numbers come from the
cell that calls it. While a reader moves something, the script computes other
numbers itself. So before it draws anything, it must find, for some states,
the numbers that the cell has computed. Picture and code cannot disagree.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from IPython.display import display
from torch import Tensor

from attnbook.teach.page.figures import as_array

_HERE = Path(__file__).parent

#: Numbers are rounded to so many decimals and digits: the stored outputs are
#: compared, and what differs from machine to machine lies beyond.
_DECIMALS, _DIGITS = 6, 6

#: The kinds of figures; each is the name of a script beside this file.
KINDS = sorted(
    path.stem for path in _HERE.glob("*.js") if path.stem != "explore"
)


def explore(
    kind: str,
    *,
    title: str,
    sentence: str,
    start: Mapping[str, Any],
    checks: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    **data: Any,
) -> None:
    """Display an interactive figure.

    Args:
        kind: one of `KINDS`; the head of its script says what data it takes.
        title: what the figure shows, in a few words.
        sentence: what a reader would see, in words, for places where no
            script runs.
        start: the state at the beginning: a value for each control.
        checks: pairs of a state and the numbers that belong to it, computed
            by the cell. The script must find the same, else it shows an
            error in place of the figure.
        data: what the script needs: numbers, texts, tensors, and lists and
            dictionaries of these.

    Raises:
        ValueError: an unknown kind, no check, no sentence, or a number that
            is not finite.
    """
    if kind not in KINDS:
        raise ValueError(
            f"unknown kind of figure; expected one of {', '.join(KINDS)}; "
            f"got {kind!r}"
        )
    if len(sentence) < 40:
        raise ValueError(
            "a figure's sentence says what it shows; expected 40 letters or "
            f"more; got {sentence!r}"
        )
    if not checks or not all(values for _, values in checks):
        raise ValueError(
            "a figure without checks may disagree with its cell; expected "
            "pairs of a state and its numbers; got one without numbers or none"
        )
    data |= {
        "title": title,
        "start": start,
        "checks": [{"state": s, "values": v} for s, v in checks],
    }
    text = _as_html(kind, sentence, _plain(data))
    display({"text/html": text, "text/plain": sentence}, raw=True)


def _as_html(kind: str, sentence: str, data: Any) -> str:
    """The figure as HTML: the sentence, the data as JSON, and the scripts.

    The scripts find their data by the kind.
    """
    packed = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    packed = packed.replace("<", "\\u003c")  # no tag ends the script early
    scripts = "".join(_script(name) for name in ("explore", kind))
    sentence = f"Where scripts run, a figure moves here. {sentence}"
    return (
        f'<div data-explore="{kind}">\n<p>{html.escape(sentence)}</p>\n'
        f'<script type="application/json">{packed}</script>\n</div>\n'
        f"<script>(() => {{\n{scripts}}})();</script>"
    )


def _plain(value: Any) -> Any:
    """Data as JSON can say it: tensors and arrays become lists, and fractions
    are rounded.

    Raises:
        ValueError: a number that is not finite, which JSON cannot say.
    """
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return _plain(as_array(value).tolist())
    if isinstance(value, (list, tuple, range)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(
                f"a figure's numbers must be finite; expected no {value}; "
                "got it among its data"
            )
        value = float(f"{round(value, _DECIMALS):.{_DIGITS}g}") + 0.0
        return int(value) if value.is_integer() else value
    return value


def _script(name: str) -> str:
    """The text of a script of this folder, without its lines of comment."""
    source = (_HERE / f"{name}.js").read_text(encoding="utf-8")
    return re.sub(r"^\s*//.*\n", "", source, flags=re.M)
