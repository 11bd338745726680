"""How nbval compares outputs: as text, with a tolerance for floats.

It stands at the root because pytest reads a `conftest.py` only for the
folders below it, and the notebooks lie in `chapters/`.
"""

from __future__ import annotations

import math
import re

import pytest

#: Numbers with a point or an exponent. Integers are compared as words, and
#: so is the number of a paper.
FLOAT = re.compile(
    r"(?<![\w.])(?<!arXiv:)[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))"
    r"(?:[eE][-+]?\d+)?(?![\w.]*\d)"
)

#: Relative. It lets pass how a number is written (-0.0 and 0.0, 1e-5 and
#: 1.0e-05), but any change of a digit in a number of six digits fails.
TOLERANCE = 2e-7

_counts = {"run": 0, "compared": 0, "not compared": 0}


class Output(str):
    """A cell's text, equal to another if only floats differ, and barely."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and close(str(self), str(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def close(a: str, b: str) -> bool:
    """Whether two outputs agree: words exactly, floats closely."""
    if FLOAT.split(a) != FLOAT.split(b):
        return False
    pairs = zip(FLOAT.findall(a), FLOAT.findall(b), strict=True)
    return all(
        math.isclose(float(x), float(y), rel_tol=TOLERANCE) for x, y in pairs
    )


def pytest_collection_modifyitems(items):
    """Let every notebook cell compare by `close`."""
    for item in items:
        if hasattr(item, "cell"):
            item.sanitize = _as_output(item.sanitize)


def _as_output(sanitize):
    def sanitized(text):
        text = sanitize(text)
        return Output(text) if isinstance(text, str) else text

    return sanitized


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when != "call" or not hasattr(item, "cell"):
        return
    if outcome.get_result().passed:
        _counts["run"] += 1
        if any(_has_text(output) for output in item.cell.outputs):
            compared = item.options["check"] and not item.options["skip"]
            _counts["compared" if compared else "not compared"] += 1


def _has_text(output):
    """Whether there is more to compare than a figure, which is not."""
    data = output.get("data", {})
    return not data or "image/png" not in data


def pytest_terminal_summary(terminalreporter):
    if _counts["run"]:
        terminalreporter.write_line(
            "notebooks: {run} cells run, the outputs of {compared} compared, "
            "of {not compared} not compared".format_map(_counts)
        )
